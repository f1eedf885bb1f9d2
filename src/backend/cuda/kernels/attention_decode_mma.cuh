/* Split attention of fp16 caches, heads of 256 and 512 values: tensor cores.
 *
 * D / 64 warps; the block's query heads are rows of mma.sync m16n8k16. Queries and shares p are cut
 * into two halves, x = hi + lo, in rows g and g + 8 of the same mma, whose results are added: that
 * costs nothing, and nothing but the cache itself is rounded to 11 bits. (16 heads in two mma were
 * no faster than two blocks.) Both operands come from memory straight into registers with 16-byte
 * loads, a tile ahead, as products may be summed in any order:
 *   scores: warp w has keys 8 (w % 4) + g and columns 256 (w / 4) ..; of 32 columns lane (g, t)
 *           loads 8t .. 8t+7 of key g, which are its k indices of two mma;
 *   values: warp w has columns 64 w ..; of 16 keys lane (g, t) loads columns 8g .. 8g+7 of keys
 *           4t .. 4t+3, pairs of which make the operands of 8 mma. */
#ifndef CUDA_ATTENTION_DECODE_MMA_CUH
#define CUDA_ATTENTION_DECODE_MMA_CUH

#include "backend/cuda/kernels/attention_decode.cuh"

namespace {

enum { SCORE_STRIDE = 48 /* 16 mod 32: rows g, g + 1 in different banks */ };

/* a, b = hi + lo, both as pairs of halves. */
__device__ __forceinline__ void split_pair(float a, float b, uint32_t *hi, uint32_t *lo)
{
    __half2 h = __floats2half2_rn(a, b);
    float2 back = __half22float2(h);
    __half2 l = __floats2half2_rn(a - back.x, b - back.y);
    *hi = *reinterpret_cast<uint32_t *>(&h);
    *lo = *reinterpret_cast<uint32_t *>(&l);
}

/* Operand A of one k step from 4 values of row g: hi in it, lo in row g + 8. */
__device__ __forceinline__ uint4 make_operand(float4 x)
{
    uint4 a;
    split_pair(x.x, x.y, &a.x, &a.y);
    split_pair(x.z, x.w, &a.z, &a.w);
    return a;
}

/* The running softmax of one query head, as the four lanes t of a quad share it: m is the same in
 * all of them, l is each one's own part. Scores become shares; gives the factor of what was summed
 * up to now. */
__device__ __forceinline__ float soften(struct running *run, float4 (&s)[2])
{
    const float log2_e = 1.4426950408889634f;
    float m = fmaxf(fmaxf(fmaxf(s[0].x, s[0].y), fmaxf(s[0].z, s[0].w)),
                    fmaxf(fmaxf(s[1].x, s[1].y), fmaxf(s[1].z, s[1].w)));
    m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
    m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
    m = fmaxf(m, run->m);
    float keep = exp2_fast((run->m - m) * log2_e), sum = 0;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        s[k].x = exp2_fast((s[k].x - m) * log2_e);
        s[k].y = exp2_fast((s[k].y - m) * log2_e);
        s[k].z = exp2_fast((s[k].z - m) * log2_e);
        s[k].w = exp2_fast((s[k].w - m) * log2_e);
        sum += (s[k].x + s[k].y) + (s[k].z + s[k].w);
    }
    run->m = m;
    run->l = fmaf(run->l, keep, sum); /* explicit: the same bits in a cascade */
    return keep;
}

__device__ __forceinline__ float sum_of_quad(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* What a thread reads of a tile, `offset` bytes after its pointers. A key is read only if the row
 * sees it: a page may hold NaN of its previous owner. */
struct reader {
    int key, four;               /* this thread's in a tile: of scores, first of four of values */
    const char *k, *v;           /* of the cache, at this thread's columns and its first key */
    const char *k_line, *v_line; /* at what it fetches ahead */
};

/* Is key i of a tile one that the row sees? */
__device__ __forceinline__ bool is_seen(int begin, int i, int n)
{
    return (unsigned)(begin + i) < (unsigned)n;
}

template <int D>
__device__ __forceinline__ struct reader reader_of(const struct job &j, int key_head)
{
    const struct kv_cache &cache = j.a.cache;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int head = key_head * cache.head_bytes, cell_bytes = kv_cell_bytes(&cache);
    struct reader r;
    r.key = 8 * (warp % 4) + g;
    r.four = 4 * t;
    r.k = (const char *)cache.k + head + (256 * (warp / 4) + 8 * t) * 2 + r.key * cell_bytes;
    r.v = (const char *)cache.v + head + (64 * warp + 8 * g) * 2 + r.four * cell_bytes;
    int line = head + threadIdx.x % (D / 64) * 128 + threadIdx.x / (D / 64) * cell_bytes;
    r.k_line = (const char *)cache.k + line;
    r.v_line = (const char *)cache.v + line;
    return r;
}

/* Into the L2: one line of keys and one of values per thread. */
template <int D>
__device__ __forceinline__ void fetch_tile(const struct reader &r, size_t offset, int begin, int n)
{
    if (!is_seen(begin, threadIdx.x / (D / 64), n)) return;
    prefetch_l2(r.k_line + offset);
    prefetch_l2(r.v_line + offset);
}

__device__ __forceinline__ void read_keys(const struct reader &r, size_t offset, int begin, int n,
                                          uint4 (&out)[8])
{
    bool is_wanted = is_seen(begin, r.key, n);
#pragma unroll
    for (int c = 0; c < 8; c++) out[c] = load_once4_if(r.k + offset + 64 * c, is_wanted);
}

__device__ __forceinline__ void read_values(const struct reader &r, int cell_bytes, size_t offset,
                                            int begin, int n, uint4 (&out)[2][4])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = 16 * h + e;
            const char *p = r.v + offset + (uint32_t)(i * cell_bytes);
            out[h][e] = load_once4_if(p, is_seen(begin, r.four + i, n));
        }
    }
}

