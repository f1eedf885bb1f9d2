/* Attention of rows that are independent of each other: decode, and whatever else takes.
 *
 *     y[r, h] = sum_s softmax_s(q[r, h] . k[s, g(h)]) v[s, g(h)]
 *
 * over the n visible keys s of row r, cut into tiles of 32 keys and these dealt out to segments in
 * turn: segment i of S has tiles i, i + S, ..., so that all of them together read memory in order.
 * S depends on n and constants of the shape only, hence a row's bits on nothing but the row. Two
 * launches:
 *
 *   split:   block (key head and up to 8 of its query heads, segment, row) leaves for each query
 *            head its largest score m, l = sum exp(s - m) and the d sums of exp(s - m) v, so keys
 *            and values are read once for 8 heads. Blocks without keys leave at once; those with
 *            keys have the lower numbers, so that each gets a multiprocessor of its own first.
 *   combine: block (128 columns of a head, row) joins the segments in a fixed order, divides by the
 *            sum and rounds to what the next product reads.
 *
 * Memory: cells as plan/kv.h says. Scratch: sums [row][head][segment][d], then pairs (m, l)
 * [row][head][segment], all fp32. Rows that do not fit the scratch together go in passes.
 *
 * Bound: a long context by the bytes of keys and values (4.67 TB/s on an H200), a short one by
 * latency: two launches and two reads that wait for each other.
 *
 * The arrays of the step are read before grid_wait: no kernel of a plan writes them. What the cache
 * holds is only fetched into the L2 before it, which is harmless where it is not yet written. */
#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

namespace {

enum {
    TILE_KEYS = 32,
    HEADS = 8,        /* query heads of a block */
    SPLITS_MIN = 8,   /* segments of a row, for each block's heads */
    SPLITS_MAX = 128, /* with LONG times as many for a long context */
    LONG = 2,         /* pays from LONG_TILES tiles a segment on */
    LONG_TILES = 8,
    BLOCKS_WANTED = 128, /* of one row: about one for each multiprocessor, two of short heads */
    COMBINE_THREADS = 256,
    COMBINE_COLS = 128,
    SCRATCH_WANTED = 64 << 20
};

struct job {
    struct attention_args a;
    int32_t d, group, n_chunks; /* query heads of a key head; blocks that share a key head */
    int32_t splits;
    int32_t first_row, n_segments; /* of this pass; of the grid */
    float *sums;
    float2 *state;
};

/* A segment has two tiles at least: what it leaves is as many bytes as one tile of eight heads. One
 * tile is 1.3 % of a step faster for one row of E4B and 0.8 to 3 % slower for 32 rows of E4B or
 * 12B (H200). */
__host__ __device__ inline int segments_of(int n_keys, int splits)
{
    int n_tiles = (n_keys + TILE_KEYS - 1) / TILE_KEYS, n_pairs = (n_tiles + 1) / 2;
    int most = n_tiles >= LONG_TILES * splits ? LONG * splits : splits;
    return n_pairs < most ? n_pairs : most;
}

/* What a row sees: n keys. */
struct span {
    int32_t row, n, n_segments;
    struct kv_run keys; /* and values */
};

/* False: no live row. */
__device__ __forceinline__ bool find_span(const struct job &j, int r, struct span *s)
{
    const struct attention_args &a = j.a;
    int n_live = rows_live(a.rows, a.step);
    s->row = j.first_row + r;
    if (!a.rows.is_out && a.part != attention_args::ATTEND_ALL) {
        int n_decode = a.step.counts[1];
        if (a.part == attention_args::ATTEND_CHUNK)
            s->row += n_decode;
        else
            n_live = n_decode;
    }
    if (s->row >= n_live) return false;
    int token = row_token(a.rows, a.step, s->row);
    int last = a.step.position[token], sequence = a.step.sequence[token];
    int n = last + 1;
    if (a.window > 0) n = min(n, a.window);
    n = min(n, a.cache.capacity);
    s->n = n;
    s->keys = kv_run_from(&a.cache, sequence, last + 1 - n);
    s->n_segments = segments_of(n, j.splits);
    return true;
}

/* Place of a partial result in the scratch. */
__device__ __forceinline__ int64_t partial_of(const struct job &j, int r, int head, int segment)
{
    return ((int64_t)r * j.a.n_heads + head) * j.n_segments + segment;
}

/* ---- fp16 caches, heads of 256 and 512 values: tensor cores ----------------------------------
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
struct running {
    float m, l;
};
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
    run->l = run->l * keep + sum;
    return keep;
}

__device__ __forceinline__ float sum_of_quad(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* A segment under way: what a thread needs to read its part of tiles. */
template <int D> struct reader {
    struct span span;
    int first, step;             /* first key; from tile to tile */
    int key, four;               /* this thread's in a tile: of scores, first of four of values */
    const char *k, *v;           /* of the cache, at this thread's columns */
    const char *k_line, *v_line; /* at what it fetches ahead */

    /* Into the L2: one line of keys and one of values a thread. */
    __device__ __forceinline__ void fetch(int tile) const
    {
        int i = first + tile * step + threadIdx.x / (D / 64);
        if (i >= span.n) return;
        size_t at = kv_run_offset(&span.keys, i);
        prefetch_l2(k_line + at);
        prefetch_l2(v_line + at);
    }

    __device__ __forceinline__ void keys(int tile, uint4 (&out)[8]) const
    {
        int i = first + tile * step + key;
        const char *p = k + kv_run_offset(&span.keys, i);
#pragma unroll
        for (int c = 0; c < 8; c++) out[c] = load_once4_if(p + 64 * c, i < span.n);
    }

    __device__ __forceinline__ void values(int tile, uint4 (&out)[2][4]) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int i = first + tile * step + 16 * h + four + e;
                const char *p = v + kv_run_offset(&span.keys, i);
                out[h][e] = load_once4_if(p, i < span.n);
            }
        }
    }
};

