/* Requests, sequences, events and scores of the engine, on tiny models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "carat_inspect.h"
#include "engine/engine.h"
#include "engine/limits.h"
#include "support/answers.h"

enum { N_CTX = 128 };

static carat_engine *open_reference(enum gemma_size size, int32_t n_seq, int32_t chunk)
{
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = N_CTX, .n_seq = n_seq, .chunk = chunk};
    return open_engine(models[size], &options);
}

/* ---- Requests --------------------------------------------------------------------------- */

struct scored {
    const carat_engine *engine;
    const struct answer *answer;
    int32_t n_prompt, next;
};

static bool is_suppressed(const carat_engine *e, int32_t id)
{
    for (size_t i = 0; i < e->n_suppressed; i++)
        if (e->suppressed[i] == id) return true;
    return false;
}

static int check_scored(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct scored *s = user;
    if (position < s->n_prompt - 1 || s->next >= s->answer->n) return 0;
    int32_t best = -1;
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        sum += exp((double)logits[i]);
        if (!is_suppressed(s->engine, i) && (best < 0 || logits[i] > logits[best])) best = i;
    }
    assert_int_equal(s->answer->ids[s->next], best);
    double logprob = (double)logits[best] - log(sum);
    assert_true(fabs((double)s->answer->logprobs[s->next] - logprob) < 1e-5);
    s->next++;
    return 0;
}

static void greedy_tokens_are_the_best_of_a_score_of_the_same_text(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        int32_t text[64];
        struct carat_error err = {0};
        carat_engine *e = open_reference((enum gemma_size)size, 1, 9);
        draw_ids(TINY_SEED, text, 20);
        struct carat_request request = greedy_request(text, 20, 30);
        struct answer a = ask(e, &request);
        assert_int_equal(a.n, 30);
        assert_int_equal(a.done.finish, CARAT_FINISH_LENGTH);
        assert_int_equal(a.progress, 20);
        assert_int_equal(a.done.n_prompt, 20);
        assert_true(a.done.prefill_seconds > 0 && a.done.decode_seconds > 0);
        memcpy(text + 20, a.ids, 30 * sizeof *text);
        struct scored s = {.engine = e, .answer = &a, .n_prompt = 20};
        assert_int_equal(carat_score(e, text, 50, NULL, 0, check_scored, &s, &err), CARAT_OK);
        assert_int_equal(s.next, 30);
        carat_engine_close(e);
    }
}

