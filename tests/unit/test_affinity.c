/* Which engine a prompt goes to, by simulation: conversations stay, loads are even, and a beginning
 * that everybody has spreads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "server/affinity.h"

enum { ENGINES = 4, N_SEQ = 16, SEED = 29, LONG = 4096 };

static struct affinity *open_table(size_t n)
{
    struct affinity *a;
    struct carat_error err;
    assert_int_equal(affinity_open(&a, n, &err), CARAT_OK);
    return a;
}

static void draw(uint64_t seed, int32_t *ids, size_t n)
{
    struct rng rng = {.state = seed};
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)rng_below(&rng, 262144);
}

static struct affinity_choice choose_for(struct affinity *a, const struct affinity_load *loads,
                                         uint64_t session, const int32_t *ids, size_t n)
{
    const struct affinity_prompt prompt = {.session = session, .ids = ids, .n = n};
    return affinity_choose(a, loads, &prompt);
}

static struct affinity_choice choose(struct affinity *a, const struct affinity_load *loads,
                                     uint64_t salt, const int32_t *ids, size_t n, bool is_private)
{
    const struct affinity_prompt prompt = {
        .salt = salt, .ids = ids, .n = n, .is_private = is_private};
    return affinity_choose(a, loads, &prompt);
}

/* ---- The rule --------------------------------------------------------------------------- */

static void the_longest_match_wins_then_the_least_load(void **state)
{
    (void)state;
    int32_t ids[1024];
    struct affinity *a = open_table(3);
    struct affinity_load loads[3] = {{.work = 900, .n_seq = N_SEQ},
                                     {.work = 500, .n_seq = N_SEQ},
                                     {.work = 700, .n_seq = N_SEQ}};
    draw(1, ids, 1024);
    assert_int_equal(choose(a, loads, 0, ids, 512, false).engine, 1);
    loads[1].work = 1000; /* more than the others, but not far more */
    struct affinity_choice choice = choose(a, loads, 0, ids, 1024, false);
    assert_int_equal(choice.engine, 1);
    assert_int_equal(choice.n_matched, 512);
    assert_int_equal(choose(a, loads, 0, ids, 1024, false).n_matched, 1024);
    assert_int_equal(choose(a, loads, 7, ids, 1024, false).n_matched, 0); /* a salt */
    assert_int_equal(choose(a, loads, 0, ids, 1024, true).engine, 2);     /* private */
    ids[0]++; /* all blocks after another beginning are others */
    assert_int_equal(choose(a, loads, 0, ids, 1024, false).n_matched, 0);
    affinity_close(a);
}

/* Where prompts tell nothing: new ones, short ones, those that all engines know. */
static void a_session_stays_where_it_was_last(void **state)
{
    (void)state;
    int32_t hot[512], own[512];
    struct affinity *a = open_table(3);
    struct affinity_load loads[3] = {{.work = 300, .n_seq = N_SEQ},
                                     {.work = 100, .n_seq = N_SEQ},
                                     {.work = 200, .n_seq = N_SEQ}};
    draw(3, hot, 512);
    draw(4, own, 512);
    assert_int_equal(choose_for(a, loads, 7, hot, 40).engine, 1);
    loads[1].work = 400; /* busier now, but not far busier */
    assert_int_equal(choose_for(a, loads, 7, own, 512).engine, 1);
    assert_int_equal(choose_for(a, loads, 8, hot, 40).engine, 2); /* another session */
    assert_int_equal(choose_for(a, loads, 0, hot, 40).engine, 2); /* none */
    const struct affinity_prompt salted = {.salt = 5, .session = 7, .ids = hot, .n = 40};
    assert_int_equal(affinity_choose(a, loads, &salted).engine, 2); /* of somebody else */
    loads[1].work = 100000; /* far busier: it moves, and stays there */
    assert_int_equal(choose_for(a, loads, 7, hot, 40).engine, 2);
    loads[1].work = 0;
    assert_int_equal(choose_for(a, loads, 7, hot, 40).engine, 2);
    loads[2].is_out = true;
    assert_int_equal(choose_for(a, loads, 7, hot, 40).engine, 1);
    affinity_close(a);
}

