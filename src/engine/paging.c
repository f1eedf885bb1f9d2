#include "engine/paging.h"

#include "base/assert.h"

/* ---- Memory ----------------------------------------------------------------------------- */

uint32_t paging_page_bytes(int32_t window)
{
    enum { MANY = 1 << 16 };
    struct prefix_options options = {
        .page = KV_PAGE, .window = window, .n_pages = {[KV_LOCAL] = 1, [KV_GLOBAL] = MANY}};
    return (uint32_t)(prefix_bytes(&options) / MANY + 1);
}

int paging_init(struct paging *p, struct runner *runner, const struct prefix_watch *watch,
                struct arena *arena, struct carat_error *err)
{
    const struct layout *y = &runner->layout;
    const struct caches *k = &y->caches;
    bool has_local = caches_page_bytes(k, KV_LOCAL) > 0;
    *p = (struct paging){
        .runner = runner,
        .n_seq = y->n_seq,
        .window = has_local ? y->config->window : 0,
        .window_pages = has_local ? k->window_pages : 0,
        .holdings = arena_take(arena, (size_t)y->n_seq, sizeof *p->holdings),
        .global = arena_take(arena, (size_t)k->slots[KV_GLOBAL], sizeof *p->global),
        .local = arena_take(arena, (size_t)k->slots[KV_LOCAL], sizeof *p->local),
    };
    if (!p->holdings || !p->global || !p->local)
        return err_no_memory(err, "tables of pages", (size_t)k->slots[KV_GLOBAL] * sizeof(int32_t));
    struct prefix_options options = {
        .page = KV_PAGE,
        .window = p->window,
        .n_pages = {[KV_LOCAL] = k->n_pages[KV_LOCAL], [KV_GLOBAL] = k->n_pages[KV_GLOBAL]},
        .seed = 1,
        .watch = watch,
    };
    return prefix_open(&p->cache, arena, &options, err);
}

/* ---- One page --------------------------------------------------------------------------- */

static int32_t page_at(const struct paging *p, enum kv_kind kind, int32_t slot, int32_t block)
{
    return runner_page(p->runner, kind, slot, block % p->runner->layout.caches.slots[kind]);
}

static void set_page(struct paging *p, enum kv_kind kind, int32_t slot, int32_t block, int32_t page)
{
    runner_set_page(p->runner, kind, slot, block % p->runner->layout.caches.slots[kind], page);
}

static void leave_page(struct paging *p, enum kv_kind kind, int32_t slot, int32_t block)
{
    page_leave(prefix_pool(p->cache, kind), page_at(p, kind, slot, block));
    set_page(p, kind, slot, block, 0);
}

/* Gives back a slot's pages before this block. */
static void drop_before(struct paging *p, enum kv_kind kind, int32_t slot, int32_t block)
{
    struct holding *h = &p->holdings[slot];
    for (; h->first[kind] < block && h->first[kind] < h->end[kind]; h->first[kind]++)
        leave_page(p, kind, slot, h->first[kind]);
}

/* ---- Before a step ---------------------------------------------------------------------- */

/* The first local block that has to stay for rows from `from` on. If they do not complete a page,
 * the window before the last full page has to stay too. */
static int32_t first_wanted(const struct paging *p, int32_t from, int32_t n_rows)
{
    if (from / KV_PAGE == (from + n_rows) / KV_PAGE)
        return prefix_first_local(p->cache, from / KV_PAGE);
    return from < p->window ? 0 : (from - p->window + 1) / KV_PAGE;
}

/* A page may be written only by a slot that is its single holder. */
static bool is_own(const struct paging *p, enum kv_kind kind, int32_t slot, int32_t block)
{
    int32_t page = page_at(p, kind, slot, block);
    const struct page_holds *holds = &prefix_pool(p->cache, kind)->holds[page];
    return page > 0 && holds->users == 1 && holds->keepers == 0;
}

static int32_t extend_kind(struct paging *p, enum kv_kind kind, int32_t slot, int32_t from,
                           int32_t n_rows)
{
    struct holding *h = &p->holdings[slot];
    int32_t end = kv_pages(from + n_rows);
    for (; h->end[kind] < end; h->end[kind]++) {
        int32_t page = prefix_take_page(p->cache, kind);
        if (page == 0) break;
        set_page(p, kind, slot, h->end[kind], page);
    }
    for (int32_t b = from / KV_PAGE; b < end && b < h->end[kind]; b++)
        carat_assert(is_own(p, kind, slot, b));
    int32_t covered = h->end[kind] * KV_PAGE - from;
    return covered < n_rows ? covered : n_rows;
}

