/* A row with all that lies between two products (kernels.h: struct norm_args), by a block whose
 * threads hold QUADS quads of it each (block.cuh). */
#ifndef CUDA_NORM_ROW_CUH
#define CUDA_NORM_ROW_CUH

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/round.cuh"

/* For a few rows everything is read at once. For many, weights and the residual are read where they
 * are used: fewer registers, more rows resident. (Copying the residual to shared memory in the
 * meantime was a sixth slower on an H200 for 2048 rows of 2560.) */
__host__ __device__ constexpr bool reads_early(int v)
{
    return v <= 2;
}

/* out: of the first OUTS outs. */
template <int QUADS, int OUTS> struct norm_weights {
    float4 a[QUADS], b[QUADS], s[QUADS], out[OUTS][QUADS];
};

__device__ __forceinline__ int col_of(int v)
{
    return (threadIdx.x + v * blockDim.x) * 4;
}

template <int QUADS, int OUTS>
__device__ __forceinline__ void load_weights(const struct norm_args &p,
                                             struct norm_weights<QUADS, OUTS> *w)
{
    if constexpr (reads_early(QUADS)) {
#pragma unroll
        for (int v = 0; v < QUADS; v++) {
            w->a[v] = load_factors(p.w_a, col_of(v), p.cols);
            if (p.b) w->b[v] = load_factors(p.w_b, col_of(v), p.cols);
            if (p.w_s) w->s[v] = load_quad(p.w_s, col_of(v), p.cols);
#pragma unroll
            for (int k = 0; k < OUTS; k++)
                if (p.n_outs > k && p.out[k].is_normed)
                    w->out[k][v] = load_factors(p.out[k].w, col_of(v), p.cols);
        }
    }
}

template <int QUADS>
__device__ __forceinline__ float4 weight_at(const float4 (&held)[QUADS], const float *w, int v,
                                            int cols)
{
    return reads_early(QUADS) ? held[v] : load_factors(w, col_of(v), cols);
}

/* s = r(a) * w_a. */
template <int QUADS, int OUTS>
__device__ __forceinline__ void norm_branch(const struct norm_args &p,
                                            const struct norm_weights<QUADS, OUTS> &w,
                                            float4 (&s)[QUADS], float squares)
{
    const float r = norm_factor(squares, p);
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        s[v] = quad_normed(s[v], r, weight_at<QUADS>(w.a, p.w_a, v, p.cols));
}

/* s = a, or r(a) * w_a; plus r(b) * w_b. */
template <int QUADS, int OUTS>
__device__ __forceinline__ void join_branches(const struct norm_args &p,
                                              const struct norm_weights<QUADS, OUTS> &w,
                                              float4 (&s)[QUADS], float (*shared)[QUADS * WARP])
{
    float part[QUADS][2], sum[2];
    float4 b[QUADS];
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        b[v] = load_quad(p.b + (int64_t)blockIdx.x * p.cols, col_of(v), p.cols);
        part[v][0] = quad_squares(s[v]);
        part[v][1] = quad_squares(b[v]);
    }
    row_sums<QUADS, 2>(part, sum, shared);
    if (p.is_normed || p.w_a) norm_branch<QUADS, OUTS>(p, w, s, sum[0]);
    const float r = norm_factor(sum[1], p);
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        s[v] = quad_add(s[v], quad_normed(b[v], r, weight_at<QUADS>(w.b, p.w_b, v, p.cols)));
}

/* Four fp16 columns times the row's scale. */
__device__ __forceinline__ float4 load_halves(const uint16_t *row, int col, int cols, float scale)
{
    if (col >= cols) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return half_quad(*reinterpret_cast<const uint2 *>(row + col), scale);
}