template <int D>
__device__ __forceinline__ struct reader<D> reader_of(const struct job &j, const struct span &s) {
    const struct kv_cache &cache = j.a.cache;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int head = blockIdx.x / j.n_chunks * D * 2; /* bytes */
    struct reader<D> r;
    r.span = s;
    r.first = blockIdx.y * TILE_KEYS;
    r.step = s.n_segments * TILE_KEYS;
    r.key = 8 * (warp % 4) + g;
    r.four = 4 * t;
    r.k = (const char *)cache.k + head + (256 * (warp / 4) + 8 * t) * 2;
    r.v = (const char *)cache.v + head + (64 * warp + 8 * g) * 2;
    r.k_line = (const char *)cache.k + head + threadIdx.x % (D / 64) * 128;
    r.v_line = (const char *)cache.v + head + threadIdx.x % (D / 64) * 128;
    return r;
}

template <int D>
struct shared {
    uint4 query[D / 16][32]; /* operands, [k step][lane] */
    float score[2][D / 256][HEADS][SCORE_STRIDE];
};

/* Queries of the block's heads as operands. */
template <int D>
__device__ __forceinline__ void load_queries(const float *q, int n_heads, struct shared<D> &s)
{
    enum { EACH = 4 }; /* k steps of this thread: all its reads are under way at once */
    int first = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float4 x[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int step = e * (D / 64) + first;
        const float *p = q + g * D + step / 2 * 32 + 8 * t + step % 2 * 4;
        x[e] = g < n_heads ? *(const float4 *)p : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) s.query[e * (D / 64) + first][lane] = make_operand(x[e]);
}

/* Scores of this warp's 8 keys over its columns, to `out`. */
template <int D>
__device__ __forceinline__ void score(const struct shared<D> &s, const uint4 (&k)[8],
                                      float (*out)[SCORE_STRIDE])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
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

/* Scores of head g at this thread's keys of a tile, the first n of which there are. */
template <int D>
__device__ __forceinline__ void read_scores(const struct shared<D> &s, int tile, int n,
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
        if (i + 0 >= n) out[h].x = -INFINITY;
        if (i + 1 >= n) out[h].y = -INFINITY;
        if (i + 2 >= n) out[h].z = -INFINITY;
        if (i + 3 >= n) out[h].w = -INFINITY;
    }
}

