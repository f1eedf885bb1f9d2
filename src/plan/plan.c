#include "plan/plan.h"

#include <assert.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

static_assert(sizeof(struct op) == 64, "an op record is one cache line");

void plan_init(struct plan *p, int32_t token_rows_max, int32_t out_rows_max,
               const struct kv_cache *caches, int32_t n_caches)
{
    *p = (struct plan){.caches = caches,
                       .n_caches = n_caches,
                       .rows_max = {token_rows_max, out_rows_max},
                       .layer = LAYER_NONE,
                       .logits = BUF_NONE,
                       .hidden = BUF_NONE};
}

void plan_want_all(struct plan *p)
{
    carat_assert(p->n_ops == 0 && p->rows_max[ROWS_OUT] == p->rows_max[ROWS_TOKEN]);
    p->is_all_out = true;
}

void plan_want_hidden(struct plan *p)
{
    p->wants_hidden = true;
}

static void add_usual(struct plan *p, struct plan_usual usual)
{
    if (p->n_usual < PLAN_USUAL_MAX) p->usual[p->n_usual++] = usual;
}

void plan_add_usual(struct plan *p, int32_t token_rows, int32_t out_rows)
{
    add_usual(p, (struct plan_usual){{token_rows, out_rows}, 0});
}

void plan_add_usual_decode(struct plan *p, int32_t rows)
{
    add_usual(p, (struct plan_usual){{rows, rows}, rows});
}

void plan_deinit(struct plan *p)
{
    mem_free(p->ops);
    mem_free(p->bufs);
    *p = (struct plan){0};
}

/* Makes room for one more of `size` bytes in an array that doubles. */
static bool grow_array(struct plan *p, void **array, int32_t count, int32_t *capacity, size_t size)
{
    if (p->failed) return false;
    if (count < *capacity) return true;
    int32_t wanted = *capacity ? *capacity * 2 : 256;
    void *grown = mem_resize(*array, (size_t)wanted, size);
    if (!grown) {
        p->failed = true;
        return false;
    }
    *array = grown;
    *capacity = wanted;
    return true;
}

/* After a failed allocation every buffer is this one: recording goes on to its end, and emitters
 * need no test. */
static const struct plan_buf no_buf = {.cols = 1};

buf_id plan_buf_add(struct plan *p, enum row_class rows, int32_t cols)
{
    carat_assert(cols > 0);
    void *array = p->bufs;
    if (!grow_array(p, &array, p->n_bufs, &p->bufs_capacity, sizeof *p->bufs)) return BUF_NONE;
    p->bufs = array;
    carat_assert(p->n_bufs < BUF_NONE);
    p->bufs[p->n_bufs] =
        (struct plan_buf){.rows = rows, .cols = cols, .first_op = -1, .last_op = -1};
    return (buf_id)p->n_bufs++;
}

const struct plan_buf *plan_buf_at(const struct plan *p, buf_id id)
{
    if (p->failed) return &no_buf;
    carat_assert(id < p->n_bufs);
    return &p->bufs[id];
}

void plan_emit(struct plan *p, const struct op *op)
{
    void *array = p->ops;
    if (!grow_array(p, &array, p->n_ops, &p->ops_capacity, sizeof *p->ops)) return;
    p->ops = array;
    p->ops[p->n_ops] = *op;
    p->ops[p->n_ops].layer = p->layer;
    p->ops[p->n_ops].site = p->site;
    p->ops[p->n_ops].window = 1;
    for (int i = 0; i < 3; i++) {
        if (op->in[i] == BUF_NONE) continue;
        carat_assert(op->in[i] < p->n_bufs && p->bufs[op->in[i]].first_op >= 0);
        p->bufs[op->in[i]].last_op = p->n_ops;
    }
    for (int i = 0; i < 2; i++) {
        if (op->out[i] == BUF_NONE) continue;
        struct plan_buf *written = &p->bufs[op->out[i]];
        carat_assert(written->first_op < 0); /* one writer per buffer */
        written->first_op = written->last_op = p->n_ops;
    }
    p->n_ops++;
}

void plan_mark_windows(struct plan *p, plan_window_fn length, const void *user)
{
    if (p->failed) return;
    for (int32_t i = 0, n; i < p->n_ops; i += n) {
        n = length(user, p, i);
        carat_assert(n >= 1 && i + n <= p->n_ops);
        p->ops[i].window = (uint16_t)n;
        for (int32_t k = i + 1; k < i + n; k++) p->ops[k].window = 0;
    }
}

