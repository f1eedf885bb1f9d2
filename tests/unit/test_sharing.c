/* Many requests on few pages: what is shared, what is computed once, what has to make room.
 * Answers never depend on any of it: each equals, to the bit, that of the request alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "support/answers.h"

enum { N_CTX = 512, CHUNK = 48, PAGE = KV_PAGE, MANY = 24 };

/* Chunks do not depend on times: no limit. */
static struct carat_engine_options options_for(const char *backend, int32_t n_seq)
{
    return (struct carat_engine_options){.backend = backend,
                                         .n_ctx = N_CTX,
                                         .n_seq = n_seq,
                                         .chunk = CHUNK,
                                         .n_threads = 1,
                                         .max_itl_ms = 1e9};
}

/* An engine that answers one request after the other and shares nothing. */
static carat_engine *open_cold(const carat_model *model, const char *backend)
{
    struct carat_engine_options options = options_for(backend, 1);
    options.no_prefix_cache = true;
    return open_engine(model, &options);
}

/* Everything adds up: pages, pins, users of pages. */
static void check_pages(carat_engine *e)
{
    static int32_t users[1 << 16];
    const struct prefix_cursor *cursors[64];
    struct paging *p = &e->paging;
    size_t n = 0;
    for (int32_t i = 0; i < p->n_seq; i++)
        if (p->holdings[i].cursor.node) cursors[n++] = &p->holdings[i].cursor;
    const char *problem = prefix_check(p->cache, cursors, n);
    if (problem) fail_msg("%s", problem);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        const struct page_pool *pool = prefix_pool(p->cache, (enum kv_kind)kind);
        int32_t slots = e->runner->layout.caches.slots[kind];
        memset(users, 0, sizeof users);
        for (int32_t i = 0; i < p->n_seq; i++)
            for (int32_t k = 0; k < slots; k++)
                users[runner_page(e->runner, (enum kv_kind)kind, i, k)]++;
        for (int32_t i = 1; i < pool->n_pages; i++)
            assert_int_equal(users[i], pool->holds[i].users);
        assert_int_equal(pool->n_free + pool->n_used + pool->n_cached, pool->n_pages - 1);
    }
}

static void run_checked(carat_engine *e, struct answer *answers, size_t n)
{
    struct carat_error err = {0};
    int left;
    do {
        left = carat_step(e, &err);
        if (left < 0) fail_msg("%s", err.message);
        take_events(e, answers, n);
        check_pages(e);
    } while (left > 0);
    const struct carat_stats *stats = carat_engine_stats(e);
    assert_int_equal(stats->pages_local.referenced + stats->pages_global.referenced, 0);
    assert_int_equal(stats->queued + stats->waiting + stats->prefilling + stats->decoding, 0);
}

static struct answer ask_checked(carat_engine *e, const struct carat_request *request)
{
    struct answer a = {.request = submit(e, request)};
    run_checked(e, &a, 1);
    assert_true(a.is_done);
    return a;
}

/* ---- Cold and warm ---------------------------------------------------------------------- */

/* The same prompt again, a longer one, and a shorter one, are answered from the cache with the same
 * bits; also with another salt or without the cache, but then nothing is found. */
static void check_warm(const carat_model *model, const char *backend)
{
    static const int32_t lengths[] = {300, 300, 300 + PAGE, 200, 64, 65, 2 * PAGE, 2 * PAGE + 1};
    int32_t prompt[N_CTX];
    struct carat_engine_options options = options_for(backend, 2);
    carat_engine *e = open_engine(model, &options), *alone = open_cold(model, backend);
    draw_ids(TINY_SEED, prompt, N_CTX);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct carat_request r = greedy_request(prompt, (size_t)lengths[i], 40);
        struct answer cold = ask(alone, &r), warm = ask_checked(e, &r);
        check_same(&warm, &cold);
        assert_int_equal(warm.done.n_cached % PAGE, 0);
        assert_true(warm.done.n_cached < lengths[i]);
        if (i == 1) assert_int_equal(warm.done.n_cached, 299 / PAGE * PAGE);
        if (i == 2) assert_true(warm.done.n_cached >= 300 / PAGE * PAGE);
        struct answer again = ask_checked(e, &r); /* what was a branch has an anchor now */
        check_same(&again, &cold);
        assert_int_equal(again.done.n_cached, (lengths[i] - 1) / PAGE * PAGE);
        r.no_cache = true;
        again = ask_checked(e, &r);
        check_same(&again, &cold);
        assert_int_equal(again.done.n_cached, 0);
    }
    struct carat_request r = greedy_request(prompt, 300, 40);
    struct answer cold = ask(alone, &r);
    for (uint64_t salt = 1; salt < 3; salt++)
        for (int i = 0; i < 2; i++) {
            r.cache_salt = salt;
            struct answer a = ask_checked(e, &r);
            check_same(&a, &cold);
            assert_int_equal(a.done.n_cached, i ? 299 / PAGE * PAGE : 0);
        }
    carat_engine_close(e);
    carat_engine_close(alone);
}

