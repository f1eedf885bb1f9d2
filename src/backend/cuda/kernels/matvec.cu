/* Products of up to 64 rows with weights that are read once: y[t] = w x[t], or with GELU behind and
 * the rounding for the next product.
 *
 * Tiles (matvec_block.cuh): int8 mma.sync with fp32 sums; bound by reading the weights up to about
 * 32 rows, then by the work per 32 columns that scales make. LAYOUT_ROWS: fp32 multiply-adds; a
 * warp takes four weight rows and a slice of the columns, a lane 8 neighbouring columns of every
 * 256; bound by reading the weights for few rows, by the arithmetic beyond. */
#include "backend/cuda/kernels/matvec_block.cuh"

/* ---- Weights as rows ------------------------------------------------------------------------ */

enum { ROWS_THREADS_MAX = 512, QUAD = 4, STEP = 256 };

/* Eight neighbouring values as they lie in memory. */
template <typename T> struct packed8 {
    uint4 v[sizeof(T) / 2];
};

template <typename T> __device__ __forceinline__ void unpack8(const packed8<T> &p, float out[8])
{
    const T *v = reinterpret_cast<const T *>(&p);
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = (float)v[i];
}

/* Columns col .. col + 7; 0 behind the row's end. Rows are padded to 16 bytes, not to 8 values. */
template <typename T>
__device__ __forceinline__ packed8<T> load_row8(const uint8_t *row, int col, int cols)
{
    packed8<T> p = {};
    constexpr int PER_VECTOR = 16 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 2; i++)
        if (col + i * PER_VECTOR < cols)
            p.v[i] = load_once4(row + (int64_t)(col + i * PER_VECTOR) * (int)sizeof(T));
    return p;
}

