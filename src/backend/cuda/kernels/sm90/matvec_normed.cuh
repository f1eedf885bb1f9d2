/* The row of a product of one row, made from what the product before gave (kernels.h: struct
 * norm_args). Each block makes all of it for itself, in shared memory: one launch less that
 * everything waits for. The bits are those of norm.cu. */
#ifndef CUDA_SM90_MATVEC_NORMED_CUH
#define CUDA_SM90_MATVEC_NORMED_CUH

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/matvec_product.cuh"
#include "backend/cuda/kernels/norm.cuh"

struct normed_row {
    enum { ARE_MADE = 1, V = 3 /* quads of a thread */, COLS_MAX = V * 32 * MATVEC_WARPS * 4 };
    const struct norm_args &p;
    float4 w_a[V], w_out[V];

    static __device__ __forceinline__ int col_of(int v)
    {
        return (int)(threadIdx.x + v * 32 * MATVEC_WARPS) * 4;
    }

    /* Before the wait. */
    __device__ __forceinline__ void early()
    {
#pragma unroll
        for (int v = 0; v < V; v++) {
            w_a[v] = load_factors(p.w_a, col_of(v), p.cols);
            w_out[v] = load_factors(p.out[0].w, col_of(v), p.cols);
        }
    }

    /* The tiles of the row lie one after the other: values, scales, low plane. */
    static __device__ __forceinline__ int scales_at(const matvec_product &a)
    {
        return a.w[0].n_ktiles * 64;
    }
    static __device__ __forceinline__ int to_low(const matvec_product &a)
    {
        return (a.w[0].n_ktiles * 80 + 127) / 128 * 128 + 64; /* on other banks */
    }
    template <bool IS_FINE>
    __device__ __forceinline__ operands row_of(const matvec_product &a, const uint8_t *stage,
                                               int part) const
    {
        int lane = threadIdx.x % 32, k = slice_begin(a, part);
        bool is_low = IS_FINE && lane / 4 % 2 == 1; /* of this lane's column of B */
        return {stage + k * 64 + lane % 4 * 8 + (is_low ? to_low(a) : 0),
                stage + scales_at(a) + k * 16, 0, 0};
    }

    template <bool IS_FINE, bool HAS_ROWS>
    __device__ __forceinline__ void fill(const matvec_product &a, uint8_t *stage, int,
                                         bool is_first)
    {
        __shared__ float a_sums[1][V * WARP], x_sums[1][V * WARP];
        float4 s[V], x[V];
#pragma unroll
        for (int v = 0; v < V; v++) s[v] = load_quad(p.a, col_of(v), p.cols);
#pragma unroll
        for (int v = 0; v < V; v++)
            x[v] = p.residual ? load_quad(p.residual, col_of(v), p.cols)
                              : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (p.is_normed || p.w_a) {
            float r = norm_factor(row_squares<V>(s, a_sums), p);
#pragma unroll
            for (int v = 0; v < V; v++) s[v] = quad_normed(s[v], r, w_a[v]);
        }
#pragma unroll
        for (int v = 0; v < V; v++) {
            x[v] = quad_normed(quad_add(x[v], s[v]), p.scale, make_float4(1.0f, 1.0f, 1.0f, 1.0f));
            if (p.x_out && is_first) store_quad(p.x_out, col_of(v), p.cols, x[v]);
        }
        const float r = p.out[0].is_normed ? norm_factor(row_squares<V>(x, x_sums), p) : 1.0f;
        struct act act = {IS_FINE ? ACT_FINE : ACT_INT8, a.w[0].n_ktiles * 64, stage,
                          reinterpret_cast<int8_t *>(stage + to_low(a)),
                          reinterpret_cast<float *>(stage + scales_at(a))};
#pragma unroll
        for (int v = 0; v < V; v++) {
            float4 h = p.out[0].is_normed ? quad_normed(x[v], r, w_out[v]) : x[v];
            act_store_blocks(act, 0, col_of(v) / 4, h, true);
        }
        __syncthreads();
    }
};

#endif
