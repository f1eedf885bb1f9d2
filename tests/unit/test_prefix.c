/* The prefix cache without a model: pages, look-ups, anchors, eviction. A random workload runs
 * against a naive look-up through all nodes; after each event everything must add up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "base/rng.h"
#include "cache/cache.h"
#include "support/cached.h"

static struct cached_sequence sequences[16];

/* The names of all blocks that are published, as the watch is told of them. */
static struct {
    uint64_t names[4096];
    int32_t n;
} known;

static int32_t place_of(uint64_t name)
{
    for (int32_t i = 0; i < known.n; i++)
        if (known.names[i] == name) return i;
    return -1;
}

static void on_stored(void *user, uint64_t parent, uint64_t name, const int32_t *ids, int32_t n_ids)
{
    assert_ptr_equal(user, &known);
    assert_true(parent == 0 || place_of(parent) >= 0);
    assert_true(name != 0 && place_of(name) < 0);
    assert_true(ids && n_ids > 0);
    known.names[known.n++] = name;
}

static void on_removed(void *user, uint64_t name)
{
    int32_t i = place_of(name);
    assert_ptr_equal(user, &known);
    assert_true(i >= 0);
    known.names[i] = known.names[--known.n];
}

static const struct prefix_watch watch = {&known, on_stored, on_removed};

static void open_world(struct cached_world *w, int32_t page, int32_t window, int32_t n_local,
                       int32_t n_global)
{
    struct prefix_options o = {
        .page = page, .window = window, .n_pages = {n_local, n_global}, .seed = 5, .watch = &watch};
    known.n = 0;
    cached_world_open(w, &o);
    memset(sequences, 0, sizeof sequences);
}

/* Token i of a text; texts that differ in `text` differ from position `common` on. */
static void write_ids(struct cached_sequence *s, int32_t n, int32_t common, int32_t text)
{
    s->n_ids = n;
    for (int32_t i = 0; i < n; i++) s->ids[i] = i < common ? i : 10000 * (text + 1) + i;
}

static void compute(struct cached_world *w, struct cached_sequence *s, int32_t anchor_every)
{
    while (s->n_done < s->n_ids) assert_true(cached_run(w, s, 1, anchor_every));
}

/* ---- Pools ------------------------------------------------------------------------------ */

static void pages_are_handed_out_once(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct page_pool pool;
    assert_int_equal(page_pool_init(&pool, &arena, 5, NULL), CARAT_OK);
    for (int32_t i = 1; i < 5; i++) assert_int_equal(page_take(&pool), i);
    assert_int_equal(page_take(&pool), 0);
    page_use(&pool, 2);
    page_keep(&pool, 2);
    page_leave(&pool, 2);
    assert_int_equal(pool.n_used, 4);
    page_leave(&pool, 2);
    assert_int_equal(pool.n_used, 3);
    assert_int_equal(pool.n_cached, 1);
    page_use(&pool, 2);
    page_drop(&pool, 2);
    assert_int_equal(pool.n_cached, 0);
    page_leave(&pool, 0);
    page_leave(&pool, 2);
    assert_int_equal(pool.n_free, 1);
    assert_int_equal(page_take(&pool), 2);
    arena_deinit(&arena);
}

static void a_pool_of_no_pages_gives_none(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct page_pool pool;
    assert_int_equal(page_pool_init(&pool, &arena, 1, NULL), CARAT_OK);
    assert_int_equal(page_take(&pool), 0);
    arena_deinit(&arena);
}

/* ---- Look-ups --------------------------------------------------------------------------- */

/* At least one token is left to compute, so a prompt of a whole block more is needed. */
static void the_last_token_is_always_computed(void **state)
{
    (void)state;
    struct cached_world w;
    open_world(&w, 4, 8, 40, 40);
    write_ids(&sequences[0], 16, 16, 0);
    assert_int_equal(cached_begin(&w, &sequences[0]).n_blocks, 0);
    compute(&w, &sequences[0], 1);
    for (int32_t n = 1; n <= 16; n++) {
        struct prefix_hit hit = prefix_find(w.cache, 0, sequences[0].ids, (size_t)n);
        assert_int_equal(hit.n_blocks, (n - 1) / 4);
        assert_int_equal(hit.n_matched, (n - 1) / 4);
    }
    assert_int_equal(prefix_find(w.cache, 0, sequences[0].ids, 0).n_blocks, 0);
    cached_end(&w, &sequences[0]);
    cached_check(&w, sequences, 1);
    cached_world_close(&w);
}