static void warm_answers_have_the_bits_of_cold_ones(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) check_warm(models[size], "cpu");
    check_warm(models[GEMMA_E2B], "ref");
    check_warm(models[GEMMA_12B], "ref");
}

/* A conversation: each prompt is the one before with its answer and some more. All but the last
 * page of what is common comes from the cache. Going back to an earlier turn finds it too. */
static void a_conversation_is_read_once(void **state)
{
    (void)state;
    int32_t text[N_CTX], n = 90;
    struct carat_engine_options options = options_for("cpu", 1);
    options.cache_split = 64; /* room for many anchors */
    carat_engine *e = open_engine(models[GEMMA_26B], &options);
    carat_engine *alone = open_cold(models[GEMMA_26B], "cpu");
    draw_ids(TINY_SEED, text, N_CTX);
    int32_t starts[5];
    for (int turn = 0; turn < 5; turn++) {
        struct carat_request r = greedy_request(text, (size_t)n, 30);
        struct answer cold = ask(alone, &r), a = ask_checked(e, &r);
        check_same(&a, &cold);
        if (turn > 0) assert_true(a.done.n_cached >= starts[turn - 1] + 29 - PAGE);
        starts[turn] = n;
        memcpy(text + n, a.ids, 30 * sizeof *text);
        n += 30 + 35;
    }
    for (int turn = 4; turn-- > 0;) { /* back, as /undo does; then another answer */
        text[starts[turn] - 1] ^= 1;
        struct carat_request r = greedy_request(text, (size_t)starts[turn], 20);
        struct answer cold = ask(alone, &r), a = ask_checked(e, &r);
        check_same(&a, &cold);
        if (turn > 0) assert_true(a.done.n_cached >= starts[turn - 1] / PAGE * PAGE);
    }
    carat_engine_close(e);
    carat_engine_close(alone);
}

/* ---- At the same time ------------------------------------------------------------------- */

/* Prompts that share their first 300 ids come at once: the first one reads, the others wait until
 * that part is there, and then read only the rest. */
static void a_shared_beginning_is_read_once(void **state)
{
    (void)state;
    enum { N = 8, COMMON = 300 };
    static int32_t prompts[N][N_CTX];
    struct answer a[N], cold[N];
    struct carat_engine_options options = options_for("cpu", N);
    carat_engine *e = open_engine(models[GEMMA_E4B], &options);
    carat_engine *alone = open_cold(models[GEMMA_E4B], "cpu");
    memset(a, 0, sizeof a);
    int32_t most = COMMON;
    for (int i = 0; i < N; i++) {
        int32_t length = COMMON + 3 + 7 * i;
        draw_ids(TINY_SEED, prompts[i], COMMON);
        draw_ids(100 + (uint64_t)i, prompts[i] + COMMON, (size_t)(length - COMMON));
        prompts[i][COMMON] = i + 2;
        struct carat_request r = greedy_request(prompts[i], (size_t)length, 10);
        cold[i] = ask(alone, &r);
        a[i].request = submit(e, &r);
        most += length - COMMON + PAGE;
    }
    struct carat_error err = {0};
    assert_int_equal(carat_step(e, &err), 1);
    take_events(e, a, N);
    assert_int_equal(carat_engine_stats(e)->waiting, N - 1);
    run_checked(e, a, N);
    for (int i = 0; i < N; i++) check_same(&a[i], &cold[i]);
    const struct carat_stats *stats = carat_engine_stats(e);
    assert_int_equal(stats->hits, N - 1);
    assert_true((int32_t)stats->prompt_rows <= most);
    carat_engine_close(e);
    carat_engine_close(alone);
}

