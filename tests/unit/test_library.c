/* What carat.h promises to programs and bindings: versions, structs that grow, zeros that mean
 * defaults, log-probabilities, changed logits, cancelling from other threads, requests in JSON. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "carat_inspect.h"
#include "support/engines.h"

enum { SEED = 7, N_CTX = 128, N_PROMPT = 12, N_ANSWER = 24, N_TOP = CARAT_TOP_LOGPROBS_MAX };

static int32_t prompt[N_PROMPT];

static int open_all(void **state)
{
    draw_ids(SEED, prompt, N_PROMPT);
    return open_models(state);
}

static carat_engine *open_on(const char *backend, int32_t n_seq)
{
    struct carat_engine_options options = {
        .backend = backend, .n_ctx = N_CTX, .n_seq = n_seq, .chunk = 8, .n_threads = 1};
    return open_engine(models[GEMMA_E2B], &options);
}

struct said {
    int32_t ids[N_ANSWER];
    float logprobs[N_ANSWER];
    struct carat_logprob top[N_ANSWER][N_TOP];
    int32_t n, n_top;
    enum carat_finish finish;
    char message[160];
};

static void run(carat_engine *e, const struct carat_request *request, struct said *out)
{
    carat_request_id id;
    struct carat_error err = {0};
    const struct carat_event *event;
    *out = (struct said){0};
    if (carat_submit(e, request, &id, &err)) fail_msg("%s", err.message);
    for (int more = 1; more > 0;) {
        more = carat_step(e, &err);
        if (more < 0) fail_msg("%s", err.message);
        while ((event = carat_next_event(e))) {
            assert_true(event->request == id);
            if (event->kind == CARAT_EVENT_DONE) {
                out->finish = event->finish;
                snprintf(out->message, sizeof out->message, "%s", event->message);
            }
            if (event->kind != CARAT_EVENT_TOKEN) continue;
            assert_true(out->n < N_ANSWER);
            out->logprobs[out->n] = event->logprob;
            out->n_top = event->n_top;
            for (int i = 0; i < event->n_top; i++) out->top[out->n][i] = event->top[i];
            out->ids[out->n++] = event->id;
        }
    }
}

static struct carat_request plain(void)
{
    return (struct carat_request){
        .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = N_ANSWER, .ignore_stop = true};
}

static void check_same(const struct said *a, const struct said *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
}

/* ---- Versions and structs --------------------------------------------------------------- */

static void the_version_is_that_of_the_header(void **state)
{
    (void)state;
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", CARAT_VERSION_MAJOR, CARAT_VERSION_MINOR,
             CARAT_VERSION_PATCH);
    assert_string_equal(numbers, CARAT_VERSION);
    assert_string_equal(carat_version(), CARAT_VERSION);
}

static void a_zeroed_sampling_takes_the_likeliest_token(void **state)
{
    (void)state;
    carat_engine *e = open_on("ref", 1);
    struct said zeroed, written;
    struct carat_request request = plain();
    run(e, &request, &zeroed);
    request.sampling = (struct carat_sampling){
        .temperature = 1, .top_k = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last_n = 64};
    run(e, &request, &written);
    assert_int_equal(zeroed.n, N_ANSWER);
    check_same(&zeroed, &written);
    carat_engine_close(e);
}

static void zeroed_filters_are_off(void **state)
{
    (void)state;
    carat_engine *e = open_on("ref", 1);
    struct said zeroed, written, penalised, of_64;
    struct carat_request request = plain();
    request.sampling = (struct carat_sampling){.temperature = 2, .seed = 5};
    run(e, &request, &zeroed);
    request.sampling.top_p = request.sampling.repeat_penalty = 1;
    run(e, &request, &written);
    check_same(&zeroed, &written);
    request.sampling = (struct carat_sampling){.frequency_penalty = 5};
    run(e, &request, &penalised);
    request.sampling.repeat_last_n = 64;
    run(e, &request, &of_64);
    check_same(&penalised, &of_64);
    carat_engine_close(e);
}