/* sum += p v for 16 keys and this warp's 64 columns. */
__device__ __forceinline__ void weigh(float (&sum)[8][4], const uint4 &p, const uint4 (&v)[4])
{
    const uint32_t *a = &v[0].x, *b = &v[1].x, *c = &v[2].x, *d = &v[3].x;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t take = i % 2 ? 0x7632 : 0x5410;
        mma_f16(sum[i], &p.x, __byte_perm(a[i / 2], b[i / 2], take),
                __byte_perm(c[i / 2], d[i / 2], take));
    }
}

/* Sums of head g at this thread's 16 columns, and the head's m and l. */
__device__ __forceinline__ void store_segment(const struct job &j, int first_head, int n_heads,
                                              const float (&sum)[8][4], const struct running &run)
{
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if (g >= n_heads) return;
    int64_t at = partial_of(j, blockIdx.z, first_head + g, blockIdx.y);
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

/* Query heads of a block. */
__device__ __forceinline__ void find_heads(const struct job &j, int *first, int *n)
{
    int chunk = blockIdx.x % j.n_chunks * HEADS;
    *first = blockIdx.x / j.n_chunks * j.group + chunk;
    *n = min((int)HEADS, j.group - chunk);
}

/* Registers: of 256 columns three blocks fit a multiprocessor, of 512 two. */
template <int D>
__global__ void __launch_bounds__(D / 2, D == 512 ? 2 : 3)
    attend_mma(const __grid_constant__ struct job j)
{
    __shared__ struct shared<D> s;
    struct span span;
    if (!find_span(j, blockIdx.z, &span) || blockIdx.y >= span.n_segments) {
        grid_wait();
        return;
    }
    const struct reader<D> reader = reader_of<D>(j, span);
    reader.fetch(0);
    reader.fetch(1);
    grid_wait();
    grid_release();
    int first_head, n_heads;
    find_heads(j, &first_head, &n_heads);
    uint4 k[8], v[2][4];
    reader.keys(0, k);
    reader.values(0, v);
    load_queries<D>(j.a.q + ((int64_t)span.row * j.a.n_heads + first_head) * D, n_heads, s);
    __syncthreads();

    float sum[8][4] = {};
    struct running run = {-INFINITY, 0};
    int n = span.n - reader.first;
    for (int tile = 0; n > 0; tile++, n -= reader.step) {
        score<D>(s, k, s.score[tile % 2][threadIdx.x / 128]);
        if (n > reader.step) reader.keys(tile + 1, k);
        __syncthreads();
        float4 p[2];
        read_scores<D>(s, tile, n, p);
        float keep = soften(&run, p);
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][e] *= keep;
        }
        weigh(sum, make_operand(p[0]), v[0]);
        weigh(sum, make_operand(p[1]), v[1]);
        if (n > reader.step) reader.values(tile + 1, v);
    }
    run.l = sum_of_quad(run.l);
    store_segment(j, first_head, n_heads, sum, run);
}

/* ---- Any format, any head size: fp32 throughout ----------------------------------------------
 *
 * Tiles of 16 keys, unpacked to fp32 in shared memory; 8 warps. Scores: a warp has 2 keys, its
 * lanes the columns; softmax: a warp has a head; values: a thread has 2 columns of all 8 heads. */

enum { ANY_KEYS = 16, ANY_THREADS = 256, ANY_PAD = 4 };

__host__ __device__ inline size_t any_shared_bytes(int d)
{
    return (size_t)(HEADS * d + 2 * ANY_KEYS * (d + ANY_PAD)) * sizeof(float);
}

