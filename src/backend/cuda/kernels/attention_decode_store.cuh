/* Results of split attention on their way out: rounded to what the next product reads. */
#ifndef CUDA_ATTENTION_DECODE_STORE_CUH
#define CUDA_ATTENTION_DECODE_STORE_CUH

#include "backend/cuda/kernels/attention_decode.cuh"

namespace {

/* The padding after the last column: 32 zeros, or nothing. By a whole warp. */
__device__ __forceinline__ void store_padding(const struct act &act, int row, int cols)
{
    if (cols >= act.stride) return;
    const float4 zero = make_float4(0, 0, 0, 0);
    int lane = threadIdx.x % 32, quad = cols / 4 + lane;
    bool is_live = lane < 8;
    if (is_in_blocks(act)) act_store_blocks(act, row, quad, zero, is_live);
    if (is_in_halves(act) && is_live) act_store_half(act, row, quad, zero, 1.0f);
}

/* A part of a head's COMBINE_COLS columns, lane by lane. Half activations have the scale 1, as
 * those of prompts (attention_prefill_rows.cuh: store_row). By a whole warp. */
__device__ __forceinline__ void store_part(const struct job &j, int row, int part, float4 x)
{
    const struct act &act = j.a.act;
    int of_head = (j.d + COMBINE_COLS - 1) / COMBINE_COLS, lane = threadIdx.x % 32;
    int cols = j.d * j.a.n_heads, first = part % of_head * COMBINE_COLS;
    bool is_live = first + 4 * lane < j.d, is_last = part == of_head * j.a.n_heads - 1;
    int column = part / of_head * j.d + kv_value_column(&j.a.cache, first + 4 * lane);
    if (!is_live) x = make_float4(0, 0, 0, 0);
    if (is_live && j.a.y) *(float4 *)(j.a.y + (int64_t)row * cols + column) = x;
    if (is_in_blocks(act)) act_store_blocks(act, row, column / 4, x, is_live);
    if (is_in_halves(act) && is_live) act_store_half(act, row, column / 4, x, 1.0f);
    if (is_in_halves(act) && is_last && lane == 0) act.scale[row] = 1.0f;
    if (act.kind != ACT_NONE && is_last) store_padding(act, row, cols);
}

} // namespace

#endif
