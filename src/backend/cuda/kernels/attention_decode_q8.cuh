/* Split attention of q8_0 caches, heads of 256 and 512 values: tensor cores.
 *
 * A tile is copied to shared memory as it lies in the cache, and each warp makes the fp16 operands
 * of mma.sync m16n8k16 from it. A value is fp16(code * d), rounded once: what attention_prefill.cu
 * reads, and no more than an fp16 cache rounds. Rows of the mma:
 *   SETS = 1: up to 8 query heads; queries and shares as hi + lo (attention_decode_mma.cuh);
 *   SETS = 2: up to 16 query heads as plain halves, so that keys and values are unpacked once for
 *             all of them. Queries then have the 11 bits that the keys have.
 *
 * Two blocks of q8_0 make 17 words: a scale and codes 0 and 1; codes 2 to 29; codes 30 and 31 and
 * the other scale; the other codes. So all codes but four lie in words of their own, and the four
 * make one word. As products may be summed in any order, a lane takes words as they are:
 *   scores: warp w has keys 8 (w % 4) + g and columns 256 (w / 4) ..; lane (g, t) has the 64 codes
 *           of its t-th pair of blocks, one word per mma, and the queries are laid out to match;
 *   values: warp w has columns 64 w ..; lane (g, t) has word g of both blocks, for keys 2t, 2t + 1,
 *           2t + 8 and 2t + 9 of 16.
 * Rows are an odd number of 16 bytes apart, so neither has bank conflicts.
 *
 * D / 64 warps. Between two barriers a block makes shares of one tile, a warp for each head, sums
 * up the values of the tile before it and scores the tile after it: none waits for another.
 * Meanwhile the values of that tile and the keys of the next but one are copied. */
#ifndef CUDA_ATTENTION_DECODE_Q8_CUH
#define CUDA_ATTENTION_DECODE_Q8_CUH

#include "backend/cuda/kernels/attention_decode_mma.cuh"

