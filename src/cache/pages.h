/* A pool of pages by number: who holds which, and which are free. Their memory is elsewhere.
 *
 * Page 0 is the zero page of plan/kv.h: it belongs to nobody and is never handed out. A page has
 * two counts. Users are sequences that read or write it; keepers are entries of the prefix cache.
 * It is free when both are 0. At any time free + used (with users) + cached (with keepers alone)
 * pages are all pages but page 0. A page with keepers is full and is not written any more; nor is
 * one with several users.
 *
 * Everything takes constant time and allocates nothing. Wrong ids are assertions. One thread. */
#ifndef CACHE_PAGES_H
#define CACHE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "plan/kv.h"
#include "base/status.h"

struct page_holds {
    int32_t users, keepers;
};

struct page_pool {
    int32_t n_pages;                  /* with page 0 */
    int32_t n_free, n_used, n_cached; /* these add up to n_pages - 1 */
    int32_t *free;                    /* [n_free] ids, the next one last */
    struct page_holds *holds;         /* [n_pages] */
};

/* n_pages >= 1, page 0 included. The memory is the arena's. CARAT_EMEMORY. */
int page_pool_init(struct page_pool *pool, struct arena *arena, int32_t n_pages,
                   struct carat_error *err);

/* A free page, with one user; 0 when none is free. Low ids come first in a new pool. */
int32_t page_take(struct page_pool *pool);

/* One user more, of a page that is not free; one less. Both ignore page 0. */
void page_use(struct page_pool *pool, int32_t page);
void page_leave(struct page_pool *pool, int32_t page);

/* One keeper more, of a page that is not free; one less. For the prefix cache. */
void page_keep(struct page_pool *pool, int32_t page);
void page_drop(struct page_pool *pool, int32_t page);

#endif
