#include "cuda/check_pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "quant/format.h"

enum { FOREIGN_PAGES = 3 };

static void *must_alloc(size_t bytes)
{
    void *p = malloc(bytes);
    if (p) return p;
    printf("out of memory: %zu bytes\n", bytes);
    exit(1);
}

struct check_pages check_pages_new(struct rng *rng, const struct kv_cache *shape,
                                   int32_t n_sequences)
{
    struct check_pages p = {.host = *shape};
    int32_t n = n_sequences * shape->slots, n_pages = n + FOREIGN_PAGES;
    size_t part = KV_PAGE * (size_t)kv_cell_bytes(&p.host);
    p.host.page_bytes = 4 * part;
    p.pool_bytes = (size_t)(n_pages + 1) * p.host.page_bytes;
    p.pool = must_alloc(p.pool_bytes);
    memset(p.pool, 0xff, p.pool_bytes);
    memset(p.pool, 0, p.host.page_bytes);
    p.table_bytes = (size_t)n_pages * sizeof *p.table;
    p.table = must_alloc(p.table_bytes);
    for (int32_t i = 0; i < n_pages; i++) p.table[i] = i + 1;
    for (int32_t i = n_pages - 1; i > 0; i--) {
        int32_t other = (int32_t)rng_below(rng, (uint32_t)i + 1), kept = p.table[i];
        p.table[i] = p.table[other];
        p.table[other] = kept;
    }
    p.table_bytes = (size_t)n * sizeof *p.table;
    p.host.table = p.table;
    kv_place(&p.host, p.pool + 2 * part, part);
    return p;
}

void check_cell_write(const struct kv_cache *c, char *at, bool is_v, float *row)
{
    const struct format_traits *traits = format_traits(c->format);
    float stored[HEAD_DIM_MAX];
    for (int32_t h = 0; h < c->n_heads; h++, row += c->head_dim, at += c->head_bytes) {
        for (int32_t i = 0; i < c->head_dim; i++)
            stored[i] = row[is_v ? kv_value_column(c, i) : kv_key_column(c, i)];
        traits->encode(stored, NULL, at, c->head_dim);
        traits->decode(at, stored, c->head_dim);
        for (int32_t i = 0; i < c->head_dim; i++)
            row[is_v ? kv_value_column(c, i) : kv_key_column(c, i)] = stored[i];
    }
}

void check_share_columns(const struct kv_cache *c, float *k, const float *v)
{
    for (int32_t i = 0; i < c->n_heads * c->head_dim; i++)
        if (!kv_has_own_key(c->head_dim, c->turned, i)) k[i] = v[i];
}

void check_pages_upload(struct check_pages *p)
{
    p->device = p->host;
    p->device_pool = check_alloc(p->pool, p->pool_bytes);
    p->device.table = check_alloc(p->table, p->table_bytes);
    p->device.k = p->device_pool + ((char *)p->host.k - p->pool);
    p->device.v = p->device_pool + ((char *)p->host.v - p->pool);
}

bool check_pages_same(const struct check_pages *p)
{
    char *got = must_alloc(p->pool_bytes);
    check_download(got, p->device_pool, p->pool_bytes);
    bool is_same = memcmp(got, p->pool, p->pool_bytes) == 0;
    free(got);
    return is_same;
}

bool check_pages_free(struct check_pages *p)
{
    bool is_whole = check_free(p->device_pool);
    is_whole = check_free((void *)(uintptr_t)p->device.table) && is_whole;
    free(p->pool);
    free(p->table);
    return is_whole;
}