/* What was read counts more than where a session was. */
static void a_longer_match_wins_over_a_session(void **state)
{
    (void)state;
    int32_t ids[512];
    struct affinity *a = open_table(2);
    struct affinity_load loads[2] = {{.work = 100, .n_seq = N_SEQ}, {.work = 0, .n_seq = N_SEQ}};
    draw(5, ids, 512);
    assert_int_equal(choose_for(a, loads, 0, ids, 512).engine, 1);
    loads[1].work = 200;
    assert_int_equal(choose_for(a, loads, 7, ids, 40).engine, 0);
    assert_int_equal(choose_for(a, loads, 7, ids, 512).engine, 1);
    affinity_close(a);
}

static void an_engine_that_has_far_more_to_do_is_passed_over(void **state)
{
    (void)state;
    int32_t ids[640];
    struct affinity *a = open_table(2);
    struct affinity_load loads[2] = {{.n_seq = N_SEQ}, {.n_seq = N_SEQ}};
    int64_t slack = N_SEQ / AFFINITY_SLACK * AFFINITY_JOB;
    draw(2, ids, 640);
    assert_int_equal(choose(a, loads, 0, ids, 640, false).engine, 0);
    loads[0].work = slack + 640;
    assert_int_equal(choose(a, loads, 0, ids, 640, false).engine, 0);
    loads[0].work++;
    struct affinity_choice choice = choose(a, loads, 0, ids, 640, false);
    assert_int_equal(choice.engine, 1);
    assert_int_equal(choice.n_matched, 0);
    loads[0].work = 1; /* now both know it: the least loaded */
    assert_int_equal(choose(a, loads, 0, ids, 640, false).engine, 1);
    loads[1].is_out = true;
    assert_int_equal(choose(a, loads, 0, ids, 640, false).engine, 0);
    loads[0].is_out = true;
    assert_int_equal(choose(a, loads, 0, ids, 640, false).engine, -1);
    affinity_close(a);
}

static void only_whole_blocks_count_and_the_table_forgets(void **state)
{
    (void)state;
    static int32_t ids[LONG];
    struct affinity *a = open_table(2);
    struct affinity_load loads[2] = {{.n_seq = 1}, {.n_seq = 1}};
    draw(3, ids, LONG);
    choose(a, loads, 0, ids, AFFINITY_BLOCK + 5, false);
    assert_int_equal(choose(a, loads, 0, ids, AFFINITY_BLOCK - 1, false).n_matched, 0);
    assert_int_equal(choose(a, loads, 0, ids, AFFINITY_BLOCK + 5, false).n_matched, AFFINITY_BLOCK);
    int rounds = 2 * AFFINITY_ENTRIES / (LONG / AFFINITY_BLOCK);
    for (int i = 0; i < rounds; i++) {
        draw((uint64_t)(100 + i), ids, LONG);
        choose(a, loads, 0, ids, LONG, false);
    }
    assert_true(choose(a, loads, 0, ids, LONG, false).n_matched > LONG / 2); /* the last */
    draw(3, ids, LONG);
    assert_int_equal(choose(a, loads, 0, ids, LONG, false).n_matched, 0);
    affinity_close(a);
}

static void too_many_engines_and_no_memory_are_told(void **state)
{
    (void)state;
    struct affinity *a;
    struct carat_error err;
    assert_int_equal(affinity_open(&a, AFFINITY_ENGINES_MAX + 1, &err), CARAT_EUSAGE);
    mem_fail_after(0);
    assert_int_equal(affinity_open(&a, 2, &err), CARAT_EMEMORY);
    mem_fail_after(-1);
    assert_int_equal(mem_blocks_live(), 0);
}

/* ---- Simulation ------------------------------------------------------------------------- */

enum { QUEUE = 4096 };

/* Jobs end in the order in which they came to their engine. */
struct world {
    struct affinity *table;
    struct affinity_load loads[ENGINES];
    int64_t work[ENGINES][QUEUE]; /* of jobs */
    int chat[ENGINES][QUEUE];
    int first[ENGINES], last[ENGINES];
    int taken[ENGINES];
};

static int32_t ask(struct world *w, int chat, const int32_t *ids, size_t n)
{
    struct affinity_choice c = choose(w->table, w->loads, 0, ids, n, false);
    int64_t work = (int64_t)n - c.n_matched + AFFINITY_JOB;
    int place = w->last[c.engine]++ % QUEUE;
    w->loads[c.engine].work += work;
    w->work[c.engine][place] = work;
    w->chat[c.engine][place] = chat;
    w->taken[c.engine]++;
    return c.engine;
}

