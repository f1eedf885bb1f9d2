#include "backend/cuda/lowering.h"

#include "backend/cuda/act.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/start.h"
#include "backend/cuda/weight_use.h"
#include "base/assert.h"

/* ---- Where things are ------------------------------------------------------------------- */

float *lower_floats(const struct lowering *l, buf_id id)
{
    if (id == BUF_NONE || !l->memory) return NULL;
    for (int32_t k = 0; k < l->n_kept; k++)
        if (l->kept[k].id == id) return l->kept[k].rows;
    return (float *)(void *)(l->memory + plan_buf_at(l->plan, id)->offset);
}

int32_t lower_cols(const struct lowering *l, buf_id id)
{
    return plan_buf_at(l->plan, id)->cols;
}

void lower_keep_at(struct lowering *l, buf_id id, float *rows)
{
    carat_assert(l->n_kept < (int32_t)(sizeof l->kept / sizeof *l->kept));
    l->kept[l->n_kept].id = id;
    l->kept[l->n_kept++].rows = rows;
}

void lower_keep(struct lowering *l, buf_id id)
{
    size_t bytes = (size_t)l->rows * (size_t)lower_cols(l, id) * sizeof(float);
    lower_keep_at(l, id, scratch_take(&l->scratch, bytes));
}

struct rows lower_rows(const struct lowering *l)
{
    return (struct rows){l->rows, l->rows_class == ROWS_OUT};
}

struct step_view lower_step(const struct lowering *l)
{
    return (struct step_view){.counts = l->step.counts,
                              .id = l->step.id,
                              .position = l->step.position,
                              .sequence = l->step.sequence,
                              .out_row = l->step.out_row,
                              .run = {l->step.run[ROWS_TOKEN], l->step.run[ROWS_OUT]}};
}

const struct op *lower_ops(const struct lowering *l)
{
    return &l->plan->ops[l->window.first];
}

static const struct cuda_loaded *seen_product(struct lowering *l, const struct weight *w)
{
    for (int i = 0; i < PRODUCTS_SEEN; i++)
        if (l->seen[i].source == w) return &l->seen[i];
    struct cuda_loaded *p = &l->seen[l->next_seen++ % PRODUCTS_SEEN];
    *p = product_foreseen(l->device, l->plan, w);
    return p;
}

struct cuda_weight lower_matrix(struct lowering *l, const struct weight *w)
{
    return seen_product(l, w)->view;
}

const float *lower_vector(const struct weight *w)
{
    if (!w || !weight_is_there(w)) return NULL;
    return (const float *)(const void *)loaded_weight(w)->view.quants;
}

struct cuda_weight lower_table(const struct lowering *l, const struct weight *w,
                               struct step_view *step)
{
    *step = lower_step(l);
    if (!weight_is_there(w)) return (struct cuda_weight){.format = w->format};
    if (loaded_weight(w)->rows) step->id = l->step.slot;
    return loaded_weight(w)->view;
}

/* ---- Forms of rows ---------------------------------------------------------------------- */

/* Whether steps of this size multiply tiles in fp16, if any do. */
static bool takes_half(const struct lowering *l)
{
    return l->size == STEP_FEW || is_crowd(l->size);
}

static bool has_mirror(struct lowering *l, const struct weight *w)
{
    return l->is_mirrored || lower_matrix(l, w).mirror;
}

static bool is_head(struct lowering *l, const struct weight *w)
{
    return seen_product(l, w)->precision.is_head;
}

/* Whether products of a few rows with float weights read mirrors, as those of many do: kernels that
 * add up in fp32 are slower with any number of rows, with 64 by five to ten times. Where there is
 * no mirror, each step makes one, since a row's bits must not depend on chunks or on free memory.
 * The head is too large for that. */
static bool reads_floats_early(struct lowering *l, const struct weight *w)
{
    return l->size != STEP_MANY && reads_mirrors_early(l->device, w) &&
           (!is_head(l, w) || has_mirror(l, w));
}

/* Whether a crowd reads w's mirror, where there is one: more bytes than tiles, but no weight is
 * unpacked, and one tile has all rows. H200, 129 to 256 users: 1.1 to 1.3 times as fast; up to 128
 * 1.05 to 1.1 times, but not with the large matrices of 12B and 31B (0.85 to 0.97). */
static bool is_mirror_for_crowd(struct lowering *l, const struct weight *w)
{
    bool is_faster = l->size == STEP_LARGE_CROWD || (l->size == STEP_CROWD && !l->has_large);
    return is_faster && crowds_read_mirrors(l->device) && w->n_expert == 1 && !is_head(l, w) &&
           has_mirror(l, w);
}

static bool reads_mirror(struct lowering *l, const struct weight *w)
{
    return reads_floats_early(l, w) || is_mirror_for_crowd(l, w);
}

/* Whether products with w read its tiles in fp16, in steps of this size. */
static bool reads_cores(struct lowering *l, const struct weight *w)
{
    return takes_half(l) && l->device->half_least > 0 && w->n_expert == 1 &&
           lower_matrix(l, w).layout == LAYOUT_TILES;
}

/* The layer whose experts w holds. */
static int32_t layer_of_experts(const struct plan *plan, const struct weight *w)
{
    for (int32_t i = 0; i < plan->n_ops; i++)
        if (op_product(&plan->ops[i]) == w) return plan->ops[i].layer;
    carat_assert(!"a weight that no op multiplies with");
    return 0;
}

