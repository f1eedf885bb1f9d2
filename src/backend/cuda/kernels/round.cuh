/* How kernels round: activations to 8 bits, to 16 in two planes of 8, or to fp16 with a scale a
 * row; weights to fp16 mirrors; keys and values to what the cache holds.
 *
 * NaN stays NaN, in every kernel that rounds, as on the CPU:
 *   - 8 bits (ACT_INT8, ACT_FINE, cells of Q8_0): a value of a block of 32 that is not finite makes
 *     the block's scale NaN, and so all of the block; codes are then of no meaning.
 *   - ACT_HALF: a value of a row that is not finite makes the row's scale NaN. Where the scale is 1
 *     without a look at the row (attention), a NaN is a NaN value.
 *   - fp16, BF16 and F32 alone: a NaN value is a NaN value. Mirrors, and queries, keys and values
 *     on their way to fp16 products, saturate at 65504; caches and half.cu make these infinite.
 * A product with such a block or row is NaN in every result that the block or row is a part of, and
 * in no other row. Attention gives NaN to every row that sees such a key or value, and possibly to
 * other rows in the same tile of a prompt (a share of zero times NaN): of the same sequence, as
 * long as a step reads one prompt only. */
#ifndef CUDA_ROUND_CUH
#define CUDA_ROUND_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/types.h"

constexpr uint32_t NOT_A_NUMBER = 0x7fc00000u; /* its bits */
__device__ __forceinline__ float not_a_number()
{
    return __uint_as_float(NOT_A_NUMBER);
}

/* The largest |value| of several is found on bits (block.cuh: quad_most), which order as integers:
 * what is not finite is at least this. */
constexpr uint32_t INFINITE_BITS = 0x7f800000u;

/* Whether activations are codes with a scale for each block of 32. */
__host__ __device__ __forceinline__ bool is_in_blocks(const struct act &act)
{
    return act.kind == ACT_INT8 || act.kind == ACT_FINE;
}

/* Whether they are fp16 with a scale for each row. */
__host__ __device__ __forceinline__ bool is_in_halves(const struct act &act)
{
    return act.kind == ACT_HALF || act.kind == ACT_CORES || act.kind == ACT_STEPS;
}

/* ---- Eight bits ------------------------------------------------------------------------------ */

/* Adding it to a number of at most 2^22 leaves the nearest integer, ties to even, in the low
 * bits. */
constexpr float ROUNDER = 12582912.0f; /* 1.5 * 2^23 */

__device__ __forceinline__ int rounded_integer(float r)
{
    return __float_as_int(r) - __float_as_int(ROUNDER);
}

/* The low bytes of four numbers. */
__device__ __forceinline__ uint32_t low_bytes(float4 x)
{
    uint32_t first = __byte_perm(__float_as_uint(x.x), __float_as_uint(x.y), 0x0040);
    uint32_t last = __byte_perm(__float_as_uint(x.z), __float_as_uint(x.w), 0x0040);
    return __byte_perm(first, last, 0x5410);
}

/* FINE_STEPS times what y has lost as r - ROUNDER, plus ROUNDER. */
__device__ __forceinline__ float lost_rounded(float y, float r)
{
    return __fmaf_rn(__fsub_rn(y, __fsub_rn(r, ROUNDER)), (float)FINE_STEPS, ROUNDER);
}

/* Rounds to 8 bits: q = x * (127 / largest) to nearest, ties to even; ACT_FINE: what that has lost
 * too. All lanes of the warp call it with consecutive quads, `quad` the lane's, eight of which are
 * a block; it writes when `is_live`. */
