/* Rows on their own: look-ups in tables, elementwise steps.
 *
 * Elementwise steps treat all live rows as one array, a quad a thread (block.cuh). Look-ups decode
 * 8 columns a thread (file.cuh); their results have the bits of quant's decoders times the scale.
 * Bound: bytes read and written; one row: the latency of one or two dependent reads from L2. */
#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/file.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace {

enum { THREADS = 256 };

/* ---- Elementwise --------------------------------------------------------------------------- */

enum element_op { ELEMENT_ADD, ELEMENT_SCALE, ELEMENT_SOFTCAP };

struct element_args {
    struct step_view step;
    struct rows rows;
    const float *a, *b;
    float value;
    float *y;
    int32_t cols;
};

template <enum element_op OP>
__device__ __forceinline__ float element(float a, float b, float value)
{
    if constexpr (OP == ELEMENT_ADD) return __fadd_rn(a, b);
    if constexpr (OP == ELEMENT_SCALE) return __fmul_rn(value, a);
    return soft_capped(a, value);
}

/* Rows are contiguous, so that only the last quad of all may be a part: index counts from the start
 * of the first row. */
template <enum element_op OP>
__global__ void __launch_bounds__(THREADS)
    element_kernel(const __grid_constant__ struct element_args p)
{
    grid_wait();
    grid_release();
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    const int64_t left = (int64_t)p.rows.max * p.cols - at;
    if (left <= 0) return;
    const int n = (int)min(left, (int64_t)4);
    float4 a = load_quad(p.a + at, 0, n), b = a;
    if (OP == ELEMENT_ADD) b = load_quad(p.b + at, 0, n);
    const int64_t live = (int64_t)rows_live(p.rows, p.step) * p.cols - at;
    if (live <= 0) return;
    float4 y = make_float4(element<OP>(a.x, b.x, p.value), element<OP>(a.y, b.y, p.value),
                           element<OP>(a.z, b.z, p.value), element<OP>(a.w, b.w, p.value));
    store_quad(p.y + at, 0, (int)min(live, (int64_t)4), y);
}

template <enum element_op OP>
void launch_elements(const struct queue *q, const struct element_args &args)
{
    int64_t n = ((int64_t)args.rows.max * args.cols + 3) / 4;
    if (n <= 0) return;
    dim3 grid((unsigned)((n + THREADS - 1) / THREADS));
    launch(q, element_kernel<OP>, grid, THREADS, 0, args);
}

__global__ void __launch_bounds__(THREADS)
    concat_kernel(const __grid_constant__ struct concat_args p)
{
    grid_wait();
    grid_release();
    const int64_t row = blockIdx.x;
    const int col = blockIdx.y * THREADS + threadIdx.x, a_cols = p.cols - p.b_cols;
    if (row >= rows_live(p.rows, p.step) || col >= p.cols) return;
    p.y[row * p.cols + col] =
        col < a_cols ? p.a[row * a_cols + col] : p.b[row * p.b_cols + col - a_cols];
}

struct gather_args {
    struct step_view step;
    const float *x;
    float *y;
    int32_t cols;
};

__global__ void __launch_bounds__(THREADS)
    gather_kernel(const __grid_constant__ struct gather_args p)
{
    grid_wait();
    grid_release();
    const int64_t row = blockIdx.x;
    const int col = (blockIdx.y * THREADS + threadIdx.x) * 4;
    if (row >= p.step.counts[2] || col >= p.cols) return;
    float4 x = load_quad(p.x + (int64_t)p.step.out_row[row] * p.cols, col, p.cols);
    store_quad(p.y + row * p.cols, col, p.cols, x);
}

/* ---- Look-ups ------------------------------------------------------------------------------ */

__device__ __forceinline__ void store8(float *row, int col, int cols, const float x[8])
{
    store_quad(row, col, cols, make_float4(x[0], x[1], x[2], x[3]));
    store_quad(row, col + 4, cols, make_float4(x[4], x[5], x[6], x[7]));
}

/* Columns at .. at + 7 of a row of the table. It is decoded by eights; where `at` is not a multiple
 * of 8, two of them overlap what is wanted. */
