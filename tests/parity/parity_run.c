/* Runs a case: one small plan, its buffers laid apart, poison everywhere around them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "parity/parity.h"
#include "plan/emit.h"

/* Regions are filled with bytes that are NaN as fp32, fp16 and scales of blocks. GUARD bytes lie
 * before, between and after buffers. The plan is made for a few rows more than the step has. */
enum { POISON = 0xff, GUARD = 1024, ROWS_SPARE = 2 };

struct runner {
    const struct backend *backend;
    struct device *device;
    struct parity_case *c;
    struct carat_error *err;
};

/* A plan with its memory and program. unload frees whatever is there. */
struct loaded {
    struct plan plan;
    struct program *program;
    void *memory, *scratch;
    size_t memory_bytes, scratch_bytes;
};

static void unload(const struct runner *r, struct loaded *l)
{
    if (l->program) r->backend->unbind(l->program);
    if (l->memory) r->backend->free(r->device, l->memory);
    if (l->scratch) r->backend->free(r->device, l->scratch);
    plan_deinit(&l->plan);
}

static int start(const struct runner *r, struct loaded *l, const struct step *step)
{
    r->backend->run(l->program, step);
    return r->backend->fence(r->device, r->err);
}

static int poison(const struct runner *r, void *memory, size_t bytes)
{
    char *host = mem_alloc(bytes, 1);
    if (!host) return err_no_memory(r->err, "poison", bytes);
    memset(host, POISON, bytes);
    r->backend->upload(r->device, memory, host, bytes);
    int status = r->backend->fence(r->device, r->err);
    mem_free(host);
    return status;
}

static int take_poisoned(const struct runner *r, size_t bytes, void **out)
{
    TRY(r->backend->alloc(r->device, bytes, out, r->err));
    return poison(r, *out, bytes);
}

/* Ends the plan with buffers that share no memory, and binds it between guards. */
static int load(const struct runner *r, struct loaded *l)
{
    TRY(plan_close(&l->plan, r->err));
    size_t end = GUARD;
    for (int32_t i = 0; i < l->plan.n_bufs; i++) {
        l->plan.bufs[i].offset = end;
        end += (plan_buf_bytes(&l->plan, (buf_id)i) + GUARD + 255) / 256 * 256;
    }
    l->plan.bytes = end;
    l->memory_bytes = end;
    l->scratch_bytes = r->backend->scratch_bytes(r->device, &l->plan) + GUARD;
    TRY(take_poisoned(r, l->memory_bytes, &l->memory));
    TRY(take_poisoned(r, l->scratch_bytes, &l->scratch));
    return r->backend->bind(r->device, &l->plan, NULL, l->memory, l->scratch, &l->program, r->err);
}

/* ---- Guards ----------------------------------------------------------------------------- */

static bool is_poison(const char *bytes, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if ((unsigned char)bytes[i] != POISON) return false;
    return true;
}

static void check_guards(const struct loaded *l, const char *memory, const char *scratch,
                         size_t scratch_used, struct parity_result *out)
{
    size_t end = 0;
    for (int32_t i = 0; i < l->plan.n_bufs; i++) {
        size_t offset = l->plan.bufs[i].offset;
        if (!is_poison(memory, end, offset))
            snprintf(out->problem, sizeof out->problem, "memory before buffer %d was written", i);
        end = offset + plan_buf_bytes(&l->plan, (buf_id)i);
    }
    if (!is_poison(memory, end, l->memory_bytes))
        snprintf(out->problem, sizeof out->problem, "memory after the last buffer was written");
    if (!is_poison(scratch, scratch_used, l->scratch_bytes))
        snprintf(out->problem, sizeof out->problem, "memory after the scratch was written");
}

/* Inputs are still what EMBED put there. */
static void check_input(const struct parity_case *c, int k, const char *buffer,
                        struct parity_result *out)
{
    int32_t rows = c->shape.rows_class == ROWS_TOKEN ? c->step.n_token : c->step.n_out;
    size_t row_bytes = (size_t)c->input[k].cols * sizeof(float);
    if (c->shape.code == OP_GATHER_ROWS) rows = 0; /* its input is of the other class */
    for (int32_t i = 0; i < rows; i++)
        if (memcmp(buffer + (size_t)i * row_bytes, parity_input(c, k, i), row_bytes) != 0)
            snprintf(out->problem, sizeof out->problem, "row %d of input %d was changed", i, k);
}