static void an_answer_ends_at_max_tokens_or_with_the_context(void **state)
{
    (void)state;
    int32_t prompt[N_CTX];
    carat_engine *e = open_reference(GEMMA_E2B, 1, 32);
    draw_ids(TINY_SEED, prompt, N_CTX);
    static const int32_t cases[][3] = {
        /* prompt, max_tokens, generated */
        {5, 1, 1},          {5, 7, 7},         {N_CTX - 1, 0, 1},      {N_CTX - 1, 50, 1},
        {N_CTX - 4, -1, 4}, {1, 0, N_CTX - 1}, {1, 100000, N_CTX - 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct carat_request request = greedy_request(prompt, (size_t)cases[i][0], cases[i][1]);
        struct answer a = ask(e, &request);
        assert_int_equal(a.n, cases[i][2]);
        assert_int_equal(a.done.finish, CARAT_FINISH_LENGTH);
        assert_int_equal(a.done.stop_id, -1);
    }
    carat_engine_close(e);
}

static void a_stop_token_ends_the_answer_and_is_not_part_of_it(void **state)
{
    (void)state;
    static const int32_t stops[] = {1, 106, 50};
    int32_t prompt[8];
    carat_engine *e = open_reference(GEMMA_E4B, 1, 4);
    draw_ids(TINY_SEED, prompt, 8);
    for (int i = 0; i < 3; i++) {
        assert_true(carat_token_is_stop(models[GEMMA_E4B], stops[i]));
        struct carat_logit_bias bias = {.id = stops[i], .bias = 200.0f};
        struct carat_request request = greedy_request(prompt, 8, 5);
        request.bias = &bias;
        request.n_bias = 1;
        request.ignore_stop = false;
        struct answer a = ask(e, &request);
        assert_int_equal(a.done.finish, CARAT_FINISH_STOP);
        assert_int_equal(a.done.stop_id, stops[i]);
        assert_int_equal(a.n, 0);
        request.ignore_stop = true;
        a = ask(e, &request);
        assert_int_equal(a.done.finish, CARAT_FINISH_LENGTH);
        assert_int_equal(a.n, 5);
        for (int k = 0; k < 5; k++) assert_int_equal(a.ids[k], stops[i]);
    }
    carat_engine_close(e);
}

static void a_cancelled_request_ends_at_the_next_step(void **state)
{
    (void)state;
    int32_t prompt[60];
    struct carat_error err = {0};
    carat_engine *e = open_reference(GEMMA_12B, 2, 10);
    draw_ids(TINY_SEED, prompt, 60);
    struct carat_request request = greedy_request(prompt, 60, 20);
    request.no_cache = true; /* each time 6 steps */
    struct answer alone = ask(e, &request);
    /* Before the first step, within the prompt (after 2 of 6 steps), and while it answers. */
    for (int steps = 0; steps < 12; steps += 2) {
        struct answer a[2] = {{.request = submit(e, &request)}, {.request = submit(e, &request)}};
        for (int i = 0; i < steps; i++) {
            assert_int_equal(carat_step(e, &err), 1);
            take_events(e, a, 2);
        }
        assert_int_equal(carat_cancel(e, a[0].request), CARAT_OK);
        assert_int_equal(carat_cancel(e, a[0].request), CARAT_OK);
        run_all(e, a, 2);
        assert_int_equal(a[0].done.finish, CARAT_FINISH_CANCELLED);
        assert_int_equal(a[0].n, steps < 6 ? 0 : steps - 5);
        assert_int_equal(a[1].done.finish, CARAT_FINISH_LENGTH);
        assert_memory_equal(a[1].ids, alone.ids, 20 * sizeof *alone.ids);
        assert_int_equal(carat_cancel(e, a[0].request), CARAT_EUSAGE); /* over */
    }
    assert_int_equal(carat_cancel(e, 0), CARAT_EUSAGE);
    struct answer only = {.request = submit(e, &request)};
    carat_cancel(e, only.request);
    assert_int_equal(carat_step(e, &err), 0);
    take_events(e, &only, 1);
    assert_true(only.is_done);
    assert_int_equal(carat_step(e, &err), 0); /* idle */
    carat_engine_close(e);
}

static void check_refused(carat_engine *e, const struct carat_request *request, int status,
                          const char *part)
{
    struct carat_error err = {0};
    carat_request_id id = 99;
    long before = mem_blocks_live();
    assert_int_equal(carat_submit(e, request, &id, &err), status);
    assert_int_equal(err.code, status);
    if (!strstr(err.message, part)) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    assert_int_equal(id, 0);
    assert_int_equal(carat_submit(e, request, &id, NULL), status);
    assert_int_equal(mem_blocks_live(), before);
}

static void bad_requests_are_refused_with_the_reason(void **state)
{
    (void)state;
    int32_t prompt[N_CTX];
    carat_engine *e = open_reference(GEMMA_26B, 1, 8);
    draw_ids(TINY_SEED, prompt, N_CTX);
    struct carat_request r = greedy_request(prompt, 0, 1);
    check_refused(e, &r, CARAT_EUSAGE, "at least one token");
    r.n_prompt = N_CTX;
    check_refused(e, &r, CARAT_ECONTEXT, "128 tokens exceeds the available context size of 128");
    r.n_prompt = SIZE_MAX;
    check_refused(e, &r, CARAT_ECONTEXT, "context size of 128");
    r.n_prompt = 3;
    prompt[2] = 768;
    check_refused(e, &r, CARAT_EUSAGE, "token 2: 0 to 767 expected, 768 found");
    prompt[2] = -1;
    check_refused(e, &r, CARAT_EUSAGE, "-1 found");
    prompt[2] = 7;
    r.sampling.temperature = NAN;
    check_refused(e, &r, CARAT_EUSAGE, "temperature");
    r.sampling.temperature = 0;
    struct carat_logit_bias bias = {.id = 768, .bias = 1};
    r.bias = &bias;
    r.n_bias = 1;
    check_refused(e, &r, CARAT_EUSAGE, "767");
    r.n_bias = 0;
    int32_t marks[CARAT_ANCHORS_MAX + 1] = {0, 3, 4};
    r.anchors = marks;
    r.n_anchors = CARAT_ANCHORS_MAX + 1;
    check_refused(e, &r, CARAT_EUSAGE, "at most 16 expected, 17 found");
    r.n_anchors = 3;
    check_refused(e, &r, CARAT_EUSAGE, "0 to 3 expected, 4 found");
    r.n_anchors = 2;
    submit(e, &r);
    carat_engine_close(e);
}

/* One runs and two wait; the next one is refused until one of them has ended. */
static void the_queue_is_bounded(void **state)
{
    (void)state;
    int32_t prompt[4];
    struct carat_error err = {0};
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = N_CTX, .n_seq = 1, .chunk = 8, .n_queue = 2};
    carat_engine *e = open_engine(models[GEMMA_E2B], &options);
    draw_ids(TINY_SEED, prompt, 4);
    struct carat_request r = greedy_request(prompt, 4, 6);
    struct answer a[4];
    memset(a, 0, sizeof a);
    for (int i = 0; i < 3; i++) a[i].request = submit(e, &r);
    check_refused(e, &r, CARAT_EBUSY, "3 requests run or wait");
    while (!a[0].is_done) {
        assert_int_equal(carat_step(e, &err), 1);
        take_events(e, a, 3);
    }
    a[3].request = submit(e, &r);
    check_refused(e, &r, CARAT_EBUSY, "3 requests run or wait");
    run_all(e, a, 4);
    for (int i = 1; i < 4; i++) {
        assert_memory_equal(a[i].ids, a[0].ids, 6 * sizeof *a[0].ids);
        assert_true(a[i].done.queue_seconds > 0);
    }
    carat_engine_close(e);
}