/* The chat whose job has ended; -1: there is none. */
static int end_one(struct world *w, int32_t engine)
{
    if (w->first[engine] == w->last[engine]) return -1;
    int place = w->first[engine]++ % QUEUE;
    w->loads[engine].work -= w->work[engine][place];
    return w->chat[engine][place];
}

static void world_open(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->table = open_table(ENGINES);
    for (int e = 0; e < ENGINES; e++) w->loads[e].n_seq = N_SEQ;
}

/* As many users as there are sequences. Each has chats of ten turns, one after another, and pauses
 * now and then. */
static void conversations_stay_and_loads_are_even(void **state)
{
    (void)state;
    enum { USERS = ENGINES * N_SEQ, TURNS = 10, JOBS = 8000, FIRST = 600, NEXT = 150 };
    static struct world w;
    static int32_t ids[USERS][FIRST + TURNS * NEXT];
    int32_t where[USERS] = {0};
    int turns[USERS] = {0}, n_stayed = 0, n_later = 0, n_jobs = 0;
    struct rng rng = {.state = SEED};
    print_message("seed %d\n", SEED);
    world_open(&w);
    for (bool is_idle[USERS], begun = false; n_jobs < JOBS; begun = true) {
        if (!begun) memset(is_idle, true, sizeof is_idle);
        for (int e = 0; e < ENGINES && begun; e++) {
            int user = end_one(&w, e);
            if (user >= 0) is_idle[user] = true;
        }
        for (int u = 0; u < USERS; u++) {
            if (!is_idle[u] || rng_below(&rng, 8) == 0) continue;
            is_idle[u] = false;
            if (turns[u] % TURNS == 0)
                draw((uint64_t)(USERS * turns[u] + u), ids[u], FIRST + TURNS * NEXT);
            int32_t engine = ask(&w, u, ids[u], (size_t)(FIRST + NEXT * (turns[u] % TURNS)));
            n_later += turns[u] % TURNS > 0;
            n_stayed += turns[u] % TURNS > 0 && engine == where[u];
            where[u] = engine;
            turns[u]++;
            n_jobs++;
        }
    }
    print_message("%d of %d later turns stayed; jobs %d %d %d %d\n", n_stayed, n_later, w.taken[0],
                  w.taken[1], w.taken[2], w.taken[3]);
    assert_true(n_stayed >= n_later * 95 / 100);
    for (int e = 0; e < ENGINES; e++)
        assert_in_range(w.taken[e], JOBS / ENGINES * 9 / 10, JOBS / ENGINES * 11 / 10);
    affinity_close(w.table);
}

/* Everybody's prompt begins with the same 2,000 tokens. */
static void a_beginning_that_all_have_spreads(void **state)
{
    (void)state;
    enum { JOBS = 256, SHARED = 2048, OWN = 128 };
    static struct world w;
    static int32_t ids[SHARED + OWN];
    world_open(&w);
    draw(5, ids, SHARED);
    for (int i = 0; i < JOBS; i++) {
        draw((uint64_t)(1000 + i), ids + SHARED, OWN);
        ask(&w, i, ids, SHARED + OWN);
        if (i >= ENGINES * N_SEQ) end_one(&w, i % ENGINES);
    }
    print_message("jobs %d %d %d %d\n", w.taken[0], w.taken[1], w.taken[2], w.taken[3]);
    for (int e = 0; e < ENGINES; e++)
        assert_in_range(w.taken[e], JOBS / ENGINES / 2, JOBS / ENGINES * 3 / 2);
    affinity_close(w.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_match_wins_then_the_least_load),
        cmocka_unit_test(a_session_stays_where_it_was_last),
        cmocka_unit_test(a_longer_match_wins_over_a_session),
        cmocka_unit_test(an_engine_that_has_far_more_to_do_is_passed_over),
        cmocka_unit_test(only_whole_blocks_count_and_the_table_forgets),
        cmocka_unit_test(too_many_engines_and_no_memory_are_told),
        cmocka_unit_test(conversations_stay_and_loads_are_even),
        cmocka_unit_test(a_beginning_that_all_have_spreads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
