/* What is guessed of an answer's next tokens, and how much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/draft.h"

enum { IDS = 400000, MOST = 7 };

static int32_t ids[IDS];

/* Takes `n` given ids, and checks the guesses. */
static void check(const int32_t *given, int32_t n, int32_t most, const int32_t *expected,
                  int32_t n_expected)
{
    memcpy(ids, given, (size_t)n * sizeof *ids);
    int32_t same;
    ids[n + most] = -7;
    assert_int_equal(draft_find(ids, n, most, &same), n_expected);
    assert_memory_equal(ids, given, (size_t)n * sizeof *ids);
    assert_memory_equal(ids + n, expected, (size_t)n_expected * sizeof *ids);
    assert_int_equal(ids[n + most], -7);
}
#define CHECK(most, given, expected)                                                               \
    check(given, sizeof(given) / sizeof *(given), most, expected,                                  \
          sizeof(expected) / sizeof *(expected))

static void what_followed_the_same_two_ids_is_guessed(void **state)
{
    (void)state;
    CHECK(3, ((int32_t[]){1, 2, 3, 4, 5, 6, 9, 1, 2}), ((int32_t[]){3, 4, 5}));
    CHECK(1, ((int32_t[]){1, 2, 3, 4, 5, 6, 9, 1, 2}), ((int32_t[]){3}));
}

static void a_longer_match_counts_more_than_a_later_one(void **state)
{
    (void)state;
    CHECK(2, ((int32_t[]){5, 1, 2, 7, 7, 1, 2, 8, 8, 5, 1, 2}), ((int32_t[]){7, 7}));
}

static void of_equal_matches_the_last_counts(void **state)
{
    (void)state;
    CHECK(2, ((int32_t[]){1, 2, 7, 7, 4, 1, 2, 8, 8, 5, 1, 2}), ((int32_t[]){8, 8}));
}

static void a_repetition_goes_on(void **state)
{
    (void)state;
    CHECK(7, ((int32_t[]){4, 1, 2, 3, 1, 2, 3}), ((int32_t[]){1, 2, 3, 1, 2, 3, 1}));
    CHECK(7, ((int32_t[]){4, 4, 4}), ((int32_t[]){4, 4, 4, 4, 4, 4, 4}));
}

static void without_a_match_nothing_is_guessed(void **state)
{
    (void)state;
    static const int32_t several[] = {1, 2, 3, 4, 2}, one[] = {1}, two[] = {1, 1};
    check(several, 5, MOST, NULL, 0); /* one equal id is not enough */
    check(one, 1, MOST, NULL, 0);
    check(two, 2, MOST, NULL, 0);
}

/* Against a search that compares everything. */
static void guesses_follow_the_longest_match(void **state)
{
    (void)state;
    struct rng rng = {.state = 20261128};
    print_message("seed 20261128\n");
    for (int round = 0; round < 3000; round++) {
        int32_t n = 1 + (int32_t)rng_below(&rng, 60), longest = 1, from = 0, same;
        uint32_t n_ids = 1 + rng_below(&rng, 4);
        for (int32_t i = 0; i < n; i++) ids[i] = (int32_t)rng_below(&rng, n_ids);
        for (int32_t end = 1; end < n; end++) {
            int32_t equal = 0;
            while (equal < end && equal < 16 && ids[end - 1 - equal] == ids[n - 1 - equal]) equal++;
            if (equal < longest || equal < 2) continue;
            longest = equal;
            from = end;
        }
        int32_t found = draft_find(ids, n, MOST, &same);
        assert_int_equal(found, from > 0 ? MOST : 0);
        if (from > 0) assert_int_equal(same, longest);
        for (int32_t i = 0; i < found; i++) assert_int_equal(ids[n + i], ids[from + i]);
    }
}

static void only_the_newest_ids_are_searched(void **state)
{
    (void)state;
    for (int32_t i = 0; i < IDS - MOST; i++) ids[i] = 1000 + i;
    int32_t n = IDS - MOST, same;
    ids[0] = ids[n - 2], ids[1] = ids[n - 1];
    assert_int_equal(draft_find(ids, n, MOST, &same), 0);
    ids[n - 5000] = ids[n - 2], ids[n - 4999] = ids[n - 1];
    assert_int_equal(draft_find(ids, n, MOST, &same), MOST);
    assert_int_equal(ids[n], ids[n - 4998]);
}

