/* Routers and routed products. Few rows: a router and its choice are one launch, each chosen
 * expert's weights are read for the rows that chose it. Many rows: pairs of row and expert are
 * sorted by expert and multiplied in groups. */
#include "backend/cuda/stages.h"

/* ---- The choice of experts --------------------------------------------------------------- */

void stage_choice(struct program *p, const struct op *op, const float *z)
{
    launch_route(&p->device->queue, p->step, rows_of_class(p, class_of(p, op->out[0])), z,
                 floats_of(op->p.route.scale), (int32_t *)(void *)program_floats(p, op->out[0]),
                 program_floats(p, op->out[1]), plan_buf_at(p->plan, op->in[0])->cols,
                 op->p.route.n_used);
}

/* The logits, which nothing else reads, go to the wide part. */
void stage_route(struct program *p, const struct window *win)
{
    const struct op *product = &p->plan->ops[win->first], *choice = product + 1;
    const struct weight *w = product->p.matmul.w;
    enum row_class c = class_of(p, product->out[0]);
    buf_id id = product->in[0];
    float *z = (float *)(void *)(p->scratch + p->at.wide);
    if (p->n[c] > MATVEC_ROWS_MAX || !is_multiplied_exactly(w) || w->rows > ROUTER_EXPERTS_MAX) {
        multiply(p, c, 1, &w, input_of(p, id, 1, &w), &z);
        stage_choice(p, choice, z);
        mark(p, "route");
        return;
    }
    struct router_args args = {.step = p->step,
                               .rows = rows_of_class(p, c),
                               .w = view_of(w),
                               .x = program_floats(p, id),
                               .z = z,
                               .scale = floats_of(choice->p.route.scale),
                               .n_used = choice->p.route.n_used,
                               .ids = (int32_t *)(void *)program_floats(p, choice->out[0]),
                               .shares = program_floats(p, choice->out[1]),
                               .arrived = p->device->arrived};
    launch_router(&p->device->queue, &args);
    mark_product(p, "router", 1, &w, p->n[c], ACT_NONE);
}

/* ---- Routed products --------------------------------------------------------------------- */

struct routed {
    const int32_t *ids;
    const float *shares;
    int32_t n_used, n_expert, n_rows, n_pairs;
    enum row_class rows_class;
    enum act_kind kind; /* what the products of many rows read */
};

static struct routed routed_of(const struct program *p, const struct op *op)
{
    enum row_class c = plan_buf_at(p->plan, op->out[0])->rows;
    const struct weight *w = op->p.expert.w;
    return (struct routed){.ids = (const int32_t *)(const void *)program_floats(p, op->in[1]),
                           .shares = program_floats(p, op->in[2]),
                           .n_used = op->p.expert.n_used,
                           .n_expert = w->n_expert,
                           .n_rows = p->n[c],
                           .n_pairs = p->n[c] * op->p.expert.n_used,
                           .rows_class = c,
                           .kind = kind_for(p, w, p->n[c])};
}

/* Pairs of rows and experts, sorted. */
static struct expert_plan sort_pairs(struct program *p, const struct routed *r)
{
    struct expert_plan plan =
        expert_plan_at(p->scratch + p->at.experts, r->n_rows, r->n_used, r->n_expert);
    launch_expert_sort(&p->device->queue, &plan, r->ids, r->n_rows, r->n_used, r->n_expert);
    return plan;
}

static void multiply_grouped(struct program *p, const struct grouped_args *args)
{
    if (args->x.kind == ACT_HALF)
        launch_grouped_f16(&p->device->queue, args);
    else
        launch_grouped_i8(&p->device->queue, args);
}

static void multiply_pairs_exactly(struct program *p, const struct routed *r,
                                   const struct weight *w, const float *x, float *y)
{
    struct exact_args args = {.step = p->step,
                              .rows = rows_of_class(p, r->rows_class),
                              .w = view_of(w),
                              .x = x,
                              .y = y,
                              .n_used = r->n_used,
                              .ids = r->ids,
                              .shares = r->shares};
    launch_matmul_exact(&p->device->queue, &args);
}

