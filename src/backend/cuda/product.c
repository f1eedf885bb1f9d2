/* Products of rows with weights: which kernel, and what it reads. Few rows (decode) go through the
 * matrix-vector kernels, which read each weight once; many rows through matrix products in fp16 or
 * 8 bits; exact ones through fp32. */
#include "backend/cuda/cublas.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/profile.h"
#include "backend/cuda/stages.h"
#include "base/assert.h"

enum row_class class_of(const struct program *p, buf_id id)
{
    return plan_buf_at(p->plan, id)->rows;
}

struct rows rows_of_class(const struct program *p, enum row_class c)
{
    return (struct rows){p->n[c], c == ROWS_OUT};
}

struct cuda_weight view_of(const struct weight *w)
{
    return loaded_of(w)->view;
}

struct cuda_weight table_of(const struct program *p, const struct weight *w, struct step_view *step)
{
    struct cuda_weight view = view_of(w);
    *step = p->step;
    if (loaded_of(w)->rows) step->id = p->row_slots;
    return view;
}

const float *floats_of(const struct weight *w)
{
    return w ? (const float *)(const void *)loaded_of(w)->view.quants : NULL;
}

/* ---- Activations ------------------------------------------------------------------------ */

enum act_kind kind_for(const struct program *p, const struct weight *w, int32_t n)
{
    const struct cuda_loaded *l = loaded_of(w);
    bool is_tiles = l->view.layout == LAYOUT_TILES, is_fine = l->precision.is_fine;
    if (p->device->options.is_exact || is_multiplied_exactly(w)) return ACT_NONE;
    if (w->n_expert > 1 && !l->view.mirror) return is_tiles ? ACT_INT8 : ACT_NONE;
    if (n <= MATVEC_ROWS_MAX || is_always_few(l->precision, w->format))
        return !is_tiles ? ACT_NONE : is_fine ? ACT_FINE : ACT_INT8;
    bool is_half = p->device->many == ACT_HALF || !is_tiles || l->precision.is_half;
    return is_half ? ACT_HALF : ACT_INT8;
}

struct act act_take(struct program *p, buf_id id, enum act_kind kind)
{
    const struct plan_buf *b = plan_buf_at(p->plan, id);
    int slot = p->next_slot++ % ACT_SLOTS;
    char *base = p->scratch + p->at.slot + (size_t)slot * p->at.slot_bytes;
    p->slots[slot].id = id;
    p->slots[slot].act = act_at(base, kind, p->n[b->rows], b->cols);
    return p->slots[slot].act;
}

struct act act_of(struct program *p, buf_id id, const struct weight *w)
{
    enum row_class c = class_of(p, id);
    enum act_kind kind = kind_for(p, w, p->n[c]);
    if (kind == ACT_NONE) return (struct act){.kind = ACT_NONE};
    for (int i = 0; i < ACT_SLOTS; i++)
        if (p->slots[i].id == id && p->slots[i].act.kind == kind) return p->slots[i].act;
    struct act act = act_take(p, id, kind);
    launch_act(&p->device->queue, p->step, rows_of_class(p, c), program_floats(p, id),
               plan_buf_at(p->plan, id)->cols, act, false);
    return act;
}

struct input input_of(struct program *p, buf_id id, int32_t n_w, const struct weight *const *w)
{
    struct input x = {.floats = program_floats(p, id)};
    for (int32_t k = 0; k < n_w; k++) {
        struct act act = act_of(p, id, w[k]);
        if (x.act.kind == ACT_NONE)
            x.act = act;
        else if (act.kind != ACT_NONE && act.kind != x.act.kind)
            x.other = act;
    }
    return x;
}

/* ---- Profile ---------------------------------------------------------------------------- */

void mark(struct program *p, const char *kind)
{
    struct device *d = p->device;
    if (d->profile) profile_mark(d->profile, d->queue.stream, (struct time_work){.kind = kind});
}

void mark_product(struct program *p, const char *kind, int32_t n_w, const struct weight *const *w,
                  int32_t n_rows, enum act_kind operands)
{
    struct device *d = p->device;
    if (d->profile)
        profile_mark(d->profile, d->queue.stream,
                     time_work_of(kind, n_w, w, n_rows,
                                  operands == ACT_INT8 || operands == ACT_FINE,
                                  operands == ACT_HALF));
}

/* ---- Products --------------------------------------------------------------------------- */

static void multiply_few(struct program *p, enum row_class c, int32_t n_w,
                         const struct weight *const *w, struct input x, float *const *y)
{
    struct matvec_args args = {.step = p->step,
                               .rows = rows_of_class(p, c),
                               .n_w = n_w,
                               .x = x.act,
                               .x_floats = x.floats,
                               .epilogue = MATVEC_STORE};
    for (int32_t k = 0; k < n_w; k++) {
        args.w[k] = view_of(w[k]);
        args.y[k] = y[k];
    }
    launch_matvec(&p->device->queue, &args);
}