namespace {

enum { Q8_STAGES = 2, Q8_PAIR_WORDS = 17, Q8_SCORE_STRIDE = 40 /* 8 mod 32 */ };

/* Words from a key to the next in shared memory. */
template <int D> __host__ __device__ constexpr int q8_stride()
{
    return (D / 64 * Q8_PAIR_WORDS / 4 | 1) * 4;
}

template <int D> using q8_tile = uint32_t[TILE_KEYS][q8_stride<D>()];

template <int D, int SETS> struct q8_shared {
    q8_tile<D> k[Q8_STAGES], v[Q8_STAGES];
    uint4 query[D / 16][32]; /* operands, [k step][lane] */
    uint4 share[2][2][32];   /* operands of two tiles, [tile % 2][half of its keys][lane] */
    float score[2][D / 256][SETS * HEADS][Q8_SCORE_STRIDE];
    float keep[2][SETS * HEADS]; /* factors of what was summed up before a tile */
};

/* ---- Copies --------------------------------------------------------------------------------- */

/* What a thread copies of a tile: every D/64-th 16 bytes of one key, some bytes after k and v. */
struct q8_reader {
    const char *k, *v;
    int key, part;
};

template <int D>
__device__ __forceinline__ struct q8_reader q8_reader_of(const struct job &j, int key_head)
{
    const struct kv_cache &cache = j.a.cache;
    struct q8_reader r;
    r.key = threadIdx.x / (D / 64);
    r.part = threadIdx.x % (D / 64);
    uint32_t at = key_head * cache.head_bytes + r.key * kv_cell_bytes(&cache) + r.part * 16;
    r.k = (const char *)cache.k + at;
    r.v = (const char *)cache.v + at;
    return r;
}

/* Into the L2, a line a thread; the last lines of a key reach into what follows it. */
template <int D>
__device__ __forceinline__ void q8_fetch(const struct q8_reader &r, size_t offset, int begin, int n)
{
    enum { LINES = D / 64 * 68 / 128 + 1 };
    if (r.part >= LINES || !is_seen(begin, r.key, n)) return;
    int line = r.part < LINES - 1 ? r.part * (128 - 16) : D / 64 * 68 - 16 - r.part * 16;
    prefetch_l2(r.k + offset + line);
    prefetch_l2(r.v + offset + line);
}

/* A key that the row does not see becomes zeros: a page may hold NaN of its previous owner. */
template <int D>
__device__ __forceinline__ void q8_copy(const struct q8_reader &r, const char *from, int begin,
                                        int n, q8_tile<D> &to)
{
    enum { EACH = D / 64, CHUNKS = D / 64 * 68 / 16 };
    int bytes = is_seen(begin, r.key, n) ? 16 : 0;
    uint32_t shared = shared_address(&to[r.key][4 * r.part]);
#pragma unroll
    for (int e = 0; e < CHUNKS / EACH; e++)
        copy16_or_zeros(shared + e * EACH * 16, from + e * EACH * 16, bytes);
    enum { DONE = CHUNKS / EACH * EACH };
    if (r.part < CHUNKS - DONE) copy16_or_zeros(shared + DONE * 16, from + DONE * 16, bytes);
}

/* ---- From codes to halves ------------------------------------------------------------------- */

/* A scale twice, or those of two keys, limited so that 128 times it fits in fp16, since infinity
 * times a share of zero would be NaN. */
__device__ __forceinline__ __half2 q8_scales(uint32_t scales)
{
    const __half2 most = __half2half2(__ushort_as_half(0x5fff)); /* 511.75 */
    return __hmin2_nan(*reinterpret_cast<__half2 *>(&scales), most);
}

/* Bytes 0 and 2 of `x`, with the exponent of 1024 after them, are 1152 + code: exact. */
__device__ __forceinline__ uint32_t q8_scale(uint32_t x, __half2 scales)
{
    const __half2 zero = __half2half2(__ushort_as_half(0x6480)); /* 1152 */
    __half2 h = __hmul2(__hsub2(*reinterpret_cast<__half2 *>(&x), zero), scales);
    return *reinterpret_cast<uint32_t *>(&h);
}

/* Four codes of one key as two pairs. */
__device__ __forceinline__ uint2 q8_pairs(uint32_t codes, __half2 scales)
{
    uint32_t x = codes ^ 0x80808080u;
    return make_uint2(q8_scale(__byte_perm(x, 0x64646464u, 0x4140), scales),
                      q8_scale(__byte_perm(x, 0x64646464u, 0x4342), scales));
}

/* Four codes of each of two keys: pairs of the same column. */
__device__ __forceinline__ void q8_columns(uint32_t a, uint32_t b, __half2 scales,
                                           uint32_t (&out)[4])
{
    a ^= 0x80808080u, b ^= 0x80808080u;
    uint32_t low = __byte_perm(a, b, 0x5140), high = __byte_perm(a, b, 0x7362);
    out[0] = q8_scale(__byte_perm(low, 0x64646464u, 0x4140), scales);
    out[1] = q8_scale(__byte_perm(low, 0x64646464u, 0x4342), scales);
    out[2] = q8_scale(__byte_perm(high, 0x64646464u, 0x4140), scales);
    out[3] = q8_scale(__byte_perm(high, 0x64646464u, 0x4342), scales);
}

/* ---- Queries and scores --------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t pack_pair(float a, float b)
{
    __half2 h = __floats2half2_rn(a, b);
    return *reinterpret_cast<uint32_t *>(&h);
}

/* Operand A of one k step from 4 values of each set. */
__device__ __forceinline__ uint4 q8_operand(const float4 (&x)[1])
{
    return make_operand(x[0]);
}
__device__ __forceinline__ uint4 q8_operand(const float4 (&x)[2])
{
    return make_uint4(pack_pair(x[0].x, x[0].y), pack_pair(x[1].x, x[1].y),
                      pack_pair(x[0].z, x[0].w), pack_pair(x[1].z, x[1].w));
}

/* q: of the block's first head. 64 columns that two blocks of keys have lie together in it: shared
 * heads of q8_0 have 256 turned columns (kv_share). */
template <int D, int SETS>
__device__ __forceinline__ void q8_load_queries(const struct kv_cache &cache, const float *q,
                                                int n_heads, struct q8_shared<D, SETS> &s)
{
    enum { EACH = 4 }; /* k steps of this thread */
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int step = e * (D / 64) + warp, word = step % 16;
        int first = word == 0 ? 0 : word < 8 ? 4 * word - 2 : 4 * word;
        int second = word == 0 ? 30 : first + 2;
        float4 x[SETS];
#pragma unroll
        for (int set = 0; set < SETS; set++) {
            int head = g + HEADS * set;
            const float *p = q + head * D + kv_key_column(&cache, step / 16 * 256 + 64 * t);
            float2 a = make_float2(0, 0), b = a;
            if (head < n_heads) a = *(const float2 *)(p + first), b = *(const float2 *)(p + second);
            x[set] = make_float4(a.x, a.y, b.x, b.y);
        }
        s.query[step][lane] = q8_operand(x);
    }
}

