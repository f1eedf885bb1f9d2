/* The steps of attention_window.cu: tiles on their way, scores, weights, sums, results. */
#ifndef CUDA_SM90_ATTENTION_WINDOW_CUH
#define CUDA_SM90_ATTENTION_WINDOW_CUH

#include "backend/cuda/kernels/attention_decode_mma.cuh"
#include "backend/cuda/kernels/attention_decode_store.cuh"
#include "backend/cuda/kernels/sm90/async.cuh"
#include "backend/cuda/kernels/sm90/attention_ring.cuh"

namespace {

enum {
    WINDOW_DIM = 256,
    WINDOW_COMPUTE = 128,
    WINDOW_THREADS = WINDOW_COMPUTE + 32,
    WINDOW_SEGMENTS = 32, /* of a row at most, a lane each */
    WINDOW_MOST = 1024,   /* keys; a lane for each page */
    WINDOW_STRIDE = 36,   /* of scores: heads in different banks */
    CLASSES = 8
};

template <int PARTS_, int RING_> struct window {
    static constexpr int PARTS = PARTS_, RING = RING_, USERS = 4;
    static constexpr int CLASSES_EACH = CLASSES / PARTS;
    /* Sums of how many classes meet for the last join, and parts of 128 columns of a block. */
    static constexpr int CLASSES_MET = PARTS == 1 ? 1 : CLASSES;
    static constexpr int COLUMNS = 2 * HEADS / PARTS;
};

template <class S> struct window_shared {
    char ring[S::RING][UNIT_BYTES];
    uint64_t barriers[2 * S::RING];
    uint64_t tops_there, sums_there;
    float top[S::PARTS][HEADS]; /* largest score of a part */
    float weight[HEADS][WINDOW_SEGMENTS];
    float share[HEADS][WINDOW_SEGMENTS]; /* weight * l */
    alignas(16) float sum[S::CLASSES_MET][S::COLUMNS][COMBINE_COLS];
    alignas(16) float score[][HEADS][WINDOW_STRIDE]; /* [tile][head][key] */
};

/* A row and a key head. */
struct window_unit {
    struct span span;
    int key_head, n_tiles;
};

__device__ __forceinline__ bool find_unit(const struct job &j, int i, struct window_unit *unit)
{
    int n_heads = j.a.cache.n_heads;
    unit->key_head = i % n_heads;
    if (!find_span(j, i / n_heads, &unit->span)) return false;
    unit->n_tiles = tiles_of(unit->span);
    return true;
}

template <class S> __device__ __forceinline__ int part_rank()
{
    return S::PARTS == 1 ? 0 : (int)cluster_rank();
}

/* The tiles of this block's classes, in the order of sums. */
template <class S, class Each>
__device__ __forceinline__ void for_tiles(const struct window_unit &unit, Each each)
{
    int n_segments = unit.span.n_segments, first = part_rank<S>() * S::CLASSES_EACH;
#pragma unroll 1
    for (int w = first; w < first + S::CLASSES_EACH; w++)
#pragma unroll 1
        for (int i = w; i < n_segments; i += CLASSES)
#pragma unroll 1
            for (int t = i; t < unit.n_tiles; t += n_segments) each(t);
}

/* ---- The warp that copies -------------------------------------------------------------------- */

/* The page that this lane looks up: number `lane` of those in which the unit's keys lie. */
__device__ __forceinline__ int lane_page(const struct job &j, const struct window_unit &unit)
{
    const struct kv_cache &cache = j.a.cache;
    int lane = threadIdx.x % 32, page = unit.span.first / KV_PAGE + lane;
    int n = (unit.span.first % KV_PAGE + unit.span.n + KV_PAGE - 1) / KV_PAGE;
    if (lane >= n) return 0;
    return __ldg(cache.table + (int64_t)unit.span.sequence * cache.slots + page % cache.slots);
}

template <class S>
__device__ __forceinline__ void copy_tiles(struct ring &ring, const CUtensorMap *map,
                                           const struct window_unit &unit, int pages)
{
    int before = unit.span.first / TILE_KEYS % PAGE_TILES;
    for_tiles<S>(unit, [&](int t) {
        int page = __shfl_sync(~0u, pages, (before + t) / PAGE_TILES);
        if (threadIdx.x % 32 > 0) return;
        uint32_t barrier, to = ring_take<S>(ring, &barrier);
        copy_box(to, map, barrier, (before + t) % PAGE_TILES * TILE_KEYS, 0, unit.key_head, page);
    });
}

/* ---- The warps that compute ------------------------------------------------------------------ */

__device__ __forceinline__ void window_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"((int)WINDOW_COMPUTE) : "memory");
}

