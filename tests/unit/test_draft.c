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
static struct draft_chances chances;

/* Takes `n` given ids, and checks the guesses. */
static void check(const int32_t *given, int32_t n, int32_t most, const int32_t *expected,
                  int32_t n_expected)
{
    memcpy(ids, given, (size_t)n * sizeof *ids);
    struct draft d;
    ids[n + most] = -7;
    draft_find(&d, ids, n, most);
    assert_int_equal(d.found, n_expected);
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
        struct draft d;
        int32_t n = 1 + (int32_t)rng_below(&rng, 60), longest = 1, from = 0;
        uint32_t n_ids = 1 + rng_below(&rng, 4);
        for (int32_t i = 0; i < n; i++) ids[i] = (int32_t)rng_below(&rng, n_ids);
        for (int32_t end = 1; end < n; end++) {
            int32_t equal = 0;
            while (equal < end && equal < 16 && ids[end - 1 - equal] == ids[n - 1 - equal]) equal++;
            if (equal < longest || equal < 2) continue;
            longest = equal;
            from = end;
        }
        draft_find(&d, ids, n, MOST);
        assert_int_equal(d.found, from > 0 ? MOST : 0);
        for (int32_t i = 0; i < d.found; i++) assert_int_equal(ids[n + i], ids[from + i]);
    }
}

static void only_the_newest_ids_are_searched(void **state)
{
    (void)state;
    for (int32_t i = 0; i < IDS - MOST; i++) ids[i] = 1000 + i;
    struct draft d;
    int32_t n = IDS - MOST;
    ids[0] = ids[n - 2], ids[1] = ids[n - 1];
    draft_find(&d, ids, n, MOST);
    assert_int_equal(d.found, 0);
    ids[n - 5000] = ids[n - 2], ids[n - 4999] = ids[n - 1];
    draft_find(&d, ids, n, MOST);
    assert_int_equal(d.found, MOST);
    assert_int_equal(ids[n], ids[n - 4998]);
}

/* A first sequence. */
static void begin(struct draft *d)
{
    draft_begin(&chances);
    draft_init(d, &chances);
}

/* The last `same` ids were there before. */
static void find_after(struct draft *d, int32_t same)
{
    int32_t n = 0;
    ids[n++] = 1;
    for (int32_t i = 0; i < same; i++) ids[n++] = 100 + i;
    for (int32_t i = 0; i < MOST; i++) ids[n++] = 200 + i;
    ids[n++] = 2;
    for (int32_t i = 0; i < same; i++) ids[n++] = 100 + i;
    draft_find(d, ids, n, MOST);
    assert_int_equal(d->found, MOST);
}

/* How many of the guesses after `same` equal ids are taken where each takes `cost` of a step. */
static int32_t count_taken(struct draft *d, int32_t same, double cost)
{
    double times[MOST + 1];
    for (int32_t i = 0; i <= MOST; i++) times[i] = 1 + cost * i;
    find_after(d, same);
    draft_share(&d, 1, 1, times, MOST);
    return d->n;
}

/* All rows that are computed anyway are used, and a jump in time is taken whole or not at all. */
static void guesses_fill_the_rows_that_are_computed(void **state)
{
    (void)state;
    static const double times[MOST + 1] = {1, 1.06, 1.14, 1.14, 1.37, 1.37, 1.37, 1.37};
    struct draft d;
    for (int32_t same = 2; same <= 16; same *= 2) {
        struct draft *one = &d;
        begin(&d);
        find_after(&d, same);
        draft_share(&one, 1, 1, times, MOST);
        assert_true(d.n == 3 || d.n == 7);
        assert_true(d.n == 7 || same < 8);
    }
}

