#include "engine/caches.h"

#include "model/forward.h"

/* Bytes. Each layer's keys, and its values, begin at a multiple of this. */
enum { ALIGNMENT = 256 };

void caches_plan(struct caches *k, const struct gemma_config *c, const struct caches_shape *shape,
                 const struct split *split, struct target *targets, int32_t n_targets)
{
    for (int32_t i = 0; i < n_targets; i++) targets[i].kv_local = targets[i].kv_global = 0;
    for (int32_t l = 0; l < c->n_kv_layer; l++) {
        const struct layer_spec *s = &c->layer[l];
        struct target *t = &targets[split->layer[l]];
        int32_t capacity = gemma_kv_capacity(c, l, shape->n_ctx, shape->chunk);
        k->cache[l] = kv_cache_shape(s->is_global ? shape->global : shape->local, capacity,
                                     s->n_kv_heads, s->head_dim);
        uint64_t bytes = bytes_multiply((uint64_t)shape->n_seq * (uint64_t)capacity,
                                        (uint64_t)kv_cell_bytes(&k->cache[l]));
        k->k_bytes[l] = bytes_add(bytes, ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        uint64_t *sum = s->is_global ? &t->kv_global : &t->kv_local;
        *sum = bytes_add(*sum, bytes_multiply(2, k->k_bytes[l]));
    }
}

void caches_lay_out(struct caches *k, const struct gemma_config *c, const struct split *split,
                    const struct target *target, int32_t site)
{
    char *next = target->kv;
    for (int32_t l = 0; l < c->n_kv_layer; l++) {
        if (split->layer[l] != site) continue;
        k->cache[l].k = next;
        k->cache[l].v = next + k->k_bytes[l];
        next += 2 * k->k_bytes[l];
    }
}