static void other_salts_see_nothing(void **state)
{
    (void)state;
    struct cached_world w;
    open_world(&w, 4, 8, 40, 40);
    for (int i = 0; i < 3; i++) {
        write_ids(&sequences[i], 18, 18, 0);
        sequences[i].salt = (uint64_t)i << 32;
        struct prefix_hit hit = cached_begin(&w, &sequences[i]);
        assert_int_equal(hit.n_blocks, 0);
        assert_int_equal(hit.n_matched, 0);
        compute(&w, &sequences[i], 1);
    }
    assert_int_equal(prefix_find(w.cache, sequences[1].salt, sequences[0].ids, 18).n_blocks, 4);
    assert_int_equal(prefix_find(w.cache, 77, sequences[0].ids, 18).n_matched, 0);
    cached_check(&w, sequences, 3);
    cached_world_close(&w);
}

/* The second prompt finds where the texts part, the third one resumes there. */
static void a_branch_point_is_found_and_kept(void **state)
{
    (void)state;
    struct cached_world w;
    open_world(&w, 4, 8, 60, 60);
    for (int i = 0; i < 3; i++) {
        write_ids(&sequences[i], 42, 22, i);
        struct prefix_hit hit = cached_begin(&w, &sequences[i]);
        assert_int_equal(hit.n_blocks, i < 2 ? 0 : 5);
        assert_int_equal(hit.n_matched, i < 1 ? 0 : 5);
        while (sequences[i].n_done < 42) {
            assert_true(cached_run(&w, &sequences[i], 1, 0));
            if (sequences[i].n_done == hit.n_matched * 4) cached_anchor(&w, &sequences[i]);
        }
        cached_anchor(&w, &sequences[i]);
        cached_end(&w, &sequences[i]);
        cached_check(&w, sequences, 3);
    }
    assert_int_equal(prefix_count(w.cache).duplicates, 5);
    cached_world_close(&w);
}

/* An anchor keeps what rows after it see: the window's pages, fewer at the start of a text. */
static void anchors_keep_a_window(void **state)
{
    (void)state;
    for (int32_t window = 0; window <= 13; window++) {
        struct cached_world w;
        open_world(&w, 4, window, 60, 60);
        write_ids(&sequences[0], 40, 40, 0);
        cached_begin(&w, &sequences[0]);
        compute(&w, &sequences[0], 1);
        for (int32_t n = 0; n <= 10; n++) {
            int32_t oldest = 4 * n - window + 1; /* the oldest position that row 4 n sees */
            int32_t first = window == 0 ? n : oldest < 0 ? 0 : oldest / 4;
            assert_int_equal(prefix_first_local(w.cache, n), first < n ? first : n);
        }
        cached_end(&w, &sequences[0]);
        assert_int_equal(prefix_pool(w.cache, KV_LOCAL)->n_cached, window > 1 ? 10 : 0);
        cached_check(&w, sequences, 1);
        cached_world_close(&w);
    }
}

/* ---- Eviction --------------------------------------------------------------------------- */

static void blocks_without_an_anchor_go_first_and_oldest_first(void **state)
{
    (void)state;
    struct cached_world w;
    open_world(&w, 4, 8, 100, 31);
    for (int i = 0; i < 3; i++) { /* 10 blocks each; the second one has an anchor */
        write_ids(&sequences[i], 41, 0, i);
        cached_begin(&w, &sequences[i]);
        sequences[i].n_ids = 40;
        compute(&w, &sequences[i], i == 1 ? 10 : 0);
        cached_end(&w, &sequences[i]);
    }
    assert_int_equal(prefix_pool(w.cache, KV_GLOBAL)->n_free, 0);
    assert_int_equal(prefix_available(w.cache, KV_GLOBAL), 30);
    const int32_t left[][3] = {{8, 10, 10}, {0, 10, 10}, {0, 10, 5}, {0, 10, 0}};
    const int32_t room[] = {2, 10, 15, 20};
    for (int at = 0; at < 4; at++) {
        assert_true(prefix_make_room(w.cache, KV_GLOBAL, room[at]));
        for (int i = 0; i < 3; i++)
            assert_int_equal(prefix_find(w.cache, 0, sequences[i].ids, 41).n_matched, left[at][i]);
        cached_check(&w, sequences, 3);
    }
    assert_int_equal(prefix_count(w.cache).evicted_anchors, 0);
    assert_false(prefix_make_room(w.cache, KV_GLOBAL, 31)); /* more than there is: nothing goes */
    assert_int_equal(prefix_find(w.cache, 0, sequences[1].ids, 41).n_blocks, 10);
    assert_true(prefix_make_room(w.cache, KV_GLOBAL, 30));
    assert_int_equal(prefix_count(w.cache).evicted_anchors, 1);
    cached_check(&w, sequences, 3);
    cached_world_close(&w);
}