/* ---- One op ----------------------------------------------------------------------------- */

/* y[t, s] = w[id[t, s]] x[t]; with shares the sum over s of shares * w[id] x[t, s]. */
static void expert_few(struct program *p, const struct routed *r, const struct op *op, bool is_out)
{
    const struct weight *w = op->p.expert.w;
    float *y = program_floats(p, op->out[0]);
    struct expert_args args = {.step = p->step,
                               .rows = rows_of_class(p, r->rows_class),
                               .n_used = r->n_used,
                               .ids = r->ids,
                               .shares = r->shares,
                               .w = {view_of(w)},
                               .n_w = 1,
                               .x_floats = program_floats(p, op->in[0]),
                               .y = {y}};
    args.x = act_at(p->scratch + p->at.inner, kind_for(p, w, r->n_rows),
                    is_out ? r->n_pairs : r->n_rows, w->cols);
    if (args.x.kind != ACT_NONE)
        launch_act(&p->device->queue, p->step,
                   (struct rows){is_out ? r->n_pairs : r->n_rows, args.rows.is_out}, args.x_floats,
                   (int32_t)w->cols, args.x, is_out);
    if (is_out) {
        args.out = y;
        launch_experts_out(&p->device->queue, &args);
    } else {
        launch_experts_in(&p->device->queue, &args);
    }
}

static void expert_many(struct program *p, const struct routed *r, const struct op *op, bool is_out)
{
    const struct weight *w = op->p.expert.w;
    int32_t n_x = is_out ? r->n_pairs : r->n_rows;
    float *y = program_floats(p, op->out[0]), *pairs = (float *)(void *)(p->scratch + p->at.wide);
    struct grouped_args args = {.n_rows = r->n_rows,
                                .n_used = r->n_used,
                                .plan = sort_pairs(p, r),
                                .n_w = 1,
                                .w = {view_of(w)},
                                .x = act_at(p->scratch + p->at.inner, r->kind, n_x, w->cols),
                                .is_row_a_pair = is_out,
                                .y = {is_out ? pairs : y}};
    launch_act(&p->device->queue, p->step, (struct rows){n_x, r->rows_class == ROWS_OUT},
               program_floats(p, op->in[0]), (int32_t)w->cols, args.x, true);
    multiply_grouped(p, &args);
    if (is_out)
        launch_expert_sum(&p->device->queue, pairs, r->shares, y, r->n_rows, r->n_used,
                          (int32_t)w->rows);
}

void stage_expert(struct program *p, const struct op *op)
{
    struct routed r = routed_of(p, op);
    bool is_out = op->code == OP_EXPERT_OUT;
    if (p->device->options.is_exact || (r.n_rows > MATVEC_ROWS_MAX && r.kind == ACT_NONE))
        multiply_pairs_exactly(p, &r, op->p.expert.w, program_floats(p, op->in[0]),
                               program_floats(p, op->out[0]));
    else if (r.n_rows <= MATVEC_ROWS_MAX)
        expert_few(p, &r, op, is_out);
    else
        expert_many(p, &r, op, is_out);
}

/* ---- Gate, up, gelu, down ---------------------------------------------------------------- */

