#include "cache/anchors.h"

#include <string.h>

#include "base/assert.h"
#include "cache/candidates.h"

int32_t prefix_first_local(const struct prefix_cache *c, int32_t n_blocks)
{
    if (c->window == 0) return n_blocks;
    int64_t first = (int64_t)n_blocks * c->page - c->window + 1;
    return first > 0 ? (int32_t)(first / c->page) : 0;
}

int32_t anchor_pages(const struct prefix_cache *c, int32_t node)
{
    int32_t n_blocks = c->nodes[node].n_blocks;
    return n_blocks - prefix_first_local(c, n_blocks);
}

void prefix_anchor(struct prefix_cache *c, const struct prefix_cursor *cursor, const int32_t *local)
{
    carat_assert(cursor->node > 0);
    struct node *n = &c->nodes[cursor->node];
    c->clock++;
    c->counts.anchored++;
    n->anchor_use = c->clock;
    n->is_passed = false;
    if (n->anchor_at) return;
    n->interval = cursor->interval;
    int32_t n_pages = anchor_pages(c, cursor->node);
    for (int32_t i = 0; i < n_pages; i++) page_keep(&c->pools[KV_LOCAL], local[i]);
    if (n_pages) memcpy(node_locals(c, cursor->node), local, (size_t)n_pages * sizeof *local);
    c->counts.n_anchors++;
    candidates_add_anchor(c, cursor->node);
}

void anchor_drop(struct prefix_cache *c, int32_t node)
{
    carat_assert(c->nodes[node].anchor_at);
    const int32_t *local = node_locals(c, node);
    int32_t n_pages = anchor_pages(c, node);
    for (int32_t i = 0; i < n_pages; i++) page_drop(&c->pools[KV_LOCAL], local[i]);
    c->counts.n_anchors--;
    candidates_remove_anchor(c, node);
}