/* Whatever ends the one that reads for others, they go on: after a cancel the next one reads. */
static void those_who_wait_go_on_without_their_leader(void **state)
{
    (void)state;
    enum { N = 4 };
    int32_t prompt[N_CTX];
    struct carat_error err = {0};
    struct carat_engine_options options = options_for("cpu", N);
    carat_engine *e = open_engine(models[GEMMA_12B], &options);
    carat_engine *alone = open_cold(models[GEMMA_12B], "cpu");
    draw_ids(TINY_SEED, prompt, N_CTX);
    struct carat_request r = greedy_request(prompt, 400, 10);
    struct answer cold = ask(alone, &r);
    for (int steps = 0; steps < 9; steps++) {
        struct answer a[N];
        memset(a, 0, sizeof a);
        r.cache_salt = (uint64_t)steps + 1;
        for (int i = 0; i < N; i++) a[i].request = submit(e, &r);
        for (int i = 0; i < steps; i++) {
            assert_int_equal(carat_step(e, &err), 1);
            take_events(e, a, N);
        }
        carat_cancel(e, a[0].request);
        carat_cancel(e, a[2].request); /* one of those who wait */
        run_checked(e, a, N);
        assert_int_equal(a[0].done.finish, CARAT_FINISH_CANCELLED);
        assert_int_equal(a[2].done.finish, CARAT_FINISH_CANCELLED);
        check_same(&a[1], &cold);
        check_same(&a[3], &cold);
    }
    carat_engine_close(e);
    carat_engine_close(alone);
}

/* ---- Few pages -------------------------------------------------------------------------- */

/* Many requests on pools for very few: all end with the answers that they get alone. Returns how
 * often one was stopped. */
static int32_t check_many(const carat_model *model, const char *backend, int32_t n_seq,
                          int64_t cache_bytes, bool is_cached)
{
    static struct answer a[MANY], cold[MANY];
    static int32_t prompts[MANY][N_CTX];
    struct rng rng = {.state = 3};
    struct carat_engine_options options = options_for(backend, n_seq);
    options.cache_bytes = cache_bytes;
    options.no_prefix_cache = !is_cached;
    carat_engine *e = open_engine(model, &options), *alone = open_cold(model, backend);
    memset(a, 0, sizeof a);
    for (int i = 0; i < MANY; i++) {
        size_t n = 1 + rng_below(&rng, 250), shared = rng_below(&rng, 200);
        draw_ids(TINY_SEED + (uint64_t)i, prompts[i], n);
        draw_ids(TINY_SEED, prompts[i], shared < n ? shared : n);
        struct carat_request r = greedy_request(prompts[i], n, 20 + (int32_t)rng_below(&rng, 230));
        r.priority = (int32_t)rng_below(&rng, 3);
        r.fairness_key = rng_below(&rng, 4);
        cold[i] = ask(alone, &r);
        a[i].request = submit(e, &r);
    }
    run_checked(e, a, MANY);
    int32_t n_preempted = 0;
    for (int i = 0; i < MANY; i++) {
        check_same(&a[i], &cold[i]);
        n_preempted += a[i].done.n_preempted;
    }
    const struct carat_stats *stats = carat_engine_stats(e);
    printf("%d requests, %d at once, %lld + %lld pages: %llu hits, %llu of %llu prompt tokens from "
           "the cache, %d preemptions, %llu steps\n",
           MANY, n_seq, (long long)stats->pages_local.all, (long long)stats->pages_global.all,
           (unsigned long long)stats->hits, (unsigned long long)stats->cached_tokens,
           (unsigned long long)stats->prompt_tokens, n_preempted, (unsigned long long)stats->steps);
    assert_int_equal(stats->finished[CARAT_FINISH_LENGTH], MANY);
    assert_int_equal(stats->preemptions, n_preempted);
    if (!is_cached) assert_int_equal(stats->hits, 0);
    if (is_cached && cache_bytes == 0) assert_true(stats->hits > 0);
    carat_engine_close(e);
    carat_engine_close(alone);
    return n_preempted;
}

