#include "backend/cuda/lower_ffn.h"

#include "backend/cuda/act.h"
#include "backend/cuda/bounds.h"
#include "backend/cuda/lower_product.h"
#include "backend/cuda/start.h"

/* gelu(a) * b of the op's columns, to `hidden`. */
static struct gelu_mul_args make_gelu_args(const struct lowering *l, const struct op *op,
                                           struct input hidden)
{
    return (struct gelu_mul_args){.step = lower_step(l),
                                  .rows = lower_rows(l),
                                  .half_div = 1,
                                  .cols = lower_cols(l, op->out[0]),
                                  .b_cols = lower_cols(l, op->in[1]),
                                  .second_col = op->p.gelu_mul.second_col,
                                  .y = hidden.floats,
                                  .act = hidden.act};
}

/* Whether these go through the kernels of a few rows, which make gelu too. */
static bool are_few(const struct lowering *l, struct input x, struct input hidden)
{
    return !l->is_many && !act_is_half(x.act.kind) && !act_is_half(hidden.act.kind);
}

struct matvec_args lower_gate_up(struct lowering *l, const struct weight *const *w, struct input x,
                                 struct input hidden)
{
    return (struct matvec_args){.step = lower_step(l),
                                .rows = lower_rows(l),
                                .n_w = 2,
                                .w = {lower_matrix(l, w[0]), lower_matrix(l, w[1])},
                                .x = x.act,
                                .x_floats = x.floats,
                                .epilogue = MATVEC_GELU_MUL,
                                .out = hidden.floats,
                                .act = hidden.act};
}

/* Gate, up and gelu in one launch. */
static void ffn_few(struct lowering *l, const struct weight *const *w, struct input x,
                    struct input hidden)
{
    struct matvec_args args = lower_gate_up(l, w, x, hidden);
    lower_emit(l, start_matvec, &args, sizeof args);
    lower_mark_product(l, "matmul gate, up", 2, w, 1, x.act.kind);
}

/* Whether the kernel that makes gelu too is there for these. */
static bool are_one_launch(const struct lowering *l, struct input x, struct input hidden)
{
    return device_has_wgmma(l->device) && x.act.kind == ACT_HALF && hidden.act.kind == ACT_HALF &&
           bounds_know(l->plan, lower_ops(l));
}

static void ffn_many(struct lowering *l, const struct weight *const *w, struct input x,
                     struct input hidden)
{
    const struct op *ops = lower_ops(l);
    struct gelu_mul_args gelu = make_gelu_args(l, &ops[2], hidden);
    if (lower_takes_gated(l, 2, w, x.act, hidden.act) && bounds_know(l->plan, ops)) {
        lower_multiply_gated(l, 2, w, x.act, hidden.act, bounds_scale(ops), NULL, 0);
        return;
    }
    if (lower_takes_half(l, 2, w, x.act) && are_one_launch(l, x, hidden)) {
        uint16_t *half = lower_half_outputs(l, ops, 2);
        lower_multiply_gelu(l, w, x.act, bounds_scale(ops), &gelu, half);
        return;
    }
    if (lower_takes_half(l, 2, w, x.act)) {
        uint16_t *half = lower_half_outputs(l, ops, 2);
        lower_multiply_half(l, 2, w, x.act, half);
        gelu.half = half;
        gelu.half_scale = x.act.scale;
    } else {
        float *y[2];
        lower_outputs(l, ops, 2, y);
        lower_multiply(l, 2, w, x, y);
        gelu.a = y[0];
        gelu.b = y[1];
    }
    lower_emit(l, start_gelu_mul, &gelu, sizeof gelu);
    lower_mark(l, "gelu");
}

void lower_ffn(struct lowering *l)
{
    const struct op *ops = lower_ops(l);
    const struct weight *w[2] = {ops[0].p.matmul.w, ops[1].p.matmul.w}, *down = ops[3].p.matmul.w;
    struct input x = lower_input(l, ops[0].in[0], 2, w);
    struct input hidden = lower_hidden(l, l->rows, down);
    if (are_few(l, x, hidden) && w[0]->format == w[1]->format)
        ffn_few(l, w, x, hidden);
    else
        ffn_many(l, w, x, hidden);
    lower_multiply_last(l, down, hidden);
}

static void gated_few(struct lowering *l, const struct weight *w, struct input x,
                      struct input hidden)
{
    const struct op *gelu = lower_ops(l) + 1;
    struct matvec_args args = {.step = lower_step(l),
                               .rows = lower_rows(l),
                               .n_w = 1,
                               .w = {lower_matrix(l, w)},
                               .x = x.act,
                               .x_floats = x.floats,
                               .epilogue = MATVEC_GELU_BY,
                               .by = lower_floats(l, gelu->in[1]),
                               .by_cols = lower_cols(l, gelu->in[1]),
                               .second_col = gelu->p.gelu_mul.second_col,
                               .out = hidden.floats,
                               .act = hidden.act};
    lower_emit(l, start_matvec, &args, sizeof args);
    lower_mark_product(l, "matmul gated", 1, &w, 1, x.act.kind);
}

static void gated_many(struct lowering *l, const struct weight *w, struct input x,
                       struct input hidden)
{
    const struct op *ops = lower_ops(l);
    struct gelu_mul_args gelu = make_gelu_args(l, &ops[1], hidden);
    const float *by = lower_floats(l, ops[1].in[1]);
    if (lower_takes_gated(l, 1, &w, x.act, hidden.act)) {
        if (by) by += gelu.second_col;
        lower_multiply_gated(l, 1, &w, x.act, hidden.act, 0, by, gelu.b_cols);
        return;
    }
    float *y;
    lower_outputs(l, ops, 1, &y);
    gelu.a_scale = lower_multiply_unscaled(l, w, x, y);
    gelu.a = y;
    gelu.b = by;
    lower_emit(l, start_gelu_mul, &gelu, sizeof gelu);
    lower_mark(l, "gelu");
}

void lower_gated(struct lowering *l)
{
    const struct op *ops = lower_ops(l);
    const struct weight *w = ops[0].p.matmul.w, *next = ops[2].p.matmul.w;
    struct input x = lower_input(l, ops[0].in[0], 1, &w);
    struct input hidden = lower_hidden(l, l->rows, next);
    if (are_few(l, x, hidden))
        gated_few(l, w, x, hidden);
    else
        gated_many(l, w, x, hidden);
    lower_multiply_last(l, next, hidden);
}
