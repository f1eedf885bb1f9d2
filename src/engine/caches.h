/* The caches of keys and values: one for each layer that owns keys, on the device that computes the
 * layer. */
#ifndef ENGINE_CACHES_H
#define ENGINE_CACHES_H

#include "engine/target.h"
#include "model/split.h"

struct caches {
    struct kv_cache cache[LAYERS_MAX];
    uint64_t k_bytes[LAYERS_MAX]; /* of one cache's keys; its values take as many */
};

/* What the caches are made for. */
struct caches_shape {
    int32_t n_ctx, n_seq, chunk;
    enum format local, global; /* of layers with a window; of the others */
};

/* Gives all caches their shapes, without memory, and each target the bytes that its caches need
 * (kv_local, kv_global). Sums stop at BYTES_MAX. */
void caches_plan(struct caches *k, const struct gemma_config *c, const struct caches_shape *shape,
                 const struct split *split, struct target *targets, int32_t n_targets);

/* Puts the caches of a site into its target's memory, one after the other in layer order. */
void caches_lay_out(struct caches *k, const struct gemma_config *c, const struct split *split,
                    const struct target *target, int32_t site);

#endif
