/* Prompts that begin alike: what is found again, who may find it, who waits for whom. Answers are
 * compared, to the bit, with those of each prompt alone on a fresh engine. The build for this
 * program has pages of 32 positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "support/crowd.h"

enum {
    SEED = 17,
    BACKENDS = CROWD_SHARE > 1 ? 1 : 2,
    N_CTX = 320,
    WINDOW = 32,
    EIGHT = 8,
    N_COMMON = 3000
};

static const char *const backends[] = {"cpu", "ref"};
static struct crowd_ask asks[EIGHT];
static struct crowd crowd;
static carat_model *model; /* the model of the running case */

static void open_model(const char *name)
{
    char path[512];
    struct carat_error err = {0};
    snprintf(path, sizeof path, "%s/tests/golden/fixtures/%s.gguf", CARAT_SOURCE_DIR, name);
    if (carat_model_open(&model, path, &err)) fail_msg("%s", err.message);
    assert_int_equal(carat_model_info(model)->window, WINDOW);
}

static struct carat_engine_options options_for(const char *backend, int32_t n_seq)
{
    return (struct carat_engine_options){.backend = backend,
                                         .n_ctx = N_CTX,
                                         .n_seq = n_seq,
                                         .chunk = 40,
                                         .n_threads = 1,
                                         .deterministic = true};
}

/* `common` ids that all prompts share, then ids of its own. */
static void draw_ask(struct crowd_ask *ask, int32_t common, int32_t n, int own)
{
    struct rng same = {SEED}, other = {SEED + 1000 + (uint64_t)own};
    uint32_t n_vocab = (uint32_t)carat_model_info(model)->n_vocab;
    memset(ask, 0, sizeof *ask);
    ask->n_ids = n;
    ask->max_tokens = 5;
    ask->ignore_stop = true;
    ask->sampling = (struct carat_sampling){.top_p = 1, .repeat_penalty = 1};
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)rng_below(&same, n_vocab);
        ask->ids[i] = i < common ? id : (int32_t)rng_below(&other, n_vocab);
    }
}

/* Submits, runs to the end, and returns the prompt tokens that were found. */
static int32_t run_one(const struct crowd_ask *ask, const struct crowd_manner *manner)
{
    assert_int_equal(crowd_submit(&crowd, ask, manner, NULL), CARAT_OK);
    crowd_finish(&crowd);
    return crowd.last_done.n_cached;
}

/* ---- Lengths ---------------------------------------------------------------------------- */

/* All but the last token of a prompt can be found again, in whole pages. */
static void prompts_of_every_length_at_an_edge_are_found_again(void **state)
{
    (void)state;
    static const int32_t lengths[] = {1,          2,          KV_PAGE,    KV_PAGE + 1, 64, 65,
                                      WINDOW,     WINDOW + 1, WINDOW - 1, 95,          96, 97,
                                      N_CTX - 33, N_CTX - 32, N_CTX - 2,  N_CTX - 1};
    open_model("e4b-q4_0");
    for (int b = 0; b < BACKENDS; b++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct carat_engine_options options = options_for(backends[b], 2);
            draw_ask(&asks[0], 0, lengths[i], (int)i);
            crowd_answer_alone(model, backends[b], N_CTX, &asks[0]);
            crowd_open(&crowd, model, &options);
            assert_int_equal(run_one(&asks[0], NULL), 0);
            for (int again = 0; again < 2; again++)
                assert_int_equal(run_one(&asks[0], NULL), (lengths[i] - 1) / KV_PAGE * KV_PAGE);
            crowd_close(&crowd);
        }
    carat_model_close(model);
}

/* ---- Turns ------------------------------------------------------------------------------ */

/* The next turn of a chat begins with the last one's prompt and answer, or, where thoughts are
 * taken out, with its prompt alone. */