/* Those that run and those that wait end at the first step after their time. */
static void a_deadline_ends_a_request_wherever_it_is(void **state)
{
    (void)state;
    int32_t prompt[60];
    struct carat_error err = {0};
    carat_engine *e = open_reference(GEMMA_E2B, 1, 8);
    draw_ids(TINY_SEED, prompt, 60);
    struct carat_request r = greedy_request(prompt, 60, 60);
    struct answer a[3];
    memset(a, 0, sizeof a);
    r.deadline_seconds = 1e-9;
    a[0].request = submit(e, &r);
    assert_int_equal(carat_step(e, &err), 0); /* before its first row */
    r.deadline_seconds = 0.25;
    a[1].request = submit(e, &r);
    a[2].request = submit(e, &r); /* waits for the first one's slot */
    do take_events(e, a, 3);
    while (carat_step(e, &err) == 1 && (a[1].n < 60 || a[2].n < 60));
    take_events(e, a, 3);
    assert_true(a[0].is_done && a[0].n == 0);
    assert_int_equal(a[0].done.finish, CARAT_FINISH_DEADLINE);
    for (int i = 1; i < 3; i++) { /* a fast machine may be done in time */
        assert_true(a[i].is_done);
        assert_true(a[i].done.finish == CARAT_FINISH_DEADLINE || a[i].n == 60);
    }
    const struct carat_stats *stats = carat_engine_stats(e);
    assert_int_equal(stats->finished[CARAT_FINISH_DEADLINE] + stats->finished[CARAT_FINISH_LENGTH],
                     3);
    assert_int_equal(stats->queued + stats->prefilling + stats->decoding, 0);
    carat_engine_close(e);
}

