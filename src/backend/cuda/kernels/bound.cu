/* Sizes of the rows of a weight, from which bounds of products are made when weights are loaded
 * (bounds.h). A warp takes a row. Bound: decoding; a model's feed-forward matrices take some tens
 * of milliseconds, once. */
#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/file.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace {

enum { BOUND_THREADS = 256, BOUND_ROWS = BOUND_THREADS / WARP };

__global__ void __launch_bounds__(BOUND_THREADS)
    row_sizes_kernel(const __grid_constant__ struct row_size_args a)
{
    grid_wait();
    grid_release();
    const int64_t at = (int64_t)blockIdx.x * BOUND_ROWS + threadIdx.x / WARP;
    if (at >= (int64_t)a.w.n_expert * a.w.rows) return;
    const int expert = (int)(at / a.w.rows), row = (int)(at % a.w.rows);
    const float *by = a.by && a.is_by_expert ? a.by + (int64_t)expert * a.w.cols : a.by;
    float sum = 0;
    for (int col = threadIdx.x % WARP * 8; col < a.w.cols; col += WARP * 8) {
        float v[8];
        weight_decode8(a.w, expert, row, col, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (col + i >= a.w.cols) break;
            float x = by ? v[i] * by[col + i] : v[i];
            sum += a.is_norm ? x * x : fabsf(x);
        }
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP) return;
    float size = a.is_norm ? sqrtf(sum) : sum;
    if (a.times) size *= a.times[at];
    if (a.out) a.out[at] = size;
    if (a.most) atomicMax(a.most, __float_as_uint(size));
}

} // namespace

void launch_row_sizes(const struct queue *q, const struct row_size_args *args)
{
    int64_t rows = (int64_t)args->w.n_expert * args->w.rows;
    dim3 grid((unsigned)((rows + BOUND_ROWS - 1) / BOUND_ROWS));
    launch(q, row_sizes_kernel, grid, BOUND_THREADS, 0, *args);
}