/* Scores of this warp's 8 keys over its columns; g: the head of this lane. */
template <int D, int SETS>
__device__ __forceinline__ void q8_score(const struct q8_shared<D, SETS> &s, const q8_tile<D> &k,
                                         int g, float (*out)[Q8_SCORE_STRIDE])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
    const uint32_t *row = &k[8 * (warp % 4) + lane / 4][(warp / 4 * 4 + t) * Q8_PAIR_WORDS];
    uint32_t word[Q8_PAIR_WORDS];
#pragma unroll
    for (int i = 0; i < Q8_PAIR_WORDS; i++) word[i] = row[i];
    __half2 d[2] = {q8_scales(__byte_perm(word[0], word[0], 0x1010)),
                    q8_scales(__byte_perm(word[8], word[8], 0x3232))};
    word[0] = __byte_perm(word[0], word[8], 0x5432);
    float acc[4][4] = {};
#pragma unroll
    for (int i = 0; i < 16; i++) {
        uint2 b = q8_pairs(word[i < 8 ? i : i + 1], d[i / 8]);
        mma_f16(acc[i % 4], &s.query[warp / 4 * 16 + i][4 * g + t].x, b.x, b.y);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) acc[0][e] = (acc[0][e] + acc[1][e]) + (acc[2][e] + acc[3][e]);
    int place = 8 * (warp % 4) + 2 * t;
    if (lane / 4 != g) return; /* the same scores twice */
    if (SETS == 1) {
        *(float2 *)&out[g][place] = make_float2(acc[0][0] + acc[0][2], acc[0][1] + acc[0][3]);
    } else {
        *(float2 *)&out[g][place] = make_float2(acc[0][0], acc[0][1]);
        *(float2 *)&out[g + HEADS][place] = make_float2(acc[0][2], acc[0][3]);
    }
}

/* A key's share of a head, to its place in the operands: keys 2t, 2t + 1, 2t + 8 and 2t + 9 of 16
 * are those of lane (g, t). */
template <int SETS>
__device__ __forceinline__ void q8_store_share(uint4 (&to)[2][32], int head, int key, float p)
{
    __half *place = (__half *)&to[key / 16][4 * (head % HEADS) + key % 8 / 2];
    __half hi = __float2half_rn(p);
    place += key % 16 / 8 * 4 + key % 2;
    if (SETS == 1) {
        place[0] = hi;
        place[2] = __float2half_rn(p - __half2float(hi));
    } else {
        place[head / HEADS * 2] = hi;
    }
}

/* Heads whose shares a warp makes: w, w + D/64 ...; of a tile a lane has one key. */
template <int D, int SETS> __host__ __device__ constexpr int q8_heads_each()
{
    return SETS * HEADS / (D / 64);
}

/* The largest of the warp's numbers, compared as integers in the same order; NaN is above all. */
__device__ __forceinline__ float q8_most(float x)
{
    int i = __float_as_int(x);
    i = __reduce_max_sync(~0u, i ^ ((i >> 31) & 0x7fffffff));
    return __int_as_float(i ^ ((i >> 31) & 0x7fffffff));
}

/* Scores of a tile become shares. Each lane has its own part of l. */
template <int D, int SETS>
__device__ __forceinline__ void q8_soften(struct q8_shared<D, SETS> &s, int tile, int begin, int n,
                                          int n_heads,
                                          struct running (&run)[q8_heads_each<D, SETS>()])
{
    const float log2_e = 1.4426950408889634f;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int e = 0; e < q8_heads_each<D, SETS>(); e++) {
        int head = e * (D / 64) + warp;
        int from = n_heads <= 4 ? head % 4 : head; /* absent heads: any other */
        float x = s.score[tile % 2][0][from][lane];
        if (D == 512) x += s.score[tile % 2][D / 256 - 1][from][lane];
        if (!is_seen(begin, lane, n)) x = -INFINITY;
        float m = fmaxf(run[e].m, q8_most(x));
        float keep = exp2_fast((run[e].m - m) * log2_e), p = exp2_fast((x - m) * log2_e);
        run[e].m = m;
        run[e].l = fmaf(run[e].l, keep, p);
        q8_store_share<SETS>(s.share[tile % 2], head, lane, p);
        if (lane == 0) s.keep[tile % 2][head] = keep;
    }
}

/* ---- Values --------------------------------------------------------------------------------- */

