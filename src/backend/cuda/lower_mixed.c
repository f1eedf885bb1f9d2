#include "backend/cuda/lower_mixed.h"

#include "backend/cuda/act.h"
#include "backend/cuda/lower_experts.h"
#include "backend/cuda/lower_ffn.h"
#include "backend/cuda/lower_product.h"
#include "backend/cuda/start.h"

/* One branch after the other. */
static void lower_in_turn(struct lowering *l)
{
    struct window all = l->window;
    size_t begin = l->scratch.at; /* the parts do not read each other's scratch */
    l->window = (struct window){WINDOW_FFN, all.first, MIXED_ROUTE};
    lower_ffn(l);
    l->scratch.at = begin;
    l->window = (struct window){WINDOW_ROUTE, all.first + MIXED_ROUTE, MIXED_EXPERTS - MIXED_ROUTE};
    lower_route(l);
    l->scratch.at = begin;
    l->window =
        (struct window){WINDOW_EXPERTS, all.first + MIXED_EXPERTS, MIXED_OPS - MIXED_EXPERTS};
    lower_experts(l);
    l->window = all;
}

static struct matvec_args down_args(struct lowering *l, const struct op *op, struct input hidden)
{
    return (struct matvec_args){.step = lower_step(l),
                                .rows = lower_rows(l),
                                .n_w = 1,
                                .w = {lower_matrix(l, op->p.matmul.w)},
                                .x = hidden.act,
                                .x_floats = hidden.floats,
                                .epilogue = MATVEC_STORE,
                                .y = {lower_floats(l, op->out[0])}};
}

static void lower_beside(struct lowering *l, struct input x)
{
    const struct op *ffn = lower_ops(l), *route = ffn + MIXED_ROUTE, *experts = ffn + MIXED_EXPERTS;
    const struct weight *dense[2] = {ffn[0].p.matmul.w, ffn[1].p.matmul.w};
    const struct weight *in[2] = {experts[0].p.expert.w, experts[1].p.expert.w};
    const struct weight *down = experts[3].p.expert.w;
    struct input hidden = lower_hidden(l, l->rows, ffn[3].p.matmul.w);
    const float *z = lower_router(l, route, true);
    struct beside_args args = {.rows = lower_rows(l),
                               .z = z,
                               .scale = lower_vector(route[1].p.route.scale),
                               .dense = lower_gate_up(l, dense, x, hidden),
                               .experts = lower_experts_in(l, experts)};
    args.experts.shares = lower_floats(l, route[1].out[1]);
    lower_emit(l, start_gate_up_beside, &args, sizeof args);
    lower_mark_product(l, "experts gate, up; matmul", 2, in, args.experts.n_used,
                       args.experts.x.kind);
    args.dense = down_args(l, &ffn[3], hidden);
    args.experts = lower_experts_out(l, experts, &args.experts);
    lower_emit(l, start_down_beside, &args, sizeof args);
    lower_mark_product(l, "experts; matmul", 1, &down, args.experts.n_used, args.experts.x.kind);
}

void lower_mixed(struct lowering *l)
{
    const struct op *ffn = lower_ops(l), *route = ffn + MIXED_ROUTE, *experts = ffn + MIXED_EXPERTS;
    const struct weight *dense[2] = {ffn[0].p.matmul.w, ffn[1].p.matmul.w},
                        *down = ffn[3].p.matmul.w;
    for (int k = 0; k < 2; k++) lower_keep(l, route[1].out[k]);
    bool is_few = !l->is_many && !l->device->options.is_exact &&
                  dense[0]->format == dense[1]->format && !act_is_half(lower_kind(l, dense[0])) &&
                  !act_is_half(lower_kind(l, down)) && lower_is_router(route[0].p.matmul.w) &&
                  lower_are_together(l, experts) && !lower_are_grouped(l, experts);
    if (is_few)
        lower_beside(l, lower_input(l, ffn[0].in[0], 2, dense));
    else
        lower_in_turn(l);
}