__device__ __forceinline__ void load_x8(const float *x, int col, int cols, bool is_aligned,
                                        float out[8])
{
    if (is_aligned && col + 8 <= cols) {
        float4 a = *reinterpret_cast<const float4 *>(x + col);
        float4 b = *reinterpret_cast<const float4 *>(x + col + 4);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
        out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = col + i < cols ? x[col + i] : 0.0f;
}

struct rows_product {
    struct step_view step;
    struct rows rows;
    struct cuda_weight w[2];
    const float *x;
    float *y; /* MATVEC_STORE */
    struct gelu_epilogue gelu;
    const int32_t *ids;
    int32_t n_used;
    int32_t quads, n_slices; /* quads * n_slices warps a block */
};

/* Weight row number i of a quad. With gate and up a quad is 2 outputs of each; quads 4 g .. 4 g + 3
 * make the eight outputs of slots 2 g and 2 g + 1. */
__device__ __forceinline__ void row_of_quad(const rows_product &a, int quad, int i, int *which,
                                            int *out, int *slot)
{
    bool has_two = a.gelu.kind == MATVEC_GELU_MUL;
    *which = has_two ? i / 2 : 0;
    *out = has_two ? quad * 2 + i % 2 : quad * 4 + i;
    *slot = has_two ? quad / 4 * 2 + *which : quad / 2;
}

__device__ __forceinline__ void finish_rows(const rows_product &a, const partial_sums &p,
                                            int first_out, int outs, int first, int n)
{
    auto row_at = [&](int r) { return first + r; };
    if (a.gelu.kind != MATVEC_STORE) {
        finish_gelu(a.gelu, p, first_out, n, row_at);
        return;
    }
    for (int i = threadIdx.x; i < outs * n; i += blockDim.x) {
        int r = i / outs, out = i % outs;
        if (first_out + out < a.w[0].rows)
            a.y[(int64_t)(first + r) * a.w[0].rows + first_out + out] =
                p.total(out / 8, out % 8, r);
    }
}

template <typename T, int RT>
__global__ void __launch_bounds__(ROWS_THREADS_MAX)
    multiply_rows(const __grid_constant__ rows_product a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int quad = warp % a.quads, slice = warp / a.quads, n_slices = a.n_slices;
    int cols = a.w[0].cols, outs_w = a.w[0].rows, n_steps = (cols + STEP - 1) / STEP;
    int from = n_steps * slice / n_slices * STEP + lane * 8;
    int to = n_steps * (slice + 1) / n_slices * STEP;
    bool has_two = a.gelu.kind == MATVEC_GELU_MUL;
    int outs = a.quads * (has_two ? 2 : 4), first_out = blockIdx.y * outs, expert = 0;
    if (a.ids) { /* nothing can be read ahead: the expert is not known */
        grid_wait();
        if ((int)(blockIdx.x / a.n_used) >= rows_live(a.rows, a.step)) return;
        expert = a.ids[blockIdx.x];
    }
    bool is_wrong = expert < 0 || expert >= a.w[0].n_expert;
    if (is_wrong) expert = 0;

    const uint8_t *row[QUAD];
    packed8<T> w[QUAD];
#pragma unroll
    for (int i = 0; i < QUAD; i++) {
        int which, out, slot;
        row_of_quad(a, quad, i, &which, &out, &slot);
        int64_t at = (int64_t)expert * outs_w + min(first_out + out, outs_w - 1);
        row[i] = (which ? a.w[1].quants : a.w[0].quants) + at * a.w[0].row_bytes;
        w[i] = load_row8<T>(row[i], from, from < to ? cols : 0);
    }
    if (!a.ids) grid_wait();
    grid_release();
    int first = a.ids ? blockIdx.x : blockIdx.x * RT;
    int n = a.ids ? 1 : min(rows_live(a.rows, a.step) - first, RT);
    if (n <= 0) return;
    int x_row = a.ids ? first / a.n_used : first;

    float acc[QUAD][RT] = {};
    bool is_aligned = cols % 4 == 0;
    for (int col = from; col < to; col += STEP) {
        packed8<T> ahead[QUAD];
#pragma unroll
        for (int i = 0; i < QUAD; i++)
            ahead[i] = load_row8<T>(row[i], col + STEP, col + STEP < to ? cols : 0);
        float v[QUAD][8];
#pragma unroll
        for (int i = 0; i < QUAD; i++) unpack8<T>(w[i], v[i]);
#pragma unroll
        for (int r = 0; r < RT; r++) {
            float x[8];
            load_x8(a.x + (int64_t)(x_row + min(r, n - 1)) * cols, col, cols, is_aligned, x);
#pragma unroll
            for (int i = 0; i < QUAD; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) acc[i][r] = __fmaf_rn(v[i][j], x[j], acc[i][r]);
        }
#pragma unroll
        for (int i = 0; i < QUAD; i++) w[i] = ahead[i];
    }
    partial_sums p = {reinterpret_cast<float *>(shared), n_slices,
                      (outs + 7) / 8 * (has_two ? 2 : 1), RT};
#pragma unroll
    for (int i = 0; i < QUAD; i++)
#pragma unroll
        for (int r = 0; r < RT; r++) {
            float sum = acc[i][r];
            for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
            int which, out, slot;
            row_of_quad(a, quad, i, &which, &out, &slot);
            if (lane == 0)
                p.slot(slice, slot)[r * 8 + out % 8] = is_wrong ? __int_as_float(0x7fc00000) : sum;
        }
    __syncthreads();
    finish_rows(a, p, first_out, outs, first, n);
}

template <typename T>
static void launch_rows_as(const struct queue *q, const rows_product &a, dim3 grid)
{
    bool is_single = a.ids || a.rows.max == 1;
    unsigned threads = (unsigned)(a.quads * a.n_slices) * 32;
    bool has_two = a.gelu.kind == MATVEC_GELU_MUL;
    int outs = a.quads * (has_two ? 2 : 4), slots = (outs + 7) / 8 * (has_two ? 2 : 1);
    size_t bytes = partial_bytes(a.n_slices, slots, is_single ? 1 : 8);
    if (is_single)
        launch(q, multiply_rows<T, 1>, grid, threads, bytes, a);
    else
        launch(q, multiply_rows<T, 8>, grid, threads, bytes, a);
}

/* The weights of a MATVEC_STORE go one by one. Small matrices are cut into 16 slices; epilogues
 * want 32 outputs of a block. */
static void launch_rows(const struct queue *q, rows_product a)
{
    bool has_two = a.gelu.kind == MATVEC_GELU_MUL, has_gelu = a.gelu.kind != MATVEC_STORE;
    a.quads = has_two ? 16 : has_gelu ? 8 : a.w[0].rows > 4096 ? 4 : 1;
    a.n_slices = has_two || a.quads == 4 ? 1 : 16 / a.quads;
    int outs = a.quads * (has_two ? 2 : 4), rows = a.w[0].rows;
    if (has_gelu && a.gelu.act.kind == ACT_INT8) rows = round_up(rows, 64);
    int tiles = a.ids ? a.rows.max * a.n_used : a.rows.max == 1 ? 1 : (a.rows.max + 7) / 8;
    dim3 grid((unsigned)tiles, (unsigned)((rows + outs - 1) / outs));
    switch (a.w[0].format) {
    case FORMAT_F32: launch_rows_as<float>(q, a, grid); break;
    case FORMAT_F16: launch_rows_as<__half>(q, a, grid); break;
    default: launch_rows_as<__nv_bfloat16>(q, a, grid); break;
    }
}

/* ---- Dispatch -------------------------------------------------------------------------------- */

static int outputs_of(const product &p)
{
    int sum = 0;
    for (int k = 0; k < p.n_w; k++) sum += p.w[k].rows;
    return sum;
}

/* Rows beyond 16 go in tiles of 16 side by side, which share the weights in L2: tiles of 32 took
 * 1.2 times as long (E4B Q8_0, 32 rows, H200). With so few outputs that most multiprocessors would
 * be idle, tiles of 8. */
template <enum form F> static void launch_form(const struct queue *q, const product &p)
{
    if (p.rows.max <= 4 && launch_few<F, false>(q, p)) return;
    if (p.rows.max <= 8 || outputs_of(p) <= 8 * q->n_sm)
        launch_tiles<F, 1, false>(q, p);
    else
        launch_tiles<F, 2, false>(q, p);
}

static void launch_product(const struct queue *q, const product &p)
{
    switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: launch_form<F>(q, p); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

void launch_matvec(const struct queue *q, const struct matvec_args *args)
{
    struct gelu_epilogue gelu = {args->epilogue, args->by,  args->by_cols, args->second_col,
                                 args->w[0].rows, args->out, args->act};
    bool is_store = args->epilogue == MATVEC_STORE;
    if (args->w[0].layout != LAYOUT_TILES) {
        for (int k = 0; k < (is_store ? args->n_w : 1); k++) {
            rows_product a = {args->step, args->rows, {args->w[k], args->w[k]}, args->x_floats,
                              args->y[k], gelu,       nullptr,                  1,
                              0,          0};
            if (!is_store) a.w[1] = args->w[1];
            launch_rows(q, a);
        }
        return;
    }
    bool is_alike = true;
    for (int k = 1; k < args->n_w; k++)
        is_alike = is_alike && form_of(args->w[k].format) == form_of(args->w[0].format);
    product p = {};
    p.step = args->step, p.rows = args->rows, p.x = args->x, p.gelu = gelu, p.n_used = 1;
    for (int first = 0; first < args->n_w; first += p.n_w) {
        p.n_w = is_alike || !is_store ? args->n_w : 1;
        for (int k = 0; k < p.n_w; k++) p.w[k] = args->w[first + k], p.y[k] = args->y[first + k];
        launch_product(q, p);
    }
}

/* For launch_experts_in. */
void launch_expert_rows(const struct queue *q, const struct expert_args *args)
{
    struct gelu_epilogue gelu = {args->is_gelu_mul ? MATVEC_GELU_MUL : MATVEC_STORE,
                                 nullptr, 0, 0, args->w[0].rows, args->out, args->act};
    for (int k = 0; k < (args->is_gelu_mul ? 1 : args->n_w); k++) {
        rows_product a = {args->step, args->rows, {args->w[k], args->w[k]}, args->x_floats,
                          args->y[k], gelu,       args->ids,                args->n_used,
                          0,          0};
        if (args->is_gelu_mul) a.w[1] = args->w[1];
        launch_rows(q, a);
    }
}

template <enum form F> static cudaError_t prepare_form()
{
    cudaError_t error = allow_all_shared(multiply_few<F, false>);
    if (!error) error = allow_all_shared(multiply_tiles<F, 1, false>);
    if (!error) error = allow_all_shared(multiply_tiles<F, 2, false>);
    return error;
}

int experts_prepare(void); /* experts.cu */

int matvec_prepare(void)
{
    cudaError_t error = (cudaError_t)experts_prepare();
#define X(F)                                                                                       \
    if (!error) error = prepare_form<F>();
    FORM_LIST(X)
#undef X
    return error;
}
