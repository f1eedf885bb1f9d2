#include "cache/prefix.h"

#include <string.h>

#include "base/assert.h"
#include "base/status.h"
#include "cache/anchors.h"
#include "cache/candidates.h"
#include "cache/index.h"

/* ---- Opening ---------------------------------------------------------------------------- */

static size_t local_pages(const struct prefix_options *o)
{
    return o->window > 0 ? ((size_t)o->window - 1 + (size_t)o->page - 1) / (size_t)o->page : 0;
}

/* Places of the hash table: a power of two, at least one for each node. */
static size_t hash_places(const struct prefix_options *o)
{
    size_t n = 1;
    while (n < (size_t)o->n_pages[KV_GLOBAL]) n *= 2;
    return n;
}

size_t prefix_bytes(const struct prefix_options *o)
{
    const size_t lists = 3, pool = sizeof(int32_t) + sizeof(struct page_holds);
    size_t a_node = sizeof(struct node) + (lists + local_pages(o) + (size_t)o->page) * 4 + pool;
    return sizeof(struct prefix_cache) + hash_places(o) * sizeof(int32_t) +
           (size_t)o->n_pages[KV_GLOBAL] * a_node + (size_t)o->n_pages[KV_LOCAL] * pool;
}

static int take_memory(struct prefix_cache *c, struct arena *arena, const struct prefix_options *o,
                       struct carat_error *err)
{
    size_t n = (size_t)o->n_pages[KV_GLOBAL], places = hash_places(o);
    c->nodes = arena_take(arena, n, sizeof *c->nodes);
    c->ids = arena_take(arena, n, (size_t)o->page * sizeof *c->ids);
    c->locals = arena_take(arena, n, local_pages(o) * sizeof *c->locals);
    c->heads = arena_take(arena, places, sizeof *c->heads);
    c->garbage.nodes = arena_take(arena, n, sizeof *c->garbage.nodes);
    c->tips.nodes = arena_take(arena, n, sizeof *c->tips.nodes);
    c->anchors.nodes = arena_take(arena, n, sizeof *c->anchors.nodes);
    if (!c->nodes || !c->ids || !c->locals || !c->heads || !c->garbage.nodes || !c->tips.nodes ||
        !c->anchors.nodes)
        return err_no_memory(err, "prefix cache", prefix_bytes(o));
    for (int kind = 0; kind < KV_KINDS; kind++)
        TRY(page_pool_init(&c->pools[kind], arena, o->n_pages[kind], err));
    c->mask = places - 1;
    return CARAT_OK;
}

int prefix_open(struct prefix_cache **out, struct arena *arena, const struct prefix_options *o,
                struct carat_error *err)
{
    carat_assert(o->page > 0 && o->window >= 0);
    struct prefix_cache *c = *out = arena_take(arena, 1, sizeof *c);
    if (!c) return err_no_memory(err, "prefix cache", sizeof *c);
    c->page = o->page;
    c->window = o->window;
    c->n_locals = (int32_t)local_pages(o);
    c->key = hash_key_random();
    c->watch = o->watch;
    c->rng.state = o->seed;
    return take_memory(c, arena, o, err);
}

struct page_pool *prefix_pool(struct prefix_cache *c, enum kv_kind kind)
{
    return &c->pools[kind];
}

struct prefix_counts prefix_count(const struct prefix_cache *c)
{
    return c->counts;
}

/* ---- Look-up ---------------------------------------------------------------------------- */

struct prefix_hit prefix_find(const struct prefix_cache *c, uint64_t salt, const int32_t *ids,
                              size_t n)
{
    struct prefix_hit hit = {0};
    size_t n_blocks = n ? (n - 1) / (size_t)c->page : 0;
    for (int32_t node = 0; (size_t)hit.n_matched < n_blocks; hit.n_matched++) {
        node = index_find(c, node, salt, ids + (size_t)hit.n_matched * (size_t)c->page);
        if (!node) break;
        if (!c->nodes[node].anchor_at) continue;
        hit.node = node;
        hit.n_blocks = hit.n_matched + 1;
    }
    return hit;
}

static void pin(struct prefix_cache *c, int32_t node)
{
    struct node *n = &c->nodes[node];
    if (n->n_pins++ == 0) c->counts.n_pinned++;
    candidates_settle(c, node);
    n->last_use = c->clock;
}

static void unpin(struct prefix_cache *c, int32_t node)
{
    struct node *n = &c->nodes[node];
    carat_assert(n->n_pins > 0);
    n->last_use = c->clock;
    if (--n->n_pins > 0) return;
    c->counts.n_pinned--;
    candidates_settle(c, node);
}

void prefix_take(struct prefix_cache *c, const struct prefix_hit *hit, uint64_t salt,
                 struct prefix_cursor *cursor, int32_t *global, int32_t *local)
{
    c->clock += 1 + hit->n_blocks;
    *cursor = (struct prefix_cursor){.salt = salt, .node = hit->node, .n_blocks = hit->n_blocks};
    c->counts.hit_blocks += (uint64_t)hit->n_blocks;
    if (!hit->node) {
        c->counts.misses++;
        return;
    }
    c->counts.hits++;
    struct node *n = &c->nodes[hit->node];
    carat_assert(n->anchor_at && n->n_blocks == hit->n_blocks && n->salt == salt);
    cursor->interval = n->interval = c->clock - n->anchor_use;
    n->anchor_use = c->clock;
    int32_t i = hit->n_blocks;
    for (int32_t node = hit->node; node; node = c->nodes[node].parent) {
        c->nodes[node].is_passed = node != hit->node;
        pin(c, node);
        page_use(&c->pools[KV_GLOBAL], node);
        global[--i] = node;
    }
    int32_t n_pages = anchor_pages(c, hit->node);
    const int32_t *kept = node_locals(c, hit->node);
    for (i = 0; i < n_pages; i++) {
        page_use(&c->pools[KV_LOCAL], kept[i]);
        local[i] = kept[i];
    }
}

void prefix_leave(struct prefix_cache *c, struct prefix_cursor *cursor)
{
    for (int32_t node = cursor->node; node; node = c->nodes[node].parent) unpin(c, node);
    *cursor = (struct prefix_cursor){0};
}

/* ---- Publishing ------------------------------------------------------------------------- */

int32_t prefix_publish(struct prefix_cache *c, struct prefix_cursor *cursor, const int32_t *ids,
                       int32_t page)
{
    c->clock++;
    int32_t node = index_find(c, cursor->node, cursor->salt, ids);
    if (node) {
        c->counts.duplicates++;
    } else {
        carat_assert(c->pools[KV_GLOBAL].holds[page].users > 0);
        index_add(c, page, cursor->node, cursor->salt, ids);
        c->counts.published++;
        node = page;
    }
    pin(c, node);
    cursor->node = node;
    cursor->n_blocks++;
    return node;
}
