#include "backend/cuda/weight_use.h"

#include "backend/cuda/act.h"

struct weight_use weight_use_in_plan(const struct plan *plan, const struct weight *w)
{
    struct weight_use use = {false, false};
    for (int32_t i = 0; i < plan->n_ops; i++) {
        if (op_weight(&plan->ops[i]) != w) continue;
        if (plan->ops[i].code == OP_EMBED) use.is_table = true;
        if (op_product(&plan->ops[i])) use.is_product = true;
    }
    return use;
}

/* Whether an op multiplies with w. */
static bool multiplies(const struct op *op, const struct weight *w)
{
    return (op->code == OP_MATMUL && op->p.matmul.w == w) ||
           ((op->code == OP_EXPERT_IN || op->code == OP_EXPERT_OUT) && op->p.expert.w == w);
}

/* Whether a product takes more than 8 bits of its rows: it is fine, or shares its rows, and so a
 * launch, with one that is. */
static bool is_fine(const struct plan *plan, const struct op *op)
{
    for (int32_t i = 0; op->code == OP_MATMUL && i < plan->n_ops; i++) {
        const struct op *other = &plan->ops[i];
        if (other->code == OP_MATMUL && other->p.matmul.is_fine && other->in[0] == op->in[0])
            return true;
    }
    return false;
}

bool is_for_outs(const struct plan *plan, const struct op *op)
{
    return plan_buf_at(plan, op->out[0])->rows == ROWS_OUT;
}

static bool reads_attention(const struct plan *plan, const struct op *op)
{
    int32_t writer = plan_buf_at(plan, op->in[0])->first_op; /* outside if the plan was cut */
    return writer >= 0 && writer < plan->n_ops && plan->ops[writer].code == OP_ATTENTION;
}

bool makes_logits(const struct plan *plan, const struct op *op)
{
    const struct op *next = op + 1;
    return next < plan->ops + plan->n_ops && next->code == OP_SOFTCAP && next->in[0] == op->out[0];
}

/* With many rows, products of what attention gives use fp16 too: they are few, and the error
 * becomes visibly smaller than with 8 bits (docs/benchmarks.md). */
struct precision weight_precision(const struct plan *plan, const struct weight *w)
{
    if (weight_is_there(w)) return loaded_weight(w)->precision;
    struct precision precision = {.is_for_outs = true};
    for (int32_t i = 0; i < plan->n_ops; i++) {
        if (!multiplies(&plan->ops[i], w)) continue;
        if (is_fine(plan, &plan->ops[i])) precision.is_fine = precision.is_half = true;
        if (reads_attention(plan, &plan->ops[i])) precision.is_half = true;
        if (makes_logits(plan, &plan->ops[i])) precision.is_head = true;
        if (!is_for_outs(plan, &plan->ops[i])) precision.is_for_outs = false;
    }
    return precision;
}

bool is_always_few(struct precision precision, enum format format)
{
    return precision.is_fine && precision.is_for_outs && !format_is_float(format);
}

/* Small fp32 matrices (a router) decide between near-equal values: they stay exact. */
enum { EXACT_ROWS = 128 };

bool is_multiplied_exactly(const struct weight *w)
{
    return w->format == FORMAT_F32 && w->rows <= EXACT_ROWS && w->n_expert == 1;
}

bool reads_mirrors_early(const struct device *d, const struct weight *w)
{
    return d->half_least > 0 && device_has_wgmma(d) && format_is_float(w->format) &&
           w->n_expert == 1 && !is_multiplied_exactly(w);
}

const struct weight *weight_first_met(const struct plan *plan, int32_t i)
{
    const struct weight *w = op_weight(&plan->ops[i]);
    for (int32_t k = 0; w && k < i; k++)
        if (op_weight(&plan->ops[k]) == w) return NULL;
    return w;
}

/* Exact products decode the file's own blocks: tiles round the scales of the K formats to fp16. */
enum cuda_layout layout_for(const struct device *d, const struct weight *w, struct weight_use use)
{
    if (use.is_product && format_is_float(w->format)) return LAYOUT_ROWS;
    if (use.is_product) return d->options.is_exact ? LAYOUT_FILE : LAYOUT_TILES;
    return use.is_table ? LAYOUT_FILE : LAYOUT_FLOATS;
}

struct cuda_weight weight_view(const struct weight *w, enum cuda_layout layout, char *memory)
{
    return (struct cuda_weight){
        .format = w->format,
        .layout = layout,
        .n_expert = w->n_expert,
        .rows = (int32_t)w->rows,
        .cols = (int32_t)w->cols,
        .n_groups = (int32_t)((w->rows + TILE_ROWS - 1) / TILE_ROWS),
        .n_ktiles = (int32_t)((w->cols + TILE_COLS - 1) / TILE_COLS),
        .row_bytes =
            (int64_t)(layout == LAYOUT_ROWS ? (w->row_bytes + 15) / 16 * 16 : w->row_bytes),
        .mirror_cols = (int32_t)padded_cols(w->cols),
        .quants = (uint8_t *)memory,
    };
}

struct cuda_loaded product_foreseen(const struct device *d, const struct plan *plan,
                                    const struct weight *w)
{
    if (weight_is_there(w)) return *loaded_weight(w);
    enum cuda_layout layout = layout_for(d, w, (struct weight_use){.is_product = true});
    return (struct cuda_loaded){
        .view = weight_view(w, layout, NULL), .source = w, .precision = weight_precision(plan, w)};
}

bool is_pinned_at(enum table_place tables, struct weight_use use)
{
    return use.is_table && !use.is_product && tables == TABLE_PINNED;
}
