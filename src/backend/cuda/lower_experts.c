#include "backend/cuda/lower_experts.h"

#include "backend/cuda/act.h"
#include "backend/cuda/lower_product.h"
#include "backend/cuda/start.h"
#include "backend/cuda/weight_use.h"

/* ---- The choice of experts -------------------------------------------------------------- */

static int32_t *integers(float *rows)
{
    return (int32_t *)(void *)rows;
}

void lower_choice(struct lowering *l, const struct op *op, const float *z, int32_t n_parts)
{
    struct route_args args = {.step = lower_step(l),
                              .rows = lower_rows(l),
                              .z = z,
                              .n_parts = n_parts,
                              .scale = lower_vector(op->p.route.scale),
                              .ids = integers(lower_floats(l, op->out[0])),
                              .shares = lower_floats(l, op->out[1]),
                              .n_expert = lower_cols(l, op->in[0]),
                              .n_used = op->p.route.n_used};
    lower_emit(l, start_route, &args, sizeof args);
}

/* By tensor cores, in parts that the choice adds up. */
static void route_many(struct lowering *l, const struct op *product, const struct op *choice)
{
    const struct weight *w = product->p.matmul.w;
    int32_t n_parts = router_n_parts((int32_t)w->cols);
    size_t bytes = (size_t)n_parts * (size_t)l->rows * (size_t)w->rows * sizeof(float);
    struct router_parts_args args = {.step = lower_step(l),
                                     .rows = lower_rows(l),
                                     .w = lower_matrix(l, w),
                                     .x = lower_floats(l, product->in[0]),
                                     .z = scratch_take(&l->scratch, bytes)};
    lower_emit(l, start_router_parts, &args, sizeof args);
    lower_mark_product(l, "router", 1, &w, 1, ACT_NONE);
    lower_choice(l, choice, args.z, n_parts);
    lower_mark(l, "route");
}

/* For any weight. The logits are in scratch, as nothing else reads them. */
static void route_any(struct lowering *l, const struct op *product, const struct op *choice)
{
    const struct weight *w = product->p.matmul.w;
    float *z;
    lower_outputs(l, product, 1, &z);
    lower_multiply(l, 1, &w, lower_input(l, product->in[0], 1, &w), &z);
    lower_choice(l, choice, z, 1);
    lower_mark(l, "route");
}

float *lower_router(struct lowering *l, const struct op *ops, bool is_late)
{
    const struct op *product = &ops[0], *choice = &ops[1];
    const struct weight *w = product->p.matmul.w;
    float *z;
    lower_outputs(l, product, 1, &z);
    struct router_args args = {.step = lower_step(l),
                               .rows = lower_rows(l),
                               .w = lower_matrix(l, w),
                               .x = lower_floats(l, product->in[0]),
                               .z = z,
                               .scale = lower_vector(choice->p.route.scale),
                               .n_used = choice->p.route.n_used,
                               .ids = integers(lower_floats(l, choice->out[0])),
                               .shares = lower_floats(l, choice->out[1]),
                               .arrived = l->device->arrived,
                               .is_late = is_late};
    lower_emit(l, start_router, &args, sizeof args);
    lower_mark_product(l, "router", 1, &w, 1, ACT_NONE);
    return z;
}

bool lower_is_router(const struct weight *w)
{
    return is_multiplied_exactly(w) && w->rows <= ROUTER_EXPERTS_MAX;
}

void lower_route(struct lowering *l)
{
    const struct op *product = lower_ops(l), *choice = product + 1;
    const struct weight *w = product->p.matmul.w;
    bool is_router = lower_is_router(w);
    if (is_router && l->size <= STEP_FEW)
        lower_router(l, product, false);
    else if (is_router && w->cols % 4 == 0)
        route_many(l, product, choice);
    else
        route_any(l, product, choice);
}

/* ---- Routed products -------------------------------------------------------------------- */

/* What all routed products of a window share. */
struct routed {
    const int32_t *ids;
    int32_t n_used, n_expert;
    int32_t n_pairs; /* of row and expert, at most */
};

static struct routed routed_by(const struct lowering *l, const struct op *op)
{
    int32_t n_used = op->p.expert.n_used;
    return (struct routed){.ids = integers(lower_floats(l, op->in[1])),
                           .n_used = n_used,
                           .n_expert = op->p.expert.w->n_expert,
                           .n_pairs = l->rows * n_used};
}