/* Rows of one sequence that guesses fill the step's bucket only if those of all together pay. */
static void sequences_share_what_a_step_can_take(void **state)
{
    (void)state;
    enum { N = 4 };
    static const double times[N + 1] = {1, 1.2, 1.2, 1.2, 1.2}; /* four rows become eight */
    struct draft all[N], *found[N];
    for (int32_t i = 0; i < N; i++) {
        found[i] = &all[i];
        begin(&all[i]);
        find_after(&all[i], i == 0 ? 12 : 2);
    }
    draft_share(found, 1, N, times, N); /* four at 0.9 and less, for a fifth of four tokens */
    assert_int_equal(all[0].n, N);
    draft_share(found + 1, 1, N, times, N); /* at 0.4 they do not pay, */
    assert_int_equal(all[1].n, 0);
    draft_share(found + 1, N - 1, N, times, N); /* but three together do */
    assert_true(all[1].n > 0 && all[2].n > 0 && all[3].n > 0);
    assert_int_equal(all[1].n + all[2].n + all[3].n, N);
    draft_share(found, N, N, times, N); /* the likeliest come first */
    assert_int_equal(all[0].n, N);
    draft_share(found, N, N, times, 0);
    for (int32_t i = 0; i < N; i++) assert_int_equal(all[i].n, 0);
}

static void more_is_guessed_after_a_longer_match_and_where_rows_are_cheap(void **state)
{
    (void)state;
    struct draft d;
    begin(&d);
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
    begin(&d);
    int32_t before = count_taken(&d, 3, 0.1);
    draft_note(&d, &chances, d.n + 1);
    int32_t after = count_taken(&d, 3, 0.1);
    assert_true(after > before);
    int32_t tries = 0;
    while (count_taken(&d, 3, 0.1) > 0 && tries++ < 30) draft_note(&d, &chances, 0);
    assert_in_range(tries, 3, 20);
    assert_int_equal(count_taken(&d, 10, 0.01), MOST); /* other kinds are as before */
}

static void what_does_not_pay_is_tried_again_later(void **state)
{
    (void)state;
    struct draft d;
    begin(&d);
    while (count_taken(&d, 2, 0.2) > 0) draft_note(&d, &chances, 0);
    int32_t steps = 0;
    while (count_taken(&d, 2, 0.2) == 0 && steps < 1000) steps++;
    assert_in_range(steps, 1, 100);
    for (int32_t i = 0; i < 5000; i++) assert_int_equal(count_taken(&d, 2, 1), 0);
}

static void what_many_have_learned_is_where_others_begin(void **state)
{
    (void)state;
    struct draft d, next;
    begin(&d);
    for (int i = 0; i < 40; i++) {
        draft_init(&next, &chances);
        if (count_taken(&next, 2, 0.1) == 0) break;
        assert_true(next.chances.of[0] <= d.chances.of[0]);
        d = next;
        draft_note(&next, &chances, 0); /* each sequence guesses once, wrongly */
        draft_note(&next, &chances, 0);
    }
    draft_init(&next, &chances);
    assert_int_equal(count_taken(&next, 2, 0.3), 0);
    assert_int_equal(count_taken(&next, 12, 0.1), MOST);
}

/* ---- A drafter -------------------------------------------------------------------------- */

/* Whether another pass pays for one sequence, whose drafter has given `n` guesses that lead by so
 * much. */
static bool one_more_pays(struct draft *d, int32_t n, float lead, double row_cost, double pass)
{
    double times[MOST + 1];
    struct draft *one = d;
    d->found = 0;
    for (int32_t i = 0; i < n; i++) draft_add(d, ids, 100, 7, lead);
    for (int32_t i = 0; i <= MOST; i++) times[i] = 1 + row_cost * i + pass * n;
    return draft_pays(&one, 1, 1, times, MOST, pass);
}

static void passes_of_a_drafter_go_on_as_long_as_they_pay(void **state)
{
    (void)state;
    struct draft d;
    begin(&d);
    assert_true(one_more_pays(&d, 0, 0, 0.05, 0.1));
    assert_false(one_more_pays(&d, 0, 0, 0.05, 0.9));
    assert_true(one_more_pays(&d, 3, 10, 0.05, 0.1));
    assert_false(one_more_pays(&d, 3, 0.1f, 0.05, 0.3)); /* these are hardly right */
    assert_false(one_more_pays(&d, MOST, 10, 0.001, 0.001));
}

