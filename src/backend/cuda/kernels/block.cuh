/* What kernels over whole rows share: sums and maxima of warps and blocks, access to rows by
 * quads.
 *
 * A quad is 4 consecutive columns, one 16-byte access. Consecutive lanes hold consecutive quads, so
 * that 8 lanes hold a block of 32 columns and 16 quads are the padding of a row. Sums over a row
 * run in one order: within a quad, over the 32 quads of a warp by butterfly, then over these groups
 * of 32 quads; it depends on the number of columns alone, not on how many quads a thread holds.
 *
 * Sums and products that must have the same bits in several kernels are written with intrinsics,
 * which the compiler does not contract. */
#ifndef CUDA_BLOCK_CUH
#define CUDA_BLOCK_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/types.h"

enum { WARP = 32 };

/* Every lane gets the same bits: both partners of an exchange add the same two numbers. */
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, mask));
    return x;
}

/* x, which all lanes have alike, in a uniform register, as is what follows from it. The compiler
 * does not see by itself that it can keep it there (descriptors of wgmma: 14 % of the instructions
 * of a loop). */
template <class T> __device__ __forceinline__ T uniform(T x)
{
    return __reduce_max_sync(~0u, x);
}

/* Of bit patterns of values >= 0, which order as integers; NaN is above infinity. */
__device__ __forceinline__ uint32_t warp_max(uint32_t x)
{
    return __reduce_max_sync(~0u, x);
}

/* Over 8 neighbouring lanes. */
__device__ __forceinline__ uint32_t octet_max(uint32_t x)
{
#pragma unroll
    for (int mask = 4; mask > 0; mask /= 2) x = max(x, __shfl_xor_sync(~0u, x, mask));
    return x;
}
__device__ __forceinline__ int octet_sum(int x)
{
#pragma unroll
    for (int mask = 4; mask > 0; mask /= 2) x += __shfl_xor_sync(~0u, x, mask);
    return x;
}

/* Within +-cap; the logits of a step have the same bits wherever this is done. */
__device__ __forceinline__ float soft_capped(float x, float cap)
{
    return cap * tanhf(x / cap);
}

/* ---- Quads --------------------------------------------------------------------------------- */

/* Columns col .. col + 3 of a row of `cols`; 0 beyond it. Rows of odd lengths are not aligned. */
__device__ __forceinline__ float4 load_quad(const float *row, int col, int cols)
{
    if (col + 4 <= cols && (reinterpret_cast<uintptr_t>(row) & 15) == 0)
        return *reinterpret_cast<const float4 *>(row + col);
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (col < cols) x.x = row[col];
    if (col + 1 < cols) x.y = row[col + 1];
    if (col + 2 < cols) x.z = row[col + 2];
    if (col + 3 < cols) x.w = row[col + 3];
    return x;
}

__device__ __forceinline__ void store_quad(float *row, int col, int cols, float4 x)
{
    if (col + 4 <= cols && (reinterpret_cast<uintptr_t>(row) & 15) == 0) {
        *reinterpret_cast<float4 *>(row + col) = x;
        return;
    }
    if (col < cols) row[col] = x.x;
    if (col + 1 < cols) row[col + 1] = x.y;
    if (col + 2 < cols) row[col + 2] = x.z;
    if (col + 3 < cols) row[col + 3] = x.w;
}

/* Four fp16 values times `scale`. */
__device__ __forceinline__ float4 half_quad(uint2 bits, float scale)
{
    float2 a = __half22float2(*reinterpret_cast<const __half2 *>(&bits.x));
    float2 b = __half22float2(*reinterpret_cast<const __half2 *>(&bits.y));
    return make_float4(a.x * scale, a.y * scale, b.x * scale, b.y * scale);
}

/* A vector that may be absent: all ones. */
__device__ __forceinline__ float4 load_factors(const float *w, int col, int cols)
{
    return w ? load_quad(w, col, cols) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
}

__device__ __forceinline__ float4 quad_add(float4 x, float4 y)
{
    return make_float4(__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y), __fadd_rn(x.z, y.z),
                       __fadd_rn(x.w, y.w));
}

__device__ __forceinline__ float4 quad_scaled(float4 x, float scale)
{
    return make_float4(__fmul_rn(x.x, scale), __fmul_rn(x.y, scale), __fmul_rn(x.z, scale),
                       __fmul_rn(x.w, scale));
}

__device__ __forceinline__ float quad_squares(float4 x)
{
    return __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmul_rn(x.x, x.x))));
}

/* x * r * w, rounded as the reference does it. */
__device__ __forceinline__ float4 quad_normed(float4 x, float r, float4 w)
{
    return make_float4(__fmul_rn(__fmul_rn(x.x, r), w.x), __fmul_rn(__fmul_rn(x.y, r), w.y),
                       __fmul_rn(__fmul_rn(x.z, r), w.z), __fmul_rn(__fmul_rn(x.w, r), w.w));
}

/* The bits of the largest |value|. */
__device__ __forceinline__ uint32_t quad_most(float4 x)
{
    uint32_t a = __float_as_uint(x.x) & 0x7fffffffu, b = __float_as_uint(x.y) & 0x7fffffffu;
    uint32_t c = __float_as_uint(x.z) & 0x7fffffffu, d = __float_as_uint(x.w) & 0x7fffffffu;
    return max(max(a, b), max(c, d));
}

/* ---- Sums over a row ----------------------------------------------------------------------- */

/* Threads of a block hold quads threadIdx.x + v * blockDim.x, v < V, of a row.
 * sum[n] = the row's sum of part[.][n], one value a quad. `shared` is not used again before the
 * block has passed a barrier. */
template <int V, int N>
__device__ __forceinline__ void row_sums(const float (&part)[V][N], float (&sum)[N],
                                         float (*shared)[V * WARP])
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
#pragma unroll
    for (int v = 0; v < V; v++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            float x = warp_sum(part[v][n]);
            if (lane == 0) shared[n][v * n_warps + warp] = x;
        }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) {
        float x = 0.0f;
        for (int g = lane; g < V * n_warps; g += WARP) x = __fadd_rn(x, shared[n][g]);
        sum[n] = warp_sum(x);
    }
}

/* The largest over the block; `shared` as above. */
__device__ __forceinline__ uint32_t block_max(uint32_t x, uint32_t shared[WARP])
{
    x = warp_max(x);
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    x = threadIdx.x % WARP < blockDim.x / WARP ? shared[threadIdx.x % WARP] : 0;
    return warp_max(x);
}

#endif
