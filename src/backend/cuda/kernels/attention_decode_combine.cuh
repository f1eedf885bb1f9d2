/* The second launch of attention_decode.cu: segments joined, divided by the sum, and rounded to
 * what the next product reads. */
#ifndef CUDA_ATTENTION_DECODE_COMBINE_CUH
#define CUDA_ATTENTION_DECODE_COMBINE_CUH

#include "backend/cuda/kernels/attention_decode.cuh"

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
 * the joined sums. Only warp 0 gets it. Warp w takes segments w, w + 8, ..., by eight: as many
 * loads are issued at once. */
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

/* The padding after the last column: 32 zeros, or nothing. */
__device__ __forceinline__ void store_padding(const struct act &act, int row, int cols)
{
    if (cols >= act.stride || threadIdx.x >= 32) return;
    const float4 zero = make_float4(0, 0, 0, 0);
    bool is_live = threadIdx.x < 8;
    int quad = cols / 4 + (int)threadIdx.x;
    if (is_in_blocks(act)) act_store_blocks(act, row, quad, zero, is_live);
    if (act.kind == ACT_HALF && is_live) act_store_half(act, row, quad, zero, 1.0f);
}

/* Grid: (parts of 128 columns, rows). Half activations have the scale 1, as those of prompts
 * (attention_prefill_rows.cuh: store_row). */
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
    int cols = j.d * j.a.n_heads, lane = threadIdx.x % 32, part = blockIdx.x;
    int head = part / of_head, first = part % of_head * COMBINE_COLS;
    float4 x = combine(j, span, head, first, shared);
    bool is_live = first + 4 * lane < j.d, is_last = part == n_parts - 1;
    int column = head * j.d + first + 4 * lane;
    if (threadIdx.x >= 32) return;
    if (!is_live) x = make_float4(0, 0, 0, 0);
    if (is_live && j.a.y) *(float4 *)(j.a.y + (int64_t)span.row * cols + column) = x;
    if (is_in_blocks(act)) act_store_blocks(act, span.row, column / 4, x, is_live);
    if (act.kind == ACT_HALF && is_live) act_store_half(act, span.row, column / 4, x, 1.0f);
    if (act.kind == ACT_HALF && is_last && threadIdx.x == 0) act.scale[span.row] = 1.0f;
    if (act.kind != ACT_NONE && is_last) store_padding(act, span.row, cols);
}

} // namespace

#endif