__device__ __forceinline__ void act_store_blocks(const struct act &act, int64_t row, int quad,
                                                 float4 x, bool is_live)
{
    const bool is_fine = act.kind == ACT_FINE;
    const uint32_t most_bits = octet_max(quad_most(x));
    const float most = __uint_as_float(most_bits);
    const float inverse = most > 0.0f ? __fdiv_rn(127.0f, most) : 0.0f;
    const float4 y = quad_scaled(x, inverse);
    const float4 r = make_float4(__fadd_rn(y.x, ROUNDER), __fadd_rn(y.y, ROUNDER),
                                 __fadd_rn(y.z, ROUNDER), __fadd_rn(y.w, ROUNDER));
    const uint32_t q = low_bytes(r);
    uint32_t low = 0;
    int sum = __dp4a((int)q, 0x01010101, 0);
    if (is_fine) {
        low = low_bytes(make_float4(lost_rounded(y.x, r.x), lost_rounded(y.y, r.y),
                                    lost_rounded(y.z, r.z), lost_rounded(y.w, r.w)));
        sum = __dp4a((int)low, 0x01010101, sum * FINE_STEPS);
    }
    sum = octet_sum(sum);
    if (!is_live || quad >= act.stride / 4) return;
    /* Lane t of a tile owns quads t and t + 4 of a block. */
    int64_t at = row * (act.stride / 4) + (quad & ~7) + (quad & 3) * 2 + (quad >> 2 & 1);
    static_cast<uint32_t *>(act.values)[at] = q;
    if (is_fine) reinterpret_cast<uint32_t *>(act.low)[at] = low;
    if (quad % 8 == 0) {
        float d = __fdiv_rn(most, is_fine ? 127.0f * FINE_STEPS : 127.0f);
        if (most_bits >= INFINITE_BITS) d = not_a_number();
        reinterpret_cast<float2 *>(act.scale)[row * (act.stride / ACT_BLOCK) + quad / 8] =
            make_float2(d, d * (float)sum);
    }
}

/* The same where a warp holds 32 neighbouring columns of a row, one a lane: col = lane + a multiple
 * of 32; v is 0 after the row's end. */
