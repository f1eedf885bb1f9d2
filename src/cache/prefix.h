/* The prefix cache: which pages hold the keys and values of which tokens, so that a prompt that
 * begins like an earlier one does not compute them again. It owns both page pools of an engine. It
 * knows ids of tokens and pages, but no model, no memory of a device and no request.
 *
 * A block is a page full of tokens: block i holds positions [i * page, (i + 1) * page). A node is a
 * published block whose earlier blocks are published too; its number is that of its global page.
 * Equal tokens after equal tokens under an equal salt are one node. All are compared on every
 * look-up: a hash decides where to look, never what is found.
 *
 * Global pages alone are not enough to go on after a prefix: layers with a window need the local
 * pages of the last `window` positions, and those are too big to keep for each block. An anchor is
 * a node for which they are kept, so a sequence resumes only at anchors. Anchors that are close to
 * each other share local pages.
 *
 * A cursor is where a sequence stands: the deepest node of its path. A node with a cursor at it or
 * below is pinned and stays. Everything else is evicted when room is needed (prefix_make_room):
 *   1. blocks with no anchor at or below them, least recently used first, from the leaves up;
 *   2. anchors, of a few random ones the one that is worth least for its size (eviction.c); then 1.
 * Anchors may be dropped on pinned paths too: their sequences hold the pages that they need.
 *
 * Rules for the caller
 * 1. Publish a block only after the step that computed it has succeeded, in order, each once.
 * 2. A sequence that holds a page of a node (from prefix_take, or published) holds a cursor at that
 *    node or below, and gives back its users (page_leave) before or right after prefix_leave.
 * 3. Nobody writes a page that was published, or that an anchor keeps, or that came from a hit.
 *
 * All memory is taken by prefix_open. Nothing else allocates or fails for memory. A look-up takes
 * time proportional to the blocks that match; everything else takes constant or logarithmic time
 * for each page. A broken rule fails an assertion, where it is noticed. One thread at a time. */
#ifndef CACHE_PREFIX_H
#define CACHE_PREFIX_H

#include <stddef.h>

#include "cache/pages.h"

struct prefix_cache;

/* For whoever keeps a list of what is published elsewhere. Called within the functions that change
 * the cache; may call none of them. A block's name is a hash, under a key of this cache, of the
 * salt and of all tokens down to it; never 0. */
struct prefix_watch {
    void *user;
    /* `parent`: the name of the block before it; 0: it is the first one. */
    void (*stored)(void *user, uint64_t parent, uint64_t name, const int32_t *ids, int32_t n_ids);
    void (*removed)(void *user, uint64_t name);
};

struct prefix_options {
    int32_t page;              /* positions of a page: KV_PAGE */
    int32_t window;            /* positions a local layer sees, itself included; 0: no such layer */
    int32_t n_pages[KV_KINDS]; /* of each pool, page 0 included */
    uint64_t seed;             /* of random choices of what to evict: results do not depend on it */
    const struct prefix_watch *watch; /* borrowed as long as the cache lives; NULL: nobody */
};

/* Bytes of host memory that prefix_open takes from its arena, within a few hundred. */
size_t prefix_bytes(const struct prefix_options *options);

/* All memory is the arena's; there is nothing to close. CARAT_EMEMORY. */
int prefix_open(struct prefix_cache **out, struct arena *arena,
                const struct prefix_options *options, struct carat_error *err);

/* ---- Pages ------------------------------------------------------------------------------ */

/* To look at counts, and for page_use and page_leave. */
struct page_pool *prefix_pool(struct prefix_cache *c, enum kv_kind kind);

/* A page with one user; if none is free, something cached is evicted. 0: all are in use. */
int32_t prefix_take_page(struct prefix_cache *c, enum kv_kind kind);

/* Drops what is cached until `n` pages are free. Returns whether they are. */
bool prefix_make_room(struct prefix_cache *c, enum kv_kind kind, int32_t n);

