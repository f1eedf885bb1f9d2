/* What the prefix cache keeps when there is not room for all: chats that take turns, one-off
 * prompts between them, and how long choosing takes in a large cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/cached.h"
#include "support/cost.h"

/* A block has 4 tokens here. Shapes in blocks are those of 8,192 tokens before a window of 1,024
 * with pages of 64. */
enum {
    PAGE = 4,
    WINDOW_BLOCKS = 16,
    CHATS = 16,
    FIRST = 128,
    LONGEST = 148,
    ROUNDS = 10,
    SEEDS = 5
};

static struct cached_sequence chats[CHATS + 1];

static void add_ids(struct cached_sequence *s, int32_t n, int32_t *next)
{
    for (int32_t i = 0; i < n; i++) s->ids[s->n_ids++] = (*next)++;
}

/* A turn: a prompt with anchors at its end and where the last answer ended, then an answer with one
 * at its end. Returns the tokens that came from the cache. */
static int32_t take_turn(struct cached_world *w, struct cached_sequence *s, int32_t n_prompt,
                         int32_t n_answer, int32_t *next)
{
    int32_t n_before = s->n_ids;
    add_ids(s, n_prompt, next);
    cached_begin(w, s);
    int32_t n_found = s->n_done;
    const int32_t stops[] = {n_before, s->n_ids, s->n_ids + n_answer};
    add_ids(s, n_answer, next);
    for (int i = 0; i < 3; i++) {
        int32_t n = stops[i] - s->n_done;
        if (n > 0) assert_true(cached_run(w, s, n, 0));
        cached_anchor(w, s);
    }
    cached_end(w, s);
    return n_found;
}

/* Chats of equal size, one turn each after the other. Returns the share of the reusable tokens that
 * was reused, in percent. */
static double reuse(const struct prefix_options *options)
{
    struct cached_world w;
    int32_t next = 0;
    double reused = 0, reusable = 0;
    cached_world_open(&w, options);
    memset(chats, 0, sizeof chats);
    for (int i = 0; i < CHATS; i++) take_turn(&w, &chats[i], (FIRST - 4) * PAGE, 4 * PAGE, &next);
    for (int turn = 0; turn < ROUNDS * CHATS; turn++) {
        struct cached_sequence *s = &chats[turn % CHATS];
        if (s->n_ids >= LONGEST * PAGE) s->n_ids = FIRST * PAGE; /* goes back to an early turn */
        reusable += s->n_ids / PAGE * PAGE;
        reused += take_turn(&w, s, PAGE + 1, PAGE - 1, &next);
    }
    cached_check(&w, chats, CHATS);
    cached_world_close(&w);
    return 100 * reused / reusable;
}

static struct prefix_options budget(double share, uint64_t seed)
{
    /* Local pages for two anchors a chat, and what one that runs needs at most. */
    int32_t n_local = (int32_t)(share * CHATS * 2 * WINDOW_BLOCKS) + LONGEST + 1;
    int32_t n_global = (int32_t)(share * CHATS * LONGEST) + 1;
    return (struct prefix_options){
        .page = PAGE, .window = WINDOW_BLOCKS * PAGE, .n_pages = {n_local, n_global}, .seed = seed};
}

static void chats_in_turns_have_no_cliff(void **state)
{
    (void)state;
    double least_all = 100;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct prefix_options all = budget(1, seed), two_thirds = budget(2 / 3., seed);
        double whole = reuse(&all), part = reuse(&two_thirds);
        printf(
            "seed %d: of the reusable tokens %.1f %% with room for all, %.1f %% for two thirds\n",
            (int)seed, whole, part);
        if (whole < least_all) least_all = whole;
        assert_true(part >= 25);
    }
    assert_true(least_all >= 95);
}

/* Two chats go on while prompts that never come again pass through a cache four times smaller than
 * all of them. */
