#include "engine/caches.h"

#include "model/forward.h"

/* Bytes. In a page each layer's keys and its values begin at a multiple of this; each table too. */
enum { ALIGNMENT = 256 };

static uint64_t align(uint64_t bytes)
{
    return bytes_add(bytes, ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Bytes of a layer's keys in a page; its values take as many, or are part of them. */
static uint64_t part_bytes(const struct kv_cache *cache)
{
    return align(bytes_multiply(KV_PAGE, (uint64_t)kv_cell_bytes(cache)));
}

static uint64_t layer_bytes(const struct kv_cache *cache)
{
    return bytes_multiply(cache->turned ? 1 : 2, part_bytes(cache));
}

static struct kv_cache cache_of(const struct layer_spec *s, const struct caches_shape *shape,
                                int32_t slots)
{
    enum format format = s->is_global ? shape->global : shape->local;
    struct kv_cache c = kv_cache_shape(format, slots, s->n_kv_heads, s->head_dim);
    if (s->is_global && s->k_eq_v) kv_share(&c, shape->turned);
    return c;
}

static uint64_t table_bytes(const struct caches *k, int kind)
{
    return align((uint64_t)k->n_seq * (uint64_t)k->slots[kind] * sizeof(int32_t));
}

static int32_t least_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

void caches_plan(struct caches *k, const struct gemma_config *c, const struct caches_shape *shape,
                 const struct split *split)
{
    *k = (struct caches){.n_seq = shape->n_seq};
    for (int kind = 0; kind < KV_KINDS; kind++)
        k->slots[kind] = gemma_kv_slots(c, (enum kv_kind)kind, shape->n_ctx, shape->chunk);
    k->window_pages = least_of(kv_pages(c->window) + 1, k->slots[KV_LOCAL]);
    k->anchor_pages = least_of(kv_pages(c->window), k->slots[KV_LOCAL]);
    for (int32_t l = 0; l < c->n_kv_layer; l++) {
        enum kv_kind kind = gemma_kv_kind(c, l);
        uint64_t *sum = &k->page_bytes[split->layer[l]][kind];
        k->cache[l] = cache_of(&c->layer[l], shape, k->slots[kind]);
        *sum = bytes_add(*sum, layer_bytes(&k->cache[l]));
    }
    for (int32_t l = 0; l < c->n_kv_layer; l++)
        k->cache[l].page_bytes = (size_t)k->page_bytes[split->layer[l]][gemma_kv_kind(c, l)];
}

static uint64_t kind_bytes(const struct caches *k, int32_t site, int kind)
{
    uint64_t page = k->page_bytes[site][kind];
    if (page == 0) return 0;
    return bytes_add(bytes_multiply((uint64_t)k->n_pages[kind], page), table_bytes(k, kind));
}

void caches_set_pools(struct caches *k, const int32_t *n_pages, struct target *targets,
                      int32_t n_targets)
{
    for (int kind = 0; kind < KV_KINDS; kind++) k->n_pages[kind] = n_pages[kind];
    for (int32_t i = 0; i < n_targets; i++) {
        targets[i].kv_local = kind_bytes(k, i, KV_LOCAL);
        targets[i].kv_global = kind_bytes(k, i, KV_GLOBAL);
    }
}

void caches_lay_out(struct caches *k, const struct gemma_config *c, const struct split *split,
                    const struct target *target, int32_t site)
{
    char *next = target->kv;
    size_t used[KV_KINDS] = {0};
    for (int kind = 0; kind < KV_KINDS; kind++) {
        if (k->page_bytes[site][kind] == 0) continue;
        k->pools[site][kind] = next;
        next += (size_t)k->n_pages[kind] * k->page_bytes[site][kind];
    }
    for (int kind = 0; kind < KV_KINDS; kind++) {
        if (k->page_bytes[site][kind] == 0) continue;
        k->tables[site][kind] = (int32_t *)(void *)next;
        next += table_bytes(k, kind);
    }
    for (int32_t l = 0; l < c->n_kv_layer; l++) {
        enum kv_kind kind = gemma_kv_kind(c, l);
        if (split->layer[l] != site) continue;
        k->cache[l].table = k->tables[site][kind];
        kv_place(&k->cache[l], k->pools[site][kind] + used[kind], (size_t)part_bytes(&k->cache[l]));
        used[kind] += (size_t)layer_bytes(&k->cache[l]);
    }
}

uint64_t caches_page_bytes(const struct caches *k, enum kv_kind kind)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < SITES_MAX; i++) sum = bytes_add(sum, k->page_bytes[i][kind]);
    return sum;
}
