/* A head of d values: its norm, its rotation, and its place in a cell. For heads.cu and for
 * attention that makes its own heads; heads.cu says how threads share a head. */
#ifndef CUDA_HEADS_CUH
#define CUDA_HEADS_CUH

#include <cuda_bf16.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/round.cuh"

namespace {

struct half_quads {
    float4 lo, hi;
};

/* Sum of x over the unit's threads; all threads of the block call it. */
__device__ __forceinline__ float unit_sum(float x, int threads, float shared[WARP])
{
    x = warp_sum(x);
    if (threads == WARP) return x;
    const int warp = threadIdx.x / WARP, n_warps = threads / WARP, first = warp - warp % n_warps;
    if (threadIdx.x % WARP == 0) shared[warp] = x;
    __syncthreads();
    x = shared[first];
    for (int i = 1; i < n_warps; i++) x = __fadd_rn(x, shared[first + i]);
    return x;
}

/* x / sqrt(mean of x^2 over the group + eps) * w; columns of the two quads as given. */
__device__ __forceinline__ struct half_quads unit_norm(struct half_quads x, const float4 &w_lo,
                                                       const float4 &w_hi, int group, float eps,
                                                       int threads, float *shared)
{
    float squares = unit_sum(__fadd_rn(quad_squares(x.lo), quad_squares(x.hi)), threads, shared);
    float r = rsqrtf(__fadd_rn(__fdiv_rn(squares, (float)group), eps));
    return {quad_normed(x.lo, r, w_lo), quad_normed(x.hi, r, w_hi)};
}

/* ---- RoPE ---------------------------------------------------------------------------------- */

/* Sine and cosine of x, |x| < 2^22: n = round(x / (pi/2)), r = x - n pi/2 with pi/2 in three parts
 * (n times the first is exact in the fused product, so is the difference), then Taylor series of r,
 * |r| <= pi/4, whose first neglected terms are below 2e-9. */
__device__ __forceinline__ void sine_cosine(float x, float *sine, float *cosine)
{
    float n = rintf(__fmul_rn(x, 0.636619747f));
    float r = __fmaf_rn(n, -1.57079637050628662f, x);
    r = __fmaf_rn(n, 4.37113900018624283e-8f, r);
    r = __fmaf_rn(n, -1.71512451e-15f, r);
    float r2 = __fmul_rn(r, r);
    float s = __fmaf_rn(r2, 2.75573192e-6f, -1.98412698e-4f);
    s = __fmaf_rn(s, r2, 8.33333333e-3f);
    s = __fmaf_rn(s, r2, -1.66666667e-1f);
    s = __fmaf_rn(__fmul_rn(s, r2), r, r);
    float c = __fmaf_rn(r2, -2.75573192e-7f, 2.48015873e-5f);
    c = __fmaf_rn(c, r2, -1.38888889e-3f);
    c = __fmaf_rn(c, r2, 4.16666667e-2f);
    c = __fmaf_rn(c, r2, -0.5f);
    c = __fmaf_rn(c, r2, 1.0f);
    int quadrant = (int)n;
    float a = quadrant & 1 ? c : s, b = quadrant & 1 ? s : c;
    *sine = quadrant & 2 ? -a : a;
    *cosine = (quadrant + 1) & 2 ? -b : b;
}

/* Of the four angles of a quad. */
struct angles {
    float4 sine, cosine;
};

/* Frequencies are 0 for pairs that are not turned: whole warps of them, mostly. */
__device__ __forceinline__ struct angles angles_at(float position, float4 frequency)
{
    struct angles a = {make_float4(0, 0, 0, 0), make_float4(1, 1, 1, 1)};
    if (frequency.x > 0.0f) sine_cosine(__fmul_rn(position, frequency.x), &a.sine.x, &a.cosine.x);
    if (frequency.y > 0.0f) sine_cosine(__fmul_rn(position, frequency.y), &a.sine.y, &a.cosine.y);
    if (frequency.z > 0.0f) sine_cosine(__fmul_rn(position, frequency.z), &a.sine.z, &a.cosine.z);
    if (frequency.w > 0.0f) sine_cosine(__fmul_rn(position, frequency.w), &a.sine.w, &a.cosine.w);
    return a;
}

__device__ __forceinline__ void turn_pair(float *a, float *b, float sine, float cosine)
{
    float x = *a, y = *b;
    *a = __fmaf_rn(x, cosine, -__fmul_rn(y, sine));
    *b = __fmaf_rn(y, cosine, __fmul_rn(x, sine));
}

__device__ __forceinline__ void turn(struct half_quads *x, const struct angles &by,
                                     float4 frequency)
{
    if (frequency.x > 0.0f) turn_pair(&x->lo.x, &x->hi.x, by.sine.x, by.cosine.x);
    if (frequency.y > 0.0f) turn_pair(&x->lo.y, &x->hi.y, by.sine.y, by.cosine.y);
    if (frequency.z > 0.0f) turn_pair(&x->lo.z, &x->hi.z, by.sine.z, by.cosine.z);
    if (frequency.w > 0.0f) turn_pair(&x->lo.w, &x->hi.w, by.sine.w, by.cosine.w);
}

/* ---- Cache --------------------------------------------------------------------------------- */

/* Columns col .. col + 3 of a cell; `most_bits`: of the largest |value| of their block of 32, for
 * Q8_0 alone. */
__device__ __forceinline__ void store_cell(enum format format, char *cell, int col, float4 x,
                                           uint32_t most_bits)
{
    if (format == FORMAT_F32) {
        *reinterpret_cast<float4 *>(cell + 4 * col) = x;
    } else if (format == FORMAT_F16) {
        __half2 a = __floats2half2_rn(x.x, x.y), b = __floats2half2_rn(x.z, x.w);
        uint2 bits =
            make_uint2(*reinterpret_cast<uint32_t *>(&a), *reinterpret_cast<uint32_t *>(&b));
        *reinterpret_cast<uint2 *>(cell + 2 * col) = bits;
    } else if (format == FORMAT_BF16) {
        __nv_bfloat162 a = __floats2bfloat162_rn(x.x, x.y), b = __floats2bfloat162_rn(x.z, x.w);
        uint2 bits =
            make_uint2(*reinterpret_cast<uint32_t *>(&a), *reinterpret_cast<uint32_t *>(&b));
        *reinterpret_cast<uint2 *>(cell + 2 * col) = bits;
    } else {
        store_q8_0(cell, col, x, most_bits);
    }
}

/* The same of a head's keys or values that begin at `cell`, at their place there. Keys that are
 * values are stored as values alone. */
__device__ __forceinline__ void store_in_cell(const struct kv_cache &cache, enum format format,
                                              char *cell, bool is_key, int col, float4 x,
                                              uint32_t most_bits)
{
    if (is_key && !kv_has_own_key(cache.head_dim, cache.turned, col)) return;
    int place = is_key ? kv_key_place(&cache, col) : kv_value_place(&cache, col);
    store_cell(format, cell, place, x, most_bits);
}

enum head_kind { HEAD_Q, HEAD_K, HEAD_V };

/* Head `head` of the row's q, k or v, this thread's quads; zeros where it has none. */
__device__ __forceinline__ struct half_quads load_head(const struct heads_args &p,
                                                       enum head_kind kind, int row, int head,
                                                       int j)
{
    const int d = p.cache.head_dim, n = kind == HEAD_Q ? p.n_heads : p.cache.n_heads;
    const bool is_v = kind == HEAD_V && !p.is_k_eq_v;
    if (j >= d / 8) return {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
    if (p.half) {
        int col = kind == HEAD_Q ? p.q_col : is_v ? p.v_col : p.k_col;
        const uint16_t *x = p.half + (int64_t)row * p.half_cols + col + head * d + 4 * j;
        float scale = p.half_scale[row];
        return {half_quad(*reinterpret_cast<const uint2 *>(x), scale),
                half_quad(*reinterpret_cast<const uint2 *>(x + d / 2), scale)};
    }
    const float *x = kind == HEAD_Q ? p.q : is_v ? p.v : p.k;
    x += ((int64_t)row * n + head) * d + 4 * j;
    return {*reinterpret_cast<const float4 *>(x), *reinterpret_cast<const float4 *>(x + d / 2)};
}

} // namespace

#endif