/* 8 values from column i, a multiple of 8, of a head's keys or values. */
template <enum format FORMAT>
__device__ __forceinline__ void load_any(const void *base, int i, float *out)
{
    float4 *out4 = (float4 *)out;
    if (FORMAT == FORMAT_F32) {
        const float4 *p = (const float4 *)((const float *)base + i);
        out4[0] = p[0];
        out4[1] = p[1];
    } else if (FORMAT == FORMAT_Q8_0) {
        const uint16_t *block = (const uint16_t *)base + i / 32 * 17; /* 2 + 32 bytes */
        const uint16_t *p = block + 1 + i % 32 / 2;
        float d = __half2float(__ushort_as_half(block[0]));
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint16_t pair = p[e];
            out[2 * e] = d * (float)(int8_t)(pair & 255);
            out[2 * e + 1] = d * (float)(int8_t)(pair >> 8);
        }
    } else {
        uint4 raw = *(const uint4 *)((const uint16_t *)base + i);
        const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float low = __uint_as_float(word[e] << 16), high = __uint_as_float(word[e] & ~0xffffu);
            if (FORMAT == FORMAT_F16) {
                low = __half2float(__ushort_as_half((uint16_t)word[e]));
                high = __half2float(__ushort_as_half((uint16_t)(word[e] >> 16)));
            }
            out[2 * e] = low;
            out[2 * e + 1] = high;
        }
    }
}

/* Keys [begin, begin + n) and their values; what is left of the tile becomes zero. */
template <enum format FORMAT>
__device__ __forceinline__ void load_tile(const struct job &j, const struct span &s, int key_head,
                                          int begin, int n, float *k, float *v)
{
    enum { EACH = ANY_KEYS * 512 / 8 / ANY_THREADS }; /* unrolled: the reads overlap */
    int d = j.d, of_row = d / 8;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int i = threadIdx.x + e * ANY_THREADS, key = i / of_row, column = i % of_row * 8;
        if (key >= ANY_KEYS) break;
        float value[2][8] = {};
        if (key < n) {
            size_t at =
                kv_run_offset(&s.keys, begin + key) + (size_t)(key_head * j.a.cache.head_bytes);
            load_any<FORMAT>((const char *)j.a.cache.k + at, column, value[0]);
            load_any<FORMAT>((const char *)j.a.cache.v + at, column, value[1]);
        }
#pragma unroll
        for (int is_v = 0; is_v < 2; is_v++) {
            const float *x = value[is_v];
            float4 *out = (float4 *)((is_v ? v : k) + key * (d + ANY_PAD) + column);
            out[0] = make_float4(x[0], x[1], x[2], x[3]);
            out[1] = make_float4(x[4], x[5], x[6], x[7]);
        }
    }
}

__device__ __forceinline__ float sum_of_warp(float x)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(~0u, x, i);
    return x;
}

__device__ __forceinline__ float most_of_warp(float x)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

__device__ __forceinline__ float dot(float4 a, float4 b, float sum)
{
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

/* Scores of this warp's two keys with all heads. */
__device__ __forceinline__ void score_any(int d, const float *q, const float *k,
                                          float (*out)[ANY_KEYS])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float *k0 = k + 2 * warp * (d + ANY_PAD), *k1 = k0 + d + ANY_PAD;
    float sum[HEADS][2] = {};
    for (int c = 4 * lane; c < d; c += 128) {
        float4 a = *(const float4 *)(k0 + c), b = *(const float4 *)(k1 + c);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float4 x = *(const float4 *)(q + h * d + c);
            sum[h][0] = dot(x, a, sum[h][0]);
            sum[h][1] = dot(x, b, sum[h][1]);
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float a = sum_of_warp(sum[h][0]), b = sum_of_warp(sum[h][1]);
        if (lane == h) out[h][2 * warp] = a, out[h][2 * warp + 1] = b;
    }
}

