/* Counts what a plan has to read and compute, to compare measured times with a bound. */
#include "plan/plan.h"

static double row_count(const struct plan *p, const struct op *op, int32_t n_token, int32_t n_out)
{
    return plan_buf_at(p, op->out[0])->rows == ROWS_TOKEN ? n_token : n_out;
}

/* Every expert is read once when there are enough rows to use them all. */
static void add_product(struct plan_work *work, const struct weight *w, double rows, double n_used)
{
    double matrices = w->n_expert == 1 ? 1 : rows * n_used;
    if (matrices > w->n_expert) matrices = w->n_expert;
    if (rows == 0) return;
    work->weight_bytes += matrices * (double)w->rows * (double)w->row_bytes;
    work->operations += 2 * rows * n_used * (double)w->rows * (double)w->cols;
}

static void add_attention(struct plan_work *work, const struct plan *p, const struct op *op,
                          double rows, bool is_decode, double context)
{
    const struct kv_cache *cache = &p->caches[op->p.attention.cache];
    double window = op->p.attention.window, chunk = is_decode ? 1 : rows;
    double seen = context - (chunk - 1) / 2; /* by the middle row of a chunk */
    double read = context;
    if (window > 0 && seen > window) seen = window;
    if (window > 0 && read > window + chunk - 1) read = window + chunk - 1;
    if (rows == 0) return;
    work->cache_bytes += (double)kv_position_bytes(cache) * read * (is_decode ? rows : 1);
    work->operations += 4 * rows * seen * op->p.attention.n_heads * cache->head_dim;
}

struct plan_work plan_step_work(const struct plan *p, int32_t n_token, int32_t n_out,
                                int32_t context)
{
    struct plan_work work = {0};
    for (int32_t i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->ops[i];
        if (op->out[0] == BUF_NONE) continue;
        double rows = row_count(p, op, n_token, n_out);
        if (op->code == OP_MATMUL) add_product(&work, op->p.matmul.w, rows, 1);
        if (op->code == OP_EXPERT_IN || op->code == OP_EXPERT_OUT)
            add_product(&work, op->p.expert.w, rows, op->p.expert.n_used);
        if (op->code == OP_ATTENTION) add_attention(&work, p, op, rows, n_token == n_out, context);
    }
    return work;
}