/* All queries of the key head as operands, [k step]. */
__device__ __forceinline__ void load_operands(const struct job &j, const struct window_unit &unit,
                                              uint4 (&query)[WINDOW_DIM / 16])
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int64_t head = (int64_t)unit.span.row * j.a.n_heads + unit.key_head * j.group + g;
    const float *q = j.a.q + head * WINDOW_DIM + 8 * t;
    float4 x[WINDOW_DIM / 16];
#pragma unroll
    for (int step = 0; step < WINDOW_DIM / 16; step++)
        x[step] = load_volatile4_if(q + step / 2 * 32 + step % 2 * 4, g < j.group);
#pragma unroll
    for (int step = 0; step < WINDOW_DIM / 16; step++) query[step] = make_operand(x[step]);
}

/* Scores of this warp's 8 keys of a tile, -infinity where the row does not see a key. Any
 * assignment of lanes to the 8 keys would do; with this one they read different banks. */
__device__ __forceinline__ void score_unit(const uint4 (&query)[WINDOW_DIM / 16], uint32_t unit,
                                           int begin, int n, float (*out)[WINDOW_STRIDE])
{
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int key = g % 2 * 4 + g / 2;
    uint32_t from = unit + (uint32_t)((8 * warp + key) * 128);
    uint4 k[8];
#pragma unroll
    for (int c = 0; c < 8; c++)
        k[c] = load_shared4(from + (uint32_t)(c / 2 * TILE_KEYS * 128) +
                            (uint32_t)(((c % 2 * 4 + t) ^ key) << 4));
    float acc[4][4] = {};
#pragma unroll
    for (int c = 0; c < 8; c++) {
        mma_f16(acc[c % 2], &query[2 * c].x, k[c].x, k[c].y);
        mma_f16(acc[c % 2 + 2], &query[2 * c + 1].x, k[c].z, k[c].w);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) acc[0][e] = (acc[0][e] + acc[1][e]) + (acc[2][e] + acc[3][e]);
    int at = 8 * warp + t;
    out[g][at] = is_seen(begin, at, n) ? acc[0][0] + acc[0][2] : -INFINITY;
    out[g][at + 4] = is_seen(begin, at + 4, n) ? acc[0][1] + acc[0][3] : -INFINITY;
}

/* Where tile t begins among the row's keys. */
__device__ __forceinline__ int tile_begin(const struct window_unit &unit, int t)
{
    return t * TILE_KEYS - unit.span.first % TILE_KEYS;
}

template <class S>
__device__ __forceinline__ void score_tiles(const struct job &j, const struct window_unit &unit,
                                            struct window_shared<S> &s, struct ring &ring)
{
    uint4 query[WINDOW_DIM / 16];
    load_operands(j, unit, query);
    for_tiles<S>(unit, [&](int t) {
        uint32_t from = ring_unit<S>(ring);
        score_unit(query, from, tile_begin(unit, t), unit.span.n, s.score[t]);
        __syncwarp();
        ring_next<S>(ring);
        ring_release<S>(ring, threadIdx.x % 32);
    });
    window_sync();
}