template <enum format FORMAT>
__global__ void __launch_bounds__(ANY_THREADS, 2) attend_any(const __grid_constant__ struct job j)
{
    extern __shared__ float4 dynamic[];
    __shared__ float scores[HEADS][ANY_KEYS], p[ANY_KEYS][HEADS], keep[HEADS];
    struct span span;
    bool is_live = find_span(j, blockIdx.z, &span) && blockIdx.y < span.n_segments;
    grid_wait();
    grid_release();
    if (!is_live) return;
    int d = j.d, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *q = (float *)dynamic, *k = q + HEADS * d, *v = k + ANY_KEYS * (d + ANY_PAD);
    int first_head, n_heads;
    find_heads(j, &first_head, &n_heads);
    const float *from = j.a.q + ((int64_t)span.row * j.a.n_heads + first_head) * d;
    for (int i = threadIdx.x; i < HEADS * d; i += ANY_THREADS) q[i] = i < n_heads * d ? from[i] : 0;

    struct running run = {-INFINITY, 0}; /* of head `warp` */
    float2 sum[HEADS] = {};              /* of columns 2 threadIdx.x .. */
    for (int half = 0;; half++) {        /* of a tile of 32 */
        int begin = (blockIdx.y + half / 2 * span.n_segments) * TILE_KEYS + half % 2 * ANY_KEYS;
        int n = min((int)ANY_KEYS, span.n - begin);
        if (n <= 0) break;
        __syncthreads();
        load_tile<FORMAT>(j, span, blockIdx.x / j.n_chunks, begin, n, k, v);
        __syncthreads();
        score_any(d, q, k, scores);
        __syncthreads();
        float s = lane < n ? scores[warp][lane % ANY_KEYS] : -INFINITY;
        float m = fmaxf(run.m, most_of_warp(s)), share = expf(s - m), factor = expf(run.m - m);
        run.l = run.l * factor + sum_of_warp(share);
        run.m = m;
        if (lane < ANY_KEYS) p[lane][warp] = share;
        if (lane == 0) keep[warp] = factor;
        __syncthreads();
        if (2 * threadIdx.x >= d) continue;
#pragma unroll
        for (int h = 0; h < HEADS; h++) sum[h].x *= keep[h], sum[h].y *= keep[h];
#pragma unroll 4
        for (int i = 0; i < ANY_KEYS; i++) {
            float2 x = *(const float2 *)(v + i * (d + ANY_PAD) + 2 * threadIdx.x);
#pragma unroll
            for (int h = 0; h < HEADS; h++)
                sum[h].x = fmaf(p[i][h], x.x, sum[h].x), sum[h].y = fmaf(p[i][h], x.y, sum[h].y);
        }
    }
    int64_t at = partial_of(j, blockIdx.z, first_head, blockIdx.y);
    if (warp < n_heads && lane == 0)
        j.state[at + (int64_t)warp * j.n_segments] = make_float2(run.m, run.l);
    if (2 * threadIdx.x >= d) return;
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        if (h < n_heads)
            *(float2 *)(j.sums + (at + (int64_t)h * j.n_segments) * d + 2 * threadIdx.x) = sum[h];
}

/* ---- Combine --------------------------------------------------------------------------------- */

__device__ __forceinline__ void load_batch(float4 (&part)[8], const float *sums, int d, int first,
                                           int n)
{
#pragma unroll
    for (int e = 0; e < 8; e++) {
        int i = first + 8 * e;
        part[e] = load_volatile4_if(sums + (int64_t)i * d, i < n);
    }
}

/* Columns c .. c+3, c = 4 lane, of one head's COMBINE_COLS columns from `first`: the quotient of
 * the joined sums. Only warp 0 gets it. Warp w takes segments w, w + 8, ..., by eight: as many
 * reads are under way at once. */
