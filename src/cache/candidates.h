/* Which nodes may be evicted: lists that are kept up to date as nodes change. */
#ifndef CACHE_CANDIDATES_H
#define CACHE_CANDIDATES_H

#include "cache/cache.h"

/* Puts a node on the lists where it belongs, after its children, pins or anchor have changed.
 * last_use may change only while it is on none. */
void candidates_settle(struct prefix_cache *c, int32_t node);

/* Lists or unlists a node as one with an anchor; settles it too. */
void candidates_add_anchor(struct prefix_cache *c, int32_t node);
void candidates_remove_anchor(struct prefix_cache *c, int32_t node);

#endif
