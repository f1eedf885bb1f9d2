/* Pieces of norms over whole rows, for norm.cu and for products that make their row's norm. */
#ifndef CUDA_NORM_CUH
#define CUDA_NORM_CUH

#include "backend/cuda/kernels.h"
#include "backend/cuda/kernels/block.cuh"

__device__ __forceinline__ float norm_factor(float squares, const struct norm_args &p)
{
    return rsqrtf(__fmaf_rn(squares, __frcp_rn((float)p.cols), p.eps));
}

template <int QUADS>
__device__ __forceinline__ float row_squares(const float4 (&x)[QUADS],
                                             float (*shared)[QUADS * WARP])
{
    float part[QUADS][1], sum[1];
#pragma unroll
    for (int v = 0; v < QUADS; v++) part[v][0] = quad_squares(x[v]);
    row_sums<QUADS, 1>(part, sum, shared);
    return sum[0];
}

/* Whether two arrays have no byte in common; NULL has none. For launches in which some blocks read
 * a row while others write. */
static inline bool are_apart(const void *a, size_t n_a, const void *b, size_t n_b)
{
    const char *x = static_cast<const char *>(a), *y = static_cast<const char *>(b);
    return !x || !y || x + n_a <= y || y + n_b <= x;
}

#endif
