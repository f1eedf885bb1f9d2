/* Which pages the running sequences hold: takes pages before a step, gives back those that slid out
 * of the window, publishes full ones after a good step, leaves anchors, and resumes at one. Keeps
 * the runner's tables and the prefix cache in agreement; knows slots and positions, no requests.
 *
 * A slot holds the global pages of all its positions, and the local ones from a window before its
 * last full page on, so that an anchor can be made there at any time. Nothing here allocates after
 * paging_init. One thread. */
#ifndef ENGINE_PAGING_H
#define ENGINE_PAGING_H

#include "cache/prefix.h"
#include "engine/marks.h"
#include "engine/runner.h"

/* Pages of a slot: of the blocks [first, end) of each kind. */
struct holding {
    int32_t first[KV_KINDS], end[KV_KINDS];
    struct prefix_cursor cursor; /* zeroed: its sequence does without the prefix cache */
};

struct paging {
    struct runner *runner;
    struct prefix_cache *cache;
    struct holding *holdings; /* [n_seq], by slot */
    int32_t n_seq;
    int32_t window, window_pages; /* of layers with a window; 0: there are none */
    int32_t *global, *local;      /* room for the pages of one sequence */
};

/* Bytes of host memory for a page of either pool, about. */
uint32_t paging_page_bytes(int32_t window);

/* Host memory for each page of the pools and for each sequence is taken from the arena. `watch`:
 * who is told of blocks, or NULL. CARAT_EMEMORY. */
int paging_init(struct paging *p, struct runner *runner, const struct prefix_watch *watch,
                struct arena *arena, struct carat_error *err);

/* Makes room for rows [from, from + n_rows) of a slot. Returns how many of them have pages: fewer
 * when all pages are in use. */
int32_t paging_extend(struct paging *p, int32_t slot, int32_t from, int32_t n_rows);

/* After a step, at n_cached positions: publishes the pages that are full now, with their ids,
 * leaves anchors at marks, and gives back what slid out of the window. */
void paging_publish(struct paging *p, int32_t slot, const int32_t *ids, int32_t n_cached,
                    const struct marks *marks);
/* The same for a sequence that does without the prefix cache: only the last part. */
void paging_slide(struct paging *p, int32_t slot, int32_t n_cached);

/* Leaves an anchor at the last page that was published, if the window before it is still there.
 * Returns the positions before the anchor; 0: none. */
int32_t paging_leave_anchor(struct paging *p, int32_t slot);

/* Gives back everything of a slot. */
void paging_release(struct paging *p, int32_t slot);

/* What the prefix cache has of the first n ids. */
struct prefix_hit paging_find(const struct paging *p, uint64_t salt, const int32_t *ids, int32_t n);

/* Fills an empty slot with what a look-up has found; at once, before anything else changes the
 * cache. */
void paging_resume(struct paging *p, int32_t slot, const struct prefix_hit *hit, uint64_t salt);

/* Pages that a slot still wants to hold `known` positions; those of the rows of a chunk, which only
 * one step at a time needs, are not counted. */
struct page_wants {
    int64_t of[KV_KINDS];
};
struct page_wants paging_wants(const struct paging *p, int32_t slot, int32_t known);

/* Whether this many are free, or could be made free. */
bool paging_has_room(const struct paging *p, struct page_wants wants);

#endif