static void options_out_of_range_are_refused_with_the_range(void **state)
{
    (void)state;
    static const struct {
        struct carat_engine_options options;
        int status;
        const char *part;
    } cases[] = {
        {{.backend = "abacus"}, CARAT_EDEVICE, "abacus"},
        {{.backend = "cpu", .isa = "abacus"}, CARAT_EUSAGE, "isa abacus: this build has no such"},
        {{.n_ctx = 513}, CARAT_EUSAGE, "16 to 512 expected, 513 found"},
        {{.n_ctx = 15}, CARAT_EUSAGE, "16 to 512 expected, 15 found"},
        {{.n_ctx = -1}, CARAT_EUSAGE, "-1 found"},
        {{.n_seq = -1}, CARAT_EUSAGE, "-1 found"},
        {{.n_seq = SEQUENCES_MAX + 1}, CARAT_EUSAGE, "1025 found"},
        {{.chunk = -5}, CARAT_EUSAGE, "-5 found"},
        {{.chunk = CHUNK_MAX + 1}, CARAT_EUSAGE, "8193 found"},
        {{.gpu_memory = -1}, CARAT_EUSAGE, "-1 found"},
        {{.gpu_memory_percent = 101}, CARAT_EUSAGE, "0 to 100 expected, 101 found"},
        {{.n_queue = -1}, CARAT_EUSAGE, "-1 found"},
        {{.n_queue = QUEUE_MAX + 1}, CARAT_EUSAGE, "0 to 131072 expected, 131073 found"},
        {{.max_itl_ms = -1}, CARAT_EUSAGE, "-1 found"},
        {{.max_itl_ms = NAN}, CARAT_EUSAGE, "0 or more expected, nan found"},
        {{.deterministic = true, .n_seq = 65}, CARAT_EUSAGE, "1 to 64 sequences expected, 65"},
    };
    long before = mem_blocks_live();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        carat_engine *e = (carat_engine *)&before;
        struct carat_error err = {0};
        struct carat_memory memory;
        char *text;
        const struct carat_engine_options *o = &cases[i].options;
        assert_int_equal(carat_engine_open(&e, models[0], o, &err), cases[i].status);
        assert_null(e);
        if (!strstr(err.message, cases[i].part)) fail_msg("%s", err.message);
        assert_int_equal(carat_memory_estimate(models[0], o, &memory, NULL), cases[i].status);
        assert_int_equal(carat_plan_text(models[0], o, 1, 1, &text, NULL), cases[i].status);
        assert_int_equal(mem_blocks_live(), before);
    }
}

/* ---- Several sequences ------------------------------------------------------------------ */

/* The whole answer, to the last bit of its probabilities, does not depend on which others run,
 * when they came, or in which chunks the prompts are read. */
static void a_sequence_does_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    int32_t prompt[N_CTX];
    for (int size = 0; size < GEMMA_SIZES; size++) {
        struct answer alone[N_MIXED], mixed[N_MIXED];
        carat_engine *e = open_reference((enum gemma_size)size, 1, 64);
        for (int i = 0; i < N_MIXED; i++) {
            struct carat_request request = mixed_request(i, prompt);
            alone[i] = ask(e, &request);
        }
        carat_engine_close(e);
        static const int32_t chunks[] = {5, 16};
        for (int k = 0; k < 2; k++) {
            struct carat_error err = {0};
            e = open_reference((enum gemma_size)size, N_MIXED, chunks[k]);
            memset(mixed, 0, sizeof mixed);
            for (int i = 0; i < N_MIXED; i++) {
                struct carat_request request = mixed_request(i, prompt);
                mixed[i].request = submit(e, &request);
                for (int n = 0; n < 2 * k; n++) { /* the next one comes two steps later */
                    assert_true(carat_step(e, &err) >= 0);
                    take_events(e, mixed, N_MIXED);
                }
            }
            run_all(e, mixed, N_MIXED);
            for (int i = 0; i < N_MIXED; i++) check_same(&mixed[i], &alone[i]);
            carat_engine_close(e);
        }
    }
}

static void a_slot_used_again_remembers_nothing(void **state)
{
    (void)state;
    int32_t prompt[N_CTX];
    carat_engine *e = open_reference(GEMMA_E2B, 2, 16);
    struct carat_request request = mixed_request(2, prompt);
    struct answer first = ask(e, &request), again;
    request = mixed_request(1, prompt);
    ask(e, &request);
    request = mixed_request(2, prompt);
    again = ask(e, &request);
    check_same(&first, &again);
    carat_engine_close(e);
}

