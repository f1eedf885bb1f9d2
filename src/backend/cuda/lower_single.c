#include "backend/cuda/lower_single.h"

#include "backend/cuda/lower_attention.h"
#include "backend/cuda/lower_experts.h"
#include "backend/cuda/lower_product.h"
#include "backend/cuda/start.h"

static void single_embed(struct lowering *l, const struct op *op)
{
    struct embed_args args = {.rows = lower_rows(l),
                              .scale = op->p.embed.scale,
                              .first_col = op->p.embed.first_col,
                              .cols = lower_cols(l, op->out[0]),
                              .y = lower_floats(l, op->out[0])};
    args.table = lower_table(l, op->p.embed.table, &args.step);
    lower_emit(l, start_embed, &args, sizeof args);
}

static void single_matmul(struct lowering *l, const struct op *op)
{
    const struct weight *w = op->p.matmul.w;
    float *y = lower_floats(l, op->out[0]);
    lower_multiply(l, 1, &w, lower_input(l, op->in[0], 1, &w), &y);
}

static void single_gelu_mul(struct lowering *l, const struct op *op)
{
    struct gelu_mul_args args = {.step = lower_step(l),
                                 .rows = lower_rows(l),
                                 .half_div = 1,
                                 .a = lower_floats(l, op->in[0]),
                                 .b = lower_floats(l, op->in[1]),
                                 .cols = lower_cols(l, op->out[0]),
                                 .b_cols = lower_cols(l, op->in[1]),
                                 .second_col = op->p.gelu_mul.second_col,
                                 .y = lower_floats(l, op->out[0])};
    lower_emit(l, start_gelu_mul, &args, sizeof args);
}

static void single_kv_write(struct lowering *l, const struct op *op)
{
    struct kv_write_args args = {.step = lower_step(l),
                                 .rows = lower_rows(l),
                                 .k = lower_floats(l, op->in[0]),
                                 .v = lower_floats(l, op->in[1]),
                                 .cache = l->plan->caches[op->p.kv.cache]};
    lower_emit(l, start_kv_write, &args, sizeof args);
}

/* Rows, each on its own. */
static void single_rows(struct lowering *l, const struct op *op, start_fn *start,
                        const struct weight *vector, int32_t group, float value)
{
    struct row_args args = {.step = lower_step(l),
                            .rows = lower_rows(l),
                            .a = lower_floats(l, op->in[0]),
                            .b = lower_floats(l, op->in[1]),
                            .vector = lower_vector(vector),
                            .y = lower_floats(l, op->out[0]),
                            .cols = lower_cols(l, op->out[0]),
                            .group = group,
                            .value = value};
    lower_emit(l, start, &args, sizeof args);
}

static void single_rope(struct lowering *l, const struct op *op)
{
    struct row_args args = {.step = lower_step(l),
                            .rows = lower_rows(l),
                            .a = lower_floats(l, op->in[0]),
                            .vector = lower_vector(op->p.rope.inv_freq),
                            .y = lower_floats(l, op->out[0]),
                            .cols = lower_cols(l, op->out[0]),
                            .group = op->p.rope.head_dim,
                            .ahead = op->p.rope.ahead};
    lower_emit(l, start_rope, &args, sizeof args);
}

static void single_concat(struct lowering *l, const struct op *op)
{
    struct concat_args args = {.step = lower_step(l),
                               .rows = lower_rows(l),
                               .a = lower_floats(l, op->in[0]),
                               .b = lower_floats(l, op->in[1]),
                               .cols = lower_cols(l, op->out[0]),
                               .b_cols = lower_cols(l, op->in[1]),
                               .y = lower_floats(l, op->out[0])};
    lower_emit(l, start_concat, &args, sizeof args);
}

void lower_single(struct lowering *l)
{
    const struct op *op = lower_ops(l);
    const union op_params *p = &op->p;
    switch ((enum op_code)op->code) {
    case OP_MATMUL: single_matmul(l, op); return; /* marked as products */
    case OP_ATTENTION:
        lower_attention(l, op, lower_floats(l, op->out[0]), (struct act){.kind = ACT_NONE});
        return;
    case OP_INPUT:
    case OP_OUTPUT: /* the engine's business, between runs */
    case OP_COUNT: return;
    case OP_EMBED: single_embed(l, op); break;
    case OP_RMSNORM:
        single_rows(l, op, start_group_norm, p->norm.w, p->norm.group, p->norm.eps);
        break;
    case OP_ROPE: single_rope(l, op); break;
    case OP_KV_WRITE: single_kv_write(l, op); break;
    case OP_ADD: single_rows(l, op, start_add, NULL, 0, 0); break;
    case OP_SCALE: single_rows(l, op, start_scale, NULL, 0, p->scale.value); break;
    case OP_GELU_MUL: single_gelu_mul(l, op); break;
    case OP_CONCAT: single_concat(l, op); break;
    case OP_GATHER_ROWS: single_rows(l, op, start_gather_rows, NULL, 0, 0); break;
    case OP_ROUTE: lower_choice(l, op, lower_floats(l, op->in[0]), 1); break;
    case OP_EXPERT_IN:
    case OP_EXPERT_OUT: lower_expert(l, op); break;
    case OP_SOFTCAP: single_rows(l, op, start_softcap, NULL, 0, p->softcap.cap); break;
    }
    lower_mark(l, op_name((enum op_code)op->code));
}

void lower_ple(struct lowering *l)
{
    const struct op *ops = lower_ops(l);
    const struct weight *w = ops[0].p.matmul.w;
    float *a;
    lower_outputs(l, ops, 1, &a);
    struct input x = lower_input(l, ops[0].in[0], 1, &w);
    const float *a_scale = lower_multiply_unscaled(l, w, x, a);
    struct ple_args args = {.rows = lower_rows(l),
                            .a = a,
                            .a_scale = a_scale,
                            .w = lower_vector(ops[2].p.norm.w),
                            .in_scale = ops[1].p.scale.value,
                            .eps = ops[2].p.norm.eps,
                            .e_scale = ops[3].p.embed.scale,
                            .out_scale = ops[5].p.scale.value,
                            .first_col = ops[3].p.embed.first_col,
                            .cols = lower_cols(l, ops[5].out[0]),
                            .group = ops[2].p.norm.group,
                            .y = lower_floats(l, ops[5].out[0])};
    args.table = lower_table(l, ops[3].p.embed.table, &args.step);
    lower_emit(l, start_ple, &args, sizeof args);
    lower_mark(l, "per-layer embeddings");
}

void lower_logits(struct lowering *l)
{
    const struct op *ops = lower_ops(l), *cap = &ops[1];
    const struct weight *w = ops[0].p.matmul.w;
    struct input x = lower_input(l, ops[0].in[0], 1, &w);
    lower_multiply_capped(l, w, x, cap->p.softcap.cap, lower_floats(l, cap->out[0]));
}