__device__ __forceinline__ float4 combine(const struct job &j, const struct span &s, int head,
                                          int first, float4 (*shared)[32])
{
    enum { WARPS = COMBINE_THREADS / 32, BATCH = 8, STATES = LONG * SPLITS_MAX / 32 };
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = first + 4 * lane;
    int64_t at = partial_of(j, blockIdx.y, head, 0);
    const float *sums = j.sums + at * j.d + column;
    float4 part[BATCH], total = make_float4(0, 0, 0, 0);
    load_batch(part, sums, j.d, warp, column < j.d ? s.n_segments : 0);
    float2 state[STATES];
    float m = -INFINITY, l = 0;
#pragma unroll
    for (int e = 0; e < STATES; e++) {
        int i = e * 32 + lane;
        state[e] = i < s.n_segments ? load_volatile2(j.state + at + i) : make_float2(-INFINITY, 0);
        m = fmaxf(m, state[e].x);
    }
    m = most_of_warp(m);
#pragma unroll
    for (int e = 0; e < STATES; e++) {
        state[e].x = expf(state[e].x - m);
        l = fmaf(state[e].x, state[e].y, l);
    }
    l = sum_of_warp(l);
#pragma unroll
    for (int b = 0; b < LONG * SPLITS_MAX / (BATCH * WARPS); b++) {
        if (b > 0 && b * BATCH * WARPS >= s.n_segments) break;
        if (b > 0)
            load_batch(part, sums, j.d, b * BATCH * WARPS + warp, column < j.d ? s.n_segments : 0);
#pragma unroll
        for (int e = 0; e < BATCH; e++) {
            float weight = __shfl_sync(~0u, state[b * 2 + e / 4].x, e % 4 * WARPS + warp);
            total.x = fmaf(weight, part[e].x, total.x);
            total.y = fmaf(weight, part[e].y, total.y);
            total.z = fmaf(weight, part[e].z, total.z);
            total.w = fmaf(weight, part[e].w, total.w);
        }
    }
    shared[warp][lane] = total;
    __syncthreads();
    if (warp > 0) return total;
#pragma unroll
    for (int w = 1; w < WARPS; w++) {
        float4 more = shared[w][lane];
        total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
    }
    return make_float4(total.x / l, total.y / l, total.z / l, total.w / l);
}

/* Zeros behind the last column, where there are any: 32 of them. */
__device__ __forceinline__ void store_padding(const struct act &act, int row, int cols)
{
    if (cols >= act.stride || threadIdx.x >= 32) return;
    const float4 zero = make_float4(0, 0, 0, 0);
    bool is_live = threadIdx.x < 8;
    int quad = cols / 4 + (int)threadIdx.x;
    if (is_in_blocks(act)) act_store_blocks(act, row, quad, zero, is_live);
    if (act.kind == ACT_HALF && is_live) act_store_half(act, row, quad, zero, 1.0f);
}

/* Grid: (parts of 128 columns, rows); (1, rows) for ACT_HALF, whose scale is the whole row's: there
 * a block joins everything twice, first for the scale. */
__global__ void __launch_bounds__(COMBINE_THREADS, 3)
    attend_combine(const __grid_constant__ struct job j)
{
    __shared__ float4 shared[COMBINE_THREADS / 32][32];
    struct span span;
    bool is_row = find_span(j, blockIdx.y, &span);
    grid_wait();
    grid_release();
    if (!is_row) return;
    const struct act &act = j.a.act;
    int of_head = (j.d + COMBINE_COLS - 1) / COMBINE_COLS, n_parts = of_head * j.a.n_heads;
    int cols = j.d * j.a.n_heads, lane = threadIdx.x % 32, n_rounds = act.kind == ACT_HALF ? 2 : 1;
    uint32_t most_bits = 0;
    float scale = 1, inverse = 1;
    for (int round = 0; round < n_rounds; round++) {
        for (int part = blockIdx.x; part < n_parts; part += gridDim.x) {
            int head = part / of_head, first = part % of_head * COMBINE_COLS;
            float4 x = combine(j, span, head, first, shared);
            bool is_live = first + 4 * lane < j.d;
            int column = head * j.d + first + 4 * lane;
            if (threadIdx.x < 32) {
                if (!is_live) x = make_float4(0, 0, 0, 0);
                if (round == 0 && is_live && j.a.y)
                    *(float4 *)(j.a.y + (int64_t)span.row * cols + column) = x;
                if (is_in_blocks(act)) act_store_blocks(act, span.row, column / 4, x, is_live);
                if (round == 1 && is_live) act_store_half(act, span.row, column / 4, x, inverse);
                most_bits = max(most_bits, quad_most(x));
            }
            __syncthreads();
        }
        scale = act_half_scale(warp_max(most_bits), &inverse);
    }
    if (act.kind == ACT_HALF && threadIdx.x == 0) act.scale[span.row] = scale;
    if (act.kind != ACT_NONE && blockIdx.x == gridDim.x - 1) store_padding(act, span.row, cols);
}