static void what_a_sequence_uses_stays(void **state)
{
    (void)state;
    struct cached_world w;
    open_world(&w, 4, 8, 40, 21);
    write_ids(&sequences[0], 41, 0, 0);
    cached_begin(&w, &sequences[0]);
    compute(&w, &sequences[0], 2);
    cached_end(&w, &sequences[0]);
    assert_int_equal(cached_begin(&w, &sequences[0]).n_blocks, 10);
    assert_int_equal(prefix_available(w.cache, KV_GLOBAL), 10);
    assert_false(prefix_make_room(w.cache, KV_GLOBAL, 11));
    assert_true(prefix_make_room(w.cache, KV_GLOBAL, 10));
    int32_t n_local = prefix_available(w.cache, KV_LOCAL);
    assert_int_equal(n_local, 39 - 2);
    assert_true(prefix_make_room(w.cache, KV_LOCAL, n_local));
    cached_check(&w, sequences, 1);
    for (int32_t i = 0; i < 10; i++) assert_int_equal(sequences[0].pages[KV_GLOBAL][i] > 0, 1);
    compute(&w, &sequences[0], 0);
    cached_end(&w, &sequences[0]);
    cached_check(&w, sequences, 1);
    cached_world_close(&w);
}

/* Two anchors share all their pages that nobody uses: neither frees one alone. */
static void shared_pages_of_anchors_can_be_freed(void **state)
{
    (void)state;
    struct cached_world w;
    open_world(&w, 4, 20, 40, 60);
    write_ids(&sequences[0], 41, 40, 0);
    cached_begin(&w, &sequences[0]);
    compute(&w, &sequences[0], 1);
    cached_end(&w, &sequences[0]);
    for (int i = 0; i < 2; i++) {
        write_ids(&sequences[i], 60, 40, i);
        assert_int_equal(cached_begin(&w, &sequences[i]).n_blocks, 10);
        for (int row = 0; row < 4; row++) assert_true(cached_run(&w, &sequences[i], 1, 11));
    }
    int32_t n = prefix_available(w.cache, KV_LOCAL);
    assert_true(n > prefix_pool(w.cache, KV_LOCAL)->n_free);
    assert_true(prefix_make_room(w.cache, KV_LOCAL, n));
    assert_int_equal(prefix_pool(w.cache, KV_LOCAL)->n_cached, 0);
    cached_check(&w, sequences, 2);
    cached_world_close(&w);
}

static void the_same_blocks_have_the_same_names_again(void **state)
{
    (void)state;
    struct cached_world w;
    uint64_t names[10];
    open_world(&w, 4, 8, 60, 60);
    write_ids(&sequences[0], 41, 0, 0);
    for (int n = 0; n < 3; n++) {
        sequences[0].salt = n == 2;
        cached_begin(&w, &sequences[0]);
        compute(&w, &sequences[0], 0);
        cached_end(&w, &sequences[0]);
        assert_int_equal(known.n, 10);
        if (n == 0) memcpy(names, known.names, sizeof names);
        for (int i = 0; i < 10; i++) assert_int_equal(place_of(names[i]) >= 0, n < 2);
        prefix_flush(w.cache);
        assert_int_equal(known.n, 0);
    }
    cached_world_close(&w);
}

static void a_flush_leaves_nothing(void **state)
{
    (void)state;
    struct cached_world w;
    open_world(&w, 4, 8, 60, 60);
    for (int i = 0; i < 2; i++) {
        write_ids(&sequences[i], 40, 20, i);
        cached_begin(&w, &sequences[i]);
        compute(&w, &sequences[i], 3);
    }
    cached_end(&w, &sequences[1]);
    prefix_flush(w.cache);
    cached_check(&w, sequences, 2);
    assert_int_equal(prefix_count(w.cache).n_nodes, 10); /* of the sequence that is still there */
    assert_int_equal(prefix_find(w.cache, 0, sequences[0].ids, 40).n_blocks, 0);
    cached_end(&w, &sequences[0]);
    prefix_flush(w.cache);
    cached_check(&w, sequences, 2);
    for (int kind = 0; kind < KV_KINDS; kind++)
        assert_int_equal(prefix_pool(w.cache, (enum kv_kind)kind)->n_free, 59);
    cached_world_close(&w);
}

