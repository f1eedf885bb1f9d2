/* Nodes at which a sequence can resume. */
#ifndef CACHE_ANCHORS_H
#define CACHE_ANCHORS_H

#include "cache/cache.h"

/* The number of local pages that an anchor at this node keeps, or would keep. */
int32_t anchor_pages(const struct prefix_cache *c, int32_t node);

void anchor_drop(struct prefix_cache *c, int32_t node);

#endif
