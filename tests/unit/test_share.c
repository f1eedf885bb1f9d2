/* Which decode rows share pages: groups have equal leading pages, save as many as they can, and
 * nothing is grouped that is too small, too short, or nobody's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/share.h"

enum { ROWS_MAX = 24, SLOTS = 12 };

struct world {
    struct share share;
    int32_t table[ROWS_MAX * SLOTS], position[ROWS_MAX], sequence[ROWS_MAX];
    struct step step;
};

/* Rows of full sequences, each with pages of its own. */
static void world_init(struct world *w, int32_t rows)
{
    *w = (struct world){.step = {.n_token = rows, .n_decode = rows}};
    for (int32_t r = 0; r < rows; r++) {
        w->position[r] = SLOTS * KV_PAGE - 1;
        w->sequence[r] = rows - 1 - r; /* rows and sequences are counted differently */
        for (int32_t i = 0; i < SLOTS; i++) w->table[r * SLOTS + i] = 1 + r * SLOTS + i;
    }
    w->step.position = w->position;
    w->step.sequence = w->sequence;
}

static int32_t *pages(struct world *w, int32_t row)
{
    return w->table + w->sequence[row] * SLOTS;
}

/* Rows first .. end begin with `n` pages of row `of`. */
static void copy_pages(struct world *w, int32_t of, int32_t first, int32_t end, int32_t n)
{
    for (int32_t r = first; r < end; r++)
        memmove(pages(w, r), pages(w, of), (size_t)n * sizeof *w->table);
}

static bool find(struct world *w, int32_t rows, int32_t n_pages)
{
    return share_find(&w->share, w->table, SLOTS, &w->step,
                      (struct share_least){rows, n_pages * KV_PAGE});
}

static void assert_group(const struct world *w, int32_t first, int32_t end, int32_t leader,
                         int32_t n_pages)
{
    for (int32_t r = first; r < end; r++) {
        assert_int_equal(w->share.leader[r], leader < 0 ? r : leader);
        assert_int_equal(w->share.shared[r], n_pages * KV_PAGE);
    }
}

static void nothing_is_shared(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 8);
    assert_false(find(&w, 2, 1));
    copy_pages(&w, 0, 1, 4, 3);
    assert_true(find(&w, 4, 3));
    assert_group(&w, 0, 4, 0, 3);
    assert_group(&w, 4, 8, -1, 0);
    assert_false(find(&w, 5, 3)); /* too few rows */
    assert_false(find(&w, 4, 4)); /* too few pages */
    assert_false(find(&w, 0, 1)); /* off */
    w.step.n_decode = 3;
    assert_false(find(&w, 4, 1));
    w.step.n_decode = 0;
    assert_false(find(&w, 2, 1));
}

/* Pages that are not full belong to their row alone, and page 0 to nobody. */
static void only_full_pages_of_somebody(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 4);
    copy_pages(&w, 0, 1, 4, SLOTS);
    w.position[2] = 5 * KV_PAGE - 1; /* its fifth page is full */
    assert_true(find(&w, 4, 1));
    assert_group(&w, 0, 4, 0, 5);
    w.position[2] = 5 * KV_PAGE - 2;
    assert_true(find(&w, 4, 1));
    assert_group(&w, 0, 4, 0, 4);
    for (int32_t r = 0; r < 4; r++) pages(&w, r)[2] = 0;
    assert_true(find(&w, 4, 1));
    assert_group(&w, 0, 4, 0, 2);
    for (int32_t r = 0; r < 4; r++) pages(&w, r)[0] = 0;
    assert_false(find(&w, 4, 1));
}

/* Equal pages after a different one are not a prefix. */
static void later_pages_do_not_count(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 4);
    copy_pages(&w, 0, 1, 4, SLOTS);
    pages(&w, 1)[0] = 999;
    assert_true(find(&w, 3, 1));
    assert_group(&w, 0, 1, 0, SLOTS);
    assert_group(&w, 1, 2, -1, 0);
    assert_group(&w, 2, 4, 0, SLOTS);
}