static void a_model_that_gives_nan_ends_in_an_error_and_the_engine_goes_on(void **state)
{
    (void)state;
    char path[512];
    struct carat_error err = {0};
    struct gguf_writer w = {0};
    struct tiny_options options = {.size = GEMMA_12B, .format = FORMAT_F32, .seed = TINY_SEED};
    tiny_model_put(&w, &options);
    float *matrix = gguf_writer_tensor(&w, "blk.3.ffn_down.weight")->data;
    matrix[5] = NAN;
    assert_int_equal(gguf_save(&w, scratch_file(&scratch, "nan.gguf", path), &err), CARAT_OK);
    gguf_writer_deinit(&w);
    carat_model *m;
    carat_engine *e;
    assert_int_equal(carat_model_open(&m, path, &err), CARAT_OK);
    struct carat_engine_options small = {.backend = "ref", .n_ctx = 64, .chunk = 8};
    assert_int_equal(carat_engine_open(&e, m, &small, &err), CARAT_OK);
    int32_t prompt[8];
    draw_ids(TINY_SEED, prompt, 8);
    struct carat_request request = greedy_request(prompt, 8, 8);
    for (int i = 0; i < 2; i++) {
        struct answer a = ask(e, &request);
        assert_int_equal(a.done.finish, CARAT_FINISH_ERROR);
        assert_non_null(strstr(a.done.message, "non-finite"));
        assert_int_equal(a.n, 0);
    }
    assert_int_equal(carat_score(e, prompt, 8, NULL, 0, ignore_row, NULL, &err), CARAT_ENUMERIC);
    assert_non_null(strstr(err.message, "position 0"));
    carat_engine_close(e);
    carat_model_close(m);
    remove(path);
}

/* ---- Events, scoring, measuring, looking inside ----------------------------------------- */

static void a_step_is_refused_until_its_events_fit(void **state)
{
    (void)state;
    int32_t prompt[8];
    struct carat_error err = {0};
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = N_CTX, .n_seq = 2, .chunk = 4, .n_queue = 1};
    carat_engine *e = open_engine(models[GEMMA_E2B], &options);
    draw_ids(TINY_SEED, prompt, 8);
    struct carat_request request = greedy_request(prompt, 8, 40);
    struct answer a[2] = {{.request = submit(e, &request)}, {.request = submit(e, &request)}};
    int n_busy = 0;
    for (;;) {
        int status = carat_step(e, &err);
        if (status == 0) break;
        if (status > 0) continue; /* and take no events */
        assert_int_equal(status, CARAT_EBUSY);
        assert_int_equal(carat_step(e, &err), CARAT_EBUSY);
        take_events(e, a, 2);
        n_busy++;
    }
    take_events(e, a, 2);
    assert_true(n_busy > 3);
    assert_true(a[0].is_done && a[1].is_done);
    assert_int_equal(a[0].n, 40);
    assert_memory_equal(a[0].ids, a[1].ids, 40 * sizeof *a[0].ids);
    carat_engine_close(e);
}

static int stop_at_3(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    (void)logits, (void)n_vocab;
    *(int32_t *)user = position;
    return position == 3 ? 77 : 0;
}