/* How many of the guesses after `same` equal ids are taken at this cost. */
static int32_t count_taken(struct draft *d, int32_t same, double cost)
{
    double times[MOST + 1];
    for (int32_t i = 0; i <= MOST; i++) times[i] = 1 + cost * i;
    draft_take(d, MOST, same, times);
    return d->n;
}

/* All rows that are computed anyway are used, and a jump in time is taken whole or not at all. */
static void guesses_fill_the_rows_that_are_computed(void **state)
{
    (void)state;
    static const double times[MOST + 1] = {1, 1.06, 1.14, 1.14, 1.37, 1.37, 1.37, 1.37};
    struct draft d;
    for (int32_t same = 2; same <= 16; same *= 2) {
        draft_init(&d);
        draft_take(&d, MOST, same, times);
        assert_true(d.n == 3 || d.n == 7);
        assert_true(d.n == 7 || same < 8);
    }
}

static void more_is_guessed_after_a_longer_match_and_where_rows_are_cheap(void **state)
{
    (void)state;
    struct draft d;
    draft_init(&d);
    for (int32_t same = 2; same < 16; same *= 2)
        assert_true(count_taken(&d, same, 0.1) <= count_taken(&d, 2 * same, 0.1));
    assert_true(count_taken(&d, 2, 0.3) < count_taken(&d, 2, 0.03));
    assert_int_equal(count_taken(&d, 16, 0.01), MOST);
    assert_int_equal(count_taken(&d, 2, 0.5), 0);
    assert_int_equal(count_taken(&d, 16, 1), 0); /* the cost is not known */
}

static void what_was_right_is_guessed_more_and_what_was_wrong_less(void **state)
{
    (void)state;
    struct draft d;
    draft_init(&d);
    int32_t before = count_taken(&d, 3, 0.1);
    draft_note(&d, d.n);
    int32_t after = count_taken(&d, 3, 0.1);
    assert_true(after > before);
    int32_t tries = 0;
    while (count_taken(&d, 3, 0.1) > 0 && tries++ < 30) draft_note(&d, 0);
    assert_in_range(tries, 3, 20);
    assert_int_equal(count_taken(&d, 10, 0.01), MOST); /* other kinds are as before */
}

static void what_does_not_pay_is_tried_again_later(void **state)
{
    (void)state;
    struct draft d;
    draft_init(&d);
    while (count_taken(&d, 2, 0.2) > 0) draft_note(&d, 0);
    int32_t steps = 0;
    while (count_taken(&d, 2, 0.2) == 0 && steps < 1000) steps++;
    assert_in_range(steps, 1, 100);
    for (int32_t i = 0; i < 5000; i++) assert_int_equal(count_taken(&d, 2, 1), 0);
}

static void without_guesses_nothing_is_learned(void **state)
{
    (void)state;
    struct draft d, same;
    draft_init(&d);
    same = d;
    draft_note(&d, 0);
    assert_memory_equal(&d, &same, sizeof d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_the_same_two_ids_is_guessed),
        cmocka_unit_test(a_longer_match_counts_more_than_a_later_one),
        cmocka_unit_test(of_equal_matches_the_last_counts),
        cmocka_unit_test(a_repetition_goes_on),
        cmocka_unit_test(without_a_match_nothing_is_guessed),
        cmocka_unit_test(guesses_follow_the_longest_match),
        cmocka_unit_test(only_the_newest_ids_are_searched),
        cmocka_unit_test(guesses_fill_the_rows_that_are_computed),
        cmocka_unit_test(more_is_guessed_after_a_longer_match_and_where_rows_are_cheap),
        cmocka_unit_test(what_was_right_is_guessed_more_and_what_was_wrong_less),
        cmocka_unit_test(what_does_not_pay_is_tried_again_later),
        cmocka_unit_test(without_guesses_nothing_is_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
