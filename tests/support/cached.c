#include "support/cached.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"

void cached_world_open(struct cached_world *w, const struct prefix_options *options)
{
    struct carat_error err;
    memset(w, 0, sizeof *w);
    w->options = *options;
    if (prefix_open(&w->cache, &w->arena, options, &err)) fail_msg("%s", err.message);
    arena_seal(&w->arena);
    for (int kind = 0; kind < KV_KINDS; kind++)
        w->content[kind] = mem_alloc((size_t)options->n_pages[kind], sizeof *w->content[kind]);
}

void cached_world_close(struct cached_world *w)
{
    for (int kind = 0; kind < KV_KINDS; kind++) mem_free(w->content[kind]);
    arena_deinit(&w->arena);
}

/* Stands for all tokens of a sequence up to the end of a block, and its salt. */
static uint64_t content_of(const struct cached_world *w, const struct cached_sequence *s,
                           int32_t block)
{
    const struct hash_key key = {s->salt, 1};
    return hash_bytes(key, s->ids, (size_t)(block + 1) * (size_t)w->options.page * sizeof *s->ids);
}

struct prefix_hit cached_begin(struct cached_world *w, struct cached_sequence *s)
{
    int32_t local[CACHED_TOKENS_MAX];
    struct prefix_hit hit = prefix_find(w->cache, s->salt, s->ids, (size_t)s->n_ids);
    memset(s->pages, 0, sizeof s->pages);
    prefix_take(w->cache, &hit, s->salt, &s->cursor, s->pages[KV_GLOBAL], local);
    int32_t first = prefix_first_local(w->cache, hit.n_blocks);
    for (int32_t i = first; i < hit.n_blocks; i++) s->pages[KV_LOCAL][i] = local[i - first];
    for (int32_t i = 0; i < hit.n_blocks; i++) {
        uint64_t content = content_of(w, s, i);
        assert_true(w->content[KV_GLOBAL][s->pages[KV_GLOBAL][i]] == content);
        if (i >= first) assert_true(w->content[KV_LOCAL][s->pages[KV_LOCAL][i]] == content);
    }
    s->n_done = hit.n_blocks * w->options.page;
    s->is_open = true;
    w->reused += (uint64_t)s->n_done;
    return hit;
}

static bool take_pages(struct cached_world *w, struct cached_sequence *s, int32_t first,
                       int32_t last)
{
    for (int kind = 0; kind < KV_KINDS; kind++)
        for (int32_t i = first; i <= last; i++) {
            int32_t *page = &s->pages[kind][i];
            if (!*page) *page = prefix_take_page(w->cache, (enum kv_kind)kind);
            if (!*page) return false;
        }
    return true;
}

/* Nobody else may see the page that is written. */
static void write_page(struct cached_world *w, const struct cached_sequence *s, int kind,
                       int32_t block)
{
    int32_t page = s->pages[kind][block];
    const struct page_holds *h = &prefix_pool(w->cache, (enum kv_kind)kind)->holds[page];
    assert_true(page > 0 && h->users == 1 && h->keepers == 0);
    w->content[kind][page] = content_of(w, s, block);
}

void cached_anchor(struct cached_world *w, const struct cached_sequence *s)
{
    int32_t n = s->cursor.n_blocks;
    if (n == 0) return;
    prefix_anchor(w->cache, &s->cursor, s->pages[KV_LOCAL] + prefix_first_local(w->cache, n));
}

bool cached_run(struct cached_world *w, struct cached_sequence *s, int32_t n_rows,
                int32_t anchor_every)
{
    int32_t page = w->options.page, first = s->n_done / page;
    int32_t last = (s->n_done + n_rows - 1) / page;
    assert_true(n_rows > 0 && s->n_done + n_rows <= s->n_ids);
    if (!take_pages(w, s, first, last)) return false;
    for (int kind = 0; kind < KV_KINDS; kind++)
        for (int32_t i = first; i <= last; i++) write_page(w, s, kind, i);
    s->n_done += n_rows;
    w->computed += (uint64_t)n_rows;
    for (int32_t i = first; i < s->n_done / page; i++) {
        int32_t *own = &s->pages[KV_GLOBAL][i];
        int32_t node = prefix_publish(w->cache, &s->cursor, s->ids + i * page, *own);
        assert_true(w->content[KV_GLOBAL][node] == content_of(w, s, i));
        if (anchor_every && (i + 1) % anchor_every == 0) cached_anchor(w, s);
        if (node == *own || i % 2) continue; /* both ways of going on after a duplicate */
        page_use(prefix_pool(w->cache, KV_GLOBAL), node);
        page_leave(prefix_pool(w->cache, KV_GLOBAL), *own);
        *own = node;
    }
    int32_t *local = s->pages[KV_LOCAL];
    for (int32_t i = prefix_first_local(w->cache, s->n_done / page); i-- > 0 && local[i];) {
        page_leave(prefix_pool(w->cache, KV_LOCAL), local[i]);
        local[i] = 0;
    }
    return true;
}

void cached_end(struct cached_world *w, struct cached_sequence *s)
{
    for (int kind = 0; kind < KV_KINDS; kind++)
        for (int32_t i = 0; i * w->options.page < s->n_ids; i++) {
            page_leave(prefix_pool(w->cache, (enum kv_kind)kind), s->pages[kind][i]);
            s->pages[kind][i] = 0;
        }
    prefix_leave(w->cache, &s->cursor);
    s->is_open = false;
}

void cached_check(struct cached_world *w, struct cached_sequence *sequences, int n)
{
    const struct prefix_cursor *cursors[64];
    size_t n_cursors = 0;
    assert_true(n <= 64);
    for (int i = 0; i < n; i++)
        if (sequences[i].is_open) cursors[n_cursors++] = &sequences[i].cursor;
    const char *wrong = prefix_check(w->cache, cursors, n_cursors);
    if (wrong) fail_msg("%s", wrong);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        struct page_pool *pool = prefix_pool(w->cache, (enum kv_kind)kind);
        for (int sign = -1; sign <= 1; sign += 2) {
            for (int i = 0; i < n; i++)
                for (int32_t b = 0;
                     sequences[i].is_open && b * w->options.page < sequences[i].n_ids; b++)
                    pool->holds[sequences[i].pages[kind][b]].users += sign;
            for (int32_t page = 1; sign < 0 && page < pool->n_pages; page++)
                assert_int_equal(pool->holds[page].users, 0);
        }
    }
}