static void zeroed_engine_options_are_those_of_null(void **state)
{
    (void)state;
    struct carat_memory zeroed, none;
    struct carat_error err;
    struct carat_engine_options options = {0};
    assert_int_equal(carat_memory_estimate(models[0], &options, &zeroed, &err), CARAT_OK);
    assert_int_equal(carat_memory_estimate(models[0], NULL, &none, &err), CARAT_OK);
    assert_int_equal(zeroed.n_ctx, none.n_ctx);
    assert_int_equal(zeroed.total, none.total);
}

/* A struct of a later version: more members after those of today. */
struct later_request {
    struct carat_request today;
    int64_t more[3];
};

static void a_shorter_struct_lacks_what_is_zero(void **state)
{
    (void)state;
    carat_engine *e = open_on("ref", 1);
    struct said whole, shorter;
    struct carat_request request = plain();
    run(e, &request, &whole);
    request.size = offsetof(struct carat_request, n_top_logprobs);
    memset((char *)&request + request.size, 0xA5, sizeof request - request.size);
    run(e, &request, &shorter);
    check_same(&whole, &shorter);
    assert_int_equal(shorter.n_top, 0);
    carat_engine_close(e);

    struct carat_engine_options options = {
        .size = offsetof(struct carat_engine_options, kv_type), .n_ctx = N_CTX, .backend = "ref"};
    memset((char *)&options + options.size, 0xA5, sizeof options - options.size);
    struct carat_memory memory;
    struct carat_error err = {0};
    assert_int_equal(carat_memory_estimate(models[0], &options, &memory, &err), CARAT_OK);
    assert_int_equal(memory.n_ctx, N_CTX);
    assert_false(memory.kv_type == CARAT_KV_Q8_0);
}

static void a_longer_struct_is_taken_as_far_as_the_rest_is_zero(void **state)
{
    (void)state;
    carat_engine *e = open_on("ref", 1);
    struct said whole, longer;
    struct carat_error err = {0};
    carat_request_id id;
    struct later_request later = {.today = plain()};
    run(e, &later.today, &whole);
    later.today.size = sizeof later;
    run(e, &later.today, &longer);
    check_same(&whole, &longer);
    later.more[2] = 1;
    assert_int_equal(carat_submit(e, &later.today, &id, &err), CARAT_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "request"));
    assert_non_null(strstr(err.hint, "later version"));
    later.today.size = 1;
    assert_int_equal(carat_submit(e, &later.today, &id, &err), CARAT_EUSAGE);
    carat_engine_close(e);

    struct {
        struct carat_engine_options today;
        int64_t more;
    } options = {.today = {.size = sizeof options}, .more = 1};
    assert_int_equal(carat_engine_open(&e, models[0], &options.today, &err), CARAT_EUNSUPPORTED);
    struct {
        struct carat_answer_options today;
        int64_t more;
    } answer = {.today = {.size = sizeof answer}, .more = 1};
    carat_answer *a;
    assert_int_equal(carat_answer_open(&a, models[0], NULL, 0, &answer.today, &err),
                     CARAT_EUNSUPPORTED);
    assert_null(a);
}

/* ---- Log-probabilities ------------------------------------------------------------------ */

struct scored {
    const struct said *said;
    int32_t next;
};

static int32_t rank_of(const float *row, int32_t n, int32_t id)
{
    int32_t rank = 0;
    for (int32_t i = 0; i < n; i++) rank += row[i] > row[id] || (row[i] == row[id] && i < id);
    return rank;
}

static int check_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct scored *s = user;
    const struct said *said = s->said;
    if (position < N_PROMPT - 1 || s->next >= said->n) return 0;
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i]);
    int32_t n = s->next++;
    double logprob = (double)logits[said->ids[n]] - log(sum);
    assert_true(fabs((double)said->logprobs[n] - logprob) < 1e-5);
    for (int32_t k = 0; k < said->n_top; k++) {
        const struct carat_logprob *top = &said->top[n][k];
        assert_int_equal(rank_of(logits, n_vocab, top->id), k);
        assert_true(fabs((double)top->logprob - ((double)logits[top->id] - log(sum))) < 1e-5);
        if (top->id == said->ids[n]) assert_true(top->logprob == said->logprobs[n]);
    }
    return 0;
}