/* ---- Launch ---------------------------------------------------------------------------------- */

int chunks_of(int group)
{
    return (group + HEADS - 1) / HEADS;
}

int splits_of(int n_heads, int head_dim, int n_kv_heads)
{
    int blocks = head_dim > 256 ? BLOCKS_WANTED : 2 * BLOCKS_WANTED;
    int splits = blocks / (n_kv_heads * chunks_of(n_heads / n_kv_heads));
    return splits < SPLITS_MIN ? SPLITS_MIN : splits > SPLITS_MAX ? SPLITS_MAX : splits;
}

size_t row_bytes_of(int n_heads, int head_dim, int n_segments)
{
    return (size_t)n_heads * n_segments * (head_dim * sizeof(float) + sizeof(float2));
}

void (*any_of(enum format format))(struct job)
{
    switch (format) {
    case FORMAT_F32: return attend_any<FORMAT_F32>;
    case FORMAT_BF16: return attend_any<FORMAT_BF16>;
    case FORMAT_Q8_0: return attend_any<FORMAT_Q8_0>;
    default: return attend_any<FORMAT_F16>;
    }
}

void launch_splits(const struct queue *q, const struct job &j, int n_rows)
{
    const struct kv_cache &cache = j.a.cache;
    dim3 grid(cache.n_heads * j.n_chunks, j.n_segments, n_rows);
    bool is_mma = !j.a.is_exact && cache.format == FORMAT_F16;
    if (is_mma && j.d == 256)
        launch(q, attend_mma<256>, grid, 128, 0, j);
    else if (is_mma && j.d == 512)
        launch(q, attend_mma<512>, grid, 256, 0, j);
    else
        launch(q, any_of(cache.format), grid, ANY_THREADS, any_shared_bytes(j.d), j);
}

} // namespace

int attention_decode_prepare(void)
{
    static const enum format formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0};
    cudaError_t error = cudaSuccess;
    for (enum format format : formats)
        if (!error) error = allow_shared(any_of(format), any_shared_bytes(512));
    return error;
}

size_t attention_decode_scratch_bytes(int32_t rows, int32_t n_heads, int32_t head_dim,
                                      int32_t n_kv_heads)
{
    int splits = splits_of(n_heads, head_dim, n_kv_heads);
    size_t row_bytes = row_bytes_of(n_heads, head_dim, LONG * splits);
    size_t n = SCRATCH_WANTED / row_bytes;
    if (n < 1) n = 1;
    return row_bytes * (n < (size_t)rows ? n : rows);
}

void launch_attention_decode(const struct queue *q, const struct attention_args *args)
{
    const struct kv_cache &cache = args->cache;
    struct job j = {};
    j.a = *args;
    j.d = cache.head_dim;
    j.group = args->n_heads / cache.n_heads;
    j.n_chunks = chunks_of(j.group);
    j.splits = splits_of(args->n_heads, j.d, cache.n_heads);
    int visible = cache.capacity;
    if (args->window > 0 && args->window < visible) visible = args->window;
    j.n_segments = segments_of(visible, j.splits);

    size_t scratch_bytes =
        attention_decode_scratch_bytes(args->rows.max, args->n_heads, j.d, cache.n_heads);
    int n_pass = (int)(scratch_bytes / row_bytes_of(args->n_heads, j.d, j.n_segments));
    if (n_pass > args->rows.max) n_pass = args->rows.max;
    j.sums = (float *)args->scratch;
    j.state = (float2 *)(j.sums + (size_t)n_pass * args->n_heads * j.n_segments * j.d);
    int n_parts = (j.d + COMBINE_COLS - 1) / COMBINE_COLS * args->n_heads;
    if (args->act.kind == ACT_HALF) n_parts = 1;
    for (; j.first_row < args->rows.max; j.first_row += n_pass) {
        int left = args->rows.max - j.first_row, n_rows = left < n_pass ? left : n_pass;
        launch_splits(q, j, n_rows);
        launch(q, attend_combine, dim3(n_parts, n_rows), COMBINE_THREADS, 0, j);
    }
}