template <int QUADS>
__device__ __forceinline__ void load_residual(const struct norm_args &p, float4 (&x)[QUADS])
{
    const float *row = p.residual + (int64_t)blockIdx.x * p.cols;
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        x[v] = p.residual ? load_quad(row, col_of(v), p.cols) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/* Writes h to where out k wants it. */
template <int QUADS>
__device__ __forceinline__ void put_out(const struct norm_args &p, int k, bool is_live,
                                        const float4 (&h)[QUADS], uint32_t *shared_most)
{
    const struct norm_args::norm_out &out = p.out[k];
    const int64_t row = blockIdx.x;
    if (out.y && is_live) {
#pragma unroll
        for (int v = 0; v < QUADS; v++) store_quad(out.y + row * p.cols, col_of(v), p.cols, h[v]);
    }
    if (is_in_blocks(out.act)) {
#pragma unroll
        for (int v = 0; v < QUADS; v++)
            act_store_blocks(out.act, row, col_of(v) / 4, h[v], is_live);
    } else if (is_in_halves(out.act)) {
        uint32_t most = 0;
#pragma unroll
        for (int v = 0; v < QUADS; v++) most = max(most, quad_most(h[v]));
        float inverse, scale = act_half_scale(block_max(most, shared_most), &inverse);
        if (!is_live) return;
#pragma unroll
        for (int v = 0; v < QUADS; v++) act_store_half(out.act, row, col_of(v) / 4, h[v], inverse);
        if (threadIdx.x == 0) out.act.scale[row] = scale;
    }
}

/* Whether a few rows go to products in fp16. A block of these has a multiprocessor for itself, so
 * they may be started at once: each begins to load weights where a block of the product before has
 * ended. Blocks of products in 8 bits would share it with those of the product before and disturb
 * them (H200: E4B with 16 users 2.3 % more tokens a second, 12B 0.6 %; 12B with eight users, in 8
 * bits, 2 % fewer). */
template <int QUADS> __device__ __forceinline__ bool is_for_halves(const struct norm_args &p)
{
    return reads_early(QUADS) && is_in_halves(p.out[0].act);
}

/* Row blockIdx.x, by all threads of a block; waits for the kernel before. */
template <int QUADS, bool HAS_B, int OUTS>
__device__ __forceinline__ void norm_row(const struct norm_args &p)
{
    __shared__ float branch_sums[2][QUADS * WARP], s_sums[1][QUADS * WARP];
    __shared__ float x_sums[1][QUADS * WARP];
    __shared__ uint32_t most[NORM_OUTS][WARP];
    struct norm_weights<QUADS, OUTS> w;
    load_weights<QUADS, OUTS>(p, &w);
    const bool is_early = is_for_halves<QUADS>(p);
    if (is_early) grid_release();
    grid_wait();
    if (!is_early) grid_release();
    /* A row that is not live is read and computed too: its loads need not wait for the counts. */
    const bool is_live = (int)blockIdx.x < rows_live(p.rows, p.step);
    const int64_t at = (int64_t)blockIdx.x * p.cols;
    float4 s[QUADS], x[QUADS];
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        s[v] = p.a_half ? load_halves(p.a_half + at, col_of(v), p.cols, p.a_scale[blockIdx.x])
                        : load_quad(p.a + at, col_of(v), p.cols);
    if (reads_early(QUADS)) load_residual<QUADS>(p, x);
    if (HAS_B)
        join_branches<QUADS, OUTS>(p, w, s, branch_sums);
    else if (p.is_normed || p.w_a)
        norm_branch<QUADS, OUTS>(p, w, s, row_squares<QUADS>(s, branch_sums));
    if (p.w_s) {
        float r = norm_factor(row_squares<QUADS>(s, s_sums), p);
#pragma unroll
        for (int v = 0; v < QUADS; v++)
            s[v] = quad_normed(s[v], r, weight_at<QUADS>(w.s, p.w_s, v, p.cols));
    }
    if (!reads_early(QUADS)) load_residual<QUADS>(p, x);
    bool is_normed = false;
    for (int k = 0; k < p.n_outs; k++) is_normed = is_normed || p.out[k].is_normed;
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        x[v] = quad_normed(quad_add(x[v], s[v]), p.scale, make_float4(1.0f, 1.0f, 1.0f, 1.0f));
        if (p.x_out && is_live) store_quad(p.x_out + at, col_of(v), p.cols, x[v]);
    }
    const float r = is_normed ? norm_factor(row_squares<QUADS>(x, x_sums), p) : 1.0f;
#pragma unroll OUTS
    for (int k = 0; k < (OUTS > 1 ? OUTS : p.n_outs); k++) {
        if (OUTS > 1 && k >= p.n_outs) continue;
        float4 h[QUADS];
#pragma unroll
        for (int v = 0; v < QUADS; v++) {
            if (!p.out[k].is_normed)
                h[v] = x[v];
            else if (reads_early(QUADS) && k < OUTS)
                h[v] = quad_normed(x[v], r, w.out[OUTS > 1 ? k : 0][v]);
            else
                h[v] = quad_normed(x[v], r, load_factors(p.out[k].w, col_of(v), p.cols));
        }
        put_out<QUADS>(p, k, is_live, h, most[k]);
    }
}

#endif
