#include "backend/cuda/lower_norm.h"

#include "backend/cuda/lower_experts.h"
#include "backend/cuda/start.h"
#include "backend/cuda/weight_use.h"

/* Whether only the window's own launches read a buffer, which then has no memory. */
static bool is_within(const struct lowering *l, buf_id id)
{
    const struct plan_buf *b = plan_buf_at(l->plan, id);
    int32_t first = l->window.first;
    return b->first_op >= first && b->last_op < first + l->window.n && b->first_op < b->last_op;
}

/* The forms in which later windows read a buffer. */
struct reads {
    bool floats, act;
};

/* Whether experts begin at op i that no kernel takes together: these read fp32 rows. */
static bool are_experts_apart(struct lowering *l, int32_t i)
{
    return window_at(l->plan, i).kind == WINDOW_EXPERTS && !lower_are_together(l, &l->plan->ops[i]);
}

static struct reads buffer_reads(struct lowering *l, buf_id id)
{
    const struct plan *plan = l->plan;
    const struct plan_buf *b = plan_buf_at(plan, id);
    struct reads reads = {.floats = id == plan->logits, .act = false};
    enum act_kind kind = ACT_NONE;
    if (is_within(l, id)) return reads;
    for (int32_t i = b->first_op < 0 ? 0 : b->first_op; i <= b->last_op && i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        const struct weight *w = op_product(op);
        bool is_act = w && !l->device->options.is_exact && !is_multiplied_exactly(w);
        if (op->in[0] == id && is_act) {
            reads.act = true;
            enum act_kind other = lower_kind(l, w);
            if (lower_matrix(l, w).layout == LAYOUT_ROWS) reads.floats = true; /* of a few rows */
            if (kind != ACT_NONE && other != kind) reads.floats = true;
            if (are_experts_apart(l, i)) reads.floats = true;
            kind = other;
        }
        if ((op->in[0] == id && !is_act) || op->in[1] == id || op->in[2] == id) reads.floats = true;
    }
    return reads;
}

/* The first product after the window that reads activations of the buffer. */
static const struct weight *first_reader(const struct lowering *l, buf_id id)
{
    const struct plan *plan = l->plan;
    int32_t last = plan_buf_at(plan, id)->last_op;
    for (int32_t i = l->window.first + l->window.n; i <= last && i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        const struct weight *w = op->in[0] == id ? op_product(op) : NULL;
        if (w && !is_multiplied_exactly(w)) return w;
    }
    return NULL;
}

/* One more output of the launch: buffer `id`, in every form in which it is read. `norm` makes it;
 * NULL: it is the sum itself, whose floats are written anyway. */
static void add_out(struct lowering *l, struct norm_args *args, buf_id id, const struct op *norm)
{
    struct norm_out *out = &args->out[args->n_outs];
    struct reads reads = buffer_reads(l, id);
    const struct weight *reader = reads.act ? first_reader(l, id) : NULL;
    enum act_kind kind = reader ? lower_kind(l, reader) : ACT_NONE;
    *out = (struct norm_out){.act = {.kind = ACT_NONE}};
    if (!norm && kind == ACT_NONE) return;
    if (norm) {
        out->is_normed = true;
        out->w = lower_vector(norm->p.norm.w);
        if (reads.floats || kind == ACT_NONE) out->y = lower_floats(l, id);
    }
    if (kind != ACT_NONE) out->act = lower_act_slot(l, id, kind);
    args->n_outs++;
}

/* The ops of the window up to the residual sum and its scale: how many, 0 if there is no sum. */
static int32_t add_sum(struct lowering *l, struct norm_args *args)
{
    const struct op *ops = lower_ops(l);
    int32_t at = 0;
    while (at < l->window.n && ops[at].code != OP_ADD) at++;
    if (at == l->window.n) return 0;
    args->is_normed = true;
    args->w_a = lower_vector(ops[0].p.norm.w);
    if (at == 2) { /* two branches, normed, summed and normed again */
        args->b = lower_floats(l, ops[1].in[0]);
        args->w_b = lower_vector(ops[1].p.norm.w);
        args->w_s = lower_vector(ops[3].p.norm.w);
        at = 4;
    }
    const struct op *sum = &ops[at++];
    buf_id x = sum->out[0];
    args->residual = lower_floats(l, sum->in[0]);
    if (at < l->window.n && ops[at].code == OP_SCALE) {
        args->scale = ops[at].p.scale.value;
        x = ops[at++].out[0];
    }
    if (!is_within(l, x)) args->x_out = lower_floats(l, x);
    add_out(l, args, x, NULL);
    return at;
}

/* Whether no product after the next window reads what this window gives. Sums may be read later. */
static bool are_for_next(const struct lowering *l)
{
    const struct plan *plan = l->plan;
    int32_t end = l->window.first + l->window.n;
    if (end >= plan->n_ops) return false;
    int32_t end_of_next = end + window_at(plan, end).n;
    for (int32_t i = l->window.first; i < end; i++) {
        buf_id id = plan->ops[i].out[0];
        int32_t last = plan_buf_at(plan, id)->last_op;
        for (int32_t k = end_of_next; k <= last && k < plan->n_ops; k++)
            if (plan->ops[k].in[0] == id && op_product(&plan->ops[k])) return false;
    }
    return true;
}

struct norm_args lower_norm_args(struct lowering *l)
{
    const struct op *ops = lower_ops(l);
    struct forms *forms = &l->forms[l->size];
    buf_id x = ops[0].in[0];
    struct norm_args args = {.step = lower_step(l),
                             .rows = lower_rows(l),
                             .cols = lower_cols(l, x),
                             .eps = ops[0].p.norm.eps,
                             .a = lower_floats(l, x),
                             .scale = 1.0f};
    if (forms->half_id == x) {
        args.a_half = (const uint16_t *)(const void *)args.a;
        args.a_scale = forms->half_scale;
        forms->half_id = BUF_NONE;
    }
    for (int32_t i = add_sum(l, &args); i < l->window.n; i++)
        add_out(l, &args, ops[i].out[0], &ops[i]);
    args.is_for_next = are_for_next(l);
    return args;
}

void lower_norms(struct lowering *l)
{
    struct norm_args args = lower_norm_args(l);
    lower_emit(l, start_norm, &args, sizeof args);
    lower_mark(l, "norms");
}