/* ---- The op ----------------------------------------------------------------------------- */

struct built {
    buf_id in[2], out[2];
};

static buf_id emit_input(struct plan *p, const struct parity_case *c, int k)
{
    enum row_class rows = c->shape.code == OP_GATHER_ROWS ? ROWS_TOKEN : c->shape.rows_class;
    if (!c->input[k].data) return BUF_NONE;
    return emit_embed(p, rows, &c->input[k], 1.0f, 0, (int32_t)c->input[k].cols);
}

static struct built build(struct plan *p, const struct parity_case *c)
{
    const struct parity_shape *s = &c->shape;
    const struct weight *w = c->weight.data ? &c->weight : NULL;
    struct built b = {.in = {emit_input(p, c, 0), emit_input(p, c, 1)},
                      .out = {BUF_NONE, BUF_NONE}};
    buf_id x = b.in[0], ids = BUF_NONE, shares = BUF_NONE;
    if (s->code == OP_EXPERT_IN || s->code == OP_EXPERT_OUT)
        emit_route(p, b.in[1], NULL, s->n_used, &ids, &shares);
    switch (s->code) {
    case OP_EMBED: b.out[0] = emit_embed(p, s->rows_class, w, c->value, s->first, s->cols); break;
    case OP_RMSNORM: b.out[0] = emit_groupnorm(p, x, w, s->group, c->value); break;
    case OP_MATMUL: b.out[0] = (s->is_fine ? emit_fine_matmul : emit_matmul)(p, x, w); break;
    case OP_ROPE: b.out[0] = emit_rope(p, x, w, s->group, s->ahead); break;
    case OP_ATTENTION: b.out[0] = emit_attention(p, x, 0, s->n_heads, s->window); break;
    case OP_ADD: b.out[0] = emit_add(p, x, b.in[1]); break;
    case OP_SCALE: b.out[0] = emit_scale(p, x, c->value); break;
    case OP_GELU_MUL: b.out[0] = emit_gelu_mul(p, x, b.in[1], s->first); break;
    case OP_CONCAT: b.out[0] = emit_concat(p, x, b.in[1]); break;
    case OP_GATHER_ROWS: b.out[0] = emit_gather_rows(p, x); break;
    case OP_ROUTE: emit_route(p, x, w, s->n_used, &b.out[0], &b.out[1]); break;
    case OP_EXPERT_IN: b.out[0] = emit_expert_in(p, x, ids, w, s->n_used); break;
    case OP_EXPERT_OUT: b.out[0] = emit_expert_out(p, x, ids, shares, w, s->n_used); break;
    case OP_SOFTCAP: b.out[0] = emit_softcap(p, x, c->value); break;
    case OP_KV_WRITE:
    case OP_INPUT: /* nothing is computed */
    case OP_OUTPUT:
    case OP_COUNT: break;
    }
    return b;
}

static int give_rows(const struct loaded *l, const char *memory, buf_id id, int32_t rows, int k,
                     struct parity_result *out)
{
    const struct plan_buf *b = plan_buf_at(&l->plan, id);
    out->n_y[k] = (size_t)rows * (size_t)b->cols;
    out->y[k] = mem_alloc(out->n_y[k], sizeof(float));
    if (!out->y[k]) return CARAT_EMEMORY;
    memcpy(out->y[k], memory + b->offset, out->n_y[k] * sizeof(float));
    return CARAT_OK;
}

static int run_op(const struct runner *r, struct loaded *l, struct parity_result *out)
{
    struct parity_case *c = r->c;
    int32_t n_token = c->step.n_token + ROWS_SPARE, n_out = c->step.n_out + ROWS_SPARE;
    plan_init(&l->plan, n_token, n_out, &c->cache, 1);
    plan_add_usual(&l->plan, n_token, n_out);                 /* recorded with rows to spare, */
    plan_add_usual(&l->plan, c->step.n_token, c->step.n_out); /* and as it is */
    struct built b = build(&l->plan, c);
    TRY(load(r, l));
    TRY(start(r, l, &c->step));
    char *memory = mem_alloc(l->memory_bytes, 1), *scratch = mem_alloc(l->scratch_bytes, 1);
    int status = memory && scratch ? CARAT_OK : CARAT_EMEMORY;
    if (!status) {
        int32_t rows = c->shape.rows_class == ROWS_TOKEN ? c->step.n_token : c->step.n_out;
        r->backend->download(r->device, memory, l->memory, l->memory_bytes);
        r->backend->download(r->device, scratch, l->scratch, l->scratch_bytes);
        status = r->backend->fence(r->device, r->err);
        check_guards(l, memory, scratch, r->backend->scratch_bytes(r->device, &l->plan), out);
        for (int k = 0; k < 2; k++) {
            if (b.in[k] != BUF_NONE) check_input(c, k, memory + l->plan.bufs[b.in[k]].offset, out);
            if (b.out[k] != BUF_NONE && !status)
                status = give_rows(l, memory, b.out[k], rows, k, out);
        }
    }
    mem_free(memory);
    mem_free(scratch);
    return status;
}

