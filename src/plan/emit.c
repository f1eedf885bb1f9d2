#include "plan/emit.h"

#include "base/assert.h"

static struct op op_new(enum op_code code, buf_id a, buf_id b, buf_id c)
{
    return (struct op){.code = (uint8_t)code, .in = {a, b, c}, .out = {BUF_NONE, BUF_NONE}};
}

/* Records an op with one output of the rows of buffer `like`. */
static buf_id emit_like(struct plan *p, struct op *op, buf_id like, int32_t cols)
{
    op->out[0] = plan_buf_add(p, plan_buf_at(p, like)->rows, cols);
    plan_emit(p, op);
    return op->out[0];
}

static int32_t buf_cols(const struct plan *p, buf_id id)
{
    return plan_buf_at(p, id)->cols;
}

/* True also after a failed allocation, when buffers have no shape. */
static bool has_cols(const struct plan *p, buf_id id, int64_t cols)
{
    return p->failed || buf_cols(p, id) == cols;
}

static bool same_rows(const struct plan *p, buf_id a, buf_id b)
{
    return plan_buf_at(p, a)->rows == plan_buf_at(p, b)->rows;
}

buf_id emit_embed(struct plan *p, enum row_class rows, const struct weight *table, float scale,
                  int32_t first_col, int32_t cols)
{
    carat_assert(first_col + cols <= table->cols);
    struct op op = op_new(OP_EMBED, BUF_NONE, BUF_NONE, BUF_NONE);
    op.p.embed.table = table;
    op.p.embed.scale = scale;
    op.p.embed.first_col = first_col;
    op.out[0] = plan_buf_add(p, rows, cols);
    plan_emit(p, &op);
    return op.out[0];
}

buf_id emit_groupnorm(struct plan *p, buf_id x, const struct weight *w, int32_t group, float eps)
{
    int32_t cols = buf_cols(p, x);
    carat_assert(p->failed || (cols % group == 0 && (!w || w->cols == group)));
    struct op op = op_new(OP_RMSNORM, x, BUF_NONE, BUF_NONE);
    op.p.norm.w = w;
    op.p.norm.eps = eps;
    op.p.norm.group = group;
    return emit_like(p, &op, x, cols);
}

buf_id emit_rmsnorm(struct plan *p, buf_id x, const struct weight *w, float eps)
{
    return emit_groupnorm(p, x, w, buf_cols(p, x), eps);
}

static buf_id emit_product(struct plan *p, buf_id x, const struct weight *w, bool is_fine)
{
    carat_assert(has_cols(p, x, w->cols) && w->n_expert == 1);
    struct op op = op_new(OP_MATMUL, x, BUF_NONE, BUF_NONE);
    op.p.matmul.w = w;
    op.p.matmul.is_fine = is_fine;
    return emit_like(p, &op, x, (int32_t)w->rows);
}

buf_id emit_matmul(struct plan *p, buf_id x, const struct weight *w)
{
    return emit_product(p, x, w, false);
}

buf_id emit_fine_matmul(struct plan *p, buf_id x, const struct weight *w)
{
    return emit_product(p, x, w, true);
}

buf_id emit_rope(struct plan *p, buf_id x, const struct weight *inv_freq, int32_t head_dim,
                 int32_t ahead)
{
    carat_assert(inv_freq->cols * 2 == head_dim && (p->failed || buf_cols(p, x) % head_dim == 0));
    struct op op = op_new(OP_ROPE, x, BUF_NONE, BUF_NONE);
    op.p.rope.inv_freq = inv_freq;
    op.p.rope.head_dim = head_dim;
    op.p.rope.ahead = ahead;
    return emit_like(p, &op, x, buf_cols(p, x));
}

static const struct kv_cache *cache_at(const struct plan *p, int32_t cache)
{
    carat_assert(cache >= 0 && cache < p->n_caches);
    return &p->caches[cache];
}

void emit_kv_write(struct plan *p, buf_id k, buf_id v, int32_t cache)
{
    const struct kv_cache *c = cache_at(p, cache);
    int64_t cols = (int64_t)c->n_heads * c->head_dim;
    carat_assert(has_cols(p, k, cols) && has_cols(p, v, cols) && same_rows(p, k, v));
    struct op op = op_new(OP_KV_WRITE, k, v, BUF_NONE);
    op.p.kv.cache = cache;
    plan_emit(p, &op);
}

buf_id emit_attention(struct plan *p, buf_id q, int32_t cache, int32_t n_heads, int32_t window)
{
    const struct kv_cache *c = cache_at(p, cache);
    carat_assert(n_heads % c->n_heads == 0 && has_cols(p, q, (int64_t)n_heads * c->head_dim));
    struct op op = op_new(OP_ATTENTION, q, BUF_NONE, BUF_NONE);
    op.p.attention.cache = cache;
    op.p.attention.n_heads = n_heads;
    op.p.attention.window = window;
    return emit_like(p, &op, q, buf_cols(p, q));
}

