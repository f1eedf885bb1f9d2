/* What a step costs the host besides the device's work: on a device that computes nothing, with
 * sequences that decode. It grows with their number, and not with the size of the caches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/ref/ref.h"
#include "support/cost.h"
#include "support/engines.h"

/* ---- A device that knows all logits beforehand ------------------------------------------ */

enum { PAIRS = 128 };

static struct logit_pair pairs[PAIRS];
static struct backend idle;

static void run_nothing(struct program *program, const struct step *step)
{
    (void)program;
    (void)step;
}

static int give_pairs(struct program *program, int32_t row, const struct logit_pair **out)
{
    (void)program;
    (void)row;
    *out = pairs;
    return PAIRS;
}

/* The pairs are enough: nothing is as long as the vocabulary. */
static void copy_no_row(struct device *device, void *host, const void *memory, size_t bytes)
{
    (void)device, (void)host, (void)memory;
    fail_msg("%zu bytes of logits were copied", bytes);
}

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    int status = __real_backend_find(out, name, err);
    idle = ref_backend;
    idle.run = run_nothing;
    idle.best = give_pairs;
    idle.download = copy_no_row;
    for (int32_t i = 0; i < PAIRS; i++)
        pairs[i] = (struct logit_pair){.id = 300 + i, .logit = 20 - 0.1f * (float)i};
    if (!status && *out == &ref_backend) *out = &idle;
    return status;
}

/* ---- Steps ------------------------------------------------------------------------------ */

enum { N_PROMPT = 70, N_STEPS = 250, N_CTX = 512, SMALL = 64, LARGE = 256, MEGABYTES = 32 };

/* Sampling as the model's own parameters want it: 64 candidates of the device's best. */
static void submit(carat_engine *e, uint64_t seed)
{
    int32_t prompt[N_PROMPT];
    struct carat_error err;
    carat_request_id id;
    struct carat_request r = {
        .prompt = prompt,
        .n_prompt = N_PROMPT,
        .max_tokens = N_CTX,
        .ignore_stop = true,
        .fairness_key = seed % 7,
        .sampling = {.temperature = 1, .top_k = 64, .top_p = 0.95f, .seed = seed}};
    draw_ids(seed, prompt, N_PROMPT);
    assert_int_equal(carat_submit(e, &r, &id, &err), CARAT_OK);
}

static int32_t take_step(carat_engine *e)
{
    struct carat_error err;
    int32_t n_tokens = 0;
    const struct carat_event *event;
    assert_int_equal(carat_step(e, &err), 1);
    while ((event = carat_next_event(e))) n_tokens += event->kind == CARAT_EVENT_TOKEN;
    return n_tokens;
}

/* Steps in which n_seq sequences decode, and fill pages, while as many more wait. */
static void decode(int32_t n_seq, size_t cache_bytes)
{
    struct carat_engine_options o = {.backend = "ref",
                                     .n_ctx = N_CTX,
                                     .n_seq = n_seq,
                                     .n_queue = 2 * n_seq,
                                     .cache_bytes = (int64_t)cache_bytes,
                                     .max_itl_ms = 1e9};
    carat_engine *e = open_engine(models[GEMMA_E2B], &o);
    for (int32_t i = 0; i < 2 * n_seq; i++) submit(e, (uint64_t)i + 1);
    int32_t tries = 0;
    while (take_step(e) < n_seq) assert_true(++tries < N_CTX - N_PROMPT - N_STEPS);
    cost_begin();
    for (size_t i = 0; i < N_STEPS; i++) assert_int_equal(take_step(e), n_seq);
    cost_end();
    carat_engine_close(e);
}

static void decode_sequences(void *user, size_t n_seq)
{
    (void)user;
    decode((int32_t)n_seq, 0);
}

static void decode_in_cache(void *user, size_t megabytes)
{
    (void)user;
    decode(SMALL, megabytes << 20);
}

static void a_step_costs_as_much_as_it_has_sequences(void **state)
{
    (void)state;
    print_message("%d steps of %d and %d sequences: ", N_STEPS, SMALL, LARGE);
    assert_true(cost_ratio(decode_sequences, NULL, SMALL, LARGE) < LINEAR_MAX);
}

static void a_step_costs_the_same_however_large_the_caches_are(void **state)
{
    (void)state;
    print_message("%d steps with %d and %d MB of caches: ", N_STEPS, MEGABYTES, 8 * MEGABYTES);
    assert_true(cost_ratio(decode_in_cache, NULL, MEGABYTES, (size_t)8 * MEGABYTES) < 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_costs_as_much_as_it_has_sequences),
        cmocka_unit_test(a_step_costs_the_same_however_large_the_caches_are),
    };
    return cmocka_run_group_tests_name("step cost", tests, open_models, close_models);
}