/* Eight rows share 2 pages, four of these 10: one group of four saves more than one of eight, and
 * two groups of four more than either. */
static void deeper_groups_when_they_save_more(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 8);
    copy_pages(&w, 0, 1, 8, 2);
    copy_pages(&w, 0, 2, 5, 10); /* rows 0, 2, 3, 4 */
    assert_true(find(&w, 2, 1));
    assert_group(&w, 0, 1, 0, 10);
    assert_group(&w, 1, 2, -1, 0);
    assert_group(&w, 2, 5, 0, 10);
    assert_group(&w, 5, 8, -1, 0);
    copy_pages(&w, 0, 1, 8, 6); /* 7 times 6 pages are more than 3 times 10 */
    assert_true(find(&w, 2, 1));
    assert_group(&w, 0, 8, 0, 6);
    copy_pages(&w, 5, 6, 8, 11);
    copy_pages(&w, 5, 1, 2, 11); /* 3 times 10 and 3 times 11 */
    assert_true(find(&w, 2, 1));
    assert_group(&w, 0, 1, 0, 10);
    assert_group(&w, 1, 2, 1, 11);
    assert_group(&w, 2, 5, 0, 10);
    assert_group(&w, 5, 8, 1, 11);
}

static int32_t common(struct world *w, int32_t a, int32_t b)
{
    int32_t n = 0;
    while (n < (w->position[a] + 1) / KV_PAGE && n < (w->position[b] + 1) / KV_PAGE &&
           pages(w, a)[n] == pages(w, b)[n])
        n++;
    return n;
}

/* Pages saved by the best single group: of some row's first n pages. */
static int64_t best_group(struct world *w, int32_t rows_least)
{
    int64_t best = 0;
    for (int32_t r = 0; r < w->step.n_decode; r++)
        for (int32_t n = 1; n <= (w->position[r] + 1) / KV_PAGE; n++) {
            int32_t rows = 0;
            for (int32_t q = 0; q < w->step.n_decode; q++) rows += common(w, r, q) >= n;
            int64_t saved = (int64_t)(rows - 1) * n;
            if (rows >= rows_least && saved > best) best = saved;
        }
    return best;
}

static void check_random(struct world *w, int32_t rows_least)
{
    int64_t saved = 0, best = best_group(w, rows_least);
    bool is_found = find(w, rows_least, 1);
    assert_int_equal(is_found, best > 0);
    if (!is_found) return;
    for (int32_t r = 0; r < w->step.n_decode; r++) {
        int32_t leader = w->share.leader[r], n = w->share.shared[r] / KV_PAGE, rows = 0;
        assert_in_range(leader, 0, r);
        assert_int_equal(w->share.leader[leader], leader);
        assert_int_equal(w->share.shared[leader], w->share.shared[r]);
        assert_true(common(w, leader, r) >= n);
        for (int32_t q = 0; q < w->step.n_decode; q++) rows += w->share.leader[q] == leader;
        assert_true(n == 0 ? rows == 1 : rows >= rows_least);
        if (leader != r) saved += n;
    }
    assert_true(saved >= best);
}

static void random_trees(void **state)
{
    (void)state;
    struct rng rng = {71};
    for (int32_t i = 0; i < 3000; i++) {
        struct world w;
        int32_t rows = 1 + (int32_t)rng_below(&rng, ROWS_MAX);
        world_init(&w, rows);
        for (int32_t e = 0; e < rows; e++) {
            int32_t of = (int32_t)rng_below(&rng, (uint32_t)rows);
            int32_t to = (int32_t)rng_below(&rng, (uint32_t)rows);
            copy_pages(&w, of, to, to + 1, (int32_t)rng_below(&rng, SLOTS + 1));
            w.position[to] = (int32_t)rng_below(&rng, SLOTS * KV_PAGE);
        }
        check_random(&w, 2 + (int32_t)rng_below(&rng, 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_shared),
        cmocka_unit_test(only_full_pages_of_somebody),
        cmocka_unit_test(later_pages_do_not_count),
        cmocka_unit_test(deeper_groups_when_they_save_more),
        cmocka_unit_test(random_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
