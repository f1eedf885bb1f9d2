/* gelu(a) * b, and activations prepared for products: rows in fp32 or fp16 to fp32, int8 or fp16.
 *
 * A thread makes one quad at a time (block.cuh). Results in fp32 or in blocks of columns need no
 * more than 32 columns together: blocks of 256 quads. fp16 rows have a scale that is known only
 * when the whole row is: one block per row, which holds QUADS quads per thread in registers.
 *
 * Bound: bytes read and written. */
#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/gelu.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

namespace {

enum { BLOCK_QUADS = 256 };

struct row_source {
    struct step_view step;
    struct rows rows;
    bool is_all_live;
    const float *a, *b;   /* b NULL: a as it is */
    const float *a_scale; /* NULL: all ones */
    const uint16_t *half;
    const float *half_scale;
    int32_t half_div, cols, b_cols, second_col;
    float *y;
    struct act act;
};

enum source_kind { SOURCE_PLAIN, SOURCE_FLOATS, SOURCE_HALVES };

/* One quad of the row as read; the arithmetic comes later, after all loads were issued. */
template <enum source_kind KIND> struct raw_quad {
    float4 a, b;
};
template <> struct raw_quad<SOURCE_HALVES> {
    uint2 a, b;
};

template <enum source_kind KIND>
__device__ __forceinline__ void read_quad(const struct row_source &p, int64_t row, int col,
                                          struct raw_quad<KIND> *x)
{
    if constexpr (KIND == SOURCE_HALVES) {
        const uint16_t *a = p.half + row * 2 * p.cols;
        x->a = x->b = make_uint2(0, 0);
        if (col >= p.cols) return;
        x->a = *reinterpret_cast<const uint2 *>(a + col);
        x->b = *reinterpret_cast<const uint2 *>(a + p.cols + col);
    } else {
        x->a = load_quad(p.a + row * p.cols, col, p.cols);
        if constexpr (KIND == SOURCE_FLOATS)
            x->b = load_quad(p.b + row * p.b_cols + p.second_col, col, p.cols);
    }
}

template <enum source_kind KIND>
__device__ __forceinline__ float scale_at(const struct row_source &p, int64_t row)
{
    if constexpr (KIND == SOURCE_HALVES) return p.half_scale[row / p.half_div];
    return KIND == SOURCE_FLOATS && p.a_scale ? p.a_scale[row] : 1.0f;
}

template <enum source_kind KIND>
__device__ __forceinline__ float4 make_quad(const struct raw_quad<KIND> &x, float scale)
{
    if constexpr (KIND == SOURCE_PLAIN)
        return x.a;
    else if constexpr (KIND == SOURCE_FLOATS)
        return quad_gelu_mul(quad_scaled(x.a, scale), x.b);
    else
        return quad_gelu_mul(half_quad(x.a, scale), half_quad(x.b, scale));
}

__device__ __forceinline__ bool is_live_row(const struct row_source &p, int64_t row)
{
    return p.is_all_live || row < rows_live(p.rows, p.step);
}

template <enum source_kind KIND>
__global__ void __launch_bounds__(BLOCK_QUADS)
    quads_kernel(const __grid_constant__ struct row_source p)
{
    grid_wait();
    grid_release();
    const int64_t row = blockIdx.x;
    const int quad = blockIdx.y * BLOCK_QUADS + threadIdx.x;
    struct raw_quad<KIND> raw;
    read_quad<KIND>(p, row, quad * 4, &raw);
    const float scale = scale_at<KIND>(p, row);
    const bool is_live = is_live_row(p, row);
    float4 x = make_quad<KIND>(raw, scale);
    if (p.y && is_live) store_quad(p.y + row * p.cols, quad * 4, p.cols, x);
    if (is_in_blocks(p.act)) act_store_blocks(p.act, row, quad, x, is_live);
}

template <enum source_kind KIND, int QUADS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    half_rows_kernel(const __grid_constant__ struct row_source p)
{
    __shared__ uint32_t shared[WARP];
    grid_wait();
    grid_release();
    const int64_t row = blockIdx.x;
    struct raw_quad<KIND> raw[QUADS];
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        read_quad<KIND>(p, row, (threadIdx.x + v * blockDim.x) * 4, &raw[v]);
    const float scale = scale_at<KIND>(p, row);
    if (!is_live_row(p, row)) return;
    float4 x[QUADS];
    uint32_t most = 0;
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        x[v] = make_quad<KIND>(raw[v], scale);
        most = max(most, quad_most(x[v]));
        if (p.y) store_quad(p.y + row * p.cols, (threadIdx.x + v * blockDim.x) * 4, p.cols, x[v]);
    }
    float inverse, row_scale = act_half_scale(block_max(most, shared), &inverse);
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        act_store_half(p.act, row, threadIdx.x + v * blockDim.x, x[v], inverse);
    if (threadIdx.x == 0) p.act.scale[row] = row_scale;
}

template <enum source_kind KIND, int QUADS, int THREADS>
void act_launch_half(const struct queue *q, const struct row_source &p, int n_quads)
{
    int threads = ((n_quads + QUADS - 1) / QUADS + WARP - 1) / WARP * WARP;
    launch(q, half_rows_kernel<KIND, QUADS, THREADS>, dim3((unsigned)p.rows.max), (unsigned)threads,
           0, p);
}

/* Rows of up to 65536 columns. */
template <enum source_kind KIND> void act_launch(const struct queue *q, const struct row_source &p)
{
    if (p.rows.max <= 0) return;
    int n_quads = (p.cols + TILE_COLS - 1) / TILE_COLS * (TILE_COLS / 4);
    if (!is_in_halves(p.act)) {
        dim3 grid((unsigned)p.rows.max, (unsigned)((n_quads + BLOCK_QUADS - 1) / BLOCK_QUADS));
        launch(q, quads_kernel<KIND>, grid, BLOCK_QUADS, 0, p);
    } else if (n_quads <= 1024) {
        act_launch_half<KIND, 2, 512>(q, p, n_quads);
    } else if (n_quads <= 6144) {
        act_launch_half<KIND, 6, 1024>(q, p, n_quads);
    } else {
        act_launch_half<KIND, 16, 1024>(q, p, n_quads);
    }
}

} // namespace

extern "C" void launch_gelu_mul(const struct queue *q, const struct gelu_mul_args *args)
{
    struct row_source p = {args->step,     args->rows,    args->is_all_live, args->a,
                           args->b,        args->a_scale, args->half,        args->half_scale,
                           args->half_div, args->cols,    args->b_cols,      args->second_col,
                           args->y,        args->act};
    if (p.half_div < 1) p.half_div = 1;
    if (p.half)
        act_launch<SOURCE_HALVES>(q, p);
    else
        act_launch<SOURCE_FLOATS>(q, p);
}

extern "C" void launch_act(const struct queue *q, struct step_view step, struct rows rows,
                           const float *x, int32_t cols, struct act act, bool is_all_live)
{
    struct row_source p = {step,    rows, is_all_live, x, nullptr, nullptr, nullptr,
                           nullptr, 1,    cols,        0, 0,       nullptr, act};
    act_launch<SOURCE_PLAIN>(q, p);
}