int32_t plan_window_begin(const struct plan *p, int32_t i)
{
    while (p->ops[i].window == 0) i--;
    return i;
}

bool plan_buf_is_internal(const struct plan *p, buf_id id)
{
    const struct plan_buf *b = plan_buf_at(p, id);
    return b->first_op >= 0 && b->last_op < p->n_ops && b->first_op < b->last_op &&
           plan_window_begin(p, b->first_op) == plan_window_begin(p, b->last_op);
}

size_t plan_buf_bytes(const struct plan *p, buf_id id)
{
    const struct plan_buf *b = plan_buf_at(p, id);
    return (size_t)p->rows_max[b->rows] * (size_t)b->cols * sizeof(float);
}

const char *op_name(enum op_code code)
{
    static const char *const names[OP_COUNT] = {
#define X(NAME, params, meaning, budget) #NAME,
        OP_LIST(X)
#undef X
    };
    return names[code];
}

const char *op_meaning(enum op_code code)
{
    static const char *const meanings[OP_COUNT] = {
#define X(NAME, params, meaning, budget) meaning,
        OP_LIST(X)
#undef X
    };
    return meanings[code];
}

const struct weight *op_product(const struct op *op)
{
    switch ((enum op_code)op->code) {
    case OP_MATMUL: return op->p.matmul.w;
    case OP_EXPERT_IN:
    case OP_EXPERT_OUT: return op->p.expert.w;
    default: return NULL;
    }
}

const struct weight *op_weight(const struct op *op)
{
    switch ((enum op_code)op->code) {
    case OP_EMBED: return op->p.embed.table;
    case OP_RMSNORM: return op->p.norm.w;
    case OP_ROPE: return op->p.rope.inv_freq;
    case OP_ROUTE: return op->p.route.scale;
    default: return op_product(op);
    }
}

static void print_buf(const struct plan *p, struct buf *out, buf_id id)
{
    const struct plan_buf *b = plan_buf_at(p, id);
    buf_printf(out, " %%%u[%s x %d]", id, b->rows == ROWS_TOKEN ? "token" : "out", b->cols);
}

static void print_op(const struct plan *p, struct buf *out, int32_t i)
{
    const struct op *op = &p->ops[i];
    buf_printf(out, "%5d ", i);
    if (op->layer == LAYER_NONE)
        buf_add_text(out, "  - ");
    else
        buf_printf(out, "%3u ", op->layer);
    buf_printf(out, "%-11s", op_name((enum op_code)op->code));
    for (int k = 0; k < 3; k++)
        if (op->in[k] != BUF_NONE) print_buf(p, out, op->in[k]);
    buf_add_text(out, " ->");
    for (int k = 0; k < 2; k++)
        if (op->out[k] != BUF_NONE) print_buf(p, out, op->out[k]);
    const struct weight *w = op_weight(op);
    if (w) buf_printf(out, "  %s %s", w->name, format_traits(w->format)->name);
    if (op->code == OP_KV_WRITE) buf_printf(out, " cache %d", op->p.kv.cache);
    if (op->code == OP_ATTENTION) {
        buf_printf(out, "  cache %d", op->p.attention.cache);
        if (op->p.attention.window) buf_printf(out, " window %d", op->p.attention.window);
    }
    if (op->code == OP_ROPE && op->p.rope.ahead) buf_printf(out, "  ahead %d", op->p.rope.ahead);
    if (op->code == OP_SCALE) buf_printf(out, "  %g", (double)op->p.scale.value);
    if (op->code == OP_INPUT)
        buf_printf(out,
                   op->p.input.site == SITE_OUTSIDE ? "  from outside" : "  from %%%d of site %d",
                   op->p.input.from, op->p.input.site);
    buf_add_char(out, '\n');
}

void plan_print(const struct plan *p, struct buf *out)
{
    buf_printf(out, "# %d ops, %d buffers in %zu bytes; rows at most %d (token), %d (out)\n",
               p->n_ops, p->n_bufs, p->bytes, p->rows_max[ROWS_TOKEN], p->rows_max[ROWS_OUT]);
    for (int32_t i = 0; i < p->n_ops; i++) print_op(p, out, i);
}