__device__ __forceinline__ void look_up8(const struct cuda_weight &table, int row, int at,
                                         float x[8])
{
    const int skipped = at % 8;
    weight_decode8(table, 0, row, at - skipped, x);
    if (skipped == 0) return;
    float next[8] = {};
    if (at - skipped + 8 < table.cols) weight_decode8(table, 0, row, at - skipped + 8, next);
    float both[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        both[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (i + skipped == j) both[i] = x[j];
            if (i + skipped == j + 8) both[i] = next[j];
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = both[i];
}

__global__ void __launch_bounds__(THREADS) embed_kernel(const __grid_constant__ struct embed_args p)
{
    grid_wait();
    grid_release();
    const int row = blockIdx.x, col = (blockIdx.y * THREADS + threadIdx.x) * 8;
    if (col >= p.cols || row >= rows_live(p.rows, p.step)) return;
    float x[8];
    look_up8(p.table, p.step.id[row_token(p.rows, p.step, row)], p.first_col + col, x);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = __fmul_rn(p.scale, x[i]);
    store8(p.y + (int64_t)row * p.cols, col, p.cols, x);
}

__device__ __forceinline__ void load8(const float *row, int col, int cols, float x[8])
{
    float4 a = load_quad(row, col, cols), b = load_quad(row, col + 4, cols);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

/* A warp a group, 8 columns a lane at a time. The table may be in host memory: it is asked first,
 * the norm runs while it answers. Groups of more than 256 columns take two passes over a. */
__global__ void __launch_bounds__(THREADS) ple_kernel(const __grid_constant__ struct ple_args p)
{
    grid_wait();
    grid_release();
    const int lane = threadIdx.x % WARP, row = blockIdx.x;
    const int g = blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP;
    if (g >= p.cols / p.group || row >= rows_live(p.rows, p.step)) return;
    const int id = p.step.id[row_token(p.rows, p.step, row)], first = g * p.group;
    const float *a = p.a + (int64_t)row * p.cols + first;
    float *y = p.y + (int64_t)row * p.cols + first;
    const float in_scale = p.a_scale ? __fmul_rn(p.in_scale, p.a_scale[row]) : p.in_scale;
    float e[8], x[8], squares = 0.0f;
    if (lane * 8 < p.group) look_up8(p.table, id, p.first_col + first + lane * 8, e);
    for (int col = lane * 8; col < p.group; col += WARP * 8) {
        load8(a, col, p.group, x);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float scaled = __fmul_rn(in_scale, x[i]);
            squares = __fmaf_rn(scaled, scaled, squares);
        }
    }
    const float r = rsqrtf(warp_sum(squares) / (float)p.group + p.eps);
    for (int col = lane * 8; col < p.group; col += WARP * 8) {
        float w[8];
        load8(a, col, p.group, x);
        if (col >= WARP * 8) look_up8(p.table, id, p.first_col + first + col, e);
#pragma unroll
        for (int i = 0; i < 8; i++) w[i] = 1.0f;
        if (p.w) load8(p.w, col, p.group, w);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float normed = __fmul_rn(__fmul_rn(__fmul_rn(in_scale, x[i]), r), w[i]);
            x[i] = __fmul_rn(__fadd_rn(normed, __fmul_rn(p.e_scale, e[i])), p.out_scale);
        }
        store8(y, col, p.group, x);
    }
}

inline unsigned blocks_of(int64_t n, int each)
{
    return (unsigned)((n + each - 1) / each);
}

} // namespace

extern "C" void launch_add(const struct queue *q, struct step_view step, struct rows rows,
                           const float *a, const float *b, float *y, int32_t cols)
{
    launch_elements<ELEMENT_ADD>(q, {step, rows, a, b, 0.0f, y, cols});
}

extern "C" void launch_scale(const struct queue *q, struct step_view step, struct rows rows,
                             const float *x, float value, float *y, int32_t cols)
{
    launch_elements<ELEMENT_SCALE>(q, {step, rows, x, nullptr, value, y, cols});
}

extern "C" void launch_softcap(const struct queue *q, struct step_view step, struct rows rows,
                               const float *x, float cap, float *y, int32_t cols)
{
    launch_elements<ELEMENT_SOFTCAP>(q, {step, rows, x, nullptr, cap, y, cols});
}

extern "C" void launch_concat(const struct queue *q, const struct concat_args *args)
{
    if (args->rows.max <= 0) return;
    dim3 grid((unsigned)args->rows.max, blocks_of(args->cols, THREADS));
    launch(q, concat_kernel, grid, THREADS, 0, *args);
}

extern "C" void launch_gather_rows(const struct queue *q, struct step_view step, const float *x,
                                   float *y, int32_t cols, int32_t rows_max)
{
    if (rows_max <= 0) return;
    struct gather_args args = {step, x, y, cols};
    dim3 grid((unsigned)rows_max, blocks_of(cols, 4 * THREADS));
    launch(q, gather_kernel, grid, THREADS, 0, args);
}

extern "C" void launch_embed(const struct queue *q, const struct embed_args *args)
{
    if (args->rows.max <= 0) return;
    dim3 grid((unsigned)args->rows.max, blocks_of(args->cols, 8 * THREADS));
    launch(q, embed_kernel, grid, THREADS, 0, *args);
}

extern "C" void launch_ple(const struct queue *q, const struct ple_args *args)
{
    if (args->rows.max <= 0) return;
    dim3 grid((unsigned)args->rows.max, blocks_of(args->cols / args->group, THREADS / WARP));
    launch(q, ple_kernel, grid, THREADS, 0, *args);
}
