/* y[t] = w x[t] in fp32, weights decoded on the way; with ids the experts' products. Slow and
 * exact: fused multiply-adds over 32 columns, those sums added in rising order, the same for any
 * number of rows.
 *
 * Products: a block makes 64 outputs x 32 rows, a thread 4 x 2; both operands pass through shared
 * memory, 32 columns at a time. Bound by fp32 arithmetic and the decoding.
 * Experts: a block makes 32 outputs of one row, a warp 4, for one chosen expert or for all of the
 * row's in turn; weights are decoded again for each pair. */
#include "backend/cuda/kernels/file.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

enum { OUTS = 64, ROWS = 32, COLS = 32, THREADS = 256, EXPERT_OUTS = 32 };

__global__ void __launch_bounds__(THREADS) matmul_exact(const __grid_constant__ struct exact_args a)
{
    __shared__ float w_tile[COLS][OUTS + 1], x_tile[COLS][ROWS + 1];
    grid_wait();
    grid_release();
    int live = rows_live(a.rows, a.step), row0 = blockIdx.y * ROWS, out0 = blockIdx.x * OUTS;
    if (row0 >= live) return;
    int tid = threadIdx.x, tx = tid % 16, ty = tid / 16; /* outputs tx + 16 i, rows ty + 16 j */
    float sum[4][2] = {};
    for (int k = 0; k < a.w.cols; k += COLS) {
        int out = tid / 4, col = tid % 4 * 8;
        float v[8] = {};
        if (out0 + out < a.w.rows && k + col < a.w.cols)
            weight_decode8(a.w, 0, out0 + out, k + col, v);
        for (int i = 0; i < 8; i++) w_tile[col + i][out] = v[i];
        for (int i = tid; i < ROWS * COLS; i += THREADS) {
            int row = row0 + i / COLS, c = k + i % COLS;
            x_tile[i % COLS][i / COLS] =
                row < live && c < a.w.cols ? a.x[(int64_t)row * a.w.cols + c] : 0.0f;
        }
        __syncthreads();
        float part[4][2] = {};
#pragma unroll 8
        for (int c = 0; c < COLS; c++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 2; j++)
                    part[i][j] = fmaf(w_tile[c][tx + 16 * i], x_tile[c][ty + 16 * j], part[i][j]);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 2; j++) sum[i][j] += part[i][j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            int out = out0 + tx + 16 * i, row = row0 + ty + 16 * j;
            if (out < a.w.rows && row < live) a.y[(int64_t)row * a.w.rows + out] = sum[i][j];
        }
}

/* One output of one expert: lanes take 8 columns in turn. */
__device__ float expert_dot(const struct cuda_weight &w, int expert, int out, const float *x)
{
    float sum = 0;
    for (int col = threadIdx.x % 32 * 8; col < w.cols; col += 256) {
        float v[8], part = 0;
        weight_decode8(w, expert, out, col, v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (col + i < w.cols) part = fmaf(v[i], x[col + i], part);
        sum += part;
    }
    for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    experts_exact(const __grid_constant__ struct exact_args a)
{
    grid_wait();
    grid_release();
    bool is_sum = a.shares;
    int64_t at = blockIdx.x; /* a row, or a pair */
    int live = rows_live(a.rows, a.step), row = (int)(is_sum ? at : at / a.n_used);
    if (row >= live) return;
    for (int i = 0; i < EXPERT_OUTS * 32 / THREADS; i++) {
        int out = blockIdx.y * EXPERT_OUTS + i * (THREADS / 32) + threadIdx.x / 32;
        if (out >= a.w.rows) return;
        float y = 0;
        for (int s = 0; s < (is_sum ? a.n_used : 1); s++) {
            int64_t pair = is_sum ? at * a.n_used + s : at;
            int id = a.ids[pair];
            float dot = not_a_number();
            if (id >= 0 && id < a.w.n_expert)
                dot = expert_dot(a.w, id, out, a.x + (is_sum ? pair : row) * a.w.cols);
            y = is_sum ? fmaf(a.shares[pair], dot, y) : dot;
        }
        if (threadIdx.x % 32 == 0) a.y[at * a.w.rows + out] = y;
    }
}

void launch_matmul_exact(const struct queue *q, const struct exact_args *args)
{
    unsigned rows = (unsigned)args->rows.max, outs = (unsigned)args->w.rows;
    if (args->ids) {
        unsigned n = args->shares ? rows : rows * (unsigned)args->n_used;
        launch(q, experts_exact, dim3(n, (outs + EXPERT_OUTS - 1) / EXPERT_OUTS), THREADS, 0,
               *args);
        return;
    }
    launch(q, matmul_exact, dim3((outs + OUTS - 1) / OUTS, (rows + ROWS - 1) / ROWS), THREADS, 0,
           *args);
}
