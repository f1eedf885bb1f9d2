/* Reference matrix products. A weight row is decoded once and multiplied with every row of
 * activations; a row of an expert with the rows that were routed to it. */
#include <math.h>

#include "backend/ref/ops.h"

enum { LANES = 16 };

/* Tests spend most of their time here, so sanitizers check only the end of each row, below. */
__attribute__((no_sanitize("address", "undefined"))) static void add_products(
    const float *restrict a, const float *restrict b, int64_t n, float *restrict lane)
{
    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += a[i + j] * b[i + j];
}

float ref_dot(const float *a, const float *b, int64_t n)
{
    float lane[LANES] = {0}, sum = 0;
    int64_t whole = (n - 1) / LANES * LANES; /* so that the end of each row is left */
    add_products(a, b, whole, lane);
    for (int64_t i = whole; i < n; i++) lane[i - whole] += a[i] * b[i];
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

static const float *decoded_row(const struct ref_call *c, const struct weight *w, int64_t expert,
                                int64_t row)
{
    const char *bytes = (const char *)w->device_data + (size_t)expert * w->expert_bytes +
                        (size_t)row * w->row_bytes;
    format_traits(w->format)->decode(bytes, c->scratch, w->cols);
    return c->scratch;
}

void ref_MATMUL(const struct ref_call *c)
{
    const struct weight *w = c->op->p.matmul.w;
    for (int64_t j = 0; j < w->rows; j++) {
        const float *row = decoded_row(c, w, 0, j);
        for (int32_t r = 0; r < c->rows; r++)
            c->y0[r * w->rows + j] = ref_dot(row, c->x0 + r * w->cols, w->cols);
    }
}

/* Softmax over all experts, the n_used largest (of equals the lower id), shares renormalised to sum
 * 1 and then scaled for each expert. */
void ref_ROUTE(const struct ref_call *c)
{
    int32_t n = c->x_cols, n_used = c->op->p.route.n_used;
    const struct weight *w = c->op->p.route.scale;
    const float *scale = w ? w->device_data : NULL;
    float *p = c->scratch;
    for (int32_t r = 0; r < c->rows; r++) {
        const float *z = c->x0 + (size_t)r * (size_t)n;
        int32_t *id = (int32_t *)(void *)c->y0 + (size_t)r * (size_t)n_used;
        float *share = c->y1 + (size_t)r * (size_t)n_used;
        float top = z[0], sum = 0;
        for (int32_t e = 1; e < n; e++) top = fmaxf(top, z[e]);
        for (int32_t e = 0; e < n; e++) p[e] = expf(z[e] - top);
        for (int32_t s = 0; s < n_used; s++) {
            int32_t best = 0;
            for (int32_t e = 1; e < n; e++)
                if (p[e] > p[best]) best = e;
            id[s] = best;
            share[s] = p[best];
            sum += p[best];
            p[best] = -1.0f;
        }
        for (int32_t s = 0; s < n_used; s++)
            share[s] = share[s] / sum * (scale ? scale[id[s]] : 1.0f);
    }
}

/* Lists the (row, slot) pairs that chose `expert` in c->scatter, as row * n_used + slot. */
static int32_t routed_to(const struct ref_call *c, int32_t expert)
{
    const int32_t *id = (const int32_t *)(const void *)c->x1;
    int32_t n = c->rows * c->op->p.expert.n_used, found = 0;
    for (int32_t i = 0; i < n; i++)
        if (id[i] == expert) c->scatter[found++] = i;
    return found;
}

void ref_EXPERT_IN(const struct ref_call *c)
{
    const struct weight *w = c->op->p.expert.w;
    int32_t n_used = c->op->p.expert.n_used;
    for (int32_t e = 0; e < w->n_expert; e++) {
        int32_t n = routed_to(c, e);
        for (int64_t j = 0; n > 0 && j < w->rows; j++) {
            const float *row = decoded_row(c, w, e, j);
            for (int32_t i = 0; i < n; i++) {
                int32_t at = c->scatter[i];
                c->y0[at * w->rows + j] = ref_dot(row, c->x0 + at / n_used * w->cols, w->cols);
            }
        }
    }
}

/* The sum over a row's experts runs in the order of the experts' ids, which does not depend on
 * the other rows. */
void ref_EXPERT_OUT(const struct ref_call *c)
{
    const struct weight *w = c->op->p.expert.w;
    int32_t n_used = c->op->p.expert.n_used;
    for (int64_t i = 0; i < c->rows * w->rows; i++) c->y0[i] = 0;
    for (int32_t e = 0; e < w->n_expert; e++) {
        int32_t n = routed_to(c, e);
        for (int64_t j = 0; n > 0 && j < w->rows; j++) {
            const float *row = decoded_row(c, w, e, j);
            for (int32_t i = 0; i < n; i++) {
                int32_t at = c->scatter[i];
                c->y0[at / n_used * w->rows + j] +=
                    c->x2[at] * ref_dot(row, c->x0 + at * w->cols, w->cols);
            }
        }
    }
}

size_t ref_scratch_floats(const struct plan *plan, const struct op *op)
{
    switch ((enum op_code)op->code) {
    case OP_EMBED: /* the wanted columns, and up to a block on each side */
        return (size_t)plan_buf_at(plan, op->out[0])->cols + 512;
    case OP_MATMUL: return (size_t)op->p.matmul.w->cols;
    case OP_EXPERT_IN:
    case OP_EXPERT_OUT: return (size_t)op->p.expert.w->cols;
    case OP_ROPE: return (size_t)op->p.rope.head_dim;
    case OP_ROUTE: return (size_t)plan_buf_at(plan, op->in[0])->cols;
    case OP_KV_WRITE: return (size_t)plan->caches[op->p.kv.cache].head_dim;
    case OP_ATTENTION: { /* scores of the query heads of one key head; a key, twice */
        const struct kv_cache *cache = &plan->caches[op->p.attention.cache];
        size_t group = (size_t)(op->p.attention.n_heads / cache->n_heads);
        return group * (size_t)kv_capacity(cache) + 2 * (size_t)cache->head_dim;
    }
    default: return 0;
    }
}