/* Pages that are free or could be made free now: what one may count on for admission. */
int32_t prefix_available(const struct prefix_cache *c, enum kv_kind kind);

/* ---- Look-up ---------------------------------------------------------------------------- */

struct prefix_hit {
    int32_t n_blocks;  /* down to the deepest anchor: resume at position n_blocks * page; or 0 */
    int32_t n_matched; /* blocks that are known, >= n_blocks: if more, a future anchor's place */
    int32_t node;      /* the anchor's; 0: none */
};

/* Looks for the first n ids. At least one is left to compute: at most (n - 1) / page blocks match.
 * Changes nothing. A hit is good until the next call that changes the cache. */
struct prefix_hit prefix_find(const struct prefix_cache *c, uint64_t salt, const int32_t *ids,
                              size_t n);

/* Where a sequence stands. Its owner copies nothing of it and changes nothing in it. */
struct prefix_cursor {
    uint64_t salt;
    int64_t interval; /* between the last two uses of the anchor that was hit; 0: none was */
    int32_t node;     /* 0: nothing is published or found yet */
    int32_t n_blocks; /* of the path down to the node */
};

/* The first local page, counted as a block, that a row at position n_blocks * page sees: an anchor
 * keeps those of blocks [prefix_first_local, n_blocks). */
int32_t prefix_first_local(const struct prefix_cache *c, int32_t n_blocks);

/* Opens a sequence's cursor at a hit (one without blocks is fine) and makes it a user of its pages.
 * global[i], i in [0, n_blocks), gets the page of block i; local[i] that of block
 * prefix_first_local + i. Counts the hit. */
void prefix_take(struct prefix_cache *c, const struct prefix_hit *hit, uint64_t salt,
                 struct prefix_cursor *cursor, int32_t *global, int32_t *local);

/* Closes a cursor: its path is no longer pinned by it. The cursor is zeroed; a zeroed one is fine.
 * The sequence's pages are still its own to leave. */
void prefix_leave(struct prefix_cache *c, struct prefix_cursor *cursor);

/* ---- Publishing ------------------------------------------------------------------------- */

/* Publishes the block after the cursor, which the sequence has computed into global page `page`:
 * as many ids as a page has positions. The cursor moves down to it. Returns its node: `page`, or
 * another one if the block is there already. Then the sequence's page stays private; its owner may
 * as well use the returned page in its place (page_use, new table entry, page_leave of the old
 * one). */
int32_t prefix_publish(struct prefix_cache *c, struct prefix_cursor *cursor, const int32_t *ids,
                       int32_t page);

/* Makes an anchor where the cursor stands, n_blocks >= 1. local[i] is the sequence's page of block
 * prefix_first_local(c, n_blocks) + i. An anchor that is there already counts as used now and keeps
 * its own pages. */
void prefix_anchor(struct prefix_cache *c, const struct prefix_cursor *cursor,
                   const int32_t *local);

/* Drops all anchors and all nodes that are not pinned. With no cursor open nothing is left. */
void prefix_flush(struct prefix_cache *c);

/* ---- Counts ----------------------------------------------------------------------------- */

struct prefix_counts {
    int32_t n_nodes, n_pinned, n_anchors; /* now */
    /* since prefix_open */
    uint64_t hits, misses; /* cursors opened with and without blocks */
    uint64_t hit_blocks;   /* that hits brought */
    uint64_t published, duplicates, anchored;
    uint64_t evicted_blocks, evicted_anchors; /* flushes included */
};
struct prefix_counts prefix_count(const struct prefix_cache *c);

/* Whether everything adds up: pages of each pool, pins of open cursors, children, lists. Returns
 * NULL, or what is wrong first (static text). `cursors` are all that are open. For tests: takes
 * time proportional to the size of the cache. */
const char *prefix_check(struct prefix_cache *c, const struct prefix_cursor *const *cursors,
                         size_t n_cursors);

#endif