/* The fewest bytes that caches may have: for one sequence. */
static int64_t bytes_of_one(const carat_model *model, const char *backend, int32_t n_seq)
{
    struct carat_error err = {0};
    struct carat_memory memory;
    struct carat_engine_options options = options_for(backend, n_seq);
    int64_t low = 1, high = 1 << 16;
    for (;; low = high, high *= 2) {
        options.cache_bytes = high;
        if (carat_memory_estimate(model, &options, &memory, &err) == CARAT_OK) break;
    }
    while (high - low > 1) {
        options.cache_bytes = low + (high - low) / 2;
        if (carat_memory_estimate(model, &options, &memory, &err) == CARAT_OK)
            high = options.cache_bytes;
        else
            low = options.cache_bytes;
    }
    return high;
}

static void many_requests_share_a_pool_for_one(void **state)
{
    (void)state;
    int32_t n_preempted = 0;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        int64_t one = bytes_of_one(models[size], "cpu", 8);
        n_preempted += check_many(models[size], "cpu", 8, (2 * size + 1) * one, size != GEMMA_12B);
    }
    assert_true(n_preempted > 0);
    check_many(models[GEMMA_E4B], "ref", 6, bytes_of_one(models[GEMMA_E4B], "ref", 6), true);
    check_many(models[GEMMA_E4B], "cpu", 1, 0, true);
    check_many(models[GEMMA_26B], "cpu", 16, 0, true);
}

/* All slots are taken by requests of low priority when one of a higher priority comes: it runs at
 * once, the youngest of the others is stopped, and goes on where it was, with the same bits. */
static void a_higher_priority_takes_a_slot(void **state)
{
    (void)state;
    enum { N = 3 };
    int32_t prompts[N][N_CTX];
    struct answer a[N], cold[N];
    struct carat_error err = {0};
    struct carat_engine_options options = options_for("cpu", 2);
    options.deterministic = true; /* what was answered is read again, as a prompt */
    carat_engine *e = open_engine(models[GEMMA_E2B], &options);
    options.n_seq = 1;
    options.no_prefix_cache = true;
    carat_engine *alone = open_engine(models[GEMMA_E2B], &options);
    memset(a, 0, sizeof a);
    for (int i = 0; i < N; i++) {
        draw_ids(TINY_SEED + (uint64_t)i, prompts[i], N_CTX);
        struct carat_request r = greedy_request(prompts[i], 150, i == 2 ? 20 : 100);
        cold[i] = ask(alone, &r);
        r.priority = i == 2 ? 7 : -7;
        if (i == 2) /* the others have begun to answer */
            for (int k = 0; k < 40; k++) {
                assert_int_equal(carat_step(e, &err), 1);
                take_events(e, a, N);
            }
        a[i].request = submit(e, &r);
    }
    assert_true(a[1].n > 10);
    int32_t n = a[1].n;
    while (!a[2].is_done) {
        assert_int_equal(carat_step(e, &err), 1);
        take_events(e, a, N);
        check_pages(e);
    }
    assert_int_equal(a[1].n, n); /* a pause */
    assert_int_equal(carat_engine_stats(e)->preemptions, 1);
    run_checked(e, a, N);
    for (int i = 0; i < N; i++) {
        check_same(&a[i], &cold[i]);
        assert_int_equal(a[i].done.n_preempted, i == 1);
    }
    assert_true(carat_engine_stats(e)->prompt_rows < 3 * 150 + (uint64_t)n + PAGE);
    carat_engine_close(e);
    carat_engine_close(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_answers_have_the_bits_of_cold_ones),
        cmocka_unit_test(a_conversation_is_read_once),
        cmocka_unit_test(a_shared_beginning_is_read_once),
        cmocka_unit_test(those_who_wait_go_on_without_their_leader),
        cmocka_unit_test(many_requests_share_a_pool_for_one),
        cmocka_unit_test(a_higher_priority_takes_a_slot),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