static void the_next_turn_finds_all_but_a_page(void **state)
{
    (void)state;
    open_model("12b-q4_k");
    for (int is_stripped = 0; is_stripped < 2; is_stripped++) {
        struct carat_engine_options options = options_for("cpu", 1);
        crowd_open(&crowd, model, &options);
        for (int i = 0; i<24; i += CROWD_SHARE> 1 ? 5 : 1) {
            draw_ask(&asks[0], 0, 40 + 7 * i, 50 + 100 * is_stripped + i);
            asks[0].max_tokens = 3 + 5 * (i % 9);
            crowd_answer_alone(model, "cpu", N_CTX, &asks[0]);
            run_one(&asks[0], NULL);
            asks[1] = asks[0];
            const struct crowd_answer *answer = &asks[0].expected;
            for (int32_t k = 0; !is_stripped && k < answer->n; k++)
                asks[1].ids[asks[1].n_ids++] = answer->ids[k];
            /* The last token of an answer is not computed. */
            int32_t common = asks[1].n_ids - !is_stripped;
            for (int32_t k = 0; k < 20; k++) asks[1].ids[asks[1].n_ids++] = 3 + (k * 7 + i) % 500;
            crowd_answer_alone(model, "cpu", N_CTX, &asks[1]);
            int32_t found = run_one(&asks[1], NULL);
            if (found < common / KV_PAGE * KV_PAGE)
                fail_msg("prompt of %d, common part %d: %d found", asks[0].n_ids, common, found);
        }
        crowd_close(&crowd);
    }
    carat_model_close(model);
}

/* ---- Who may find it -------------------------------------------------------------------- */

static void other_salts_and_requests_without_cache_find_nothing(void **state)
{
    (void)state;
    open_model("e2b-q8_0");
    for (int b = 0; b < BACKENDS; b++) {
        struct carat_engine_options options = options_for(backends[b], 2);
        struct crowd_manner salty = {.salt = 1}, saltier = {.salt = UINT64_C(1) << 63};
        struct crowd_manner without = {.no_cache = true};
        draw_ask(&asks[0], 0, 100, 1);
        crowd_answer_alone(model, backends[b], N_CTX, &asks[0]);
        crowd_open(&crowd, model, &options);
        assert_int_equal(run_one(&asks[0], &without), 0);
        assert_int_equal(run_one(&asks[0], &salty), 0);
        assert_int_equal(run_one(&asks[0], &saltier), 0);
        assert_int_equal(run_one(&asks[0], NULL), 0);
        assert_int_equal(run_one(&asks[0], &without), 0);
        assert_int_equal(run_one(&asks[0], &salty), 96);
        assert_int_equal(run_one(&asks[0], &saltier), 96);
        assert_int_equal(run_one(&asks[0], NULL), 96);
        /* At the same time: nobody waits for another salt. */
        prefix_flush(crowd.engine->paging.cache);
        crowd_submit(&crowd, &asks[0], &salty, NULL);
        crowd_submit(&crowd, &asks[0], &saltier, NULL);
        crowd_step(&crowd);
        assert_int_equal(carat_engine_stats(crowd.engine)->waiting, 0);
        crowd_finish(&crowd);
        assert_int_equal(crowd.last_done.n_cached, 0);
        crowd_close(&crowd);
    }
    carat_model_close(model);
}

/* ---- At once ---------------------------------------------------------------------------- */

/* Eight prompts with a long common part come at once. It is computed once; each prompt computes its
 * own part, and what its common part has beyond a page. */
static void eight_prompts_compute_their_common_part_once(void **state)
{
    (void)state;
    open_model("e4b-q4_0");
    for (int b = 0; b < BACKENDS; b++) {
        struct carat_engine_options options = {.backend = backends[b],
                                               .n_ctx = CROWD_CTX_MAX,
                                               .n_seq = EIGHT,
                                               .chunk = 256,
                                               .deterministic = true};
        uint64_t tails = 0;
        int n_asks =
            b == 0 && CROWD_SHARE == 1 ? EIGHT : 3; /* alone, the reference takes long for each */
        for (int i = 0; i < EIGHT; i++) {
            int32_t tail = 5 + 37 * i;
            draw_ask(&asks[i], N_COMMON, N_COMMON + tail, i % n_asks);
            if (i >= n_asks) asks[i] = asks[i % n_asks];
            tails += (uint64_t)(asks[i].n_ids - N_COMMON);
            if (i < n_asks)
                crowd_answer_alone(model, backends[b], CROWD_CTX_MAX, &asks[i]);
            else
                asks[i].expected = asks[i % n_asks].expected;
        }
        crowd_open(&crowd, model, &options);
        for (int i = 0; i < EIGHT; i++) crowd_submit(&crowd, &asks[i], NULL, NULL);
        crowd_step(&crowd);
        assert_int_equal(carat_engine_stats(crowd.engine)->waiting, EIGHT - 1);
        crowd_finish(&crowd);
        uint64_t rows = carat_engine_stats(crowd.engine)->prompt_rows;
        printf("%s: %d prompt rows for %d common tokens and %d others\n", backends[b], (int)rows,
               N_COMMON, (int)tails);
        assert_true(rows <= N_COMMON + tails + EIGHT * KV_PAGE);
        assert_int_equal(crowd.n_compared, EIGHT);
        crowd_close(&crowd);
    }
    carat_model_close(model);
}