/* ---- A random workload ------------------------------------------------------------------ */

/* Whether the path down to a node is the first blocks of these ids. */
static bool is_path(const struct prefix_cache *c, int32_t node, uint64_t salt, const int32_t *ids)
{
    for (int32_t n = c->nodes[node].n_blocks; node; node = c->nodes[node].parent, n--)
        for (int32_t i = 0; i < c->page; i++)
            if (c->nodes[node].salt != salt || node_ids(c, node)[i] != ids[(n - 1) * c->page + i])
                return false;
    return true;
}

static struct prefix_hit naive_find(const struct prefix_cache *c, uint64_t salt, const int32_t *ids,
                                    int32_t n)
{
    struct prefix_hit hit = {0};
    for (int32_t node = 1; node < c->pools[KV_GLOBAL].n_pages; node++) {
        int32_t n_blocks = c->nodes[node].n_blocks;
        if (n_blocks == 0 || n_blocks > (n - 1) / c->page || !is_path(c, node, salt, ids)) continue;
        if (n_blocks > hit.n_matched) hit.n_matched = n_blocks;
        if (!c->nodes[node].anchor_at || n_blocks <= hit.n_blocks) continue;
        hit.n_blocks = n_blocks;
        hit.node = node;
    }
    return hit;
}

/* Texts are random paths through a tree: at each block one of two ways. */
static void draw_text(struct rng *rng, struct cached_sequence *s, int32_t page)
{
    s->n_ids = 1 + (int32_t)rng_below(rng, (uint32_t)(14 * page));
    s->salt = rng_below(rng, 3);
    int32_t way = 0;
    for (int32_t i = 0; i < s->n_ids; i++) {
        if (i % page == 0) way = rng_below(rng, 4) == 0;
        s->ids[i] = i == i / page * page + page - 1 ? way : 7; /* blocks differ in their last id */
    }
}

static void one_event(struct cached_world *w, struct rng *rng, int n_sequences)
{
    struct cached_sequence *s = &sequences[rng_below(rng, (uint32_t)n_sequences)];
    if (rng_below(rng, 2000) == 0) prefix_flush(w->cache);
    if (!s->is_open) {
        draw_text(rng, s, w->options.page);
        struct prefix_hit naive = naive_find(w->cache, s->salt, s->ids, s->n_ids);
        struct prefix_hit hit = cached_begin(w, s);
        assert_memory_equal(&hit, &naive, sizeof hit);
        return;
    }
    int32_t left = s->n_ids - s->n_done;
    if (left == 0 || rng_below(rng, 20) == 0) { /* done, or cancelled or preempted */
        if (rng_below(rng, 2)) cached_anchor(w, s);
        cached_end(w, s);
        return;
    }
    int32_t n_rows = 1 + (int32_t)rng_below(rng, (uint32_t)w->options.page * 3);
    if (!cached_run(w, s, n_rows < left ? n_rows : left, (int32_t)rng_below(rng, 4)))
        cached_end(w, s);
}

static void random_events_keep_everything_right(void **state)
{
    (void)state;
    static const struct {
        int32_t page, window, n_local, n_global, n_sequences;
    } cases[] = {
        {4, 8, 40, 60, 6}, {4, 9, 30, 30, 6}, {2, 7, 30, 200, 8}, {3, 1, 9, 40, 5},
        {4, 0, 40, 25, 4}, {1, 5, 60, 60, 8}, {4, 40, 90, 80, 6}, {8, 16, 400, 400, 16},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        struct cached_world w;
        struct rng rng = {100 + at};
        open_world(&w, cases[at].page, cases[at].window, cases[at].n_local, cases[at].n_global);
        for (int i = 0; i < 20000; i++) {
            assert_int_equal(known.n, prefix_count(w.cache).n_nodes);
            one_event(&w, &rng, cases[at].n_sequences);
            cached_check(&w, sequences, cases[at].n_sequences);
        }
        struct prefix_counts n = prefix_count(w.cache);
        printf("seed %d: %d nodes, %d anchors, %d hits of %d blocks, %d duplicates, evicted: %d "
               "blocks, %d anchors\n",
               (int)(100 + at), n.n_nodes, n.n_anchors, (int)n.hits, (int)n.hit_blocks,
               (int)n.duplicates, (int)n.evicted_blocks, (int)n.evicted_anchors);
        assert_true(n.hits > 100 && n.duplicates > 100 && n.evicted_anchors > 10);
        for (int i = 0; i < cases[at].n_sequences; i++) cached_end(&w, &sequences[i]);
        prefix_flush(w.cache);
        cached_check(&w, sequences, cases[at].n_sequences);
        for (int kind = 0; kind < KV_KINDS; kind++)
            assert_int_equal(prefix_pool(w.cache, (enum kv_kind)kind)->n_free,
                             w.options.n_pages[kind] - 1);
        cached_world_close(&w);
    }
}

