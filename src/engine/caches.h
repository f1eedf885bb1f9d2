/* The caches of keys and values: one for each layer that owns keys, on the device that computes the
 * layer. The pages of all layers of a kind that a device has lie in one pool there, and a page has
 * the same number on all devices (plan/kv.h). */
#ifndef ENGINE_CACHES_H
#define ENGINE_CACHES_H

#include "engine/target.h"
#include "model/split.h"

struct caches {
    struct kv_cache cache[LAYERS_MAX];
    int32_t n_seq;
    int32_t slots[KV_KINDS];   /* entries of a sequence's table, also of a kind that no layer has */
    int32_t n_pages[KV_KINDS]; /* of a pool, page 0 included */
    int32_t window_pages;      /* local pages that a sequence holds while it decodes, at most */
    int32_t anchor_pages;      /* local pages of the window before the end of a page */
    /* Page p of a kind begins at pools[site][kind] + p * page_bytes[site][kind]. 0 and NULL: no
     * layer of the kind is there. */
    uint64_t page_bytes[SITES_MAX][KV_KINDS];
    char *pools[SITES_MAX][KV_KINDS];
    int32_t *tables[SITES_MAX][KV_KINDS]; /* device memory [n_seq * slots] */
};

/* What the caches are made for. */
struct caches_shape {
    int32_t n_ctx, n_seq, chunk;
    enum format local, global; /* of layers with a window; of the others */
    int32_t turned;            /* struct weights: columns whose keys are not their values */
};

/* Gives all caches their shapes, without pools and memory. Sums saturate at BYTES_MAX. */
void caches_plan(struct caches *k, const struct gemma_config *c, const struct caches_shape *shape,
                 const struct split *split);

/* Sets how many pages the pools have, and what each target needs for them and the tables (kv_local,
 * kv_global). Sums saturate at BYTES_MAX. */
void caches_set_pools(struct caches *k, const int32_t *n_pages, struct target *targets,
                      int32_t n_targets);

/* Puts the caches of a site into its target's memory: a pool for each kind, then the tables. In a
 * page the layers follow each other, each with its keys and then its values, or with both in one
 * (plan/kv.h). */
void caches_lay_out(struct caches *k, const struct gemma_config *c, const struct split *split,
                    const struct target *target, int32_t site);

/* Bytes of a page on all sites together. */
uint64_t caches_page_bytes(const struct caches *k, enum kv_kind kind);

#endif
