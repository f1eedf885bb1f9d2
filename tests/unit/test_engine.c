/* Requests, sequences, memory and failures of the engine, on tiny models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/ref/ref.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/limits.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

enum { SEED = 7, N_CTX = 128, IDS_MAX = 256 };

static struct scratch scratch;
static carat_model *models[GEMMA_SIZES];

/* ---- A backend that counts -------------------------------------------------------------- */

static struct {
    bool is_on, must_lose;
    size_t bytes, memory_available; /* 0: as it is */
    size_t pinned;
    int allocated, programs, weights, wrong_order;
    int32_t next_id[N_CTX], n_next; /* the chunk that the last step announced */
    int announced, surprising;      /* chunks that were announced, and those that were not */
} counted;

static struct backend counting;

static int count_alloc(struct device *device, size_t bytes, void **out, struct carat_error *err)
{
    int status = ref_backend.alloc(device, bytes, out, err);
    if (!status) counted.bytes += bytes, counted.allocated++;
    return status;
}

static void count_free(struct device *device, void *memory)
{
    if (counted.programs > 0 || !memory) counted.wrong_order++;
    counted.allocated--;
    ref_backend.free(device, memory);
}

static int count_load(struct device *device, struct weight *w, struct carat_error *err)
{
    counted.weights++;
    return ref_backend.weight_load(device, w, err);
}

static void count_unload(struct device *device, struct weight *w)
{
    if (counted.programs > 0) counted.wrong_order++;
    counted.weights--;
    ref_backend.weight_unload(device, w);
}

static int count_bind(struct device *device, const struct plan *plan,
                      const struct placement *placement, void *memory, void *work,
                      struct program **out, struct carat_error *err)
{
    int status = ref_backend.bind(device, plan, placement, memory, work, out, err);
    if (!status) counted.programs++;
    return status;
}

static void count_unbind(struct program *program)
{
    counted.programs--;
    ref_backend.unbind(program);
}

static void count_describe(const struct device *device, struct device_facts *out)
{
    ref_backend.describe(device, out);
    if (counted.memory_available) out->memory_available = counted.memory_available;
}

/* What is looked up ahead is used only where it is the next step's whole chunk. */
static void count_run(struct program *program, const struct step *step)
{
    int32_t n = step->n_token - step->n_decode;
    bool is_same = n == counted.n_next && memcmp(step->id + step->n_decode, counted.next_id,
                                                 (size_t)n * sizeof *step->id) == 0;
    if (n > 0) ++*(is_same ? &counted.announced : &counted.surprising);
    if (n == 0 && counted.n_next > 0) counted.surprising++;
    ref_backend.run(program, step);
    counted.n_next = step->n_next;
    assert_in_range(step->n_next, 0, N_CTX);
    if (step->n_next)
        memcpy(counted.next_id, step->next_id, (size_t)step->n_next * sizeof *step->next_id);
}

static void count_place(const struct device *device, const struct plan *plan,
                        const struct room *room, struct placement *out)
{
    (void)device, (void)plan, (void)room;
    *out = (struct placement){.pinned_bytes = counted.pinned};
}

static int count_fence(struct device *device, struct carat_error *err)
{
    if (counted.must_lose) return err_set(err, CARAT_EDEVICE, "the device is gone");
    return ref_backend.fence(device, err);
}

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    int status = __real_backend_find(out, name, err);
    if (!status && counted.is_on && *out == &ref_backend) *out = &counting;
    return status;
}

static void count_from_now(void)
{
    memset(&counted, 0, sizeof counted);
    counted.is_on = true;
    counting = ref_backend;
    counting.alloc = count_alloc;
    counting.free = count_free;
    counting.weight_load = count_load;
    counting.weight_unload = count_unload;
    counting.bind = count_bind;
    counting.unbind = count_unbind;
    counting.describe = count_describe;
    counting.run = count_run;
    counting.fence = count_fence;
    counting.place_weights = count_place;
}

static int stop_counting(void **state)
{
    (void)state;
    memset(&counted, 0, sizeof counted);
    return 0;
}