/* ---- Caches ----------------------------------------------------------------------------- */

static void add_row(struct step *s, int32_t id, int32_t position, int32_t sequence)
{
    s->id[s->n_token] = id;
    s->position[s->n_token] = position;
    s->sequence[s->n_token++] = sequence;
}

/* Writes into the caches the rows that the case puts there: those of its step for KV_WRITE, all
 * that a row may see for ATTENTION. */
static int write_cells(const struct runner *r, struct loaded *l, int32_t *numbers, size_t n)
{
    struct parity_case *c = r->c;
    struct step s = {.id = numbers, .position = numbers + n, .sequence = numbers + 2 * n};
    if (c->shape.code == OP_KV_WRITE) {
        s.n_decode = c->step.n_decode;
        for (int32_t t = 0; t < c->step.n_token; t++)
            add_row(&s, c->step.sequence[t] * c->n_position + c->step.position[t],
                    c->step.position[t], c->step.sequence[t]);
        return start(r, l, &s);
    }
    int32_t last[64] = {0};
    carat_assert(c->n_seq <= 64);
    for (int32_t t = 0; t < c->step.n_token; t++)
        if (c->step.position[t] > last[c->step.sequence[t]])
            last[c->step.sequence[t]] = c->step.position[t];
    for (int32_t q = 0; q < c->n_seq; q++)
        for (int32_t p = c->first_visible[q]; p <= last[q]; p++)
            add_row(&s, q * c->n_position + p, p, q);
    return start(r, l, &s);
}

static int fill_caches(const struct runner *r, struct loaded *l)
{
    struct parity_case *c = r->c;
    size_t n = (size_t)c->n_seq * (size_t)c->n_position;
    int32_t cols = c->cache.n_heads * c->cache.head_dim;
    plan_init(&l->plan, (int32_t)n, 1, &c->cache, 1);
    buf_id k = emit_embed(&l->plan, ROWS_TOKEN, &c->keys, 1.0f, 0, cols);
    buf_id v = emit_embed(&l->plan, ROWS_TOKEN, &c->values, 1.0f, 0, cols);
    emit_kv_write(&l->plan, k, v, 0);
    TRY(load(r, l));
    int32_t *numbers = mem_alloc(3 * n, sizeof *numbers);
    int status = numbers ? write_cells(r, l, numbers, n) : CARAT_EMEMORY;
    mem_free(numbers);
    return status;
}

/* Page 0 is zeros, and what belongs to other layers is as it was. */
static void check_pool(const struct parity_case *c, const char *pool, struct parity_result *out)
{
    size_t part = (size_t)KV_PAGE * (size_t)kv_cell_bytes(&c->cache);
    size_t k_at = c->cache.turned ? c->v_at : c->k_at; /* where the layer's parts begin */
    for (size_t i = 0; i < c->cache.page_bytes; i++)
        if (pool[i]) snprintf(out->problem, sizeof out->problem, "page 0 was written");
    for (int32_t i = 1; i < c->n_pages; i++) {
        const char *page = pool + (size_t)i * c->cache.page_bytes;
        if (!is_poison(page, 0, k_at) || !is_poison(page, k_at + part, c->v_at) ||
            !is_poison(page, c->v_at + part, c->cache.page_bytes))
            snprintf(out->problem, sizeof out->problem, "other layers' part of page %d was written",
                     i);
    }
}

/* Reads all pages back, for a case whose result they are. */
static int take_pool(const struct runner *r, const void *pool, size_t bytes,
                     struct parity_result *out)
{
    char *host = mem_alloc(bytes, 1);
    if (!host) return CARAT_EMEMORY;
    r->backend->download(r->device, host, pool, bytes);
    int status = r->backend->fence(r->device, r->err);
    if (!status) check_pool(r->c, host, out);
    if (!status && r->c->shape.code == OP_KV_WRITE) {
        out->pool = host;
        out->pool_bytes = bytes;
        return CARAT_OK;
    }
    mem_free(host);
    return status;
}

