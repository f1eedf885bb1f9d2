/* Nodes by the tokens that they stand for. */
#ifndef CACHE_INDEX_H
#define CACHE_INDEX_H

#include "cache/cache.h"

/* The child of `parent` (0: a first block) with these ids; 0: there is none. */
int32_t index_find(const struct prefix_cache *c, int32_t parent, uint64_t salt, const int32_t *ids);

/* Makes a global page a node, which must not be there yet, and keeps the page. */
void index_add(struct prefix_cache *c, int32_t page, int32_t parent, uint64_t salt,
               const int32_t *ids);

/* Removes a leaf without an anchor, and keeps its page no longer. */
void index_remove(struct prefix_cache *c, int32_t node);

#endif