static void prompts_that_never_come_again_do_not_take_all(void **state)
{
    (void)state;
    struct prefix_options options = budget(0.4, 3);
    struct cached_world w;
    int32_t next = 0;
    double reused = 0, reusable = 0;
    cached_world_open(&w, &options);
    memset(chats, 0, sizeof chats);
    for (int turn = 0; turn < 200; turn++) {
        struct cached_sequence *s = &chats[turn % 5 ? CHATS : turn % 2];
        if (turn % 5) s->n_ids = 0;
        if (s->n_ids >= LONGEST * PAGE) s->n_ids = FIRST * PAGE;
        reusable += turn % 5 ? 0 : s->n_ids / PAGE * PAGE;
        reused += take_turn(&w, s, s->n_ids ? PAGE + 1 : 90 * PAGE, PAGE - 1, &next);
    }
    printf("seed 3: %.1f %% of the reusable tokens\n", 100 * reused / reusable);
    assert_true(reused > 0.25 * reusable);
    cached_check(&w, chats, CHATS + 1);
    cached_world_close(&w);
}

/* A text that is never read again must go at last, even if much computing would be lost with it. */
static void nothing_stays_for_ever(void **state)
{
    (void)state;
    struct prefix_options options = budget(0.4, 4);
    struct cached_world w;
    int32_t next = 0;
    cached_world_open(&w, &options);
    memset(chats, 0, sizeof chats);
    take_turn(&w, &chats[0], 100 * PAGE, PAGE, &next);
    take_turn(&w, &chats[0], 10 * PAGE, PAGE, &next);
    int turn = 0;
    for (; prefix_find(w.cache, 0, chats[0].ids, (size_t)chats[0].n_ids).n_blocks > 0; turn++) {
        chats[1].n_ids = 0;
        take_turn(&w, &chats[1], 20 * PAGE, PAGE, &next);
        assert_true(turn < 2000);
    }
    printf("seed 4: gone after %d other prompts\n", turn);
    cached_world_close(&w);
}

/* Anchors at every block of a cache of 100,000 pages; then everything is replaced page by page. A
 * page must take about as long as in a cache of 10,000. */
static double replace_all(int32_t n_pages)
{
    struct prefix_options options = {
        .page = 1, .window = 16, .n_pages = {n_pages, n_pages}, .seed = 6};
    struct cached_world w;
    int32_t page, first = 0;
    cached_world_open(&w, &options);
    struct prefix_hit none = {0};
    static int32_t local[100001];
    for (int32_t at = 0; at < n_pages - 1; at++) { /* texts of 1,000 blocks */
        struct prefix_cursor cursor;
        static struct prefix_cursor last;
        if (at % 1000 == 0) {
            prefix_take(w.cache, &none, 0, &cursor, NULL, NULL);
            first = at;
            last = cursor;
        }
        local[at] = prefix_take_page(w.cache, KV_LOCAL);
        page = prefix_take_page(w.cache, KV_GLOBAL);
        prefix_publish(w.cache, &last, &at, page);
        prefix_anchor(w.cache, &last, local + first + prefix_first_local(w.cache, last.n_blocks));
        page_leave(prefix_pool(w.cache, KV_GLOBAL), page);
        if (at % 1000 == 999 || at == n_pages - 2) {
            for (int32_t i = first; i <= at; i++)
                page_leave(prefix_pool(w.cache, KV_LOCAL), local[i]);
            prefix_leave(w.cache, &last);
        }
    }
    double start = cost_cpu_seconds();
    for (int32_t n = 1; n < n_pages; n++)
        for (int kind = 0; kind < KV_KINDS; kind++)
            assert_true(prefix_make_room(w.cache, (enum kv_kind)kind, n));
    double seconds = cost_cpu_seconds() - start;
    assert_int_equal(prefix_count(w.cache).n_nodes, 0);
    cached_world_close(&w);
    return seconds / n_pages;
}

static void eviction_takes_no_longer_in_a_large_cache(void **state)
{
    (void)state;
    double small = replace_all(10001), large = replace_all(100001);
    printf("a page goes in %.2f us of 10,000, in %.2f us of 100,000\n", small * 1e6, large * 1e6);
    assert_true(large < 10 * small + 20e-6); /* searching all would take 100 times as long */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chats_in_turns_have_no_cliff),
        cmocka_unit_test(prompts_that_never_come_again_do_not_take_all),
        cmocka_unit_test(nothing_stays_for_ever),
        cmocka_unit_test(eviction_takes_no_longer_in_a_large_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
