#include "backend/cuda/lower_inputs.h"

#include "backend/cuda/kernels/sm90/half_inputs.h"
#include "backend/cuda/lower_ffn.h"
#include "backend/cuda/lower_norm.h"
#include "backend/cuda/start.h"

/* The window's parts as windows. */
struct parts {
    struct window before, gated, after;
};

static struct parts parts_of(const struct lowering *l)
{
    const struct op *ops = lower_ops(l);
    int32_t first = l->window.first, gate = 0, after;
    while (ops[gate].code != OP_MATMUL) gate++;
    after = gate + GATED_OPS;
    return (struct parts){{WINDOW_NORMS, first, gate},
                          {WINDOW_GATED, first + gate, GATED_OPS},
                          {WINDOW_NORMS, first + after, l->window.n - after}};
}

static struct norm_args norm_of(struct lowering *l, struct window part)
{
    struct window all = l->window;
    l->window = part;
    struct norm_args args = lower_norm_args(l);
    l->window = all;
    return args;
}

/* Whether all went into one launch. Otherwise the forms of buffers are put back as they were. */
static bool inputs_together(struct lowering *l, const struct parts *parts)
{
    const struct op *gate = &l->plan->ops[parts->gated.first], *gelu = gate + 1, *up = gate + 2;
    const struct weight *w[2] = {gate->p.matmul.w, up->p.matmul.w};
    struct forms *forms = &l->forms[l->size], told = *forms;
    bool is_half = forms->half_id == lower_ops(l)->in[0];
    if (!is_half || lower_kind(l, w[0]) != ACT_CORES || lower_kind(l, w[1]) != ACT_CORES)
        return false;
    const float *by = lower_floats(l, gelu->in[1]);
    struct half_inputs_args args = {.n_rows = l->rows,
                                    .before = norm_of(l, parts->before),
                                    .gate = lower_matrix(l, w[0]),
                                    .up = lower_matrix(l, w[1]),
                                    .by = by ? by + gelu->p.gelu_mul.second_col : NULL,
                                    .by_cols = lower_cols(l, gelu->in[1])};
    args.after = norm_of(l, parts->after);
    if (!half_inputs_takes(&l->device->queue, &args)) {
        *forms = told;
        return false;
    }
    lower_emit(l, start_half_inputs, &args, sizeof args);
    lower_mark_product(l, "norms, matmul gated, up", 2, w, 1, ACT_CORES);
    return true;
}

/* One after the other. The results of up take the memory of the first norm's rows, which nobody
 * reads any more. x takes that of the residual, as a norm reads a row before it writes it. For a
 * few rows in fp32 x has its own memory, since a product may make the norm
 * (launch_matvec_normed). */
void lower_inputs(struct lowering *l)
{
    const struct op *ops = lower_ops(l);
    struct window all = l->window;
    struct parts parts = parts_of(l);
    if (inputs_together(l, &parts)) return;
    buf_id x = l->plan->ops[parts.gated.first].in[0];
    bool is_half = l->forms[l->size].half_id == ops[0].in[0]; /* scales are in older scratch */
    if (l->is_many || is_half)
        lower_keep_at(l, x, lower_floats(l, ops[1].in[0]));
    else
        lower_keep(l, x);
    lower_keep_at(l, l->plan->ops[parts.after.first].in[0], lower_floats(l, ops[0].in[0]));
    l->window = parts.before;
    lower_norms(l);
    l->window = parts.gated;
    lower_gated(l);
    l->window = parts.after;
    lower_norms(l);
    l->window = all;
}