/* ---- Helpers ---------------------------------------------------------------------------- */

static const struct carat_sampling greedy = {.top_p = 1.0f, .repeat_penalty = 1.0f};

static int open_models(void **state)
{
    (void)state;
    return tiny_models_begin(models, &scratch, SEED);
}

static int close_models(void **state)
{
    (void)state;
    return tiny_models_end(models, &scratch);
}

static carat_engine *open_engine(enum gemma_size size, int32_t n_seq, int32_t chunk)
{
    carat_engine *e;
    struct carat_error err = {0};
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = N_CTX, .n_seq = n_seq, .chunk = chunk};
    if (carat_engine_open(&e, models[size], &options, &err)) fail_msg("%s", err.message);
    return e;
}

/* What came back for one request. */
struct answer {
    carat_request_id request;
    int32_t ids[IDS_MAX];
    float logprobs[IDS_MAX];
    int32_t n, progress;
    bool is_done;
    struct carat_event done;
};

static void draw_prompt(uint64_t seed, int32_t *prompt, size_t n)
{
    struct rng rng = {.state = seed};
    for (size_t i = 0; i < n; i++) prompt[i] = (int32_t)rng_below(&rng, 768);
    prompt[0] = 2;
}

static struct carat_request request_of(const int32_t *prompt, size_t n, int32_t max_tokens)
{
    return (struct carat_request){.prompt = prompt,
                                  .n_prompt = n,
                                  .max_tokens = max_tokens,
                                  .sampling = greedy,
                                  .ignore_stop = true,
                                  .want_logprob = true};
}

static carat_request_id submit(carat_engine *e, const struct carat_request *request)
{
    carat_request_id id;
    struct carat_error err = {0};
    if (carat_submit(e, request, &id, &err)) fail_msg("%s", err.message);
    return id;
}

static void take_events(carat_engine *e, struct answer *answers, size_t n)
{
    struct carat_event event;
    while (carat_next_event(e, &event)) {
        size_t i = 0;
        while (i < n && answers[i].request != event.request) i++;
        assert_true(i < n);
        struct answer *a = &answers[i];
        assert_false(a->is_done);
        switch (event.kind) {
        case CARAT_EVENT_PROGRESS:
            assert_true(event.done > a->progress && event.done <= event.total);
            a->progress = event.done;
            break;
        case CARAT_EVENT_TOKEN:
            assert_true(a->n < IDS_MAX);
            a->ids[a->n] = event.id;
            a->logprobs[a->n++] = event.logprob;
            break;
        case CARAT_EVENT_DONE:
            a->is_done = true;
            a->done = event;
            break;
        }
    }
}

static void run_all(carat_engine *e, struct answer *answers, size_t n)
{
    struct carat_error err = {0};
    int left;
    do {
        left = carat_step(e, &err);
        if (left < 0) fail_msg("%s", err.message);
        take_events(e, answers, n);
    } while (left > 0);
    for (size_t i = 0; i < n; i++) {
        if (!answers[i].is_done) fail_msg("request %zu did not end", i);
        assert_int_equal(answers[i].n, answers[i].done.n_generated);
    }
}