static void guesses_of_a_drafter_follow_those_that_are_there(void **state)
{
    (void)state;
    struct draft d, *one = &d;
    double times[MOST + 1] = {1, 1, 1, 1, 1, 1, 1, 1};
    begin(&d);
    ids[10] = ids[11] = ids[12] = 0;
    draft_add(&d, ids, 10, 5, 3);
    draft_add(&d, ids, 10, 6, 0.5f);
    assert_int_equal(d.found, 2);
    assert_true(ids[10] == 5 && ids[11] == 6 && ids[12] == 0);
    assert_true(d.chances.of[d.kind[0]] > d.chances.of[d.kind[1]]);
    draft_share(&one, 1, 1, times, MOST);
    assert_int_equal(d.n, 2);
}

static void a_drafter_is_asked_where_the_context_says_less(void **state)
{
    (void)state;
    struct draft d;
    begin(&d);
    d.found = 0;
    assert_true(draft_asks(&d));
    find_after(&d, 2);
    assert_true(draft_asks(&d));
    find_after(&d, 12);
    assert_false(draft_asks(&d));
    /* One that is always wrong is asked no more, and one that does not pay is tried again. */
    for (int i = 0; i < 60; i++) {
        d.found = d.n = 0;
        draft_add(&d, ids, 100, 7, 10);
        draft_note(&d, &chances, 0);
    }
    find_after(&d, 2);
    assert_false(draft_asks(&d));
    assert_false(one_more_pays(&d, 0, 0, 0.05, 0.1));
    int32_t steps = 0;
    while (!one_more_pays(&d, 0, 0, 0.05, 0.1) && steps < 1000) steps++;
    assert_in_range(steps, 1, 200);
}

static void what_a_grammar_leaves_replaces_what_is_less_likely(void **state)
{
    (void)state;
    struct draft d;
    begin(&d);
    double unmade = d.chances.unmade;
    find_after(&d, 12);
    assert_false(draft_expects(&d));
    find_after(&d, 2);
    assert_true(draft_expects(&d));
    draft_expect(&d, 3);
    assert_int_equal(d.found, 3);
    assert_false(draft_expects(&d));
    assert_false(draft_asks(&d));
    /* Where it is always wrong, as blanks stand elsewhere, the context is better, and so is a
     * drafter, which has learned nothing from it. */
    for (int i = 0; i < 60; i++) {
        draft_expect(&d, 3);
        d.n = 0;
        draft_note(&d, &chances, 0);
    }
    assert_true(d.chances.unmade == unmade);
    find_after(&d, 2);
    assert_false(draft_expects(&d));
    draft_expect(&d, 3);
    assert_true(draft_asks(&d));
}

static void a_guess_that_was_not_taken_teaches_too(void **state)
{
    (void)state;
    struct draft right, wrong;
    begin(&right);
    find_after(&right, 2);
    wrong = right;
    draft_note(&right, &chances, 1);
    draft_note(&wrong, &chances, 0);
    assert_true(right.chances.of[0] > wrong.chances.of[0]);
}

static void without_guesses_nothing_is_learned(void **state)
{
    (void)state;
    struct draft d, same;
    begin(&d);
    same = d;
    draft_note(&d, &chances, 0);
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
        cmocka_unit_test(sequences_share_what_a_step_can_take),
        cmocka_unit_test(more_is_guessed_after_a_longer_match_and_where_rows_are_cheap),
        cmocka_unit_test(what_was_right_is_guessed_more_and_what_was_wrong_less),
        cmocka_unit_test(what_does_not_pay_is_tried_again_later),
        cmocka_unit_test(what_many_have_learned_is_where_others_begin),
        cmocka_unit_test(passes_of_a_drafter_go_on_as_long_as_they_pay),
        cmocka_unit_test(guesses_of_a_drafter_follow_those_that_are_there),
        cmocka_unit_test(a_drafter_is_asked_where_the_context_says_less),
        cmocka_unit_test(what_a_grammar_leaves_replaces_what_is_less_likely),
        cmocka_unit_test(a_guess_that_was_not_taken_teaches_too),
        cmocka_unit_test(without_guesses_nothing_is_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