static void multiply_exactly(struct program *p, enum row_class c, int32_t n_w,
                             const struct weight *const *w, const float *x, float *const *y)
{
    for (int32_t k = 0; k < n_w; k++) {
        struct exact_args args = {
            .step = p->step, .rows = rows_of_class(p, c), .w = view_of(w[k]), .x = x, .y = y[k]};
        launch_matmul_exact(&p->device->queue, &args);
    }
}

/* Fills in the mirrors of the weights: their own, or one made now in scratch memory. Whether they
 * lie side by side. */
static bool find_mirrors(struct program *p, int32_t n_w, const struct weight *const *w,
                         struct cuda_weight *views)
{
    uint16_t *scratch = (uint16_t *)(void *)(p->scratch + p->at.mirror);
    bool is_contiguous = true;
    for (int32_t k = 0; k < n_w; k++) {
        views[k] = view_of(w[k]);
        if (!views[k].mirror) {
            views[k].mirror = scratch;
            launch_mirror(&p->device->queue, &views[k], 0, 0, views[k].rows);
            scratch += mirror_bytes_of(w[k]) / sizeof *scratch;
        }
        if (k > 0 && views[k].mirror != views[k - 1].mirror + mirror_bytes_of(w[k - 1]) / 2)
            is_contiguous = false;
    }
    return is_contiguous;
}

static void multiply_mirrors(struct program *p, int32_t n_rows, int32_t n_w,
                             const struct weight *const *w, struct act x, float *const *y,
                             uint16_t *half)
{
    struct gemm_args args = {.n_rows = n_rows, .n_w = n_w, .x = x, .half = half};
    bool is_contiguous = find_mirrors(p, n_w, w, args.w);
    for (int32_t k = 0; k < n_w; k++) {
        args.half_cols += args.w[k].rows;
        args.y[k] = half ? NULL : y[k];
    }
    if (p->device->cublas && cublas_takes(&args, is_contiguous))
        cublas_multiply(p->device->cublas, &p->device->queue, &args);
    else
        launch_gemm_f16(&p->device->queue, &args);
}

static void multiply_run(struct program *p, enum row_class c, int32_t n_w,
                         const struct weight *const *w, struct input x, float *const *y)
{
    int32_t n = p->n[c];
    if (p->device->options.is_exact || (n > MATVEC_ROWS_MAX && x.act.kind == ACT_NONE)) {
        multiply_exactly(p, c, n_w, w, x.floats, y);
    } else if (n <= MATVEC_ROWS_MAX || x.act.kind == ACT_FINE) {
        multiply_few(p, c, n_w, w, x, y);
    } else if (x.act.kind == ACT_HALF) {
        multiply_mirrors(p, n, n_w, w, x.act, y, NULL);
    } else {
        struct gemm_args args = {.n_rows = n, .n_w = n_w, .x = x.act};
        for (int32_t k = 0; k < n_w; k++) {
            args.w[k] = view_of(w[k]);
            args.y[k] = y[k];
        }
        launch_gemm_i8(&p->device->queue, &args);
    }
}

void multiply(struct program *p, enum row_class c, int32_t n_w, const struct weight *const *w,
              struct input x, float *const *y)
{
    for (int32_t k = 0, n; k < n_w; k += n) { /* runs of weights that read the same form */
        enum act_kind kind = kind_for(p, w[k], p->n[c]);
        for (n = 1; k + n < n_w && kind_for(p, w[k + n], p->n[c]) == kind &&
                    loaded_of(w[k + n])->view.layout == loaded_of(w[k])->view.layout;)
            n++;
        struct input form = {.floats = x.floats};
        if (kind != ACT_NONE) form.act = kind == x.act.kind ? x.act : x.other;
        carat_assert(kind == form.act.kind);
        multiply_run(p, c, n, w + k, form, y + k);
        mark_product(p, n > 1 ? "matmul with others," : "matmul", n, w + k, p->n[c], kind);
    }
}

bool multiply_half(struct program *p, enum row_class c, int32_t n_w, const struct weight *const *w,
                   struct act x, uint16_t *half)
{
    int32_t n = p->n[c];
    if (n <= MATVEC_ROWS_MAX || x.kind != ACT_HALF) return false;
    for (int32_t k = 0; k < n_w; k++)
        if (kind_for(p, w[k], n) != ACT_HALF) return false;
    multiply_mirrors(p, n, n_w, w, x, NULL, half);
    mark_product(p, n_w > 1 ? "matmul with others," : "matmul", n_w, w, n, ACT_HALF);
    return true;
}