/* fp32 rows of the window's scratch, one for each pair. */
static float *take_pairs(struct lowering *l, const struct routed *r, int64_t cols)
{
    return scratch_take(&l->scratch, (size_t)r->n_pairs * (size_t)cols * sizeof(float));
}

/* The same in fp16. */
static uint16_t *take_half_pairs(struct lowering *l, const struct routed *r, int64_t cols)
{
    return scratch_take(&l->scratch, (size_t)r->n_pairs * (size_t)cols * sizeof(uint16_t));
}

/* Pairs of rows and experts, sorted; is_even: as launch_grouped_half has their tiles. */
static struct expert_plan sort_pairs(struct lowering *l, const struct routed *r, bool is_even)
{
    size_t bytes = expert_plan_bytes(l->rows, r->n_used, r->n_expert);
    void *memory = scratch_take(&l->scratch, bytes);
    struct expert_sort_args args = {.ids = r->ids, .n_used = r->n_used, .n_expert = r->n_expert};
    if (memory) args.plan = expert_plan_at(memory, l->rows, r->n_used, r->n_expert);
    args.plan.is_even = is_even;
    lower_emit(l, start_expert_sort, &args, sizeof args);
    return args.plan;
}

/* The plan of gate and up, for down; anew where only one of them has even tiles. */
static struct expert_plan plan_for(struct lowering *l, const struct routed *r,
                                   struct expert_plan plan, enum act_kind kind)
{
    bool is_even = kind == ACT_STEPS;
    return is_even == plan.is_even ? plan : sort_pairs(l, r, is_even);
}

static void multiply_grouped(struct lowering *l, const struct grouped_args *args)
{
    enum act_kind kind = args->x.kind;
    start_fn *start = kind == ACT_STEPS  ? start_grouped_half
                      : kind == ACT_HALF ? start_grouped_f16
                                         : start_grouped_i8;
    lower_emit(l, start, args, sizeof *args);
}

/* The op's output: each row is the sum of its pairs, by their shares. */
static void sum_pairs(struct lowering *l, const struct op *op, const struct grouped_args *pairs)
{
    struct expert_sum_args args = {.x = pairs->y[0],
                                   .half = pairs->half,
                                   .scale = pairs->half ? pairs->x.scale : NULL,
                                   .shares = lower_floats(l, op->in[2]),
                                   .y = lower_floats(l, op->out[0]),
                                   .n_used = op->p.expert.n_used,
                                   .cols = (int32_t)op->p.expert.w->rows};
    lower_emit(l, start_expert_sum, &args, sizeof args);
}

/* EXPERT_IN or EXPERT_OUT in fp32, of any layout. */
static void multiply_exactly(struct lowering *l, const struct op *op, const float *x, float *y)
{
    struct exact_args args = {.step = lower_step(l),
                              .rows = lower_rows(l),
                              .w = lower_matrix(l, op->p.expert.w),
                              .x = x,
                              .y = y,
                              .n_used = op->p.expert.n_used,
                              .ids = integers(lower_floats(l, op->in[1])),
                              .shares = lower_floats(l, op->in[2])};
    lower_emit(l, start_matmul_exact, &args, sizeof args);
}

/* ---- One op ----------------------------------------------------------------------------- */

/* Activations of the op's input, a row for each pair when `is_out`. */
static struct act make_act(struct lowering *l, const struct routed *r, const struct op *op,
                           bool is_out, bool is_all_live)
{
    const struct weight *w = op->p.expert.w;
    enum act_kind kind = lower_kind(l, w);
    if (kind == ACT_NONE) return (struct act){.kind = ACT_NONE};
    if (kind == ACT_STEPS) kind = ACT_INT8; /* ACT_STEPS gives fp16 results only */
    int32_t n_rows = is_out ? r->n_pairs : l->rows;
    void *memory = scratch_take(&l->scratch, act_bytes((size_t)n_rows, w->cols));
    struct act_args args = {.step = lower_step(l),
                            .rows = lower_rows(l),
                            .x = lower_floats(l, op->in[0]),
                            .cols = (int32_t)w->cols,
                            .act = act_at(memory, kind, n_rows, w->cols),
                            .n_used = is_out ? r->n_used : 1,
                            .is_all_live = is_all_live};
    lower_emit(l, start_act, &args, sizeof args);
    return args.act;
}