int32_t paging_extend(struct paging *p, int32_t slot, int32_t from, int32_t n_rows)
{
    int32_t rows = n_rows;
    if (p->window > 0) {
        drop_before(p, KV_LOCAL, slot, first_wanted(p, from, n_rows));
        rows = extend_kind(p, KV_LOCAL, slot, from, n_rows);
    }
    return rows > 0 ? extend_kind(p, KV_GLOBAL, slot, from, rows) : 0;
}

/* ---- After a step ----------------------------------------------------------------------- */

void paging_slide(struct paging *p, int32_t slot, int32_t n_cached)
{
    if (p->window == 0) return;
    drop_before(p, KV_LOCAL, slot, prefix_first_local(p->cache, n_cached / KV_PAGE));
}

int32_t paging_leave_anchor(struct paging *p, int32_t slot)
{
    const struct holding *h = &p->holdings[slot];
    int32_t end = h->cursor.n_blocks, first = prefix_first_local(p->cache, end);
    if (end == 0 || (p->window > 0 && (h->first[KV_LOCAL] > first || h->end[KV_LOCAL] < end)))
        return 0;
    for (int32_t b = first; b < end; b++) p->local[b - first] = page_at(p, KV_LOCAL, slot, b);
    prefix_anchor(p->cache, &h->cursor, p->local);
    return end * KV_PAGE;
}

/* A block that another sequence has published before: its page is used in place of our own. */
static void use_page(struct paging *p, int32_t slot, int32_t block, int32_t page)
{
    page_use(prefix_pool(p->cache, KV_GLOBAL), page);
    leave_page(p, KV_GLOBAL, slot, block);
    set_page(p, KV_GLOBAL, slot, block, page);
}

void paging_publish(struct paging *p, int32_t slot, const int32_t *ids, int32_t n_cached,
                    const struct marks *marks)
{
    struct holding *h = &p->holdings[slot];
    while (h->cursor.n_blocks < n_cached / KV_PAGE) {
        int32_t block = h->cursor.n_blocks, page = page_at(p, KV_GLOBAL, slot, block);
        int32_t node = prefix_publish(p->cache, &h->cursor, ids + (size_t)block * KV_PAGE, page);
        if (node != page) use_page(p, slot, block, node);
        if (marks_has(marks, block + 1, KV_PAGE)) paging_leave_anchor(p, slot);
    }
    paging_slide(p, slot, n_cached);
}

void paging_release(struct paging *p, int32_t slot)
{
    struct holding *h = &p->holdings[slot];
    for (int kind = 0; kind < KV_KINDS; kind++)
        drop_before(p, (enum kv_kind)kind, slot, h->end[kind]);
    prefix_leave(p->cache, &h->cursor);
    *h = (struct holding){0};
}

/* ---- Admission -------------------------------------------------------------------------- */

struct prefix_hit paging_find(const struct paging *p, uint64_t salt, const int32_t *ids, int32_t n)
{
    return prefix_find(p->cache, salt, ids, (size_t)n);
}

void paging_resume(struct paging *p, int32_t slot, const struct prefix_hit *hit, uint64_t salt)
{
    struct holding *h = &p->holdings[slot];
    prefix_take(p->cache, hit, salt, &h->cursor, p->global, p->local);
    h->end[KV_GLOBAL] = hit->n_blocks;
    for (int32_t b = 0; b < hit->n_blocks; b++) set_page(p, KV_GLOBAL, slot, b, p->global[b]);
    if (p->window == 0) return;
    int32_t first = prefix_first_local(p->cache, hit->n_blocks);
    h->first[KV_LOCAL] = first;
    h->end[KV_LOCAL] = hit->n_blocks;
    for (int32_t b = first; b < hit->n_blocks; b++)
        set_page(p, KV_LOCAL, slot, b, p->local[b - first]);
}

struct page_wants paging_wants(const struct paging *p, int32_t slot, int32_t known)
{
    const struct holding *h = &p->holdings[slot];
    struct page_wants wants = {.of = {[KV_GLOBAL] = kv_pages(known) - h->end[KV_GLOBAL]}};
    int32_t local = kv_pages(known) < p->window_pages ? kv_pages(known) : p->window_pages;
    local -= h->end[KV_LOCAL] - h->first[KV_LOCAL];
    wants.of[KV_LOCAL] = local > 0 ? local : 0;
    return wants;
}

bool paging_has_room(const struct paging *p, struct page_wants wants)
{
    for (int kind = 0; kind < KV_KINDS; kind++)
        if (wants.of[kind] > prefix_available(p->cache, (enum kv_kind)kind)) return false;
    return true;
}
