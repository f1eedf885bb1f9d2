#include "backend/cuda/lower_product.h"

#include "backend/cuda/act.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/start.h"
#include "base/assert.h"

/* ---- A few rows, and exact ones --------------------------------------------------------- */

/* cap: of MATVEC_STORE. */
static void multiply_few(struct lowering *l, int32_t n_w, const struct weight *const *w,
                         struct input x, float cap, float *const *y)
{
    struct matvec_args args = {.step = lower_step(l),
                               .rows = lower_rows(l),
                               .n_w = n_w,
                               .x = x.act,
                               .x_floats = x.floats,
                               .epilogue = MATVEC_STORE,
                               .cap = cap};
    for (int32_t k = 0; k < n_w; k++) {
        args.w[k] = lower_matrix(l, w[k]);
        args.y[k] = y[k];
    }
    lower_emit(l, start_matvec, &args, sizeof args);
}

static void multiply_exactly(struct lowering *l, int32_t n_w, const struct weight *const *w,
                             const float *x, float *const *y)
{
    for (int32_t k = 0; k < n_w; k++) {
        struct exact_args args = {.step = lower_step(l),
                                  .rows = lower_rows(l),
                                  .w = lower_matrix(l, w[k]),
                                  .x = x,
                                  .y = y[k]};
        lower_emit(l, start_matmul_exact, &args, sizeof args);
    }
}

/* ---- Many rows -------------------------------------------------------------------------- */

/* Fills in the mirrors of the weights: their own (all of them if is_mirrored), or one that is made
 * in each step, in scratch memory. Returns whether they lie side by side. */
static bool find_mirrors(struct lowering *l, int32_t n_w, const struct weight *const *w,
                         struct cuda_weight *views)
{
    size_t bytes = 0, at = 0;
    bool is_own[3], is_contiguous = true;
    for (int32_t k = 0; k < n_w; k++) {
        views[k] = lower_matrix(l, w[k]);
        is_own[k] = views[k].mirror != NULL || l->is_mirrored;
        if (!is_own[k]) bytes += weight_mirror_bytes(w[k]);
    }
    char *scratch = bytes ? scratch_take(&l->scratch, bytes) : NULL;
    for (int32_t k = 0; k < n_w; k++) {
        if (!is_own[k]) {
            if (scratch) views[k].mirror = (uint16_t *)(void *)(scratch + at);
            at += weight_mirror_bytes(w[k]);
            lower_emit(l, start_mirror, &views[k], sizeof views[k]);
        }
        if (k == 0) continue;
        size_t before = weight_mirror_bytes(w[k - 1]) / sizeof(uint16_t);
        if (is_own[k] != is_own[k - 1] ||
            (is_own[k] && views[k].mirror != views[k - 1].mirror + before))
            is_contiguous = false;
    }
    return is_contiguous;
}

/* A box is copied far more slowly where it passes the end of a matrix (H200, down of E4B, 65 rows:
 * 35 us, 128 rows 26), so the map of x has all rows that there is memory for. */
static bool make_maps(const struct gemm_args *gemm, struct gemm_maps *maps)
{
    struct gemm_args whole = *gemm;
    whole.n_rows = (int32_t)act_rows((size_t)gemm->n_rows);
    return gemm_maps_make(&whole, maps);
}

/* fp32 results: a launch for each weight. */
static void emit_wgmma(struct lowering *l, const struct gemm_args *all, bool is_half)
{
    struct gemm_wgmma_args args = {.gemm = *all};
    struct gemm_args *gemm = &args.gemm;
    if (!is_half) gemm->n_w = 1;
    for (int32_t k = 0; k < all->n_w; k += gemm->n_w) {
        if (k > 0) {
            gemm->w[0] = all->w[k];
            gemm->y[0] = all->y[k];
        }
        if (l->memory) args.is_mapped = make_maps(gemm, &args.maps);
        lower_emit(l, start_gemm_wgmma, &args, sizeof args);
    }
}

static void multiply_mirrors(struct lowering *l, const struct weight *const *w,
                             const struct gemm_args *product, bool is_half)
{
    struct cublas_args args = {.cublas = l->device->cublas, .gemm = *product};
    struct gemm_args *gemm = &args.gemm;
    bool is_contiguous = find_mirrors(l, gemm->n_w, w, gemm->w);
    if (!cublas_takes(gemm->n_w, is_half, is_contiguous)) args.cublas = NULL;
    if (args.cublas) scratch_workspace(&l->scratch, CUBLAS_WORKSPACE_BYTES);
    if (device_has_wgmma(l->device) && (!is_half || is_contiguous)) {
        emit_wgmma(l, gemm, is_half);
    } else if (args.cublas) {
        lower_emit(l, start_cublas, &args, sizeof args);
    } else {
        lower_emit(l, start_gemm_f16, gemm, sizeof *gemm);
    }
}

