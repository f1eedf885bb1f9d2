/* What happens to the finished sums of products of a few rows: slices are added, and the epilogues
 * with GELU round for the next product. */
#ifndef CUDA_MATVEC_SUMS_CUH
#define CUDA_MATVEC_SUMS_CUH

#include "backend/cuda/kernels/form.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

static inline int round_up(int n, int step)
{
    return (n + step - 1) / step * step;
}

__device__ __forceinline__ float gelu(float a)
{
    return 0.5f * a * (1.0f + tanhf(0.79788456080286536f * (a + 0.044715f * a * a * a)));
}

/* Partial sums of a block, by slice, output and row: eight outputs lie together, and the padding
 * after the rows keeps neighbouring groups on other banks. */
struct partial_sums {
    float *at;
    int n_slices, slots, rows; /* slots: groups of eight outputs */

    __device__ __forceinline__ float *slot(int slice, int group) const
    {
        return at + (slice * slots + group) * (rows * 8 + 8);
    }
    __device__ __forceinline__ float total(int group, int j, int row) const
    {
        float sum = 0;
        for (int s = 0; s < n_slices; s++) sum += slot(s, group)[row * 8 + j];
        return sum;
    }
    /* cap 0: the sum as it is. */
    __device__ __forceinline__ float capped_total(int group, int j, int row, float cap) const
    {
        float sum = total(group, j, row);
        return cap == 0.0f ? sum : soft_capped(sum, cap);
    }
};
__host__ __device__ constexpr size_t partial_bytes(int n_slices, int slots, int rows)
{
    return (size_t)n_slices * (size_t)slots * (size_t)(rows * 8 + 8) * 4;
}

/* What the epilogues with GELU make of a block's sums: 32 columns of a row a warp. Local row r goes
 * to row_of(r); with `has_two` slots alternate between gate and up. */
struct gelu_epilogue {
    enum matvec_epilogue kind;
    const float *by;
    int32_t by_cols, second_col, cols;
    float *out;
    struct act act;
};

template <typename RowOf>
__device__ __forceinline__ void finish_gelu(const gelu_epilogue &e, const partial_sums &p,
                                            int first_col, int n_rows, RowOf row_of)
{
    bool has_two = e.kind == MATVEC_GELU_MUL;
    int blocks = p.slots * 8 / (has_two ? 64 : 32), lane = threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < blocks * n_rows; i += blockDim.x / 32) {
        int row = i / blocks, o = i % blocks * 32 + lane, col = first_col + o;
        int64_t to = row_of(row);
        float v = 0;
        if (col < e.cols) {
            float a = p.total(has_two ? o / 8 * 2 : o / 8, o % 8, row);
            float b = has_two ? p.total(o / 8 * 2 + 1, o % 8, row)
                              : e.by[to * e.by_cols + e.second_col + col];
            v = gelu(a) * b;
            if (e.out) e.out[to * e.cols + col] = v;
        }
        if (is_in_blocks(e.act) && col - lane < e.act.stride) act_store_block(e.act, to, col, v);
    }
}

#endif
