/* Products of up to 64 rows with weights that are read once: y[t] = w x[t], or followed by GELU and
 * the rounding for the next product.
 *
 * Tiles (matvec_launch.cuh): int8 mma.sync with fp32 sums. Bound by reading the weights up to about
 * 32 rows, then by the work that scales cost for every 32 columns. LAYOUT_ROWS (matvec_rows.cuh):
 * fp32 multiply-adds; bound by reading the weights for a few rows, by arithmetic for more. */
#include "backend/cuda/kernels/matvec_launch.cuh"
#include "backend/cuda/kernels/matvec_rows.cuh"

/* ---- Weights as rows ------------------------------------------------------------------------ */

template <typename T, int BLOCK_ROWS>
__global__ void __launch_bounds__(ROWS_THREADS_MAX)
    matvec_rows(const __grid_constant__ rows_product a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    partial_sums p = sums_at<BLOCK_ROWS>(shared, a);
    int first_out = blockIdx.y * outs_of_block(a);
    row_range rows = sum_rows<T, BLOCK_ROWS>(a, p, first_out);
    if (rows.n == 0) return;
    if (a.gelu.kind == MATVEC_STORE)
        store_sums(a, p, first_out, rows, a.cap);
    else
        finish_gelu(a.gelu, p, first_out, rows.n, [&](int r) { return rows.first + r; });
}

template <typename T>
static void launch_rows_as(const struct queue *q, const rows_product &a, const rows_shape &s)
{
    if (s.is_single)
        launch(q, matvec_rows<T, 1>, s.grid, s.threads, s.shared_bytes, a);
    else
        launch(q, matvec_rows<T, ROWS_TILE>, s.grid, s.threads, s.shared_bytes, a);
}

/* One weight, or the pair of gate and up. */
static void launch_rows(const struct queue *q, rows_product a)
{
    rows_shape shape = shape_rows(&a);
    switch (a.w[0].format) {
    case FORMAT_F32: launch_rows_as<float>(q, a, shape); break;
    case FORMAT_F16: launch_rows_as<__half>(q, a, shape); break;
    default: launch_rows_as<__nv_bfloat16>(q, a, shape); break;
    }
}

/* ---- Dispatch -------------------------------------------------------------------------------- */

void launch_matvec(const struct queue *q, const struct matvec_args *args)
{
    struct gelu_epilogue gelu = {args->epilogue,  args->by,  args->by_cols, args->second_col,
                                 args->w[0].rows, args->out, args->act};
    bool is_store = args->epilogue == MATVEC_STORE;
    if (args->w[0].layout != LAYOUT_TILES) {
        for (int k = 0; k < (is_store ? args->n_w : 1); k++) {
            rows_product a = {args->step,
                              args->rows,
                              {args->w[k], args->w[k]},
                              args->x_floats,
                              args->y[k],
                              gelu,
                              nullptr,
                              1,
                              0,
                              0,
                              args->cap};
            if (!is_store) a.w[1] = args->w[1];
            launch_rows(q, a);
        }
        return;
    }
    if (q->capability == 90 && launch_mixed(q, args)) return;
    for (int first = 0, n; first < args->n_w; first += n) {
        n = is_store ? count_of_form(args->w + first, args->n_w - first) : args->n_w;
        matvec_product p = part_of(args, first, n);
        if (q->capability == 90 && (launch_halves(q, p) || launch_eight(q, p))) continue;
        if (p.x.kind == ACT_FINE)
            launch_fine(q, p);
        else
            launch_product<PLAIN>(q, p);
    }
}

/* For launch_experts_in. */
void launch_expert_rows(const struct queue *q, const struct expert_args *args)
{
    struct gelu_epilogue gelu = {args->is_gelu_mul ? MATVEC_GELU_MUL : MATVEC_STORE,
                                 nullptr,
                                 0,
                                 0,
                                 args->w[0].rows,
                                 args->out,
                                 args->act};
    for (int k = 0; k < (args->is_gelu_mul ? 1 : args->n_w); k++) {
        rows_product a = {args->step,
                          args->rows,
                          {args->w[k], args->w[k]},
                          args->x_floats,
                          args->y[k],
                          gelu,
                          args->ids,
                          args->n_used,
                          0,
                          0};
        if (args->is_gelu_mul) a.w[1] = args->w[1];
        launch_rows(q, a);
    }
}
