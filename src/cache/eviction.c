/* What is evicted when room is needed. If it has to be an anchor, a few random ones are compared:
 *
 * - An anchor is worth little if its only path leads to a deeper anchor that was used since: the
 *   next part will go on from the deeper one too. Until then it is worth as much as others: a chat
 *   whose thoughts are removed from its answers goes on from the end of a prompt.
 * - Among the others, the one is evicted that saves the fewest blocks of computing for each page
 *   that it frees.
 * - An anchor that is found again and again is worth more, until it is overdue. So if chats take
 *   turns in a cache too small for all, some stay and the others give way. If the least recently
 *   used one were evicted, each chat would find its own part just gone. New anchors have some
 *   time to be found for the first time.
 * - Apart from that, age counts only after several times the cache's size was used. It has to
 *   count at last, so that nothing stays for ever. */
#include "cache/anchors.h"
#include "cache/candidates.h"
#include "cache/index.h"

enum {
    SAMPLES = 8,     /* anchors that are compared, if there are more */
    LOOK_BACK = 128, /* blocks within which the anchor before one is looked for */
    AGE_FREE = 3,    /* times the global pages: as many blocks may be used before age counts */
};

#define PASSED_BY 1e-3 /* factor on the worth of an anchor that was passed by */
#define EXPECTED 4.0   /* factor on the worth of one that is new, or was found before ... */
#define OVERDUE 1.5    /* ... until it was not for this many times that interval, */
#define NEW 2          /* or this many times the blocks of its path */

int32_t prefix_available(const struct prefix_cache *c, enum kv_kind kind)
{
    const struct page_pool *pool = &c->pools[kind];
    if (kind == KV_LOCAL) return pool->n_free + pool->n_cached;
    return pool->n_free + c->counts.n_nodes - c->counts.n_pinned;
}

static bool drop_garbage(struct prefix_cache *c)
{
    if (c->garbage.n == 0) return false;
    index_remove(c, c->garbage.nodes[0]);
    c->counts.evicted_blocks++;
    return true;
}

/* Blocks from the anchor before this one, or from the beginning. */
static int32_t blocks_since_anchor(const struct prefix_cache *c, int32_t node)
{
    int32_t n = 0;
    do {
        n++;
        node = c->nodes[node].parent;
    } while (node && !c->nodes[node].anchor_at && n < LOOK_BACK);
    return n;
}

/* Local pages that the anchor keeps and nobody uses; those that k anchors keep count 1 / k. */
static double freed_locals(const struct prefix_cache *c, int32_t node)
{
    const int32_t *local = node_locals(c, node);
    int32_t n_pages = anchor_pages(c, node);
    double n = 0;
    for (int32_t i = 0; i < n_pages; i++) {
        const struct page_holds *h = &c->pools[KV_LOCAL].holds[local[i]];
        if (h->users == 0) n += 1.0 / h->keepers;
    }
    return n;
}

/* Global pages that become garbage with a tip: up to an anchor, a branch or a pinned node. */
static double freed_globals(const struct prefix_cache *c, int32_t node)
{
    int32_t n = 0;
    do {
        n++;
        node = c->nodes[node].parent;
    } while (node && !c->nodes[node].anchor_at && c->nodes[node].n_children == 1 &&
             c->nodes[node].n_pins == 0 && n < LOOK_BACK);
    return n;
}

/* What is lost with an anchor for each page that it frees. Negative: it frees none. */
static double worth(const struct prefix_cache *c, enum kv_kind kind, int32_t node)
{
    const struct node *n = &c->nodes[node];
    double freed = kind == KV_LOCAL ? freed_locals(c, node) : freed_globals(c, node);
    if (freed == 0) return -1;
    double age = (double)(c->clock - n->anchor_use);
    double age_free = AGE_FREE * (double)c->pools[KV_GLOBAL].n_pages;
    double worth = blocks_since_anchor(c, node) / freed;
    if (age <= OVERDUE * (double)n->interval || age <= NEW * (double)n->n_blocks) worth *= EXPECTED;
    if (age > age_free) worth *= age_free / age;
    return n->is_passed && n->n_children == 1 ? PASSED_BY * worth : worth;
}

/* An anchor that keeps pages of this kind which nobody uses; 0: there is none. */
static int32_t choose_anchor(struct prefix_cache *c, enum kv_kind kind)
{
    const struct node_list *list = kind == KV_LOCAL ? &c->anchors : &c->tips;
    int32_t best = 0;
    double least = 0;
    if (list->n == 0) return 0;
    uint32_t n = (uint32_t)list->n, first = rng_below(&c->rng, n);
    for (uint32_t i = 0; i < SAMPLES && i < n; i++) {
        uint32_t at = n <= SAMPLES ? (first + i) % n : rng_below(&c->rng, n);
        int32_t node = list->nodes[at];
        double w = worth(c, kind, node);
        if (w < 0 || (best && w >= least)) continue;
        best = node;
        least = w;
    }
    /* Nearly all may be in use: then takes the next one that is not. */
    for (int32_t i = 0; !best && i < list->n; i++) {
        c->hand = (c->hand + 1) % list->n;
        if (worth(c, kind, list->nodes[c->hand]) >= 0) best = list->nodes[c->hand];
    }
    return best;
}

bool prefix_make_room(struct prefix_cache *c, enum kv_kind kind, int32_t n)
{
    if (n > prefix_available(c, kind)) return false;
    while (c->pools[kind].n_free < n) {
        if (kind == KV_GLOBAL && drop_garbage(c)) continue;
        int32_t node = choose_anchor(c, kind);
        if (!node) return false;
        anchor_drop(c, node);
        c->counts.evicted_anchors++;
    }
    return true;
}

int32_t prefix_take_page(struct prefix_cache *c, enum kv_kind kind)
{
    return prefix_make_room(c, kind, 1) ? page_take(&c->pools[kind]) : 0;
}

void prefix_flush(struct prefix_cache *c)
{
    c->counts.evicted_anchors += (uint64_t)c->anchors.n;
    while (c->anchors.n) anchor_drop(c, c->anchors.nodes[c->anchors.n - 1]);
    while (drop_garbage(c)) continue;
}