/* The largest score of a segment. */
template <class S>
__device__ __forceinline__ float segment_top(const struct window_unit &unit,
                                             const struct window_shared<S> &s, int head, int i)
{
    float top = -INFINITY;
    for (int t = i; t < unit.n_tiles; t += unit.span.n_segments) {
        const float4 *score = (const float4 *)s.score[t][head];
#pragma unroll
        for (int e = 0; e < TILE_KEYS / 4; e++) {
            float4 x = score[e];
            top = fmaxf(top, fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)));
        }
    }
    return top;
}

/* The weights of the segments of this block's classes: sixteen lanes a head. */
template <class S>
__device__ __forceinline__ void weigh_segments(const struct window_unit &unit,
                                               struct window_shared<S> &s)
{
    enum { LANES = WINDOW_COMPUTE / HEADS, EACH = WINDOW_SEGMENTS / LANES };
    int head = threadIdx.x / LANES, lane = threadIdx.x % LANES, rank = part_rank<S>();
    float top[EACH], m = -INFINITY;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int i = lane + e * LANES;
        bool is_mine = i < unit.span.n_segments && i % CLASSES / S::CLASSES_EACH == rank;
        top[e] = is_mine ? segment_top(unit, s, head, i) : -INFINITY;
        m = fmaxf(m, top[e]);
    }
#pragma unroll
    for (int i = LANES / 2; i > 0; i /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, i));
    if (S::PARTS > 1) {
        for (int r = lane; r < S::PARTS; r += LANES) {
            cluster_store(cluster_address(shared_address(&s.top[rank][head]), r), m);
            barrier_arrive_cluster(cluster_address(shared_address(&s.tops_there), r));
        }
        barrier_wait_cluster(shared_address(&s.tops_there), 0);
#pragma unroll
        for (int r = 0; r < S::PARTS; r++) m = fmaxf(m, s.top[r][head]);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) s.weight[head][lane + e * LANES] = expf(top[e] - m);
    window_sync();
}

/* This warp's 64 columns of the values of a tile, zeros where the row does not see a key. */
__device__ __forceinline__ void load_values(uint32_t unit, int begin, int n, uint4 (&v)[2][4])
{
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t from = unit + (uint32_t)(warp * TILE_KEYS * 128);
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int key = 16 * h + 4 * t + e;
            v[h][e] = load_shared4(from + (uint32_t)(key * 128) + (uint32_t)((g ^ (key & 7)) << 4));
        }
    }
    if (begin >= 0 && begin + TILE_KEYS <= n) return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!is_seen(begin, 16 * h + 4 * t + e, n)) v[h][e] = make_uint4(0, 0, 0, 0);
    }
}

/* sum, run: of segment i, whose values come next in the ring. */
template <class S>
__device__ __forceinline__ void sum_segment(const struct window_unit &unit,
                                            const struct window_shared<S> &s, struct ring &ring,
                                            int i, struct running &run, float (&sum)[8][4])
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    run = {-INFINITY, 0};
#pragma unroll
    for (int e = 0; e < 8; e++) sum[e][0] = sum[e][1] = sum[e][2] = sum[e][3] = 0;
#pragma unroll 1
    for (int tile = i; tile < unit.n_tiles; tile += unit.span.n_segments) {
        const float *score = s.score[tile][g] + 4 * t;
        float4 p[2] = {*(const float4 *)score, *(const float4 *)(score + 16)};
        float keep = soften(&run, p);
#pragma unroll
        for (int e = 0; e < 8; e++) {
#pragma unroll
            for (int h = 0; h < 4; h++) sum[e][h] *= keep;
        }
        uint4 v[2][4];
        load_values(ring_unit<S>(ring), tile_begin(unit, tile), unit.span.n, v);
        add_values(sum, make_operand(p[0]), v[0]);
        add_values(sum, make_operand(p[1]), v[1]);
        __syncwarp();
        ring_next<S>(ring);
        ring_release<S>(ring, threadIdx.x % 32);
    }
    run.l = sum_of_quad(run.l);
}

