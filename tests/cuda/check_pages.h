/* A cache in pages for checks of kernels. Its pages lie in a pool in a random order, and each holds
 * another layer's part too. Page 0 holds zeros, all else is NaN until it is written. */
#ifndef TESTS_CUDA_CHECK_PAGES_H
#define TESTS_CUDA_CHECK_PAGES_H

#include "base/rng.h"
#include "cuda/check.h"

struct check_pages {
    struct kv_cache host, device; /* the same cells: in `pool`, and on the device */
    char *pool;
    int32_t *table;
    size_t pool_bytes, table_bytes;
    char *device_pool;
};

/* Every entry of the table has a page of its own; some pages belong to nobody. `shape` is a cache
 * without memory. */
struct check_pages check_pages_new(struct rng *rng, const struct kv_cache *shape,
                                   int32_t n_sequences);

/* Writes a row of keys or values, [n_heads * head_dim], to its cell (`at` from c->k or c->v), and
 * gives back what it has become. */
void check_cell_write(const struct kv_cache *c, char *at, bool is_v, float *row);

/* Makes the keys that a shared cell holds as values equal to these. */
void check_share_columns(const struct kv_cache *c, float *k, const float *v);

/* Puts pool and table on the device as they are now. Once. */
void check_pages_upload(struct check_pages *p);

/* Whether the device's pool equals the host's. */
bool check_pages_same(const struct check_pages *p);

/* Gives false when something was written outside. */
bool check_pages_free(struct check_pages *p);

#endif