/* sum += p v for keys `first` .. first + 15 of a tile and this warp's 64 columns. */
template <int D>
__device__ __forceinline__ void q8_add_values(float (&sum)[8][4], const uint4 &p,
                                              const q8_tile<D> &v, int first)
{
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t take = g == 0 ? 0x5432 : 0x3210;
    uint32_t b[2][2][4]; /* [half of k][block][column of the word] */
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const uint32_t *x = &v[first + 2 * t + 8 * e][warp * Q8_PAIR_WORDS];
        const uint32_t *y = x + q8_stride<D>();
        uint32_t middle_x = x[8], middle_y = y[8];
        q8_columns(__byte_perm(x[g], middle_x, take), __byte_perm(y[g], middle_y, take),
                   q8_scales(__byte_perm(x[0], y[0], 0x5410)), b[e][0]);
        q8_columns(x[9 + g], y[9 + g], q8_scales(__byte_perm(middle_x, middle_y, 0x7632)), b[e][1]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) mma_f16(sum[i], &p.x, b[0][i / 4][i % 4], b[1][i / 4][i % 4]);
}

/* Sums of a head at this thread's 16 columns, to place `at` of the scratch. */
template <int SETS>
__device__ __forceinline__ void q8_store(const struct job &j, int64_t at, int set,
                                         const float (&sum)[8][4])
{
    int warp = threadIdx.x / 32, t = threadIdx.x % 4;
    float *out = j.sums + at * j.d + 64 * warp;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int word = 2 * t + e;
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = SETS == 1 ? sum[i][e] + sum[i][e + 2] : sum[i][e + 2 * set];
        *(float2 *)(out + (word ? 4 * word - 2 : 0)) = make_float2(x[0], x[1]);
        *(float2 *)(out + (word ? 4 * word : 30)) = make_float2(x[2], x[3]);
        *(float4 *)(out + 32 + 4 * word) = make_float4(x[4], x[5], x[6], x[7]);
    }
}

/* A tile's values, with its shares, to the sums; g: the head of this lane. */
template <int D, int SETS>
__device__ __forceinline__ void q8_add_tile(const struct q8_shared<D, SETS> &s, int g, int tile,
                                            float (&sum)[8][4])
{
    int t = threadIdx.x % 4;
    float keep[SETS];
#pragma unroll
    for (int set = 0; set < SETS; set++) keep[set] = s.keep[tile % 2][g + HEADS * set];
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][e] *= keep[SETS == 1 ? 0 : e / 2];
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        q8_add_values<D>(sum, s.share[tile % 2][h][4 * g + t], s.v[tile % Q8_STAGES], 16 * h);
}

/* ---- The kernel ----------------------------------------------------------------------------- */

/* Where a block is. */
struct q8_place {
    struct walk walk;
    int32_t n, n_tiles, n_heads;
    int32_t g;        /* the head of this lane */
    int32_t page;     /* of tile + 3 */
    size_t offset[3]; /* of this tile and the next two */
};

/* From a barrier to the next: shares of a tile, sums of the one before it, scores of the one
 * after it. */
template <bool HAS_VALUES, bool HAS_NEXT, int D, int SETS>
__device__ __forceinline__ void q8_step(const struct job &j, const struct q8_reader &r,
                                        struct q8_shared<D, SETS> &s, struct q8_place &at, int tile,
                                        struct running (&run)[q8_heads_each<D, SETS>()],
                                        float (&sum)[8][4])
{
    int begin = walk_begin(at.walk, tile), later = walk_begin(at.walk, tile + 2);
    copies_wait<0>();
    __syncthreads();
    if (HAS_VALUES) q8_copy<D>(r, r.v + at.offset[0], begin, at.n, s.v[tile % Q8_STAGES]);
    if (later < at.n) q8_copy<D>(r, r.k + at.offset[2], later, at.n, s.k[tile % Q8_STAGES]);
    copies_commit();
    at.offset[0] = at.offset[1], at.offset[1] = at.offset[2];
    at.offset[2] = walk_offset(j, at.walk, tile + 3, at.page);
    at.page = walk_page(j, at.walk, tile + 4);
    q8_soften<D, SETS>(s, tile, begin, at.n, at.n_heads, run);
    if (HAS_VALUES) q8_add_tile<D, SETS>(s, at.g, tile - 1, sum);
    if (HAS_NEXT)
        q8_score<D, SETS>(s, s.k[(tile + 1) % Q8_STAGES], at.g,
                          s.score[(tile + 1) % 2][threadIdx.x / 128]);
}