/* Whether all experts of w's layer lie in tiles: a layer is multiplied in one way. */
static bool are_all_tiles(struct lowering *l, const struct weight *w)
{
    int32_t layer = layer_of_experts(l->plan, w);
    for (int32_t i = 0; i < l->plan->n_ops; i++) {
        const struct op *op = &l->plan->ops[i];
        bool is_expert = op->code == OP_EXPERT_IN || op->code == OP_EXPERT_OUT;
        if (is_expert && op->layer == layer &&
            lower_matrix(l, op->p.expert.w).layout != LAYOUT_TILES)
            return false;
    }
    return true;
}

/* Whether experts are multiplied in groups in fp16, as those of many rows on Hopper are. That
 * kernel is too slow for one row, so it is not used where a few rows may be just one. Groups could
 * read mirrors of floats too, but whether there are any depends on chunks and on memory, which the
 * bits of a few rows must not. */
static bool are_in_half_groups(struct lowering *l, const struct weight *w)
{
    if (w->n_expert == 1 || !device_has_half_experts(l->device)) return false;
    return l->size > STEP_FEW ||
           (l->size == STEP_FEW && l->device->half_least > 1 && are_all_tiles(l, w));
}

enum act_kind lower_kind(struct lowering *l, const struct weight *w)
{
    if (l->device->options.is_exact || is_multiplied_exactly(w)) return ACT_NONE;
    if (reads_mirror(l, w)) return ACT_HALF;
    if (reads_cores(l, w)) return ACT_CORES;
    bool is_in_groups = are_in_half_groups(l, w);
    const struct cuda_loaded *p = seen_product(l, w);
    bool is_tiles = p->view.layout == LAYOUT_TILES;
    if (is_in_groups && is_tiles) return ACT_STEPS;
    if (w->n_expert > 1 && !has_mirror(l, w)) return is_tiles ? ACT_INT8 : ACT_NONE;
    if (is_in_groups) return ACT_HALF;
    if (!l->is_many || is_always_few(p->precision, w->format))
        return !is_tiles ? ACT_NONE : p->precision.is_fine ? ACT_FINE : ACT_INT8;
    bool is_half = l->device->many == ACT_HALF || !is_tiles || p->precision.is_half;
    return is_half ? ACT_HALF : ACT_INT8;
}

struct act lower_act_slot(struct lowering *l, buf_id id, enum act_kind kind)
{
    struct forms *f = &l->forms[l->size];
    int32_t cols = lower_cols(l, id), slot = f->next_slot++ % ACT_SLOTS;
    void *memory = scratch_slot(&l->scratch, slot, act_bytes((size_t)l->rows, cols));
    f->slots[slot].id = id;
    f->slots[slot].act = act_at(memory, kind, l->rows, cols);
    return f->slots[slot].act;
}

struct act lower_act(struct lowering *l, buf_id id, const struct weight *w)
{
    const struct forms *f = &l->forms[l->size];
    enum act_kind kind = lower_kind(l, w);
    if (kind == ACT_NONE) return (struct act){.kind = ACT_NONE};
    for (int i = 0; i < ACT_SLOTS; i++)
        if (f->slots[i].id == id && f->slots[i].act.kind == kind) return f->slots[i].act;
    struct act_args args = {.step = lower_step(l),
                            .rows = lower_rows(l),
                            .x = lower_floats(l, id),
                            .cols = lower_cols(l, id),
                            .act = lower_act_slot(l, id, kind),
                            .n_used = 1};
    lower_emit(l, start_act, &args, sizeof args);
    return args.act;
}

struct input lower_input(struct lowering *l, buf_id id, int32_t n_w, const struct weight *const *w)
{
    struct input x = {.floats = lower_floats(l, id)};
    for (int32_t k = 0; k < n_w; k++) {
        struct act act = lower_act(l, id, w[k]);
        if (x.act.kind == ACT_NONE)
            x.act = act;
        else if (act.kind != ACT_NONE && act.kind != x.act.kind)
            x.other = act;
    }
    return x;
}

struct input lower_hidden(struct lowering *l, int32_t rows, const struct weight *next)
{
    struct input x = {.floats = NULL};
    enum act_kind kind = lower_kind(l, next);
    if (kind == ACT_NONE) {
        x.floats = scratch_take(&l->scratch, (size_t)rows * (size_t)next->cols * sizeof(float));
        return x;
    }
    void *memory = scratch_take(&l->scratch, act_bytes((size_t)rows, next->cols));
    x.act = act_at(memory, kind, rows, next->cols);
    return x;
}

/* ---- Records ---------------------------------------------------------------------------- */

void lower_emit(struct lowering *l, start_fn *start, const void *args, size_t args_bytes)
{
    struct record record = {
        .start = start, .op = lower_ops(l), .rows_class = l->rows_class, .size = l->size};
    records_add(&l->records, record, args, args_bytes);
}

void lower_mark(struct lowering *l, const char *kind)
{
    records_mark(&l->records, (struct record_mark){.kind = kind});
}

void lower_mark_product(struct lowering *l, const char *kind, int32_t n_w,
                        const struct weight *const *w, int32_t n_used, enum act_kind operands)
{
    struct record_mark mark = {.kind = kind, .n_w = n_w, .n_used = n_used, .operands = operands};
    for (int32_t k = 0; k < n_w; k++) mark.w[k] = w[k];
    records_mark(&l->records, mark);
}