template <int D> struct shared {
    uint4 query[D / 16][32]; /* operands, [k step][lane] */
    float score[2][D / 256][HEADS][SCORE_STRIDE];
};

/* Queries of up to 8 heads as operands; q: of this thread's head, NULL: there is none. */
template <int D>
__device__ __forceinline__ void load_queries(const struct kv_cache &cache, const float *q,
                                             struct shared<D> &s)
{
    enum { EACH = 4 }; /* k steps of this thread: all its loads are issued at once */
    int first = threadIdx.x / 32 % (D / 64), lane = threadIdx.x % 32, t = lane % 4;
    float4 x[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int step = e * (D / 64) + first;
        const float *p = q + kv_key_column(&cache, step / 2 * 32) + 8 * t + step % 2 * 4;
        x[e] = q ? *(const float4 *)p : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) s.query[e * (D / 64) + first][lane] = make_operand(x[e]);
}

/* Scores of this warp's 8 keys over its columns, to `out`. */
template <int D>
__device__ __forceinline__ void decode_score(const struct shared<D> &s, const uint4 (&k)[8],
                                             float (*out)[SCORE_STRIDE])
{
    int warp = threadIdx.x / 32 % (D / 64), lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int first = warp / 4 * 16;
    float acc[4][4] = {};
#pragma unroll
    for (int c = 0; c < 8; c++) {
        mma_f16(acc[c % 2], &s.query[first + 2 * c][lane].x, k[c].x, k[c].y);
        mma_f16(acc[c % 2 + 2], &s.query[first + 2 * c + 1][lane].x, k[c].z, k[c].w);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) acc[0][e] = (acc[0][e] + acc[1][e]) + (acc[2][e] + acc[3][e]);
    *(float2 *)&out[g][8 * (warp % 4) + 2 * t] =
        make_float2(acc[0][0] + acc[0][2], acc[0][1] + acc[0][3]);
}

/* Scores of head g at this thread's keys of a tile, as far as the row sees them. */
template <int D>
__device__ __forceinline__ void read_scores(const struct shared<D> &s, int tile, int begin, int n,
                                            float4 (&out)[2])
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = 16 * h + 4 * t;
        out[h] = *(const float4 *)&s.score[tile % 2][0][g][i];
        if (D == 512) {
            float4 more = *(const float4 *)&s.score[tile % 2][D / 256 - 1][g][i];
            out[h].x += more.x, out[h].y += more.y, out[h].z += more.z, out[h].w += more.w;
        }
        if (!is_seen(begin, i + 0, n)) out[h].x = -INFINITY;
        if (!is_seen(begin, i + 1, n)) out[h].y = -INFINITY;
        if (!is_seen(begin, i + 2, n)) out[h].z = -INFINITY;
        if (!is_seen(begin, i + 3, n)) out[h].w = -INFINITY;
    }
}

/* sum += p v for 16 keys and this warp's 64 columns. */
__device__ __forceinline__ void add_values(float (&sum)[8][4], const uint4 &p, const uint4 (&v)[4])
{
    const uint32_t *a = &v[0].x, *b = &v[1].x, *c = &v[2].x, *d = &v[3].x;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t take = i % 2 ? 0x7632 : 0x5410;
        mma_f16(sum[i], &p.x, __byte_perm(a[i / 2], b[i / 2], take),
                __byte_perm(c[i / 2], d[i / 2], take));
    }
}

/* Sums of head g at this thread's 16 columns, and the head's m and l, to place `at` of the
 * scratch. */
