/* The table of compiled plans, one for each shape of step: decode steps of 1, 2, 4, 8 ... rows
 * and the step that also carries a prefill chunk. All are made at start and share one stretch
 * of memory, as only one runs at a time. */
#ifndef ENGINE_PLANS_H
#define ENGINE_PLANS_H

#include "backend/backend.h"
#include "model/forward.h"

enum { BUCKETS_MAX = 16 };

struct bucket {
    struct plan plan;
    struct program *program; /* NULL until bound */
};

struct plans {
    struct bucket buckets[BUCKETS_MAX]; /* rising in rows */
    int32_t n_buckets;
    size_t bytes, scratch_bytes; /* the most that one of them needs */
};

/* Compiles plans for n_seq decoding sequences, chunks of `chunk` rows and at least `outs` rows
 * of logits in a step. Nothing is allocated on a device. */
int plans_compile(struct plans *p, const struct backend *backend, const struct device *device,
                  const struct gemma_config *c, const struct weights *w,
                  const struct kv_cache *caches, int32_t n_seq, int32_t chunk, int32_t outs,
                  struct carat_error *err);
int plans_bind(struct plans *p, const struct backend *backend, struct device *device,
               void *memory, void *scratch, struct carat_error *err);
void plans_deinit(struct plans *p, const struct backend *backend);

/* The smallest that holds a step; never NULL for what plans_compile was told of. */
const struct bucket *plans_get(const struct plans *p, int32_t n_token, int32_t n_out);

#endif
