/* The second launch of attention_decode.cu: segments joined, divided by the sum, and rounded to
 * what the next product reads. */
#ifndef CUDA_ATTENTION_DECODE_COMBINE_CUH
#define CUDA_ATTENTION_DECODE_COMBINE_CUH

#include "backend/cuda/kernels/attention_decode_store.cuh"

namespace {

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
 * the joined sums, the first of which is at place `at`. Only warp 0 gets it. Warp w takes segments
 * w, w + 8, ..., eight at a time, whose loads are issued together. */
__device__ __forceinline__ float4 combine(const struct job &j, const struct span &s, int64_t at,
                                          int first, float4 (*shared)[32])
{
    enum { WARPS = COMBINE_THREADS / 32, BATCH = 8, STATES = LONG * SPLITS_MAX / 32 };
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = first + 4 * lane;
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
    l = warp_sum(l);
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

/* Grid: (parts of 128 columns, rows). It is short, so the product after it may start at once and
 * load its weights while attention still computes (H200, one user: E2B and E4B 0.9 % more tokens a
 * second, 26B-A4B 1.0, 12B and 31B 0.2). */
__global__ void __launch_bounds__(COMBINE_THREADS, 3)
    attend_combine(const __grid_constant__ struct job j)
{
    __shared__ float4 shared[COMBINE_THREADS / 32][32];
    struct span span;
    const struct pass pass = find_pass(j);
    bool is_row = (int)blockIdx.y < pass.n && find_span(j, pass.first + blockIdx.y, &span);
    grid_release();
    grid_wait();
    if (!is_row) return;
    int of_head = (j.d + COMBINE_COLS - 1) / COMBINE_COLS, part = blockIdx.x;
    int64_t at = partial_of(j, blockIdx.y, part / of_head, 0, pass.n_segments);
    float4 x = combine(j, span, at, part % of_head * COMBINE_COLS, shared);
    if (threadIdx.x < 32) store_part(j, span.row, part, x);
}

/* ---- Many rows: a warp for each part -------------------------------------------------------- */

enum { JOIN_ROWS_LEAST = 32, JOIN_WARPS = 8, SEGMENTS_MAX = LONG * SPLITS_MAX };

/* The weights of all segments, zeros after the last one; gives the sum to divide by. */
__device__ __forceinline__ float join_weights(const struct job &j, int n_segments, int64_t at,
                                              float *weight)
{
    enum { STATES = SEGMENTS_MAX / 32 };
    int lane = threadIdx.x % 32;
    float2 state[STATES];
    float m = -INFINITY, l = 0;
#pragma unroll
    for (int e = 0; e < STATES; e++) {
        int i = e * 32 + lane;
        state[e] = i < n_segments ? load_volatile2(j.state + at + i) : make_float2(-INFINITY, 0);
        m = fmaxf(m, state[e].x);
    }
    m = most_of_warp(m);
#pragma unroll
    for (int e = 0; e < STATES; e++) {
        float x = expf(state[e].x - m);
        l = fmaf(x, state[e].y, l);
        weight[e * 32 + lane] = x;
    }
    __syncwarp();
    return warp_sum(l);
}

/* Adds eight segments: first, first + 8, ... */
__device__ __forceinline__ float4 add_batch(float4 total, const float4 (&part)[8],
                                            const float *weight, int first)
{
#pragma unroll
    for (int e = 0; e < 8; e++) {
        float x = weight[first + 8 * e];
        total.x = fmaf(x, part[e].x, total.x);
        total.y = fmaf(x, part[e].y, total.y);
        total.z = fmaf(x, part[e].z, total.z);
        total.w = fmaf(x, part[e].w, total.w);
    }
    return total;
}

/* What `combine` gives, with its bits: the sums of its eight warps one after the other. */
__device__ __forceinline__ float4 join(const struct job &j, int n_segments, int64_t at, int first,
                                       float *weight)
{
    int column = first + 4 * (threadIdx.x % 32), n = column < j.d ? n_segments : 0;
    const float *sums = j.sums + at * j.d + column;
    float4 part[2][8], all = make_float4(0, 0, 0, 0);
    load_batch(part[0], sums, j.d, 0, n);
    float l = join_weights(j, n_segments, at, weight);
#pragma unroll
    for (int w = 0; w < 8; w++) {
        float4 total = make_float4(0, 0, 0, 0);
        if (w < 7) load_batch(part[(w + 1) % 2], sums, j.d, w + 1, n);
        total = add_batch(total, part[w % 2], weight, w);
        for (int b = 64; b < n_segments; b += 64) {
            load_batch(part[w % 2], sums, j.d, b + w, n);
            total = add_batch(total, part[w % 2], weight, b + w);
        }
        if (w == 0)
            all = total;
        else
            all.x += total.x, all.y += total.y, all.z += total.z, all.w += total.w;
    }
    return make_float4(all.x / l, all.y / l, all.z / l, all.w / l);
}

/* Grid: (parts of 128 columns by JOIN_WARPS, rows). */
__global__ void __launch_bounds__(JOIN_WARPS * 32, 2)
    attend_join(const __grid_constant__ struct job j)
{
    __shared__ float weight[JOIN_WARPS][SEGMENTS_MAX];
    int warp = threadIdx.x / 32, part = blockIdx.x * JOIN_WARPS + warp;
    int of_head = (j.d + COMBINE_COLS - 1) / COMBINE_COLS, n_parts = of_head * j.a.n_heads;
    struct span span;
    const struct pass pass = find_pass(j);
    bool is_row = (int)blockIdx.y < pass.n && find_span(j, pass.first + blockIdx.y, &span);
    grid_wait();
    grid_release();
    if (!is_row || part >= n_parts) return;
    int64_t at = partial_of(j, blockIdx.y, part / of_head, 0, pass.n_segments);
    int first = part % of_head * COMBINE_COLS;
    float4 x = join(j, span.n_segments, at, first, weight[warp]);
    store_part(j, span.row, part, x);
}

} // namespace

#endif
