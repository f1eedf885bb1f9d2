/* Split attention of any format and any head size: fp32 throughout.
 *
 * Tiles of 16 keys, unpacked to fp32 in shared memory; 8 warps. Scores: a warp has 2 keys, its
 * lanes the columns; softmax: a warp has a head; values: a thread has 2 columns of all 8 heads. */
#ifndef CUDA_ATTENTION_DECODE_ANY_CUH
#define CUDA_ATTENTION_DECODE_ANY_CUH

#include "backend/cuda/kernels/attention_decode.cuh"

namespace {

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

/* The keys at `offset` and their values; what the row does not see becomes zero. `begin` is the
 * first one's place among those that it sees. */
template <enum format FORMAT>
__device__ __forceinline__ void load_tile(const struct job &j, size_t offset, int begin, int n,
                                          float *k, float *v)
{
    enum { EACH = ANY_KEYS * 512 / 8 / ANY_THREADS }; /* unrolled: the reads overlap */
    int d = j.d, of_row = d / 8;
    size_t head = (size_t)(blockIdx.x / j.n_chunks * j.a.cache.head_bytes);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int i = threadIdx.x + e * ANY_THREADS, key = i / of_row, column = i % of_row * 8;
        if (key >= ANY_KEYS) break;
        float value[2][8] = {};
        if ((unsigned)(begin + key) < (unsigned)n) {
            size_t at = offset + head + (uint32_t)(key * kv_cell_bytes(&j.a.cache));
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

__device__ __forceinline__ float dot(float4 a, float4 b, float sum)
{
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

/* Scores of this warp's two keys with all heads. */
__device__ __forceinline__ void decode_score_any(int d, const float *q, const float *k,
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
        float a = warp_sum(sum[h][0]), b = warp_sum(sum[h][1]);
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
    struct walk walk = {};
    if (is_live) walk = walk_of(j, span, blockIdx.y);
    int page_next = is_live ? walk_page(j, walk, 0) : 0, page = 0;
    grid_wait();
    grid_release();
    if (!is_live) return;
    int d = j.d, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *q = (float *)dynamic, *k = q + HEADS * d, *v = k + ANY_KEYS * (d + ANY_PAD);
    int first_head, n_heads;
    find_heads(j, blockIdx.x, &first_head, &n_heads);
    const float *from = j.a.q + ((int64_t)span.row * j.a.n_heads + first_head) * d;
    for (int i = threadIdx.x; i < HEADS * d; i += ANY_THREADS)
        q[i] = i < n_heads * d ? from[i - i % d + kv_key_column(&j.a.cache, i % d)] : 0;

    struct running run = {-INFINITY, 0}; /* of head `warp` */
    float2 sum[HEADS] = {};              /* of columns 2 threadIdx.x .. */
    int in_half = ANY_KEYS * kv_cell_bytes(&j.a.cache);
    for (int half = 0;; half++) { /* of a tile */
        int tile = half / 2, begin = walk_begin(walk, tile) + half % 2 * ANY_KEYS;
        if (begin >= span.n) break;
        if (half % 2 == 0) page = page_next, page_next = walk_page(j, walk, tile + 1);
        if (begin + ANY_KEYS <= 0) continue; /* before the window */
        __syncthreads();
        size_t offset = walk_offset(j, walk, tile, page) + (uint32_t)(half % 2 * in_half);
        load_tile<FORMAT>(j, offset, begin, span.n, k, v);
        __syncthreads();
        decode_score_any(d, q, k, scores);
        __syncthreads();
        bool is_seen = lane < ANY_KEYS && (unsigned)(begin + lane) < (unsigned)span.n;
        float s = is_seen ? scores[warp][lane % ANY_KEYS] : -INFINITY;
        float m = fmaxf(run.m, most_of_warp(s)), share = expf(s - m), factor = expf(run.m - m);
        run.l = run.l * factor + warp_sum(share);
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

} // namespace

#endif