static void scoring_checks_its_arguments_and_obeys_its_caller(void **state)
{
    (void)state;
    int32_t tokens[N_CTX + 1], last = -1;
    struct carat_error err = {0};
    carat_engine *e = open_reference(GEMMA_E4B, 2, 8);
    draw_ids(TINY_SEED, tokens, N_CTX + 1);
    assert_int_equal(carat_score(e, tokens, 8, NULL, 0, stop_at_3, &last, &err), 77);
    assert_int_equal(last, 3);
    assert_int_equal(carat_score(e, tokens, 0, NULL, 0, ignore_row, NULL, &err), CARAT_EUSAGE);
    assert_int_equal(carat_score(e, tokens, N_CTX + 1, NULL, 0, ignore_row, NULL, &err),
                     CARAT_ECONTEXT);
    assert_non_null(strstr(err.message, "129 tokens exceed the available context size of 128"));
    assert_int_equal(carat_score(e, tokens, N_CTX, NULL, 0, ignore_row, NULL, &err), CARAT_OK);
    static const int32_t wrong[][2] = {{3, 3}, {4, 3}, {-1, 3}, {3, 8}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(carat_score(e, tokens, 8, wrong[i], 2, ignore_row, NULL, &err),
                         CARAT_EUSAGE);
    tokens[1] = 768;
    assert_int_equal(carat_score(e, tokens, 8, NULL, 0, ignore_row, NULL, &err), CARAT_EUSAGE);
    tokens[1] = 5;
    struct carat_request request = greedy_request(tokens, 8, 8);
    double seconds;
    struct carat_measure what = {.n_prompt = 4};
    carat_request_id id = submit(e, &request);
    assert_int_equal(carat_score(e, tokens, 8, NULL, 0, ignore_row, NULL, &err), CARAT_EBUSY);
    assert_int_equal(carat_measure(e, &what, &seconds, &err), CARAT_EBUSY);
    carat_cancel(e, id);
    carat_engine_close(e);
}

/* Prompts and answers in all states; the others go on. */
static void paused_requests_wait_and_leave_the_engine_idle(void **state)
{
    (void)state;
    int32_t prompts[N_MIXED][128];
    struct answer alone[N_MIXED], answers[N_MIXED] = {{0}};
    struct carat_error err;
    carat_engine *e = open_reference(GEMMA_E2B, 2, 16);
    for (int i = 0; i < N_MIXED; i++) {
        struct carat_request request = mixed_request(i, prompts[i]);
        alone[i] = ask(e, &request);
    }
    for (int i = 0; i < N_MIXED; i++) {
        struct carat_request request = mixed_request(i, prompts[i]);
        request.user = &answers[i];
        answers[i].request = submit(e, &request);
    }
    for (int steps = 0; steps < 6; steps++) {
        assert_int_equal(carat_step(e, &err), 1);
        take_events(e, answers, N_MIXED);
    }
    for (int i = 0; i < N_MIXED; i++)
        assert_int_equal(carat_pause(e, answers[i].request, true), CARAT_OK);
    uint64_t n_steps = carat_engine_stats(e)->steps;
    for (int k = 0; k < 3; k++) assert_int_equal(carat_step(e, &err), 0);
    assert_int_equal(carat_engine_stats(e)->steps, n_steps);
    assert_null(carat_next_event(e));
    for (int i = N_MIXED; i-- > 1;) { /* one after the other, while the first stays paused */
        assert_int_equal(carat_pause(e, answers[i].request, false), CARAT_OK);
        while (carat_step(e, &err) > 0) take_events(e, answers, N_MIXED);
        take_events(e, answers, N_MIXED);
        check_same(&answers[i], &alone[i]);
        assert_ptr_equal(answers[i].done.user, &answers[i]);
    }
    assert_false(answers[0].is_done);
    assert_int_equal(carat_cancel(e, answers[0].request), CARAT_OK);
    assert_int_equal(carat_step(e, &err), 0);
    take_events(e, answers, N_MIXED);
    assert_int_equal(answers[0].done.finish, CARAT_FINISH_CANCELLED);
    assert_int_equal(carat_pause(e, answers[0].request, true), CARAT_EUSAGE);
    carat_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_tokens_are_the_best_of_a_score_of_the_same_text),
        cmocka_unit_test(an_answer_ends_at_max_tokens_or_with_the_context),
        cmocka_unit_test(a_stop_token_ends_the_answer_and_is_not_part_of_it),
        cmocka_unit_test(a_cancelled_request_ends_at_the_next_step),
        cmocka_unit_test(bad_requests_are_refused_with_the_reason),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(a_deadline_ends_a_request_wherever_it_is),
        cmocka_unit_test(options_out_of_range_are_refused_with_the_range),
        cmocka_unit_test(a_sequence_does_not_depend_on_its_neighbours),
        cmocka_unit_test(a_slot_used_again_remembers_nothing),
        cmocka_unit_test(a_model_that_gives_nan_ends_in_an_error_and_the_engine_goes_on),
        cmocka_unit_test(a_step_is_refused_until_its_events_fit),
        cmocka_unit_test(paused_requests_wait_and_leave_the_engine_idle),
        cmocka_unit_test(scoring_checks_its_arguments_and_obeys_its_caller),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
