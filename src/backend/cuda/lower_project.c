#include "backend/cuda/lower_project.h"

#include "backend/cuda/lower_product.h"
#include "backend/cuda/start.h"

/* Which of q, k and v the window makes, and where: the norms after the products tell. */
struct projection {
    const struct op *ops; /* the products come first */
    int32_t n_w;
    const struct op *q_norm, *k_norm; /* NULL: not made; a rotation follows each */
    const struct op *write;           /* NULL: no keys and values */
    int32_t q, k, v;                  /* their products */
};

static struct projection projection_at(const struct lowering *l)
{
    struct projection p = {.ops = lower_ops(l)};
    const struct op *last = &p.ops[l->window.n - 1];
    while (p.ops[p.n_w].code == OP_MATMUL) p.n_w++;
    const struct op *norms = p.ops + p.n_w;
    if (last->code == OP_KV_WRITE) p.write = last;
    if (!p.write || l->window.n - p.n_w == 6) p.q_norm = norms;
    if (p.write) p.k_norm = norms + (p.q_norm ? 2 : 0);
    p.k = p.q_norm ? 1 : 0;
    p.v = p.n_w - 1; /* K's product if V has none */
    return p;
}

static struct heads_args make_heads_args(const struct lowering *l, const struct projection *p)
{
    const struct op *norm = p->q_norm ? p->q_norm : p->k_norm, *rope = norm + 1;
    int32_t head_dim = rope->p.rope.head_dim;
    struct heads_args args = {.step = lower_step(l),
                              .rows = lower_rows(l),
                              .has_q = p->q_norm != NULL,
                              .has_k = p->write != NULL,
                              .is_k_eq_v = p->write && p->k == p->v,
                              .inv_freq = lower_vector(rope->p.rope.inv_freq),
                              .eps = norm->p.norm.eps,
                              .ahead = rope->p.rope.ahead,
                              .cache = {.head_dim = head_dim}};
    if (p->q_norm) {
        args.w_q = lower_vector(p->q_norm->p.norm.w);
        args.n_heads = lower_cols(l, p->ops[p->q].out[0]) / head_dim;
        args.q_out = lower_floats(l, rope->out[0]);
    }
    if (p->write) {
        args.w_k = lower_vector(p->k_norm->p.norm.w);
        args.cache = l->plan->caches[p->write->p.kv.cache];
    }
    return args;
}

void lower_project(struct lowering *l)
{
    struct projection p = projection_at(l);
    const struct weight *w[3];
    int32_t col[3] = {0, 0, 0}, cols = 0;
    for (int32_t k = 0; k < p.n_w; k++) {
        w[k] = p.ops[k].p.matmul.w;
        col[k] = cols;
        cols += lower_cols(l, p.ops[k].out[0]);
    }
    struct input x = lower_input(l, p.ops[0].in[0], p.n_w, w);
    struct heads_args args = make_heads_args(l, &p);
    float *y[3] = {NULL, NULL, NULL};
    if (lower_takes_half(l, p.n_w, w, x.act)) {
        uint16_t *half = lower_half_outputs(l, p.ops, p.n_w);
        lower_multiply_half(l, p.n_w, w, x.act, half);
        args.half = half;
        args.half_scale = x.act.scale;
        args.half_cols = cols;
    } else {
        lower_outputs(l, p.ops, p.n_w, y);
        lower_multiply(l, p.n_w, w, x, y);
    }
    if (p.q_norm) {
        args.q = y[p.q];
        args.q_col = col[p.q];
    }
    if (p.write) {
        args.k = y[p.k];
        args.v = y[p.v];
        args.k_col = col[p.k];
        args.v_col = col[p.v];
    }
    lower_emit(l, start_heads, &args, sizeof args);
    lower_mark(l, "head norms, rope, cache");
}