__device__ __forceinline__ void store_segment(const struct job &j, int64_t at,
                                              const float (&sum)[8][4], const struct running &run)
{
    int warp = threadIdx.x / 32 % 8, t = threadIdx.x % 4;
    float4 *out = (float4 *)(j.sums + at * j.d + 64 * warp + 16 * t);
#pragma unroll
    for (int e = 0; e < 2; e++) {
#pragma unroll
        for (int i = 0; i < 8; i += 4)
            out[e * 2 + i / 4] =
                make_float4(sum[i][e] + sum[i][e + 2], sum[i + 1][e] + sum[i + 1][e + 2],
                            sum[i + 2][e] + sum[i + 2][e + 2], sum[i + 3][e] + sum[i + 3][e + 2]);
    }
    if (warp == 0 && t == 0) j.state[at] = make_float2(run.m, run.l);
}

/* Where a segment's next two tiles are: places of their first keys, and bytes to these. */
struct two_tiles {
    int begin, next;
    size_t offset, offset_next;
};

__device__ __forceinline__ struct two_tiles first_tiles(const struct job &j, const struct walk &w)
{
    return {walk_begin(w, 0), walk_begin(w, 1), walk_offset(j, w, 0, walk_page(j, w, 0)),
            walk_offset(j, w, 1, walk_page(j, w, 1))};
}

/* All keys are in the cache. */
struct none_apart {
    __device__ __forceinline__ int n_cached(int n) const
    {
        return n;
    }
    __device__ __forceinline__ void add_key(const struct reader &, int, uint4 (&)[8]) const {}
    __device__ __forceinline__ void add_value(const struct reader &, int, uint4 (&)[2][4]) const {}
    __device__ __forceinline__ void meet() const
    {
        __syncthreads();
    }
};

/* A segment, the first tile of which is in k and v. `apart` has a key that is not in the cache
 * yet. */
template <int D, class APART>
__device__ __forceinline__ void attend_tiles(const struct job &j, const struct walk &walk,
                                             const struct reader &reader, struct two_tiles at,
                                             const APART &apart, uint4 (&k)[8], uint4 (&v)[2][4],
                                             struct shared<D> &s, float (&sum)[8][4],
                                             struct running *run)
{
    int cell_bytes = kv_cell_bytes(&j.a.cache), n = walk.n, n_cached = apart.n_cached(n);
    for (int tile = 0; at.begin < n; tile++) {
        int page = walk_page(j, walk, tile + 2);
        apart.add_key(reader, at.begin, k);
        decode_score<D>(s, k, s.score[tile % 2][threadIdx.x / 128]);
        if (at.next < n) read_keys(reader, at.offset_next, at.next, n_cached, k);
        apart.meet();
        float4 p[2];
        read_scores<D>(s, tile, at.begin, n, p);
        float keep = soften(run, p);
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][e] *= keep;
        }
        apart.add_value(reader, at.begin, v);
        add_values(sum, make_operand(p[0]), v[0]);
        add_values(sum, make_operand(p[1]), v[1]);
        if (at.next < n) read_values(reader, cell_bytes, at.offset_next, at.next, n_cached, v);
        at = {at.next, walk_begin(walk, tile + 2), at.offset_next,
              walk_offset(j, walk, tile + 2, page)};
    }
    run->l = sum_of_quad(run->l);
}

/* Registers allow three blocks per multiprocessor with heads of 256 values, two with 512. */
template <int D>
__global__ void __launch_bounds__(D / 2, D == 512 ? 2 : 3)
    attend_mma(const __grid_constant__ struct job j)
{
    __shared__ struct shared<D> s;
    struct span span;
    bool is_done = D == CASCADE_DIM && is_in_pack(j, blockIdx.z);
    if (!find_span(j, blockIdx.z, &span) || blockIdx.y >= span.n_segments || is_done) {
        grid_wait();
        return;
    }
    const struct walk walk = walk_of(j, span, blockIdx.y);
    const struct reader reader = reader_of<D>(j, blockIdx.x / j.n_chunks);
    const struct two_tiles at = first_tiles(j, walk);
    fetch_tile<D>(reader, at.offset, at.begin, span.n);
    fetch_tile<D>(reader, at.offset_next, at.next, span.n);
    grid_wait();
    grid_release();
    int first_head, n_heads, g = threadIdx.x % 32 / 4;
    find_heads(j, blockIdx.x, &first_head, &n_heads);
    uint4 k[8], v[2][4];
    read_keys(reader, at.offset, at.begin, span.n, k);
    read_values(reader, kv_cell_bytes(&j.a.cache), at.offset, at.begin, span.n, v);
    const float *q = j.a.q + ((int64_t)span.row * j.a.n_heads + first_head + g) * D;
    load_queries<D>(j.a.cache, g < n_heads ? q : NULL, s);
    __syncthreads();

    float sum[8][4] = {};
    struct running run = {-INFINITY, 0};
    attend_tiles<D>(j, walk, reader, at, none_apart(), k, v, s, sum, &run);
    if (g < n_heads)
        store_segment(j, partial_of(j, blockIdx.z, first_head + g, blockIdx.y), sum, run);
}

} // namespace

#endif