/* Page 0 is zeroed, as alloc gave it; all others are poisoned. */
static int take_cache(const struct runner *r, void **pool, void **table)
{
    struct parity_case *c = r->c;
    size_t page = c->cache.page_bytes, bytes = (size_t)c->n_pages * page;
    size_t table_bytes = (size_t)(c->n_seq * c->cache.slots) * sizeof(int32_t);
    TRY(r->backend->alloc(r->device, bytes, pool, r->err));
    TRY(poison(r, (char *)*pool + page, bytes - page));
    TRY(r->backend->alloc(r->device, table_bytes, table, r->err));
    r->backend->upload(r->device, *table, c->table, table_bytes);
    TRY(r->backend->fence(r->device, r->err));
    c->cache.table = *table;
    c->cache.k = (char *)*pool + c->k_at;
    c->cache.v = (char *)*pool + c->v_at;
    return CARAT_OK;
}

static int run_in_cache(const struct runner *r, struct loaded *l, const void *pool,
                        struct parity_result *out)
{
    struct parity_case *c = r->c;
    struct loaded filling = {0};
    int status = fill_caches(r, &filling);
    unload(r, &filling);
    TRY(status);
    if (c->shape.code == OP_ATTENTION) TRY(run_op(r, l, out));
    return take_pool(r, pool, (size_t)c->n_pages * c->cache.page_bytes, out);
}

static int run_cached(const struct runner *r, struct loaded *l, struct parity_result *out)
{
    void *pool = NULL, *table = NULL;
    int status = take_cache(r, &pool, &table);
    if (!status) status = run_in_cache(r, l, pool, out);
    unload(r, l);
    *l = (struct loaded){0};
    if (pool) r->backend->free(r->device, pool);
    if (table) r->backend->free(r->device, table);
    r->c->cache.k = r->c->cache.v = NULL;
    r->c->cache.table = NULL;
    return status;
}

int parity_run(const struct backend *backend, struct device *device, struct parity_case *c,
               struct parity_result *out, struct carat_error *err)
{
    struct runner r = {.backend = backend, .device = device, .c = c, .err = err};
    struct weight *weights[] = {&c->weight, &c->input[0], &c->input[1], &c->keys, &c->values};
    enum { N_WEIGHTS = sizeof weights / sizeof *weights };
    struct loaded l = {0};
    *out = (struct parity_result){0};
    int status = CARAT_OK, n = 0;
    for (; n < N_WEIGHTS && !status; n++)
        if (weights[n]->data) status = backend->weight_load(device, weights[n], err);
    if (!status) status = c->keys.data ? run_cached(&r, &l, out) : run_op(&r, &l, out);
    unload(&r, &l);
    while (n-- > 0)
        if (weights[n]->data) backend->weight_unload(device, weights[n]);
    if (status) parity_result_deinit(out);
    return status;
}

void parity_result_deinit(struct parity_result *r)
{
    mem_free(r->y[0]);
    mem_free(r->y[1]);
    mem_free(r->pool);
    *r = (struct parity_result){0};
}

/* ---- Comparing -------------------------------------------------------------------------- */

double parity_nmse(const float *y, const float *expected, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(y[i])) return INFINITY;
        double d = (double)y[i] - (double)expected[i];
        error += d * d;
        size += (double)expected[i] * (double)expected[i];
    }
    if (error > 0) return size > 0 ? error / size : INFINITY;
    return 0;
}

/* Where the list says "by format": activations rounded to 8 bits in blocks of 32 show the error
 * of Q8_0, and those of half formats that of the half format; F32 stays F32. The budget is twice
 * that, as all outputs of a row share its roundings and small cases have few of them: 1.8 was
 * seen. */
double parity_budget(const struct parity_shape *shape)
{
    static const double listed[OP_COUNT] = {
#define X(NAME, params, meaning, budget) budget,
        OP_LIST(X)
#undef X
    };
    if (listed[shape->code] >= 0) return listed[shape->code];
    double error = format_traits(FORMAT_Q8_0)->budget;
    if (shape->format == FORMAT_F32) return 1e-11;
    if (shape->format == FORMAT_F16 || shape->format == FORMAT_BF16)
        error = format_traits(FORMAT_BF16)->budget;
    return 2.0 * error * error;
}