/* fp16 operands: into fp32 matrices y, with or without the row scale, or, if y is NULL, into
 * `half`. */
static void multiply_half(struct lowering *l, int32_t n_w, const struct weight *const *w,
                          struct act x, float *const *y, bool is_unscaled, uint16_t *half)
{
    struct gemm_args args = {
        .n_rows = l->rows, .n_w = n_w, .x = x, .is_unscaled = is_unscaled, .half = half};
    for (int32_t k = 0; k < n_w; k++) {
        args.w[k] = lower_matrix(l, w[k]);
        args.half_cols += args.w[k].rows;
        if (y) args.y[k] = y[k];
    }
    if (x.kind == ACT_CORES)
        lower_emit(l, start_half, &args, sizeof args);
    else
        multiply_mirrors(l, w, &args, !y);
}

static void multiply_int8(struct lowering *l, int32_t n_w, const struct weight *const *w,
                          struct act x, float *const *y)
{
    struct gemm_args args = {.n_rows = l->rows, .n_w = n_w, .x = x};
    for (int32_t k = 0; k < n_w; k++) {
        args.w[k] = lower_matrix(l, w[k]);
        args.y[k] = y[k];
    }
    lower_emit(l, start_gemm_i8, &args, sizeof args);
}

/* ---- Any -------------------------------------------------------------------------------- */

static void multiply_alike(struct lowering *l, int32_t n_w, const struct weight *const *w,
                           struct input x, float *const *y)
{
    enum act_kind kind = x.act.kind;
    if (l->device->options.is_exact || (l->is_many && kind == ACT_NONE))
        multiply_exactly(l, n_w, w, x.floats, y);
    else if (act_is_half(kind))
        multiply_half(l, n_w, w, x.act, y, false, NULL);
    else if (!l->is_many || kind == ACT_FINE)
        multiply_few(l, n_w, w, x, 0, y);
    else
        multiply_int8(l, n_w, w, x.act, y);
}

static const char *product_name(int32_t n_w)
{
    return n_w > 1 ? "matmul with others," : "matmul";
}

/* How many weights from w[0] on read the same form, and so go in one launch. */
static int32_t count_alike(struct lowering *l, int32_t n_w, const struct weight *const *w)
{
    enum act_kind kind = lower_kind(l, w[0]);
    enum cuda_layout layout = lower_matrix(l, w[0]).layout;
    int32_t n = 1;
    while (n < n_w && lower_kind(l, w[n]) == kind && lower_matrix(l, w[n]).layout == layout) n++;
    return n;
}

void lower_multiply(struct lowering *l, int32_t n_w, const struct weight *const *w, struct input x,
                    float *const *y)
{
    for (int32_t k = 0, n; k < n_w; k += n) {
        enum act_kind kind = lower_kind(l, w[k]);
        n = count_alike(l, n_w - k, w + k);
        struct input form = {.floats = x.floats};
        if (kind != ACT_NONE) form.act = kind == x.act.kind ? x.act : x.other;
        carat_assert(kind == form.act.kind);
        multiply_alike(l, n, w + k, form, y + k);
        lower_mark_product(l, product_name(n), n, w + k, 1, kind);
    }
}

/* Multiplies and caps in one launch where a kernel can; returns whether it does. */
static bool multiplies_capped(struct lowering *l, const struct weight *w, struct input x, float cap,
                              float *y)
{
    enum act_kind kind = lower_kind(l, w);
    struct gemm_args args = {.n_rows = l->rows, .n_w = 1, .x = x.act, .y = {y}, .cap = cap};
    bool is_few = kind == ACT_FINE || kind == ACT_CORES || (!l->is_many && kind != ACT_HALF);
    if (l->device->options.is_exact || !is_few) return false;
    args.w[0] = lower_matrix(l, w);
    if (kind == ACT_CORES)
        lower_emit(l, start_half, &args, sizeof args);
    else
        multiply_few(l, 1, &w, x, cap, &y);
    lower_mark_product(l, product_name(1), 1, &w, 1, kind);
    return true;
}

void lower_multiply_capped(struct lowering *l, const struct weight *w, struct input x, float cap,
                           float *y)
{
    if (multiplies_capped(l, w, x, cap, y)) return;
    struct row_args args = {.step = lower_step(l),
                            .rows = lower_rows(l),
                            .a = y,
                            .y = y,
                            .cols = (int32_t)w->rows,
                            .value = cap};
    lower_multiply(l, 1, &w, x, &y);
    lower_emit(l, start_softcap, &args, sizeof args);
    lower_mark(l, "softcap");
}

const float *lower_multiply_unscaled(struct lowering *l, const struct weight *w, struct input x,
                                     float *y)
{
    if (!lower_takes_half(l, 1, &w, x.act)) {
        lower_multiply(l, 1, &w, x, &y);
        return NULL;
    }
    multiply_half(l, 1, &w, x.act, &y, true, NULL);
    lower_mark_product(l, product_name(1), 1, &w, 1, x.act.kind);
    return x.act.scale;
}

