/* What a prefix cache is made of. For the files of this folder and their tests alone. */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include "base/hash.h"
#include "base/rng.h"
#include "cache/prefix.h"

/* A published block. Its number is its global page; its ids are in the cache's `ids`. A node exists
 * only as long as its parent does, so parent, salt and ids say which tokens lie before it. */
struct node {
    uint64_t salt, hash;
    uint64_t name;      /* for the watch; 0: there is none */
    int64_t last_use;   /* of the block: clock */
    int64_t anchor_use; /* of its anchor */
    int64_t interval; /* between two uses: of its anchor, or of the one it continues; 0: unknown */
    int32_t parent;   /* 0: the first block */
    int32_t next;     /* with the same place in the hash table */
    int32_t n_blocks; /* of the path down to here; 0: no node */
    int32_t n_children;
    int32_t n_pins; /* cursors at it or below */
    bool is_passed; /* since its anchor was used, one below it was */
    /* Where it stands in the lists below, counted from 1; 0: it does not. */
    int32_t garbage_at, anchor_at, tip_at;
};

struct node_list {
    int32_t *nodes; /* [n] */
    int32_t n;
};

struct prefix_cache {
    struct page_pool pools[KV_KINDS];
    int32_t page, window;
    int32_t n_locals; /* the most pages that an anchor keeps */

    struct node *nodes; /* [global pages] */
    int32_t *ids;       /* [global pages][page] */
    int32_t *locals;    /* [global pages][n_locals]: what anchors keep, the oldest first */

    struct hash_key key;
    const struct prefix_watch *watch; /* NULL: none */
    int32_t *heads;                   /* [mask + 1] first nodes of the hash table's chains */
    uint64_t mask;

    /* What may be evicted. Leaves are nodes without children that are not pinned. */
    struct node_list garbage; /* leaves without an anchor: a heap, least recently used first */
    struct node_list tips;    /* leaves with one, in no order */
    struct node_list anchors; /* all nodes with one, in no order */
    int32_t hand;             /* where the last search through `anchors` or `tips` ended */

    struct rng rng;
    int64_t clock; /* blocks that were published, found or anchored */
    struct prefix_counts counts;
};

static inline const int32_t *node_ids(const struct prefix_cache *c, int32_t node)
{
    return c->ids + (size_t)node * (size_t)c->page;
}

static inline int32_t *node_locals(const struct prefix_cache *c, int32_t node)
{
    return c->locals + (size_t)node * (size_t)c->n_locals;
}

#endif
