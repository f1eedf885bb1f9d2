/* Results of tiles whose first operand is W (gemm_results.cuh: IS_TURNED): a thread has sums of one
 * output for two neighbouring rows of x, where others have two outputs of one row. */
#ifndef CUDA_SM90_GEMM_TURNED_CUH
#define CUDA_SM90_GEMM_TURNED_CUH

#include "backend/cuda/kernels/sm90/gemm_results.cuh"

namespace {

/* An 8 x 8 matrix of halves of a warp, of which a lane has two neighbours of row lane / 4, with
 * rows and columns exchanged. */
__device__ __forceinline__ uint32_t transposed(uint32_t pair)
{
    uint32_t out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
    return out;
}

/* The warp's 16 outputs of N rows of x from `row` on, 16 bytes a lane: `pair_at(j, h)` is output
 * lane / 4 + 8h of rows 8j + 2 (lane % 4) and the next. Bounds as in store_words. */
template <int N, typename Pair>
__device__ __forceinline__ void store_columns(const product &p, int row, int col, int n, int end,
                                              Pair pair_at)
{
    static_assert(N % 16 == 0, "two matrices of rows at a time");
    col += threadIdx.x % 2 * 8;
    row += threadIdx.x % 32 / 4 + threadIdx.x % 4 / 2 * 8;
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        uint4 words = turned(transposed(pair_at(j, 0)), transposed(pair_at(j, 1)),
                             transposed(pair_at(j + 1, 0)), transposed(pair_at(j + 1, 1)));
        if (col >= n) words = make_uint4(0, 0, 0, 0);
        if (row + j * 8 < p.n_rows && col < end)
            *reinterpret_cast<uint4 *>(p.half + (int64_t)(row + j * 8) * p.half_cols + col) = words;
    }
}

/* The scales of rows `row` and the next. */
__device__ __forceinline__ float2 scales_of(const product &p, int row)
{
    return make_float2(row < p.n_rows ? p.scale[row] : 1.0f,
                       row + 1 < p.n_rows ? p.scale[row + 1] : 1.0f);
}

/* gelu(gate) * up, of sums in two slabs. `col`: of hidden ones. */
template <int N>
__device__ __forceinline__ void store_hidden_columns(const product &p, const float (&gate)[N / 2],
                                                     const float (&up)[N / 2], int row, int col)
{
    const int first = row + threadIdx.x % 4 * 2;
    if (col == 0 && threadIdx.x % 32 < 4)
        for (int j = 0; j < N / 8; j++)
            for (int e = first + j * 8; e < first + j * 8 + 2 && e < p.n_rows; e++)
                p.hidden_scale[e] = 1.0f / p.hidden_inverse;
    store_columns<N>(p, row, col, p.n_hidden, p.half_cols, [&](int j, int h) {
        int k = 4 * j + 2 * h;
        float2 scale = scales_of(p, first + j * 8);
        return pack_halves(hidden_of(p, gate[k], up[k], scale.x),
                           hidden_of(p, gate[k + 1], up[k + 1], scale.y));
    });
}

/* fp32: 32 bytes of each row. */
template <int N>
__device__ __forceinline__ void store_float_columns(const product &p, const float (&d)[N / 2],
                                                    int row, int col)
{
    row += threadIdx.x % 4 * 2;
    col += threadIdx.x % 32 / 4;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float2 scale = p.scale ? scales_of(p, row + j * 8) : make_float2(1.0f, 1.0f);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float *y = p.y + (int64_t)(row + j * 8) * p.n_cols + col + 8 * h;
            if (col + 8 * h >= p.n_cols) continue;
            if (row + j * 8 < p.n_rows) y[0] = d[4 * j + 2 * h] * scale.x;
            if (row + j * 8 + 1 < p.n_rows) y[p.n_cols] = d[4 * j + 2 * h + 1] * scale.y;
        }
    }
}

/* A group's part of the tile at (row, col). */
template <class V>
__device__ __forceinline__ void store_turned(const product &p,
                                             const float (&sums)[V::SLABS][V::N / 2], int row,
                                             int col, int group)
{
    const int of_warp = group * V::GROUP_STEP + threadIdx.x % GROUP / 32 * 16;
    if constexpr (V::SLABS == 2)
        if (p.n_hidden) {
            store_hidden_columns<V::N>(p, sums[0], sums[1], row, col / 2 + of_warp);
            return;
        }
#pragma unroll
    for (int i = 0; i < V::SLABS; i++) {
        const int first = col + of_warp + i * V::SLAB_STEP;
        if (p.half)
            store_columns<V::N>(p, row, first, p.n_cols, p.n_cols, [&](int j, int h) {
                return pack_halves(sums[i][4 * j + 2 * h], sums[i][4 * j + 2 * h + 1]);
            });
        else
            store_float_columns<V::N>(p, sums[i], row, first);
    }
}

} // namespace

#endif