/* y[t, s] = w[id[t, s]] x[t]; with shares the sum over s of shares * w[id] x[t, s]. */
static void expert_few(struct lowering *l, const struct routed *r, const struct op *op, bool is_out)
{
    float *y = lower_floats(l, op->out[0]);
    struct expert_args args = {.step = lower_step(l),
                               .rows = lower_rows(l),
                               .n_used = r->n_used,
                               .ids = r->ids,
                               .shares = lower_floats(l, op->in[2]),
                               .w = {lower_matrix(l, op->p.expert.w)},
                               .n_w = 1,
                               .x = make_act(l, r, op, is_out, is_out),
                               .x_floats = lower_floats(l, op->in[0]),
                               .y = {y},
                               .out = is_out ? y : NULL};
    lower_emit(l, is_out ? start_experts_out : start_experts_in, &args, sizeof args);
}

static void expert_many(struct lowering *l, const struct routed *r, const struct op *op,
                        bool is_out)
{
    const struct weight *w = op->p.expert.w;
    float *y = is_out ? take_pairs(l, r, w->rows) : lower_floats(l, op->out[0]);
    struct grouped_args args = {.n_rows = l->rows,
                                .n_used = r->n_used,
                                .n_w = 1,
                                .w = {lower_matrix(l, w)},
                                .is_row_a_pair = is_out,
                                .y = {y}};
    args.plan = sort_pairs(l, r, false);
    args.x = make_act(l, r, op, is_out, true);
    multiply_grouped(l, &args);
    if (is_out) sum_pairs(l, op, &args);
}

void lower_expert(struct lowering *l, const struct op *op)
{
    struct routed r = routed_by(l, op);
    const struct weight *w = op->p.expert.w;
    bool is_out = op->code == OP_EXPERT_OUT;
    if (l->device->options.is_exact || (l->size > STEP_FEW && lower_kind(l, w) == ACT_NONE))
        multiply_exactly(l, op, lower_floats(l, op->in[0]), lower_floats(l, op->out[0]));
    else if (l->size > STEP_FEW)
        expert_many(l, &r, op, is_out);
    else
        expert_few(l, &r, op, is_out);
}

/* ---- Gate, up, gelu, down --------------------------------------------------------------- */

struct expert_args lower_experts_in(struct lowering *l, const struct op *ops)
{
    struct routed r = routed_by(l, &ops[0]);
    const struct weight *in[2] = {ops[0].p.expert.w, ops[1].p.expert.w}, *down = ops[3].p.expert.w;
    struct input hidden = lower_hidden(l, r.n_pairs, down);
    return (struct expert_args){.step = lower_step(l),
                                .rows = lower_rows(l),
                                .n_used = r.n_used,
                                .ids = r.ids,
                                .w = {lower_matrix(l, in[0]), lower_matrix(l, in[1])},
                                .n_w = 2,
                                .x = lower_act(l, ops[0].in[0], in[0]),
                                .x_floats = lower_floats(l, ops[0].in[0]),
                                .is_gelu_mul = true,
                                .out = hidden.floats,
                                .act = hidden.act};
}

struct expert_args lower_experts_out(struct lowering *l, const struct op *ops,
                                     const struct expert_args *in)
{
    return (struct expert_args){.step = in->step,
                                .rows = in->rows,
                                .n_used = in->n_used,
                                .ids = in->ids,
                                .shares = lower_floats(l, ops[3].in[2]),
                                .w = {lower_matrix(l, ops[3].p.expert.w)},
                                .n_w = 1,
                                .x = in->act,
                                .x_floats = in->out,
                                .out = lower_floats(l, ops[3].out[0])};
}

static void experts_few(struct lowering *l, const struct op *ops)
{
    const struct weight *in[2] = {ops[0].p.expert.w, ops[1].p.expert.w}, *down = ops[3].p.expert.w;
    struct expert_args args = lower_experts_in(l, ops), out = lower_experts_out(l, ops, &args);
    lower_emit(l, start_experts_in, &args, sizeof args);
    lower_mark_product(l, "experts gate, up", 2, in, args.n_used, args.x.kind);
    lower_emit(l, start_experts_out, &out, sizeof out);
    lower_mark_product(l, "experts", 1, &down, out.n_used, out.x.kind);
}

/* gelu(gate) * up for each pair. */
static struct act gelu_pairs(struct lowering *l, const struct routed *r,
                             const struct grouped_args *in, const struct weight *down)
{
    int32_t ff = in->w[0].rows;
    struct gelu_mul_args gelu = {.step = lower_step(l),
                                 .rows = lower_rows(l),
                                 .is_all_live = true,
                                 .a = in->y[0],
                                 .b = in->y[1],
                                 .half = in->half,
                                 .half_scale = in->x.scale,
                                 .half_div = r->n_used,
                                 .cols = ff,
                                 .b_cols = ff,
                                 .act = lower_hidden(l, r->n_pairs, down).act};
    lower_emit(l, start_gelu_mul, &gelu, sizeof gelu);
    lower_mark(l, "gelu");
    return gelu.act;
}

