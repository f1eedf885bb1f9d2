/* Which rows are in a cache of a few slots, what a step may rely on, and how many copies it
 * takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/row_cache.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SEED = 4, SLOTS = 8, IDS = 50 };

static struct row_cache cache;

static int set_up(void **state)
{
    (void)state;
    struct carat_error err = {0};
    return row_cache_init(&cache, SLOTS, IDS, &err);
}

static int tear_down(void **state)
{
    (void)state;
    row_cache_deinit(&cache);
    return mem_blocks_live() ? -1 : 0;
}

static bool get(int32_t id, int32_t *slot)
{
    bool is_there = row_cache_get(&cache, id, slot);
    assert_in_range(*slot, 0, cache.n_slots - 1);
    return is_there;
}

static void expect(int32_t id, bool is_there)
{
    int32_t slot;
    if (get(id, &slot) != is_there) fail_msg("id %d is %sthere", id, is_there ? "not " : "");
}

static void a_row_keeps_its_slot(void **state)
{
    (void)state;
    int32_t first, again, other;
    assert_false(get(7, &first));
    assert_false(get(0, &other));
    assert_int_not_equal(first, other);
    for (int i = 0; i < 3; i++) {
        assert_true(get(7, &again));
        assert_int_equal(again, first);
    }
    assert_false(get(IDS - 1, &other));
}

static void rounds(int n)
{
    for (int i = 0; i < n; i++) row_cache_begin(&cache);
}

static void a_row_that_is_asked_for_again_outlives_others(void **state)
{
    (void)state;
    for (int32_t id = 0; id < SLOTS; id++) expect(id, false);
    rounds(2);
    expect(3, true);
    rounds(2);
    for (int32_t id = 20; id < 23; id++) expect(id, false); /* instead of 0, 1, 2 */
    expect(23, false);                                      /* of 4 */
    expect(3, true);
    expect(5, true);
    expect(0, false); /* of 6 */
    for (int32_t id = 20; id < 24; id++) expect(id, true);
}

/* If a step asks for a row again in the round after it was brought, that is not a second use. */
static void rows_that_were_brought_for_the_next_step_are_used_once(void **state)
{
    (void)state;
    for (int32_t id = 0; id < SLOTS / 2; id++) expect(id, false);
    rounds(1);
    for (int32_t id = 0; id < SLOTS / 2; id++) expect(id, true);
    rounds(2);
    for (int32_t id = 10; id < 10 + SLOTS / 2; id++) expect(id, false); /* the free ones */
    rounds(2);
    expect(30, false);
    expect(0, false); /* the four get no second chance */
}

static void ids_at_work_have_slots_of_their_own(void **state)
{
    (void)state;
    struct rng rng = {.state = SEED};
    for (int i = 0; i < 5000; i++) {
        int32_t slot;
        if (i % 3 == 0) row_cache_begin(&cache);
        get((int32_t)rng_below(&rng, IDS), &slot);
        bool is_taken[SLOTS] = {false};
        for (int32_t id = 0; id < IDS; id++) {
            int32_t at = cache.slot_of[id];
            if (at < 0) continue;
            assert_int_equal(cache.slots[at].id, id);
            assert_false(is_taken[at]);
            is_taken[at] = true;
        }
    }
}

/* Half as many rows as slots, some of them twice, then the same for the next step: neither
 * evicts rows of the other. */
static void a_step_and_the_next_are_there_together(void **state)
{
    (void)state;
    struct rng rng = {.state = SEED + 2};
    int32_t ids[2][SLOTS / 2], slots[2][SLOTS / 2];
    for (int step = 0; step < 2000; step++) {
        row_cache_begin(&cache);
        for (int i = 0; i < SLOTS / 2; i++) {
            ids[step % 2][i] = (int32_t)rng_below(&rng, IDS);
            get(ids[step % 2][i], &slots[step % 2][i]);
        }
        for (int k = 0; k < 2 && step > 0; k++)
            for (int i = 0; i < SLOTS / 2; i++)
                assert_int_equal(cache.slot_of[ids[k][i]], slots[k][i]);
    }
}

static void with_a_slot_for_each_id_nothing_gives_way(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct row_cache all;
    int32_t slot;
    assert_int_equal(row_cache_init(&all, 1000, IDS, &err), CARAT_OK);
    assert_int_equal(all.n_slots, IDS);
    for (int i = 0; i < 3; i++)
        for (int32_t id = 0; id < IDS; id++) {
            assert_int_equal(row_cache_get(&all, id, &slot), i > 0);
            assert_int_equal(slot, id);
        }
    row_cache_deinit(&all);
}

enum { MANY_SLOTS = 400, MANY_IDS = 5000 };

/* Many rounds of half the slots. Their rows are not there, except some that come twice. By age
 * alone, slots would be scattered by then. */
static void rows_of_a_round_lie_side_by_side(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct row_cache many;
    struct rng rng = {.state = SEED + 3};
    int32_t next = 0;
    assert_int_equal(row_cache_init(&many, MANY_SLOTS, MANY_IDS, &err), CARAT_OK);
    for (int round = 0; round < 1000; round++) {
        int32_t before = -2, slot, n_stretches = 0;
        row_cache_begin(&many);
        for (int i = 0; i < MANY_SLOTS / 2; i++) {
            bool is_twice = i > 0 && rng_below(&rng, 60) == 0;
            if (!is_twice) next = (next + 1) % MANY_IDS;
            bool is_there = row_cache_get(&many, next, &slot);
            assert_int_equal(is_there, is_twice);
            if (!is_there && slot != before + 1) n_stretches++;
            if (!is_there) before = slot;
        }
        assert_in_range(n_stretches, 1, 25);
    }
    row_cache_deinit(&many);
}

/* Ids as texts have them: a few ids most of the time. Not many more rows are brought than if the
 * least recently used ones were evicted. */
static void it_keeps_nearly_what_was_used_last(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct row_cache many;
    struct rng rng = {.state = SEED + 4};
    static int32_t list[MANY_SLOTS];
    int32_t n = 0, n_brought = 0, n_least = 0, slot;
    assert_int_equal(row_cache_init(&many, MANY_SLOTS, MANY_IDS, &err), CARAT_OK);
    for (int i = 0; i < 50000; i++) {
        uint32_t most = 1 + rng_below(&rng, MANY_IDS), at = 0;
        int32_t id = (int32_t)rng_below(&rng, 1 + rng_below(&rng, most));
        if (i % 20 == 0) row_cache_begin(&many);
        if (!row_cache_get(&many, id, &slot)) n_brought++;
        while (at < (uint32_t)n && list[at] != id) at++;
        if (at == (uint32_t)n) n_least++;
        if (at == (uint32_t)n && n < MANY_SLOTS) n++;
        if (at == MANY_SLOTS) at--;
        memmove(list + 1, list, at * sizeof *list);
        list[0] = id;
    }
    print_message("%d brought, %d by age\n", n_brought, n_least);
    assert_in_range(n_brought, 1000, n_least + n_least / 10);
    row_cache_deinit(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_row_keeps_its_slot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_row_that_is_asked_for_again_outlives_others, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(rows_that_were_brought_for_the_next_step_are_used_once,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(ids_at_work_have_slots_of_their_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_and_the_next_are_there_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(with_a_slot_for_each_id_nothing_gives_way, set_up,
                                        tear_down),
        cmocka_unit_test(rows_of_a_round_lie_side_by_side),
        cmocka_unit_test(it_keeps_nearly_what_was_used_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