static void log_probabilities_are_those_of_a_score_of_the_same_text(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++) {
        int32_t text[N_PROMPT + N_ANSWER];
        struct carat_error err = {0};
        struct carat_engine_options options = {.backend = backends[b],
                                               .n_ctx = N_CTX,
                                               .n_seq = 1,
                                               .chunk = 8,
                                               .n_threads = 1,
                                               .deterministic = true};
        carat_engine *e = open_engine(models[GEMMA_E2B], &options);
        struct carat_request request = plain();
        struct carat_logit_bias bias = {.id = 9, .bias = 2};
        request.sampling = (struct carat_sampling){
            .temperature = 1.5f, .top_k = 50, .repeat_penalty = 1.2f, .seed = 3};
        request.bias = &bias;
        request.n_bias = 1;
        static const int32_t counts[] = {1, 5, N_TOP};
        for (int i = 0; i < 3; i++) {
            struct said said;
            request.n_top_logprobs = counts[i];
            run(e, &request, &said);
            assert_int_equal(said.n_top, counts[i]);
            memcpy(text, prompt, sizeof prompt);
            memcpy(text + N_PROMPT, said.ids, sizeof said.ids);
            struct scored s = {.said = &said};
            assert_int_equal(
                carat_score(e, text, N_PROMPT + N_ANSWER, NULL, 0, check_row, &s, &err), CARAT_OK);
            assert_int_equal(s.next, N_ANSWER);
        }
        carat_engine_close(e);
    }
}

static void more_log_probabilities_than_twenty_are_refused(void **state)
{
    (void)state;
    carat_engine *e = open_on("ref", 1);
    struct carat_error err = {0};
    struct carat_request request = plain();
    carat_request_id id;
    request.n_top_logprobs = N_TOP + 1;
    assert_int_equal(carat_submit(e, &request, &id, &err), CARAT_EUSAGE);
    assert_non_null(strstr(err.message, "n_top_logprobs: 0 to 20 expected, 21 found"));
    request.n_top_logprobs = -1;
    assert_int_equal(carat_submit(e, &request, &id, &err), CARAT_EUSAGE);
    carat_engine_close(e);
}

/* ---- Changed logits --------------------------------------------------------------------- */

struct hook {
    int32_t ids[N_PROMPT + N_ANSWER];
    size_t n_ids;
    int32_t n_calls, forced; /* the id that is left; -1: none */
    float poison;            /* 0: nothing */
    bool bans_even;
};

static void change(void *user, const int32_t *ids, size_t n_ids, float *logits, int32_t n_vocab)
{
    struct hook *h = user;
    assert_true(n_ids <= N_PROMPT + N_ANSWER);
    memcpy(h->ids, ids, n_ids * sizeof *ids);
    h->n_ids = n_ids;
    h->n_calls++;
    for (int32_t i = 0; i < n_vocab; i++)
        if ((h->forced >= 0 && i != h->forced) || (h->bans_even && i % 2 == 0))
            logits[i] = -INFINITY;
    if (h->poison != 0) logits[7] = h->poison;
}

static void logits_can_be_changed_before_sampling(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++) {
        carat_engine *e = open_on(backends[b], 1);
        struct said without, with;
        struct hook h = {.forced = -1};
        struct carat_request request = plain();
        request.n_top_logprobs = 3;
        run(e, &request, &without);
        request.on_logits = change;
        request.on_logits_user = &h;
        run(e, &request, &with); /* nothing changed */
        check_same(&without, &with);
        assert_int_equal(h.n_calls, N_ANSWER);
        assert_int_equal(h.n_ids, N_PROMPT + N_ANSWER - 1);
        assert_memory_equal(h.ids, prompt, sizeof prompt);
        assert_memory_equal(h.ids + N_PROMPT, with.ids, (N_ANSWER - 1) * sizeof *with.ids);
        h.bans_even = true;
        run(e, &request, &with);
        for (int i = 0; i < with.n; i++) assert_int_equal(with.ids[i] % 2, 1);
        h = (struct hook){.forced = 42};
        run(e, &request, &with);
        for (int i = 0; i < with.n; i++) assert_int_equal(with.ids[i], 42);
        /* Log-probabilities are the model's own. */
        assert_memory_equal(with.top[0], without.top[0], 3 * sizeof with.top[0][0]);
        assert_true(with.logprobs[0] < 0);
        carat_engine_close(e);
    }
}

