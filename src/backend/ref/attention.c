/* Reference attention: scores of all visible keys, softmax, weighted sum of values; and the
 * writing of keys and values. */
#include <math.h>
#include <string.h>

#include "backend/ref/ops.h"

void ref_KV_WRITE(const struct ref_call *c)
{
    const struct kv_cache *cache = &c->plan->caches[c->op->p.kv.cache];
    const struct format_traits *traits = format_traits(cache->format);
    int32_t d = cache->head_dim;
    float *row = c->scratch;
    for (int32_t i = 0; i < c->rows * cache->n_heads; i++) {
        int32_t t = i / cache->n_heads, head = i % cache->n_heads;
        const float *k = c->x0 + (int64_t)i * d, *v = c->x1 + (int64_t)i * d;
        size_t offset = kv_offset(cache, c->step->sequence[t], c->step->position[t]) +
                        (size_t)head * (size_t)cache->head_bytes;
        for (int32_t j = 0; j < d; j++) row[j] = k[kv_key_column(cache, j)];
        traits->encode(row, NULL, (char *)cache->k + offset, d);
        for (int32_t j = 0; j < d; j++) row[j] = v[kv_value_column(cache, j)];
        /* over keys where they are shared */
        traits->encode(row, NULL, (char *)cache->v + offset, d);
    }
}

/* What one key head gives to the query heads that share it, for one row. */
struct head_group {
    const struct kv_cache *cache;
    int32_t sequence, first, last; /* visible positions, both ends included */
    int32_t head, n_query;         /* key head; query heads that share it */
    const float *q;                /* n_query x head_dim */
    float *y;                      /* the same */
    float *scores;                 /* n_query x kv_capacity(cache) */
    float *stored, *row;           /* head_dim each */
};

/* The head's key or value at a position, in the order of columns. */
static const float *read_row(const struct head_group *g, bool is_v, int32_t position)
{
    const struct kv_cache *c = g->cache;
    const char *at = (const char *)(is_v ? c->v : c->k) + kv_offset(c, g->sequence, position) +
                     (size_t)g->head * (size_t)c->head_bytes;
    format_traits(c->format)->decode(at, g->stored, c->head_dim);
    for (int32_t i = 0; i < c->head_dim; i++)
        g->row[is_v ? kv_value_column(c, i) : kv_key_column(c, i)] = g->stored[i];
    return g->row;
}

static void softmax(float *x, int32_t n)
{
    float top = x[0];
    for (int32_t i = 1; i < n; i++) top = fmaxf(top, x[i]);
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)(x[i] = expf(x[i] - top));
    for (int32_t i = 0; i < n; i++) x[i] = (float)((double)x[i] / sum);
}

static void attend(const struct head_group *g)
{
    int32_t d = g->cache->head_dim, n = g->last - g->first + 1;
    for (int32_t i = 0; i < n; i++) {
        const float *k = read_row(g, false, g->first + i);
        for (int32_t h = 0; h < g->n_query; h++)
            g->scores[(size_t)h * (size_t)n + (size_t)i] = ref_dot(g->q + h * d, k, d);
    }
    for (int32_t h = 0; h < g->n_query; h++) softmax(g->scores + (size_t)h * (size_t)n, n);
    memset(g->y, 0, (size_t)g->n_query * (size_t)d * sizeof *g->y);
    for (int32_t i = 0; i < n; i++) {
        const float *v = read_row(g, true, g->first + i);
        for (int32_t h = 0; h < g->n_query; h++) {
            float share = g->scores[(size_t)h * (size_t)n + (size_t)i];
            for (int32_t j = 0; j < d; j++) g->y[h * d + j] += share * v[j];
        }
    }
}

void ref_ATTENTION(const struct ref_call *c)
{
    const struct kv_cache *cache = &c->plan->caches[c->op->p.attention.cache];
    int32_t window = c->op->p.attention.window;
    int32_t n_query = c->op->p.attention.n_heads / cache->n_heads;
    size_t group_values = (size_t)n_query * (size_t)cache->head_dim;
    for (int32_t r = 0; r < c->rows; r++) {
        int32_t t = c->rows_class == ROWS_TOKEN ? r : c->step->out_row[r];
        int32_t last = c->step->position[t];
        struct head_group g = {.cache = cache,
                               .sequence = c->step->sequence[t],
                               .first = window > 0 && last >= window ? last - window + 1 : 0,
                               .last = last,
                               .n_query = n_query,
                               .stored = c->scratch,
                               .row = c->scratch + cache->head_dim,
                               .scores = c->scratch + 2 * (size_t)cache->head_dim};
        for (g.head = 0; g.head < cache->n_heads; g.head++) {
            size_t at = (size_t)r * (size_t)c->y_cols + (size_t)g.head * group_values;
            g.q = c->x0 + at;
            g.y = c->y0 + at;
            attend(&g);
        }
    }
}