/* This thread's columns of its head to the block that joins them. */
template <class S>
__device__ __forceinline__ void send_sums(struct window_shared<S> &s, int w, const float (&x)[16])
{
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int column = 2 * g + warp / 2;
    float *to = &s.sum[w][column / S::PARTS][64 * (warp % 2) + 16 * t];
    uint32_t address = shared_address(to);
    if (S::PARTS > 1) address = cluster_address(address, column % S::PARTS);
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        float4 four = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
        if (S::PARTS > 1)
            cluster_store4(address + 4 * i, four);
        else
            *(float4 *)(to + i) = four;
    }
}

/* Segment i's part of the sum to divide by, to all blocks. */
template <class S>
__device__ __forceinline__ void send_share(struct window_shared<S> &s, int i, float share)
{
    if (threadIdx.x / 32 > 0 || threadIdx.x % 4 > 0) return;
    float *to = &s.share[threadIdx.x % 32 / 4][i];
    if (S::PARTS == 1) *to = share;
    for (int r = 0; S::PARTS > 1 && r < S::PARTS; r++)
        cluster_store(cluster_address(shared_address(to), r), share);
}

/* Sums of all values: class by class; where the block has all of them, joined. */
template <class S>
__device__ __forceinline__ void sum_classes(const struct job &j, const struct window_unit &unit,
                                            struct window_shared<S> &s, struct ring &ring)
{
    int g = threadIdx.x % 32 / 4, first = part_rank<S>() * S::CLASSES_EACH;
    float all[16];
#pragma unroll 1
    for (int w = first; w < first + S::CLASSES_EACH; w++) {
        float total[16] = {};
#pragma unroll 1
        for (int i = w; i < unit.span.n_segments; i += CLASSES) {
            float sum[8][4], weight = s.weight[g][i];
            struct running run;
            sum_segment(unit, s, ring, i, run, sum);
            send_share(s, i, weight * run.l);
#pragma unroll
            for (int e = 0; e < 16; e++)
                total[e] = fmaf(weight, sum[e % 8][e / 8] + sum[e % 8][e / 8 + 2], total[e]);
        }
        if (S::PARTS > 1 && g < j.group) send_sums(s, w, total);
#pragma unroll
        for (int e = 0; e < 16; e++) all[e] = w == first ? total[e] : all[e] + total[e];
    }
    if (S::PARTS == 1 && g < j.group) send_sums(s, 0, all);
}

/* All sums are there: divided, rounded and stored. */
template <class S>
__device__ __forceinline__ void store_unit(const struct job &j, const struct window_unit &unit,
                                           const struct window_shared<S> &s)
{
    int lane = threadIdx.x % 32, rank = part_rank<S>();
    for (int i = threadIdx.x / 32; i * S::PARTS + rank < 2 * j.group; i += WINDOW_COMPUTE / 32) {
        int part = i * S::PARTS + rank;
        float l = lane < unit.span.n_segments ? s.share[part / 2][lane] : 0;
        float4 x = *(const float4 *)&s.sum[0][i][4 * lane];
#pragma unroll
        for (int w = 1; w < S::CLASSES_MET; w++) {
            float4 more = *(const float4 *)&s.sum[w][i][4 * lane];
            x.x += more.x, x.y += more.y, x.z += more.z, x.w += more.w;
        }
        l = warp_sum(l);
        x = make_float4(x.x / l, x.y / l, x.z / l, x.w / l);
        store_part(j, unit.span.row, unit.key_head * j.group * 2 + part, x);
    }
}

/* Waits until the sums of all warps of all parts are there. */
template <class S> __device__ __forceinline__ void meet_sums(struct window_shared<S> &s)
{
    if (S::PARTS == 1) {
        window_sync();
        return;
    }
    __syncwarp();
    int lane = threadIdx.x % 32;
    uint32_t barrier = shared_address(&s.sums_there);
    if (lane < S::PARTS) barrier_arrive_cluster(cluster_address(barrier, lane));
    barrier_wait_cluster(barrier, 0);
}

} // namespace

#endif