static struct answer answer_of(carat_engine *e, const struct carat_request *request)
{
    struct answer a = {.request = submit(e, request)};
    run_all(e, &a, 1);
    return a;
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
        carat_engine *e = open_engine((enum gemma_size)size, 1, 9);
        draw_prompt(SEED, text, 20);
        struct carat_request request = request_of(text, 20, 30);
        struct answer a = answer_of(e, &request);
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
    carat_engine *e = open_engine(GEMMA_E2B, 1, 32);
    draw_prompt(SEED, prompt, N_CTX);
    static const int32_t cases[][3] = {
        /* prompt, max_tokens, generated */
        {5, 1, 1},          {5, 7, 7},         {N_CTX - 1, 0, 1},      {N_CTX - 1, 50, 1},
        {N_CTX - 4, -1, 4}, {1, 0, N_CTX - 1}, {1, 100000, N_CTX - 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct carat_request request = request_of(prompt, (size_t)cases[i][0], cases[i][1]);
        struct answer a = answer_of(e, &request);
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
    carat_engine *e = open_engine(GEMMA_E4B, 1, 4);
    draw_prompt(SEED, prompt, 8);
    for (int i = 0; i < 3; i++) {
        assert_true(carat_token_is_stop(models[GEMMA_E4B], stops[i]));
        struct carat_logit_bias bias = {.id = stops[i], .bias = 200.0f};
        struct carat_request request = request_of(prompt, 8, 5);
        request.bias = &bias;
        request.n_bias = 1;
        request.ignore_stop = false;
        struct answer a = answer_of(e, &request);
        assert_int_equal(a.done.finish, CARAT_FINISH_STOP);
        assert_int_equal(a.done.stop_id, stops[i]);
        assert_int_equal(a.n, 0);
        request.ignore_stop = true;
        a = answer_of(e, &request);
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
    carat_engine *e = open_engine(GEMMA_12B, 2, 10);
    draw_prompt(SEED, prompt, 60);
    struct carat_request request = request_of(prompt, 60, 20);
    struct answer alone = answer_of(e, &request);
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

static void closing_with_running_requests_frees_everything(void **state)
{
    (void)state;
    int32_t prompt[30];
    struct carat_error err = {0};
    long before = mem_blocks_live();
    carat_engine *e = open_engine(GEMMA_31B, 3, 10);
    draw_prompt(SEED, prompt, 30);
    struct carat_request request = request_of(prompt, 30, 20);
    submit(e, &request);
    assert_int_equal(carat_step(e, &err), 1);
    submit(e, &request);
    carat_engine_close(e);
    assert_int_equal(mem_blocks_live(), before);
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
    carat_engine *e = open_engine(GEMMA_26B, 1, 8);
    draw_prompt(SEED, prompt, N_CTX);
    struct carat_request r = request_of(prompt, 0, 1);
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
    r.sampling = greedy;
    struct carat_logit_bias bias = {.id = 768, .bias = 1};
    r.bias = &bias;
    r.n_bias = 1;
    check_refused(e, &r, CARAT_EUSAGE, "767");
    r.n_bias = 0;
    submit(e, &r);
    check_refused(e, &r, CARAT_EBUSY, "all 1 sequences");
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
        {{.n_ctx = 513}, CARAT_EUSAGE, "16 to 512 expected, 513 found"},
        {{.n_ctx = 15}, CARAT_EUSAGE, "16 to 512 expected, 15 found"},
        {{.n_ctx = -1}, CARAT_EUSAGE, "-1 found"},
        {{.n_seq = -1}, CARAT_EUSAGE, "-1 found"},
        {{.n_seq = SEQUENCES_MAX + 1}, CARAT_EUSAGE, "1025 found"},
        {{.chunk = -5}, CARAT_EUSAGE, "-5 found"},
        {{.chunk = CHUNK_MAX + 1}, CARAT_EUSAGE, "8193 found"},
        {{.gpu_memory = -1}, CARAT_EUSAGE, "-1 found"},
        {{.gpu_memory_percent = 101}, CARAT_EUSAGE, "0 to 100 expected, 101 found"},
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

enum { N_MIXED = 4 };
static const size_t mixed_lengths[N_MIXED] = {3, 37, 60, 9};

static struct carat_request mixed_request(int i, int32_t *prompt)
{
    draw_prompt(SEED + (uint64_t)i, prompt, mixed_lengths[i]);
    struct carat_request request = request_of(prompt, mixed_lengths[i], 12 + 5 * i);
    if (i % 2) { /* drawn, not greedy: each request has its own generator */
        request.sampling.temperature = 1.5f;
        request.sampling.seed = 100 + (uint64_t)i;
    }
    return request;
}

static void check_same(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->n * sizeof *a->logprobs);
}

/* The whole answer, to the last bit of its probabilities, whoever else is running, whenever they
 * came and in which chunks the prompts are read. */
static void a_sequence_does_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    int32_t prompt[N_CTX];
    for (int size = 0; size < GEMMA_SIZES; size++) {
        struct answer alone[N_MIXED], mixed[N_MIXED];
        carat_engine *e = open_engine((enum gemma_size)size, 1, 64);
        for (int i = 0; i < N_MIXED; i++) {
            struct carat_request request = mixed_request(i, prompt);
            alone[i] = answer_of(e, &request);
        }
        carat_engine_close(e);
        static const int32_t chunks[] = {5, 16};
        for (int k = 0; k < 2; k++) {
            struct carat_error err = {0};
            e = open_engine((enum gemma_size)size, N_MIXED, chunks[k]);
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

/* All but the first, with others that decode in front of them; a cancelled request's is not run. */
static void every_chunk_is_announced_by_the_step_before_it(void **state)
{
    (void)state;
    enum { CHUNK = 5 };
    int32_t prompt[N_CTX];
    double seconds;
    struct carat_error err = {0};
    struct answer answers[N_MIXED] = {0};
    int chunks = 0;
    count_from_now();
    carat_engine *e = open_engine(GEMMA_E2B, N_MIXED, CHUNK);
    for (int i = 0; i < N_MIXED; i++) {
        struct carat_request request = mixed_request(i, prompt);
        answers[i].request = submit(e, &request);
        chunks += ((int)request.n_prompt + CHUNK - 1) / CHUNK;
    }
    run_all(e, answers, N_MIXED);
    assert_int_equal(counted.surprising, 1);
    assert_int_equal(counted.announced, chunks - 1);
    struct carat_request request = request_of(prompt, 4 * CHUNK, 1);
    struct answer cancelled = {.request = submit(e, &request)};
    assert_int_equal(carat_step(e, &err), 1);
    assert_int_equal(counted.n_next, CHUNK);
    assert_int_equal(carat_cancel(e, cancelled.request), CARAT_OK);
    run_all(e, &cancelled, 1);
    counted.announced = counted.surprising = counted.n_next = 0;
    struct carat_measure what = {.n_prompt = 4 * CHUNK + 1, .n_gen = 2};
    assert_int_equal(carat_measure(e, &what, &seconds, &err), CARAT_OK);
    assert_int_equal(counted.surprising, 1);
    assert_int_equal(counted.announced, 4);
    carat_engine_close(e);
}

static void a_slot_used_again_remembers_nothing(void **state)
{
    (void)state;
    int32_t prompt[N_CTX];
    carat_engine *e = open_engine(GEMMA_E2B, 2, 16);
    struct carat_request request = mixed_request(2, prompt);
    struct answer first = answer_of(e, &request), again;
    request = mixed_request(1, prompt);
    answer_of(e, &request);
    request = mixed_request(2, prompt);
    again = answer_of(e, &request);
    check_same(&first, &again);
    carat_engine_close(e);
}

/* ---- Memory ----------------------------------------------------------------------------- */

static void the_memory_table_is_what_is_taken(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        struct carat_engine_options options = {.backend = "ref",
                                               .n_ctx = 100 + size,
                                               .n_seq = 1 + size,
                                               .chunk = 8 * (size + 1),
                                               .kv_type = size % 2 ? CARAT_KV_F16 : CARAT_KV_AUTO};
        struct carat_memory estimate;
        struct carat_error err = {0};
        carat_engine *e;
        count_from_now();
        assert_int_equal(carat_memory_estimate(models[size], &options, &estimate, &err), CARAT_OK);
        assert_int_equal(counted.bytes, 0);
        assert_int_equal(carat_engine_open(&e, models[size], &options, &err), CARAT_OK);
        const struct carat_memory *m = carat_engine_memory(e);
        assert_int_equal(counted.bytes, m->kv_local + m->kv_global + m->buffers);
        assert_int_equal(m->total, counted.bytes + m->weights_mapped + m->step);
        assert_int_equal(m->n_ctx, 100 + size);
        assert_int_equal(estimate.total, m->total);
        assert_int_equal(estimate.kv_local, m->kv_local);
        assert_int_equal(estimate.kv_global, m->kv_global);
        assert_int_equal(estimate.buffers, m->buffers);
        assert_int_equal(counted.programs, e->runner->layout.plans.n_buckets);
        const struct carat_setup *setup = carat_engine_setup(e);
        assert_int_equal(setup->kv_type, size % 2 ? CARAT_KV_F16 : CARAT_KV_F32);
        assert_int_equal(setup->kv_reason, size % 2 ? CARAT_REASON_ASKED : CARAT_REASON_DEFAULT);
        assert_string_equal(setup->backend, "ref");
        carat_engine_close(e);
        assert_int_equal(counted.programs, 0);
        assert_int_equal(counted.allocated, 0);
        assert_int_equal(counted.weights, 0);
        assert_int_equal(counted.wrong_order, 0); /* unbind before free, as backend.h says */
    }
}

/* All allocations fail while the engine steps: nobody notices. */
static void a_step_allocates_nothing(void **state)
{
    (void)state;
    int32_t prompt[N_CTX];
    for (int size = 0; size < GEMMA_SIZES; size++) {
        carat_engine *e = open_engine((enum gemma_size)size, N_MIXED, 16);
        struct answer answers[N_MIXED] = {0};
        for (int i = 0; i < N_MIXED; i++) {
            struct carat_request request = mixed_request(i, prompt);
            request.sampling.repeat_penalty = 1.1f;
            request.sampling.repeat_last_n = 8;
            answers[i].request = submit(e, &request);
        }
        mem_fail_after(0);
        run_all(e, answers, N_MIXED);
        assert_int_equal(mem_fail_after(-1), 0);
        carat_engine_close(e);
    }
}

/* Fails the n-th allocation for rising n until `call` succeeds without one failing. */
static void sweep(int (*call)(struct carat_error *err), const char *what)
{
    long before = mem_blocks_live();
    for (long n = 0;; n++) {
        struct carat_error err = {0};
        mem_fail_after(n);
        int status = call(&err);
        int delivered = mem_fail_after(-1);
        if (mem_blocks_live() != before) fail_msg("%s: allocation %ld: a leak", what, n);
        if (!delivered) {
            assert_int_equal(status, CARAT_OK);
            print_message("%s: %ld allocations\n", what, n);
            assert_true(n > 0);
            return;
        }
        if (status != CARAT_EMEMORY || err.code != CARAT_EMEMORY || !err.message[0])
            fail_msg("%s: allocation %ld: status %d, \"%s\"", what, n, status, err.message);
    }
}

static const struct carat_engine_options reference = {.backend = "ref"};
static char sweep_path[512];
static carat_engine *sweep_engine;

static int open_model_once(struct carat_error *err)
{
    carat_model *m;
    int status = carat_model_open(&m, sweep_path, err);
    carat_model_close(m);
    return status;
}

static int open_engine_once(struct carat_error *err)
{
    carat_engine *e;
    struct carat_engine_options options = {.backend = "ref", .n_ctx = 32, .n_seq = 3, .chunk = 4};
    int status = carat_engine_open(&e, models[GEMMA_26B], &options, err);
    carat_engine_close(e);
    return status;
}

static int open_cpu_engine_once(struct carat_error *err)
{
    carat_engine *e;
    struct carat_engine_options options = {
        .backend = "cpu", .n_ctx = 32, .n_seq = 3, .chunk = 4, .n_threads = 2};
    int status = carat_engine_open(&e, models[GEMMA_26B], &options, err);
    carat_engine_close(e);
    return status;
}

static int estimate_once(struct carat_error *err)
{
    struct carat_memory memory;
    return carat_memory_estimate(models[GEMMA_E2B], &reference, &memory, err);
}

static int plan_text_once(struct carat_error *err)
{
    char *text = NULL;
    int status = carat_plan_text(models[GEMMA_E2B], &reference, 1, 1, &text, err);
    carat_free(text);
    return status;
}

static int devices_once(struct carat_error *err)
{
    char *text = NULL;
    int status = carat_devices_json(&text, err);
    carat_free(text);
    return status;
}

static int show_once(struct carat_error *err)
{
    char *text = NULL;
    int status = carat_show_json(sweep_path, &text, err);
    carat_free(text);
    return status;
}

static int submit_once(struct carat_error *err)
{
    static const int32_t prompt[] = {2, 3, 4};
    struct carat_logit_bias bias = {.id = 9, .bias = 1};
    struct carat_request request = request_of(prompt, 3, 4);
    request.bias = &bias;
    request.n_bias = 1;
    request.sampling.frequency_penalty = 0.5f;
    request.sampling.repeat_last_n = 64;
    carat_request_id id;
    struct carat_event event;
    int status = carat_submit(sweep_engine, &request, &id, err);
    if (status) return status;
    carat_cancel(sweep_engine, id);
    carat_step(sweep_engine, err);
    while (carat_next_event(sweep_engine, &event)) {
    }
    return CARAT_OK;
}

static void running_out_of_memory_anywhere_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct tiny_options options = {.size = GEMMA_26B, .format = FORMAT_Q4_0, .seed = SEED};
    scratch_file(&scratch, "sweep.gguf", sweep_path);
    assert_int_equal(tiny_model_save(sweep_path, &options, &err), CARAT_OK);
    sweep(open_model_once, "carat_model_open");
    sweep(show_once, "carat_show_json");
    sweep(open_engine_once, "carat_engine_open");
    sweep(open_cpu_engine_once, "carat_engine_open of the cpu backend");
    sweep(estimate_once, "carat_memory_estimate");
    sweep(plan_text_once, "carat_plan_text");
    sweep(devices_once, "carat_devices_json");
    sweep_engine = open_engine(GEMMA_E2B, 2, 8);
    sweep(submit_once, "carat_submit");
    carat_engine_close(sweep_engine);
    remove(sweep_path);
}

static void what_does_not_fit_is_refused_with_need_and_have(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_memory memory;
    struct carat_engine_options options = {.backend = "ref", .n_ctx = 512, .n_seq = 64};
    carat_engine *e;
    count_from_now();
    assert_int_equal(carat_memory_estimate(models[GEMMA_31B], &options, &memory, &err), CARAT_OK);
    size_t needed = memory.total - memory.weights_mapped;
    /* Beside the table: a few megabytes, a 256th, and 65 rows of logits. */
    size_t rest = (4 << 20) + needed / 256 +
                  65 * sizeof(float) * (size_t)carat_model_info(models[GEMMA_31B])->n_vocab;
    counted.memory_available = needed + rest;
    assert_int_equal(carat_memory_estimate(models[GEMMA_31B], &options, &memory, &err), CARAT_OK);
    counted.memory_available = needed + rest - 1024;
    assert_int_equal(carat_engine_open(&e, models[GEMMA_31B], &options, &err), CARAT_EMEMORY);
    assert_non_null(strstr(err.message, "512 positions for 64 sequences"));
    assert_non_null(strstr(err.hint, "-c"));
    assert_int_equal(counted.bytes, 0);
}

static void pinned_memory_is_told_and_has_to_be_there(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_memory without, with;
    struct carat_engine_options options = {.backend = "ref", .n_ctx = 64};
    carat_engine *e;
    count_from_now();
    assert_int_equal(carat_memory_estimate(models[0], &options, &without, &err), CARAT_OK);
    assert_int_equal(without.pinned, 0);
    counted.pinned = 12345;
    assert_int_equal(carat_memory_estimate(models[0], &options, &with, &err), CARAT_OK);
    assert_int_equal(with.pinned, 12345);
    assert_int_equal(with.total, without.total + 12345);
    counted.pinned = SIZE_MAX / 2;
    assert_int_equal(carat_engine_open(&e, models[0], &options, &err), CARAT_EMEMORY);
    assert_non_null(strstr(err.message, "pinned host memory"));
    assert_non_null(strstr(err.hint, "--ple host"));
    assert_int_equal(counted.bytes, 0);
}

/* ---- Failures of the device and of the model -------------------------------------------- */

static void a_lost_device_is_reported_by_every_later_step(void **state)
{
    (void)state;
    int32_t prompt[8];
    struct carat_error err = {0};
    count_from_now();
    carat_engine *e = open_engine(GEMMA_E2B, 1, 8);
    draw_prompt(SEED, prompt, 8);
    struct carat_request request = request_of(prompt, 8, 8);
    struct answer a = {.request = submit(e, &request)};
    assert_int_equal(carat_step(e, &err), 1);
    take_events(e, &a, 1);
    counted.must_lose = true;
    assert_int_equal(carat_step(e, &err), CARAT_EDEVICE);
    counted.must_lose = false;
    assert_int_equal(carat_step(e, &err), CARAT_EDEVICE);
    carat_engine_close(e);
    assert_int_equal(counted.allocated, 0);
}

static int ignore_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    (void)user, (void)position, (void)logits, (void)n_vocab;
    return 0;
}

static void a_model_that_gives_nan_ends_in_an_error_and_the_engine_goes_on(void **state)
{
    (void)state;
    char path[512];
    struct carat_error err = {0};
    struct gguf_writer w = {0};
    struct tiny_options options = {.size = GEMMA_12B, .format = FORMAT_F32, .seed = SEED};
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
    draw_prompt(SEED, prompt, 8);
    struct carat_request request = request_of(prompt, 8, 8);
    for (int i = 0; i < 2; i++) {
        struct answer a = answer_of(e, &request);
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
    carat_engine *e = open_engine(GEMMA_E2B, 2, 4);
    draw_prompt(SEED, prompt, 8);
    struct carat_request request = request_of(prompt, 8, 40);
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
    assert_true(n_busy > 5);
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
    carat_engine *e = open_engine(GEMMA_E4B, 2, 8);
    draw_prompt(SEED, tokens, N_CTX + 1);
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
    struct carat_request request = request_of(tokens, 8, 8);
    double seconds;
    struct carat_measure what = {.n_prompt = 4};
    carat_request_id id = submit(e, &request);
    assert_int_equal(carat_score(e, tokens, 8, NULL, 0, ignore_row, NULL, &err), CARAT_EBUSY);
    assert_int_equal(carat_measure(e, &what, &seconds, &err), CARAT_EBUSY);
    carat_cancel(e, id);
    carat_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_tokens_are_the_best_of_a_score_of_the_same_text),
        cmocka_unit_test(an_answer_ends_at_max_tokens_or_with_the_context),
        cmocka_unit_test(a_stop_token_ends_the_answer_and_is_not_part_of_it),
        cmocka_unit_test(a_cancelled_request_ends_at_the_next_step),
        cmocka_unit_test(closing_with_running_requests_frees_everything),
        cmocka_unit_test(bad_requests_are_refused_with_the_reason),
        cmocka_unit_test(options_out_of_range_are_refused_with_the_range),
        cmocka_unit_test(a_sequence_does_not_depend_on_its_neighbours),
        cmocka_unit_test_teardown(every_chunk_is_announced_by_the_step_before_it, stop_counting),
        cmocka_unit_test(a_slot_used_again_remembers_nothing),
        cmocka_unit_test_teardown(the_memory_table_is_what_is_taken, stop_counting),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(running_out_of_memory_anywhere_is_reported_and_leaks_nothing),
        cmocka_unit_test_teardown(what_does_not_fit_is_refused_with_need_and_have, stop_counting),
        cmocka_unit_test_teardown(pinned_memory_is_told_and_has_to_be_there, stop_counting),
        cmocka_unit_test_teardown(a_lost_device_is_reported_by_every_later_step, stop_counting),
        cmocka_unit_test(a_model_that_gives_nan_ends_in_an_error_and_the_engine_goes_on),
        cmocka_unit_test(a_step_is_refused_until_its_events_fit),
        cmocka_unit_test(scoring_checks_its_arguments_and_obeys_its_caller),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