static void experts_many(struct lowering *l, const struct routed *r, const struct op *ops)
{
    const struct weight *in[2] = {ops[0].p.expert.w, ops[1].p.expert.w}, *down = ops[3].p.expert.w;
    int32_t ff = (int32_t)in[0]->rows;
    struct grouped_args args = {.n_rows = l->rows,
                                .n_used = r->n_used,
                                .n_w = 2,
                                .w = {lower_matrix(l, in[0]), lower_matrix(l, in[1])},
                                .half_cols = 2 * ff};
    args.plan = sort_pairs(l, r, lower_kind(l, in[0]) == ACT_STEPS);
    args.x = lower_act(l, ops[0].in[0], in[0]);
    lower_mark(l, "experts sorted");
    if (act_is_half(args.x.kind))
        args.half = take_half_pairs(l, r, 2 * ff);
    else
        for (int k = 0; k < 2; k++) args.y[k] = take_pairs(l, r, ff);
    multiply_grouped(l, &args);
    lower_mark_product(l, "experts gate, up", 2, in, r->n_used, args.x.kind);
    struct act hidden = gelu_pairs(l, r, &args, down);
    struct grouped_args out = {.n_rows = l->rows,
                               .n_used = r->n_used,
                               .plan = plan_for(l, r, args.plan, hidden.kind),
                               .n_w = 1,
                               .w = {lower_matrix(l, down)},
                               .x = hidden,
                               .is_row_a_pair = true,
                               .half_cols = (int32_t)down->rows};
    if (out.x.kind == ACT_STEPS)
        out.half = take_half_pairs(l, r, down->rows);
    else
        out.y[0] = take_pairs(l, r, down->rows);
    multiply_grouped(l, &out);
    lower_mark_product(l, "experts", 1, &down, r->n_used, out.x.kind);
    sum_pairs(l, &ops[3], &out);
    lower_mark(l, "experts summed");
}

/* For weights that no kernel takes together, or none in this form: slow, but right for all. */
static void experts_exactly(struct lowering *l, const struct routed *r, const struct op *ops)
{
    const struct weight *gate = ops[0].p.expert.w, *up = ops[1].p.expert.w;
    int32_t cols = lower_cols(l, ops[2].out[0]);
    float *x = lower_floats(l, ops[0].in[0]);
    float *a = take_pairs(l, r, gate->rows), *b = take_pairs(l, r, up->rows);
    float *hidden = take_pairs(l, r, gate->rows);
    multiply_exactly(l, &ops[0], x, a);
    multiply_exactly(l, &ops[1], x, b);
    struct gelu_mul_args gelu = {.step = lower_step(l),
                                 .rows = lower_rows(l),
                                 .half_div = 1,
                                 .a = a,
                                 .b = b,
                                 .cols = cols,
                                 .b_cols = cols,
                                 .y = hidden};
    lower_emit(l, start_gelu_mul, &gelu, sizeof gelu);
    multiply_exactly(l, &ops[3], hidden, lower_floats(l, ops[3].out[0]));
    lower_mark(l, "experts");
}

bool lower_are_grouped(struct lowering *l, const struct op *ops)
{
    return l->size > STEP_FEW || act_is_half(lower_kind(l, ops[0].p.expert.w));
}

bool lower_are_together(struct lowering *l, const struct op *ops)
{
    const struct weight *gate = ops[0].p.expert.w, *up = ops[1].p.expert.w;
    if (gate->format != up->format) return false;
    if (!lower_are_grouped(l, ops)) return true;
    enum act_kind kind = lower_kind(l, gate);
    return kind != ACT_NONE && kind == lower_kind(l, up) &&
           lower_kind(l, ops[3].p.expert.w) != ACT_NONE;
}

void lower_experts(struct lowering *l)
{
    const struct op *ops = lower_ops(l);
    struct routed r = routed_by(l, &ops[0]);
    if (!lower_are_together(l, ops))
        experts_exactly(l, &r, ops);
    else if (lower_are_grouped(l, ops))
        experts_many(l, &r, ops);
    else
        experts_few(l, ops);
}