bool lower_takes_half(struct lowering *l, int32_t n_w, const struct weight *const *w, struct act x)
{
    if (!act_is_half(x.kind)) return false;
    for (int32_t k = 0; k < n_w; k++)
        if (lower_kind(l, w[k]) != x.kind) return false;
    return true;
}

void lower_multiply_half(struct lowering *l, int32_t n_w, const struct weight *const *w,
                         struct act x, uint16_t *half)
{
    multiply_half(l, n_w, w, x, NULL, true, half);
    lower_mark_product(l, product_name(n_w), n_w, w, 1, x.kind);
}

bool lower_takes_gated(struct lowering *l, int32_t n_w, const struct weight *const *w, struct act x,
                       struct act hidden)
{
    struct gemm_args args = {.n_rows = l->rows, .n_w = n_w, .x = x};
    if (hidden.kind != ACT_CORES || !lower_takes_half(l, n_w, w, x)) return false;
    for (int32_t k = 0; k < n_w; k++) args.w[k] = lower_matrix(l, w[k]);
    return half_gates(&l->device->queue, &args);
}

void lower_multiply_gated(struct lowering *l, int32_t n_w, const struct weight *const *w,
                          struct act x, struct act hidden, float scale, const float *by,
                          int32_t by_cols)
{
    struct gemm_args args = {.n_rows = l->rows,
                             .n_w = n_w,
                             .x = x,
                             .hidden = hidden,
                             .hidden_scale = scale,
                             .by = by,
                             .by_cols = by_cols};
    for (int32_t k = 0; k < n_w; k++) args.w[k] = lower_matrix(l, w[k]);
    lower_emit(l, start_half, &args, sizeof args);
    lower_mark_product(l, n_w > 1 ? "matmul gate, up" : "matmul gated", n_w, w, 1, x.kind);
}

void lower_multiply_gelu(struct lowering *l, const struct weight *const *w, struct act x,
                         float scale, const struct gelu_mul_args *gelu, uint16_t *half)
{
    struct gemm_gelu_args args = {.gelu = *gelu};
    struct gemm_wgmma_args *product = &args.product;
    struct gemm_args *gemm = &product->gemm;
    *gemm = (struct gemm_args){.n_rows = l->rows,
                               .n_w = 2,
                               .w = {lower_matrix(l, w[0]), lower_matrix(l, w[1])},
                               .x = x,
                               .half = half,
                               .half_cols = 2 * gelu->cols,
                               .hidden = gelu->act,
                               .hidden_scale = scale};
    args.gelu.half = half;
    args.gelu.half_scale = x.scale;
    bool is_contiguous = find_mirrors(l, 2, w, gemm->w);
    if (l->memory && is_contiguous) product->is_mapped = make_maps(gemm, &product->maps);
    lower_emit(l, start_gemm_gelu, &args, sizeof args);
    lower_mark_product(l, "matmul gate, up", 2, w, 1, x.kind);
}

/* Whether what follows, the next window or another part of this one, is a norm that alone reads
 * this buffer. */
static bool is_for_norm(const struct lowering *l, buf_id id)
{
    const struct plan *plan = l->plan;
    int32_t end = l->window.first + l->window.n;
    if (end >= plan->n_ops) return false;
    const struct op *next = &plan->ops[end];
    return next->code == OP_RMSNORM && next->in[0] == id && next->window != 1 &&
           plan_buf_at(plan, id)->last_op == end && lower_cols(l, id) % 4 == 0;
}

void lower_multiply_last(struct lowering *l, const struct weight *w, struct input x)
{
    buf_id id = lower_ops(l)[l->window.n - 1].out[0];
    float *y = lower_floats(l, id);
    if (!is_for_norm(l, id) || !lower_takes_half(l, 1, &w, x.act)) {
        lower_multiply(l, 1, &w, x, &y);
        return;
    }
    lower_multiply_half(l, 1, &w, x.act, (uint16_t *)(void *)y);
    l->forms[l->size].half_id = id;
    l->forms[l->size].half_scale = x.act.scale;
}

/* ---- Results in scratch memory ---------------------------------------------------------- */

void lower_outputs(struct lowering *l, const struct op *ops, int32_t n, float **y)
{
    for (int32_t k = 0; k < n; k++) {
        size_t cols = (size_t)lower_cols(l, ops[k].out[0]);
        y[k] = scratch_take(&l->scratch, (size_t)l->rows * cols * sizeof(float));
    }
}

uint16_t *lower_half_outputs(struct lowering *l, const struct op *ops, int32_t n)
{
    size_t cols = 0;
    for (int32_t k = 0; k < n; k++) cols += (size_t)lower_cols(l, ops[k].out[0]);
    return scratch_take(&l->scratch, (size_t)l->rows * cols * sizeof(uint16_t));
}
