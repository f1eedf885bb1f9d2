/* Ops on their own: what no window took, and everything in exact arithmetic. */
#include "backend/cuda/stages.h"

static void single_norm(struct program *p, const struct op *op, struct rows rows)
{
    int32_t cols = plan_buf_at(p->plan, op->in[0])->cols;
    launch_group_norm(&p->device->queue, p->step, rows, program_floats(p, op->in[0]),
                      floats_of(op->p.norm.w), program_floats(p, op->out[0]), cols,
                      op->p.norm.group, op->p.norm.eps);
}

static void single_matmul(struct program *p, const struct op *op)
{
    const struct weight *w = op->p.matmul.w;
    float *y = program_floats(p, op->out[0]);
    multiply(p, class_of(p, op->out[0]), 1, &w, input_of(p, op->in[0], 1, &w), &y);
}

static void single_gelu_mul(struct program *p, const struct op *op, struct rows rows)
{
    struct gelu_mul_args args = {.step = p->step,
                                 .rows = rows,
                                 .half_div = 1,
                                 .a = program_floats(p, op->in[0]),
                                 .b = program_floats(p, op->in[1]),
                                 .cols = plan_buf_at(p->plan, op->out[0])->cols,
                                 .b_cols = plan_buf_at(p->plan, op->in[1])->cols,
                                 .second_col = op->p.gelu_mul.second_col,
                                 .y = program_floats(p, op->out[0])};
    launch_gelu_mul(&p->device->queue, &args);
}

static void single_embed(struct program *p, const struct op *op, struct rows rows)
{
    struct embed_args args = {.step = p->step,
                              .rows = rows,
                              .scale = op->p.embed.scale,
                              .first_col = op->p.embed.first_col,
                              .cols = plan_buf_at(p->plan, op->out[0])->cols,
                              .y = program_floats(p, op->out[0])};
    args.table = table_of(p, op->p.embed.table, &args.step);
    launch_embed(&p->device->queue, &args);
}

void stage_single(struct program *p, const struct op *op)
{
    const struct queue *q = &p->device->queue;
    buf_id shaped = op->out[0] != BUF_NONE ? op->out[0] : op->in[0];
    struct rows rows = rows_of_class(p, class_of(p, shaped));
    int32_t cols = plan_buf_at(p->plan, shaped)->cols;
    const float *a = program_floats(p, op->in[0]), *b = program_floats(p, op->in[1]);
    float *y = program_floats(p, op->out[0]);
    switch ((enum op_code)op->code) {
    case OP_EMBED: single_embed(p, op, rows); break;
    case OP_RMSNORM: single_norm(p, op, rows); break;
    case OP_MATMUL: single_matmul(p, op); break;
    case OP_ROPE:
        launch_rope(q, p->step, rows, a, floats_of(op->p.rope.inv_freq), y, cols,
                    op->p.rope.head_dim);
        break;
    case OP_KV_WRITE:
        launch_kv_write(q, p->step, rows, a, b, p->plan->caches[op->p.kv.cache]);
        break;
    case OP_ATTENTION: stage_attention(p, op, y, (struct act){.kind = ACT_NONE}); break;
    case OP_ADD: launch_add(q, p->step, rows, a, b, y, cols); break;
    case OP_SCALE: launch_scale(q, p->step, rows, a, op->p.scale.value, y, cols); break;
    case OP_GELU_MUL: single_gelu_mul(p, op, rows); break;
    case OP_GATHER_ROWS: launch_gather_rows(q, p->step, a, y, cols, p->n[ROWS_OUT]); break;
    case OP_ROUTE: stage_choice(p, op, a); break;
    case OP_EXPERT_IN:
    case OP_EXPERT_OUT: stage_expert(p, op); break;
    case OP_SOFTCAP: launch_softcap(q, p->step, rows, a, op->p.softcap.cap, y, cols); break;
    case OP_INPUT:
    case OP_OUTPUT: /* the engine's business, between runs */
    case OP_COUNT: break;
    }
    if (op->code != OP_MATMUL && op->code != OP_ATTENTION) mark(p, op_name(op->code));
}