static void a_function_that_spoils_the_logits_ends_its_request_alone(void **state)
{
    (void)state;
    static const struct hook ways[] = {
        {.forced = -1, .poison = NAN}, {.forced = -1, .poison = INFINITY}, {.forced = INT32_MAX}};
    carat_engine *e = open_on("ref", 1);
    for (int i = 0; i < 3; i++) {
        struct hook h = ways[i];
        struct said said, after;
        struct carat_request request = plain();
        request.on_logits = change;
        request.on_logits_user = &h;
        run(e, &request, &said);
        assert_int_equal(said.finish, CARAT_FINISH_ERROR);
        assert_non_null(strstr(said.message, "on_logits"));
        request.on_logits = NULL;
        run(e, &request, &after);
        assert_int_equal(after.n, N_ANSWER);
    }
    carat_engine_close(e);
}

/* ---- Cancelling ------------------------------------------------------------------------- */

enum { SLOTS = 4, CANCELLERS = 3, CANCELLED = 200, REQUESTS_MAX = 100000 };

/* What the engine's thread and the others share. */
struct cancelling {
    carat_engine *engine;
    _Atomic carat_request_id running[SLOTS];
    _Atomic carat_request_id asked[SLOTS]; /* the last request whose cancelling was taken */
    atomic_bool is_over;
    _Atomic uint64_t seed; /* of the next thread */
};

static void raise_to(_Atomic carat_request_id *at, carat_request_id id)
{
    carat_request_id old = atomic_load(at);
    while (old < id && !atomic_compare_exchange_weak(at, &old, id)) {
    }
}

/* Asks for the end of what runs, and now and then of what has ended long ago. */
static void *keep_cancelling(void *user)
{
    struct cancelling *c = user;
    struct rng rng = {.state = atomic_fetch_add(&c->seed, 1)};
    while (!atomic_load(&c->is_over)) {
        uint32_t slot = rng_below(&rng, SLOTS), old = rng_below(&rng, 3);
        carat_request_id id = atomic_load(&c->running[slot]);
        if (old == 0 && id > SLOTS)
            carat_cancel(c->engine, id - SLOTS);
        else if (id && carat_cancel(c->engine, id) == CARAT_OK)
            raise_to(&c->asked[slot], id);
    }
    return NULL;
}

/* The slot of a request, or SLOTS. */
static int slot_of(const struct cancelling *c, carat_request_id id)
{
    int slot = 0;
    while (slot < SLOTS && atomic_load(&c->running[slot]) != id) slot++;
    return slot;
}

static void take_ends(struct cancelling *c, int *n_cancelled)
{
    const struct carat_event *event;
    while ((event = carat_next_event(c->engine))) {
        if (event->kind != CARAT_EVENT_DONE) continue;
        int slot = slot_of(c, event->request);
        assert_true(slot < SLOTS);
        atomic_store(&c->running[slot], 0);
        if (event->finish == CARAT_FINISH_CANCELLED)
            ++*n_cancelled;
        else
            assert_int_equal(event->finish, CARAT_FINISH_LENGTH);
    }
}