/* ---- The check itself ------------------------------------------------------------------- */

static void expect_wrong(struct cached_world *w, int32_t *number, int32_t change)
{
    const struct prefix_cursor *cursor = &sequences[0].cursor;
    *number += change;
    assert_non_null(prefix_check(w->cache, &cursor, 1));
    *number -= change;
    assert_null(prefix_check(w->cache, &cursor, 1));
}

static void the_check_sees_each_wrong_number(void **state)
{
    (void)state;
    struct cached_world w;
    open_world(&w, 4, 8, 40, 40);
    for (int i = 0; i < 2; i++) {
        write_ids(&sequences[i], 30, 16, i);
        cached_begin(&w, &sequences[i]);
        compute(&w, &sequences[i], 2);
    }
    cached_end(&w, &sequences[1]);
    struct prefix_cache *c = w.cache;
    int32_t node = sequences[0].cursor.node, parent = c->nodes[node].parent;
    int32_t *numbers[] = {&c->counts.n_nodes,
                          &c->counts.n_pinned,
                          &c->counts.n_anchors,
                          &c->garbage.n,
                          &c->tips.n,
                          &c->anchors.n,
                          &c->nodes[node].n_pins,
                          &c->nodes[parent].n_children,
                          &c->nodes[node].n_blocks,
                          &c->ids[node * 4],
                          &c->nodes[parent].anchor_at};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) expect_wrong(&w, numbers[i], -1);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        struct page_pool *pool = prefix_pool(c, (enum kv_kind)kind);
        int32_t *counts[] = {&pool->n_free,
                             &pool->n_used,
                             &pool->n_cached,
                             &pool->holds[pool->free[0]].keepers,
                             &pool->holds[pool->free[0]].users,
                             &pool->holds[0].users,
                             &pool->holds[node].keepers,
                             &pool->free[0]};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            expect_wrong(&w, counts[i], i == 7 ? pool->free[1] - pool->free[0] : -1);
    }
    cached_end(&w, &sequences[0]);
    cached_world_close(&w);
}

/* ---- Size ------------------------------------------------------------------------------- */

static void the_bytes_are_known(void **state)
{
    (void)state;
    static const struct prefix_options all[] = {
        {.page = 64, .window = 512, .n_pages = {1000, 5000}},
        {.page = 32, .window = 0, .n_pages = {1, 1}},
        {.page = 64, .window = 1024, .n_pages = {20000, 100001}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct cached_world w;
        cached_world_open(&w, &all[i]);
        assert_in_range(w.arena.bytes, prefix_bytes(&all[i]), prefix_bytes(&all[i]) + 12 * 64);
        cached_world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_handed_out_once),
        cmocka_unit_test(a_pool_of_no_pages_gives_none),
        cmocka_unit_test(the_last_token_is_always_computed),
        cmocka_unit_test(other_salts_see_nothing),
        cmocka_unit_test(a_branch_point_is_found_and_kept),
        cmocka_unit_test(anchors_keep_a_window),
        cmocka_unit_test(blocks_without_an_anchor_go_first_and_oldest_first),
        cmocka_unit_test(what_a_sequence_uses_stays),
        cmocka_unit_test(shared_pages_of_anchors_can_be_freed),
        cmocka_unit_test(the_same_blocks_have_the_same_names_again),
        cmocka_unit_test(a_flush_leaves_nothing),
        cmocka_unit_test(random_events_keep_everything_right),
        cmocka_unit_test(the_check_sees_each_wrong_number),
        cmocka_unit_test(the_bytes_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