buf_id emit_add(struct plan *p, buf_id a, buf_id b)
{
    carat_assert(has_cols(p, b, buf_cols(p, a)) && same_rows(p, a, b));
    struct op op = op_new(OP_ADD, a, b, BUF_NONE);
    return emit_like(p, &op, a, buf_cols(p, a));
}

buf_id emit_scale(struct plan *p, buf_id x, float value)
{
    struct op op = op_new(OP_SCALE, x, BUF_NONE, BUF_NONE);
    op.p.scale.value = value;
    return emit_like(p, &op, x, buf_cols(p, x));
}

buf_id emit_concat(struct plan *p, buf_id a, buf_id b)
{
    carat_assert(same_rows(p, a, b));
    struct op op = op_new(OP_CONCAT, a, b, BUF_NONE);
    return emit_like(p, &op, a, buf_cols(p, a) + buf_cols(p, b));
}

buf_id emit_gelu_mul(struct plan *p, buf_id a, buf_id b, int32_t second_col)
{
    carat_assert(p->failed || second_col + buf_cols(p, a) <= buf_cols(p, b));
    carat_assert(same_rows(p, a, b));
    struct op op = op_new(OP_GELU_MUL, a, b, BUF_NONE);
    op.p.gelu_mul.second_col = second_col;
    return emit_like(p, &op, a, buf_cols(p, a));
}

buf_id emit_gather_rows(struct plan *p, buf_id x)
{
    carat_assert(p->failed || plan_buf_at(p, x)->rows == ROWS_TOKEN);
    if (p->is_all_out) return x;
    struct op op = op_new(OP_GATHER_ROWS, x, BUF_NONE, BUF_NONE);
    op.out[0] = plan_buf_add(p, ROWS_OUT, buf_cols(p, x));
    plan_emit(p, &op);
    return op.out[0];
}

void emit_route(struct plan *p, buf_id z, const struct weight *scale, int32_t n_used, buf_id *ids,
                buf_id *shares)
{
    carat_assert(p->failed || (n_used > 0 && n_used <= buf_cols(p, z)));
    struct op op = op_new(OP_ROUTE, z, BUF_NONE, BUF_NONE);
    op.p.route.scale = scale;
    op.p.route.n_used = n_used;
    op.out[0] = *ids = plan_buf_add(p, plan_buf_at(p, z)->rows, n_used);
    op.out[1] = *shares = plan_buf_add(p, plan_buf_at(p, z)->rows, n_used);
    plan_emit(p, &op);
}

buf_id emit_expert_in(struct plan *p, buf_id x, buf_id ids, const struct weight *w, int32_t n_used)
{
    carat_assert(has_cols(p, x, w->cols) && has_cols(p, ids, n_used) && same_rows(p, x, ids));
    struct op op = op_new(OP_EXPERT_IN, x, ids, BUF_NONE);
    op.p.expert.w = w;
    op.p.expert.n_used = n_used;
    return emit_like(p, &op, x, n_used * (int32_t)w->rows);
}

buf_id emit_expert_out(struct plan *p, buf_id x, buf_id ids, buf_id shares, const struct weight *w,
                       int32_t n_used)
{
    carat_assert(has_cols(p, x, n_used * w->cols) && has_cols(p, shares, n_used));
    carat_assert(has_cols(p, ids, n_used) && same_rows(p, x, ids) && same_rows(p, x, shares));
    struct op op = op_new(OP_EXPERT_OUT, x, ids, shares);
    op.p.expert.w = w;
    op.p.expert.n_used = n_used;
    return emit_like(p, &op, x, (int32_t)w->rows);
}

buf_id emit_softcap(struct plan *p, buf_id x, float cap)
{
    struct op op = op_new(OP_SOFTCAP, x, BUF_NONE, BUF_NONE);
    op.p.softcap.cap = cap;
    return emit_like(p, &op, x, buf_cols(p, x));
}

void emit_output(struct plan *p, buf_id x)
{
    struct op op = op_new(OP_OUTPUT, x, BUF_NONE, BUF_NONE);
    plan_emit(p, &op);
}

static buf_id emit_input(struct plan *p, int32_t site, buf_id from, enum row_class rows,
                         int32_t cols)
{
    struct op op = op_new(OP_INPUT, BUF_NONE, BUF_NONE, BUF_NONE);
    op.p.input.site = site;
    op.p.input.from = from;
    op.out[0] = plan_buf_add(p, rows, cols);
    plan_emit(p, &op);
    return op.out[0];
}

buf_id emit_given(struct plan *p, enum row_class rows, int32_t cols)
{
    return emit_input(p, SITE_OUTSIDE, BUF_NONE, rows, cols);
}

buf_id emit_carried(struct plan *p, int32_t site, const struct plan *from, buf_id x)
{
    const struct plan_buf *there = plan_buf_at(from, x);
    return emit_input(p, site, x, there->rows, there->cols);
}