__device__ __forceinline__ void act_store_block(const struct act &act, int64_t row, int col,
                                                float v)
{
    float most = fabsf(v);
    for (int i = 16; i > 0; i /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    if (__any_sync(~0u, !isfinite(v))) most = not_a_number();
    float inverse = most > 0 ? __fdiv_rn(127.0f, most) : 0.0f;
    float y = most > 0 ? __fmul_rn(v, inverse) : 0.0f;
    float r = __fadd_rn(y, ROUNDER);
    int q = rounded_integer(r), c = col % 32, code = q;
    int64_t at = row * act.stride + col - c + 8 * (c % 16 / 4) + c / 16 * 4 + c % 4;
    static_cast<int8_t *>(act.values)[at] = (int8_t)q;
    if (act.kind == ACT_FINE) {
        int low = rounded_integer(lost_rounded(y, r));
        act.low[at] = (int8_t)low;
        code = q * FINE_STEPS + low;
    }
    int sum = __reduce_add_sync(~0u, code);
    if (c == 0) {
        float d = __fdiv_rn(most, act.kind == ACT_FINE ? 127.0f * FINE_STEPS : 127.0f);
        reinterpret_cast<float2 *>(act.scale)[(row * act.stride + col) / 32] =
            make_float2(d, d * (float)sum);
    }
}

/* To nearest, limited to +-127; NaN gives -127 (quant/search.h: round_limited). */
__device__ __forceinline__ uint32_t round_byte(float x)
{
    if (!(x > -127.0f)) x = -127.0f;
    if (x > 127.0f) x = 127.0f;
    return (uint32_t)(uint8_t)__float2int_rn(x);
}

/* Q8_0, with the bits of quant's encoder: columns col .. col + 3 of a cell of blocks;
 * `most_bits`: of the block's largest |value|. */
__device__ __forceinline__ void store_q8_0(char *cell, int col, float4 x, uint32_t most_bits)
{
    float most = most_bits < INFINITE_BITS ? __uint_as_float(most_bits) : not_a_number();
    __half d = __float2half_rn(__fdiv_rn(most, 127.0f));
    float scale = __half2float(d), inverse = scale > 0.0f ? __fdiv_rn(1.0f, scale) : 0.0f;
    uint16_t *block = reinterpret_cast<uint16_t *>(cell) + col / 32 * 17;
    int at = col % 32;
    block[1 + at / 2] =
        (uint16_t)(round_byte(__fmul_rn(x.x, inverse)) | round_byte(__fmul_rn(x.y, inverse)) << 8);
    block[2 + at / 2] =
        (uint16_t)(round_byte(__fmul_rn(x.z, inverse)) | round_byte(__fmul_rn(x.w, inverse)) << 8);
    if (at == 0) block[0] = __half_as_ushort(d);
}

/* ---- fp16 ------------------------------------------------------------------------------------ */

/* Two values as fp16, as the operands of mma.sync have them. What is too large becomes infinite. */
__device__ __forceinline__ uint32_t pack_halves(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* The power of two that goes with a row whose largest |value| has these bits, and its inverse. At
 * both ends of the range the exponent is limited, so that both are normal numbers. */
__device__ __forceinline__ float act_half_scale(uint32_t most_bits, float *inverse)
{
    uint32_t exponent = min(max(most_bits & 0x7f800000u, 1u << 23), 253u << 23);
    if (most_bits == 0) exponent = 127u << 23;
    *inverse = __uint_as_float((254u << 23) - exponent);
    return __uint_as_float(most_bits < INFINITE_BITS ? exponent : NOT_A_NUMBER);
}

/* ACT_CORES: [row / 64][col / 64][row % 64 / 8][8] core matrices of 8 rows x 8 columns, so that a
 * tile of 64 columns of up to 64 rows is one piece. Within 16 columns the order is that of A of
 * wgmma: of a quad, which is what a lane owns of a tile, {x0, x2} lie in the first core matrix and
 * {x1, x3} in the second. core_quad: place of the 32-bit word {x0, x2}; {x1, x3} is CORE_WORDS
 * further. */
enum { CORE_WORDS = 32 };
__device__ __forceinline__ int64_t core_quad(const struct act &act, int64_t row, int quad)
{
    int64_t tile = row / 64 * (act.stride / TILE_COLS) + quad / 16;
    return (tile * 64 + row % 64 / 8 * 8 + quad % 16 / 4 * 2) * CORE_WORDS + row % 8 * 4 + quad % 4;
}
/* Place of one value, in halves. */
__device__ __forceinline__ int64_t core_place(const struct act &act, int64_t row, int col)
{
    return (core_quad(act, row, col / 4) + col % 2 * CORE_WORDS) * 2 + col % 4 / 2;
}

/* The same for ACT_STEPS: {x1, x3} is STEP_WORDS further. */
enum { STEP_WORDS = 4 };
__device__ __forceinline__ int64_t step_quad(const struct act &act, int64_t row, int quad)
{
    return row * (act.stride / 2) + quad / 4 * 8 + quad % 4;
}

__device__ __forceinline__ void act_store_half(const struct act &act, int64_t row, int quad,
                                               float4 x, float inverse)
{
    if (quad >= act.stride / 4) return;
    bool is_turned = act.kind != ACT_HALF;
    float second = is_turned ? x.z : x.y, third = is_turned ? x.y : x.z;
    uint2 bits = make_uint2(pack_halves(x.x * inverse, second * inverse),
                            pack_halves(third * inverse, x.w * inverse));
    if (is_turned) {
        bool is_cores = act.kind == ACT_CORES;
        int64_t place = is_cores ? core_quad(act, row, quad) : step_quad(act, row, quad);
        uint32_t *at = static_cast<uint32_t *>(act.values) + place;
        at[0] = bits.x, at[is_cores ? CORE_WORDS : STEP_WORDS] = bits.y;
        return;
    }
    reinterpret_cast<uint2 *>(act.values)[row * (act.stride / 4) + quad] = bits;
}

/* As pack_halves, but what is too large becomes +-65504. */
__device__ __forceinline__ uint32_t pack_halves_saturated(float low, float high)
{
    __half2 most = __half2half2(__ushort_as_half(0x7bff));
    __half2 pair = __hmax2_nan(__hmin2_nan(__floats2half2_rn(low, high), most), __hneg2(most));
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* One value; what is too large becomes +-65504. */
__device__ __forceinline__ uint16_t half_saturated(float v)
{
    if (fabsf(v) > 65504.0f) v = copysignf(65504.0f, v);
    return __half_as_ushort(__float2half_rn(v));
}

#endif