static void a_request_ends_in_the_step_after_another_thread_cancels_it(void **state)
{
    (void)state;
    struct cancelling c = {.engine = open_on("ref", SLOTS)};
    struct carat_error err = {0};
    struct carat_request request = plain();
    pthread_t threads[CANCELLERS];
    int n_submitted = 0, n_cancelled = 0;
    request.max_tokens = 0;
    for (int i = 0; i < CANCELLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_cancelling, &c), 0);
    for (bool is_idle = false; n_cancelled < CANCELLED || !is_idle;) {
        assert_true(n_submitted < REQUESTS_MAX);
        carat_request_id asked[SLOTS], id;
        for (int i = 0; i < SLOTS && n_cancelled < CANCELLED; i++) {
            if (atomic_load(&c.running[i])) continue;
            assert_int_equal(carat_submit(c.engine, &request, &id, &err), CARAT_OK);
            atomic_store(&c.running[i], id);
            n_submitted++;
        }
        for (int i = 0; i < SLOTS; i++) asked[i] = atomic_load(&c.asked[i]);
        assert_true(carat_step(c.engine, &err) >= 0);
        take_ends(&c, &n_cancelled);
        is_idle = true;
        for (int i = 0; i < SLOTS; i++) {
            id = atomic_load(&c.running[i]);
            if (id && id == asked[i]) fail_msg("request %d still runs", (int)id);
            is_idle = is_idle && !id;
        }
    }
    atomic_store(&c.is_over, true);
    for (int i = 0; i < CANCELLERS; i++) pthread_join(threads[i], NULL);
    carat_engine_close(c.engine);
}

/* ---- Requests in JSON ------------------------------------------------------------------- */

static const char json[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <turn|>\"}],"
                           " \"temperature\": 0.5}";

static void a_request_in_json_is_the_same_as_one_of_values(void **state)
{
    (void)state;
    struct carat_value content = {.kind = CARAT_STRING, .as.string = {"Hi <turn|>", 10}};
    struct carat_value role = {.kind = CARAT_STRING, .as.string = {"user", 4}};
    struct carat_member pair[] = {{{"role", 4}, role}, {{"content", 7}, content}};
    struct carat_value message = {.kind = CARAT_OBJECT, .as.object = {pair, 2}};
    struct carat_value messages = {.kind = CARAT_ARRAY, .as.array = {&message, 1}};
    struct carat_member member = {{"messages", 8}, messages};
    struct carat_value root = {.kind = CARAT_OBJECT, .as.object = {&member, 1}};
    struct carat_error err = {0};
    int32_t *expected, *ids;
    size_t n_expected, n;
    assert_int_equal(carat_chat_tokenize(models[0], &root, &expected, &n_expected, &err), CARAT_OK);
    int status = carat_chat_tokenize_json(models[0], json, strlen(json), &ids, &n, &err);
#ifdef CARAT_HAVE_JSON
    assert_int_equal(status, CARAT_OK);
    assert_int_equal(n, n_expected);
    assert_memory_equal(ids, expected, n * sizeof *ids);
    carat_free(ids);
    status = carat_chat_tokenize_json(models[0], json, strlen(json) - 1, &ids, &n, &err);
    assert_int_equal(status, CARAT_EUSAGE);
    assert_non_null(strstr(err.message, "line 1"));
    static const char empty[] = "{\"messages\": 3}";
    status = carat_chat_tokenize_json(models[0], empty, strlen(empty), &ids, &n, &err);
    assert_int_equal(status, CARAT_EUSAGE);
    assert_non_null(strstr(err.message, "messages"));
#else
    assert_int_equal(status, CARAT_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "jansson"));
#endif
    carat_free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_is_that_of_the_header),
        cmocka_unit_test(a_zeroed_sampling_takes_the_likeliest_token),
        cmocka_unit_test(zeroed_filters_are_off),
        cmocka_unit_test(zeroed_engine_options_are_those_of_null),
        cmocka_unit_test(a_shorter_struct_lacks_what_is_zero),
        cmocka_unit_test(a_longer_struct_is_taken_as_far_as_the_rest_is_zero),
        cmocka_unit_test(log_probabilities_are_those_of_a_score_of_the_same_text),
        cmocka_unit_test(more_log_probabilities_than_twenty_are_refused),
        cmocka_unit_test(logits_can_be_changed_before_sampling),
        cmocka_unit_test(a_function_that_spoils_the_logits_ends_its_request_alone),
        cmocka_unit_test(a_request_ends_in_the_step_after_another_thread_cancels_it),
        cmocka_unit_test(a_request_in_json_is_the_same_as_one_of_values),
    };
    return cmocka_run_group_tests(tests, open_all, close_models);
}