/* The block's segment, after its first keys and values were asked for. */
template <int D, int SETS>
__device__ __forceinline__ void q8_segment(const struct job &j, const struct q8_reader &r,
                                           struct q8_shared<D, SETS> &s, struct q8_place &at,
                                           struct running (&run)[q8_heads_each<D, SETS>()],
                                           float (&sum)[8][4])
{
    copies_wait<1>();
    __syncthreads();
    q8_score<D, SETS>(s, s.k[0], at.g, s.score[0][threadIdx.x / 128]);
    int last = at.n_tiles - 1;
    if (last == 0) {
        q8_step<false, false>(j, r, s, at, 0, run, sum);
    } else {
        q8_step<false, true>(j, r, s, at, 0, run, sum);
        for (int tile = 1; tile < last; tile++) q8_step<true, true>(j, r, s, at, tile, run, sum);
        q8_step<true, false>(j, r, s, at, last, run, sum);
    }
    copies_wait<0>();
    __syncthreads();
    q8_add_tile<D, SETS>(s, at.g, last, sum);
}

template <int D, int SETS>
__device__ __forceinline__ void q8_store_segment(const struct job &j, int first_head, int n_heads,
                                                 struct running (&run)[q8_heads_each<D, SETS>()],
                                                 const float (&sum)[8][4])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int set = 0; set < SETS; set++) {
        int head = lane / 4 + HEADS * set;
        int64_t place = partial_of(j, blockIdx.z, first_head + head, blockIdx.y);
        if (head < n_heads) q8_store<SETS>(j, place, set, sum);
    }
#pragma unroll
    for (int e = 0; e < q8_heads_each<D, SETS>(); e++) {
        int head = e * (D / 64) + warp;
        float l = warp_sum(run[e].l);
        if (head < n_heads && lane == 0)
            j.state[partial_of(j, blockIdx.z, first_head + head, blockIdx.y)] =
                make_float2(run[e].m, l);
    }
}

template <int D, int SETS>
__global__ void __launch_bounds__(D / 2, 2) attend_q8(const __grid_constant__ struct job j)
{
    extern __shared__ float4 dynamic[];
    struct q8_shared<D, SETS> &s = *(struct q8_shared<D, SETS> *)dynamic;
    struct span span;
    if (!find_span(j, blockIdx.z, &span) || blockIdx.y >= span.n_segments) {
        grid_wait();
        return;
    }
    const struct q8_reader r = q8_reader_of<D>(j, blockIdx.x / j.n_chunks);
    struct q8_place at;
    at.walk = walk_of(j, span, blockIdx.y);
    at.n = span.n;
    int all = (span.n + at.walk.before + TILE_KEYS - 1) / TILE_KEYS;
    at.n_tiles = (all - at.walk.tile + at.walk.step - 1) / at.walk.step;
#pragma unroll
    for (int e = 0; e < 3; e++) at.offset[e] = walk_offset(j, at.walk, e, walk_page(j, at.walk, e));
    int begin = walk_begin(at.walk, 0), next = walk_begin(at.walk, 1);
    q8_fetch<D>(r, at.offset[0], begin, at.n);
    q8_fetch<D>(r, at.offset[1], next, at.n);
    at.page = walk_page(j, at.walk, 3);
    grid_wait();
    grid_release();
    q8_copy<D>(r, r.k + at.offset[0], begin, at.n, s.k[0]);
    copies_commit();
    q8_copy<D>(r, r.v + at.offset[0], begin, at.n, s.v[0]);
    if (next < at.n) q8_copy<D>(r, r.k + at.offset[1], next, at.n, s.k[1]);
    copies_commit();
    int first_head, g = threadIdx.x % 32 / 4;
    find_heads(j, blockIdx.x, &first_head, &at.n_heads);
    at.g = at.n_heads <= 4 ? g % 4 : g; /* four heads twice: half as much shared memory is read */
    q8_load_queries(j.a.cache, j.a.q + ((int64_t)span.row * j.a.n_heads + first_head) * D,
                    at.n_heads, s);
    float sum[8][4] = {};
    struct running run[q8_heads_each<D, SETS>()];
#pragma unroll
    for (int e = 0; e < q8_heads_each<D, SETS>(); e++) run[e] = {-INFINITY, 0};
    q8_segment<D, SETS>(j, r, s, at, run, sum);
    q8_store_segment<D, SETS>(j, first_head, at.n_heads, run, sum);
}

} // namespace

#endif
