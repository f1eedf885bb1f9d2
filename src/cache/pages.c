#include "cache/pages.h"

#include "base/assert.h"
#include "base/status.h"

int page_pool_init(struct page_pool *pool, struct arena *arena, int32_t n_pages,
                   struct carat_error *err)
{
    carat_assert(n_pages >= 1);
    size_t n = (size_t)n_pages;
    *pool = (struct page_pool){.n_pages = n_pages, .n_free = n_pages - 1};
    pool->free = arena_take(arena, n, sizeof *pool->free);
    pool->holds = arena_take(arena, n, sizeof *pool->holds);
    if (!pool->free || !pool->holds)
        return err_no_memory(err, "pages of the KV cache", n * sizeof *pool->holds);
    for (int32_t i = 0; i < pool->n_free; i++) pool->free[i] = n_pages - 1 - i;
    return CARAT_OK;
}

int32_t page_take(struct page_pool *pool)
{
    if (pool->n_free == 0) return 0;
    int32_t page = pool->free[--pool->n_free];
    pool->holds[page].users = 1;
    pool->n_used++;
    return page;
}

/* A page that is in use or cached. */
static struct page_holds *held_page(struct page_pool *pool, int32_t page)
{
    carat_assert(page > 0 && page < pool->n_pages);
    struct page_holds *h = &pool->holds[page];
    carat_assert(h->users > 0 || h->keepers > 0);
    return h;
}

static void put_back(struct page_pool *pool, int32_t page)
{
    pool->free[pool->n_free++] = page;
}

void page_use(struct page_pool *pool, int32_t page)
{
    if (page == 0) return;
    struct page_holds *h = held_page(pool, page);
    if (h->users++ > 0) return;
    pool->n_cached--;
    pool->n_used++;
}

void page_leave(struct page_pool *pool, int32_t page)
{
    if (page == 0) return;
    struct page_holds *h = held_page(pool, page);
    carat_assert(h->users > 0);
    if (--h->users > 0) return;
    pool->n_used--;
    if (h->keepers > 0)
        pool->n_cached++;
    else
        put_back(pool, page);
}

void page_keep(struct page_pool *pool, int32_t page)
{
    held_page(pool, page)->keepers++;
}

void page_drop(struct page_pool *pool, int32_t page)
{
    struct page_holds *h = held_page(pool, page);
    carat_assert(h->keepers > 0);
    if (--h->keepers > 0 || h->users > 0) return;
    pool->n_cached--;
    put_back(pool, page);
}