static void experts_few(struct program *p, const struct op *ops, const struct routed *in,
                        struct routed *out)
{
    const struct weight *in_w[2] = {ops[0].p.expert.w, ops[1].p.expert.w};
    const struct weight *down = ops[3].p.expert.w;
    int32_t n_hidden = plan_buf_at(p->plan, ops[2].out[0])->cols / in->n_used;
    void *inner = p->scratch + p->at.inner;
    enum act_kind kind = kind_for(p, down, in->n_rows);
    struct expert_args args = {.step = p->step,
                               .rows = rows_of_class(p, in->rows_class),
                               .n_used = in->n_used,
                               .ids = in->ids,
                               .w = {view_of(ops[0].p.expert.w), view_of(ops[1].p.expert.w)},
                               .n_w = 2,
                               .x = act_of(p, ops[0].in[0], ops[0].p.expert.w),
                               .x_floats = program_floats(p, ops[0].in[0]),
                               .is_gelu_mul = true,
                               .out = kind == ACT_NONE ? inner : NULL,
                               .act = act_at(inner, kind, in->n_pairs, n_hidden)};
    launch_experts_in(&p->device->queue, &args);
    mark_product(p, "experts gate, up", 2, in_w, in->n_pairs, in->kind);
    args.w[0] = view_of(down);
    args.n_w = 1;
    args.shares = out->shares;
    args.x = args.act;
    args.x_floats = inner;
    args.is_gelu_mul = false;
    args.act = (struct act){.kind = ACT_NONE};
    args.out = program_floats(p, ops[3].out[0]);
    launch_experts_out(&p->device->queue, &args);
    mark_product(p, "experts", 1, &down, in->n_pairs, out->kind);
}

static void experts_many(struct program *p, const struct op *ops, const struct routed *in,
                         struct routed *out)
{
    const struct weight *in_w[2] = {ops[0].p.expert.w, ops[1].p.expert.w};
    const struct weight *gate = in_w[0], *down = ops[3].p.expert.w;
    int32_t ff = (int32_t)gate->rows, cols = (int32_t)down->rows;
    char *wide = p->scratch + p->at.wide;
    size_t one = aligned((size_t)in->n_pairs * (size_t)ff * sizeof(float));
    float *pairs = (float *)(void *)(wide + 2 * one);
    bool is_half = in->kind == ACT_HALF;
    struct grouped_args args = {.n_rows = in->n_rows,
                                .n_used = in->n_used,
                                .plan = sort_pairs(p, in),
                                .n_w = 2,
                                .w = {view_of(gate), view_of(ops[1].p.expert.w)},
                                .x = act_of(p, ops[0].in[0], gate),
                                .half_cols = 2 * ff};
    if (is_half)
        args.half = (uint16_t *)(void *)wide;
    else
        for (int k = 0; k < 2; k++) args.y[k] = (float *)(void *)(wide + (size_t)k * one);
    mark(p, "experts sorted");
    multiply_grouped(p, &args);
    mark_product(p, "experts gate, up", 2, in_w, in->n_pairs, in->kind);
    struct gelu_mul_args gelu = {.step = p->step,
                                 .rows = {in->n_pairs, in->rows_class == ROWS_OUT},
                                 .is_all_live = true,
                                 .a = args.y[0],
                                 .b = args.y[1],
                                 .half = args.half,
                                 .half_scale = args.x.scale,
                                 .half_div = in->n_used,
                                 .cols = ff,
                                 .b_cols = ff,
                                 .act =
                                     act_at(p->scratch + p->at.inner, out->kind, in->n_pairs, ff)};
    launch_gelu_mul(&p->device->queue, &gelu);
    args.n_w = 1;
    args.w[0] = view_of(down);
    args.x = gelu.act;
    args.is_row_a_pair = true;
    args.half = NULL;
    args.y[0] = pairs;
    mark(p, "gelu");
    multiply_grouped(p, &args);
    mark_product(p, "experts", 1, &down, in->n_pairs, out->kind);
    launch_expert_sum(&p->device->queue, pairs, out->shares, program_floats(p, ops[3].out[0]),
                      in->n_rows, in->n_used, cols);
    mark(p, "experts summed");
}

void stage_experts(struct program *p, const struct window *win)
{
    const struct op *ops = &p->plan->ops[win->first];
    struct routed in = routed_of(p, &ops[0]), out = routed_of(p, &ops[3]);
    if (in.n_rows <= MATVEC_ROWS_MAX)
        experts_few(p, ops, &in, &out);
    else
        experts_many(p, ops, &in, &out);
}