/* Whatever ends the one that reads for all, the others go on, and one of them reads. */
static void the_reader_of_a_common_part_may_be_cancelled(void **state)
{
    (void)state;
    open_model("26b-q4_0");
    for (int b = 0; b < BACKENDS; b++)
        for (int n_steps = 0; n_steps < 9; n_steps++) {
            struct carat_engine_options options = options_for(backends[b], 4);
            carat_request_id ids[4];
            for (int i = 0; i < 4 && n_steps == 0; i++) {
                draw_ask(&asks[i], 200, 210 + 9 * i, i);
                crowd_answer_alone(model, backends[b], N_CTX, &asks[i]);
            }
            crowd_open(&crowd, model, &options);
            for (int i = 0; i < 4; i++) crowd_submit(&crowd, &asks[i], NULL, &ids[i]);
            for (int i = 0; i < n_steps; i++) crowd_step(&crowd);
            int32_t n_waiting = carat_engine_stats(crowd.engine)->waiting;
            assert_int_equal(n_waiting > 0, n_steps > 0 && n_steps < 6);
            for (int i = 0; i < CROWD_MAX; i++)
                if (crowd.requests[i].id == ids[0]) crowd_cancel(&crowd, ids[0]);
            crowd_finish(&crowd);
            assert_true(crowd.n_compared >= 3);
            assert_true(carat_engine_stats(crowd.engine)->prompt_rows < 200 + 240 + 4 * 60);
            crowd_close(&crowd);
        }
    carat_model_close(model);
}

/* ---- Many turns, little room ------------------------------------------------------------ */

/* One chat, of which every page is an anchor, in pools of a few pages: each turn goes on from the
 * last one, from some earlier place, or begins anew. */
static void ten_thousand_turns_in_little_room(void **state)
{
    (void)state;
    enum { TURNS = 10000 / CROWD_SHARE, COMPARED = 250 / CROWD_SHARE, MARKS = 16 };
    int32_t marks[MARKS];
    struct rng rng = {SEED};
    struct carat_engine_options options = options_for("cpu", 1);
    open_model("e2b-q8_0");
    uint32_t n_vocab = (uint32_t)carat_model_info(model)->n_vocab;
    options.cache_split = 64;
    options.cache_bytes = crowd_least_bytes(model, &options, 8, 8);
    crowd_open(&crowd, model, &options);
    struct crowd_ask *ask = &asks[0];
    draw_ask(ask, 0, 50, 0);
    for (int32_t i = 0; i < MARKS; i++) marks[i] = (i + 1) * KV_PAGE;
    for (int turn = 0; turn < TURNS; turn++) {
        if (ask->n_ids + 12 > N_CTX || rng_below(&rng, 8) == 0)
            ask->n_ids = 1 + (int32_t)rng_below(&rng, (uint32_t)ask->n_ids);
        for (uint32_t n = 1 + rng_below(&rng, 9); n > 0; n--)
            ask->ids[ask->n_ids++] = (int32_t)rng_below(&rng, n_vocab);
        ask->max_tokens = 1;
        size_t n_marks = 0;
        while (n_marks < MARKS && marks[n_marks] <= ask->n_ids) n_marks++;
        struct crowd_manner manner = {.anchors = marks, .n_anchors = n_marks};
        bool is_compared = turn % (TURNS / COMPARED) == 0;
        if (is_compared) crowd_answer_alone(model, "cpu", N_CTX, ask);
        crowd.is_unchecked = !is_compared;
        run_one(ask, &manner);
    }
    struct carat_stats s = *carat_engine_stats(crowd.engine);
    printf("seed %d: %d turns, %d pages, %d of %d prompt tokens cached, %d anchors dropped\n", SEED,
           TURNS, (int)(s.pages_local.all + s.pages_global.all), (int)s.cached_tokens,
           (int)s.prompt_tokens, (int)s.evicted_anchors);
    assert_true(s.evicted_anchors > TURNS / 10);
    assert_true(s.cached_tokens > s.prompt_tokens / 3);
    crowd_close(&crowd);
    carat_model_close(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_every_length_at_an_edge_are_found_again),
        cmocka_unit_test(the_next_turn_finds_all_but_a_page),
        cmocka_unit_test(other_salts_and_requests_without_cache_find_nothing),
        cmocka_unit_test(eight_prompts_compute_their_common_part_once),
        cmocka_unit_test(the_reader_of_a_common_part_may_be_cancelled),
        cmocka_unit_test(ten_thousand_turns_in_little_room),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
