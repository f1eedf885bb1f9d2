/* Engines with a drafter: answers are those without one, and come in fewer steps as far as the
 * drafter knows its model. The pairs of tests/support/gemma_file.h agree on as many tokens as is
 * asked for. With support/guesses.h, which is told no answers here, nothing is guessed from the
 * context, as these answers go round in circles, and every guess of the drafter is taken, so that
 * steps do not depend on times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "carat_inspect.h"
#include "support/answers.h"
#include "support/devices.h"
#include "support/guesses.h"

enum { N_CTX = 256, N_ANSWER = 90, N_SEQ = 20 };

/* A model and two drafters: one that always knows its next token, one that often does not. */
static struct pair {
    carat_model *model;
    carat_drafter *knowing, *guessing;
} pairs[GEMMA_SIZES];

static carat_drafter *open_drafter(const struct tiny_options *options, const carat_model *model)
{
    char path[512];
    carat_drafter *drafter;
    struct carat_error err = {0};
    scratch_file(&scratch, "drafter.gguf", path);
    assert_int_equal(tiny_drafter_save(path, options, &err), CARAT_OK);
    if (carat_drafter_open(&drafter, path, model, &err)) fail_msg("%s", err.message);
    remove(path); /* the mapping stays */
    return drafter;
}

static int open_pairs(void **state)
{
    if (open_models(state)) return -1;
    guesses_clear();
    for (int i = 0; i < GEMMA_SIZES; i++) {
        char path[512];
        struct carat_error err = {0};
        struct tiny_options options = {
            .size = (enum gemma_size)i, .format = FORMAT_F32, .seed = TINY_SEED, .is_simple = true};
        scratch_file(&scratch, "simple.gguf", path);
        if (tiny_model_save(path, &options, &err) ||
            carat_model_open(&pairs[i].model, path, &err)) {
            print_message("%s\n", err.message);
            return -1;
        }
        remove(path);
        options.agreement = 100;
        pairs[i].knowing = open_drafter(&options, pairs[i].model);
        options.agreement = 60;
        pairs[i].guessing = open_drafter(&options, pairs[i].model);
    }
    return 0;
}

static int close_pairs(void **state)
{
    for (int i = 0; i < GEMMA_SIZES; i++) {
        carat_drafter_close(pairs[i].knowing);
        carat_drafter_close(pairs[i].guessing);
        carat_model_close(pairs[i].model);
    }
    return close_models(state);
}

/* ---- Answers ---------------------------------------------------------------------------- */

/* Prompts of several lengths; every second request draws its tokens. */
static struct carat_request request(int i, int32_t prompt[128])
{
    struct carat_request r = mixed_request(i % N_MIXED, prompt);
    draw_ids(TINY_SEED + (uint64_t)i, prompt, r.n_prompt);
    r.max_tokens = N_ANSWER;
    r.ignore_stop = true;
    return r;
}

/* All requests at once. Returns what the engine has counted. */
static struct carat_stats answer_all(const carat_model *model,
                                     const struct carat_engine_options *options,
                                     struct answer answers[N_SEQ])
{
    carat_engine *e = open_engine(model, options);
    memset(answers, 0, N_SEQ * sizeof *answers);
    for (int i = 0; i < options->n_seq; i++) {
        int32_t prompt[128];
        struct carat_request r = request(i, prompt);
        answers[i].request = submit(e, &r);
    }
    run_all(e, answers, (size_t)options->n_seq);
    struct carat_stats stats = *carat_engine_stats(e);
    carat_engine_close(e);
    return stats;
}

static enum carat_matmul decode_matmul; /* of the engines that are opened */

static struct carat_engine_options options_of(const char *backend, int32_t n_seq,
                                              int32_t gpu_layers)
{
    return (struct carat_engine_options){.size = sizeof(struct carat_engine_options),
                                         .backend = backend,
                                         .n_ctx = N_CTX,
                                         .n_seq = n_seq,
                                         .chunk = 64,
                                         .n_threads = 1,
                                         .max_itl_ms = 1e9,
                                         .decode_matmul = decode_matmul,
                                         .gpu_layers = gpu_layers};
}

/* Without a drafter or guesses, and with each drafter. */
static void check_pairs(const char *backend, int32_t n_seq, int32_t gpu_layers)
{
    static struct answer plain[N_SEQ], drafted[N_SEQ];
    for (int i = 0; i < GEMMA_SIZES; i++) {
        struct carat_engine_options options = options_of(backend, n_seq, gpu_layers);
        struct carat_stats before = answer_all(pairs[i].model, &options, plain), known, guessed;
        options.n_draft = n_seq > 3 ? 2 : 7 / n_seq;
        options.drafter = pairs[i].knowing;
        known = answer_all(pairs[i].model, &options, drafted);
        for (int s = 0; s < n_seq; s++) check_same(&plain[s], &drafted[s]);
        options.drafter = pairs[i].guessing;
        guessed = answer_all(pairs[i].model, &options, drafted);
        for (int s = 0; s < n_seq; s++) check_same(&plain[s], &drafted[s]);
        print_message("size %d, %d sequences: %d steps, %d and %d with drafters; %d of %d and %d "
                      "of %d guesses were right\n",
                      i, n_seq, (int)before.steps, (int)known.steps, (int)guessed.steps,
                      (int)known.accepted, (int)known.drafted, (int)guessed.accepted,
                      (int)guessed.drafted);
        assert_true(known.accepted > 0 && guessed.accepted > 0);
        assert_true(guessed.accepted < guessed.drafted);
        if (n_seq > 1) continue; /* the second draws what nobody can know */
        assert_int_equal(known.accepted, known.drafted);
        assert_true(known.steps <= before.steps / 4 && guessed.steps < before.steps);
    }
}

static void reference_drafters_change_no_answer(void **state)
{
    (void)state;
    check_pairs("ref", 1, 0);
    check_pairs("ref", 3, 0);
}

static void cpu_drafters_change_no_answer(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 3; n++) check_pairs("cpu", n, 0);
}

/* All have a guess or two in every step: up to 60 rows. */
static void drafters_of_many_sequences_change_no_answer(void **state)
{
    (void)state;
    check_pairs("cpu", 9, 0);
    check_pairs("cpu", N_SEQ, 0);
}

/* In one way of multiplying, whose rows are all computed alike. */
static void cuda_drafters_of_many_sequences_change_no_answer(void **state)
{
    (void)state;
    need_device("cuda");
    static const enum carat_matmul ways[] = {CARAT_MATMUL_INT8, CARAT_MATMUL_FP16};
    for (int i = 0; i < 2; i++) {
        decode_matmul = ways[i];
        check_pairs("cuda", 9, 0);
        check_pairs("cuda", N_SEQ, 0);
    }
    decode_matmul = CARAT_MATMUL_AUTO;
}

/* Some layers on a device that is not the first. */
static void drafters_of_divided_models_change_no_answer(void **state)
{
    (void)state;
    check_pairs("ref", 2, 2);
}

static void cuda_drafters_change_no_answer(void **state)
{
    (void)state;
    need_device("cuda");
    for (int32_t n = 1; n <= 3; n++) check_pairs("cuda", n, 0);
    check_pairs("cuda", 2, 2);
}

/* Nothing is right but by chance. */
static void a_drafter_that_knows_nothing_changes_no_answer(void **state)
{
    (void)state;
    static struct answer plain[N_SEQ], drafted[N_SEQ];
    for (int i = 0; i < GEMMA_SIZES; i++) {
        struct tiny_options random = {
            .size = (enum gemma_size)i, .format = FORMAT_Q8_0, .seed = TINY_SEED + 1};
        carat_drafter *drafter = open_drafter(&random, models[i]);
        struct carat_engine_options options = options_of("cpu", 2, 0);
        answer_all(models[i], &options, plain);
        options.n_draft = 3;
        options.drafter = drafter;
        struct carat_stats stats = answer_all(models[i], &options, drafted);
        for (int s = 0; s < 2; s++) check_same(&plain[s], &drafted[s]);
        print_message("size %d: %d of %d guesses were right\n", i, (int)stats.accepted,
                      (int)stats.drafted);
        carat_drafter_close(drafter);
    }
}

static void a_step_with_a_drafter_allocates_nothing(void **state)
{
    (void)state;
    const struct pair *pair = &pairs[GEMMA_12B];
    struct carat_engine_options options = options_of("cpu", 1, 0);
    options.n_draft = 7;
    options.drafter = pair->knowing;
    static struct answer answer;
    carat_engine *e = open_engine(pair->model, &options);
    int32_t prompt[128];
    struct carat_request r = request(0, prompt);
    answer = (struct answer){.request = submit(e, &r)};
    mem_fail_after(0);
    run_all(e, &answer, 1);
    assert_int_equal(mem_fail_after(-1), 0);
    assert_true(answer.done.n_accepted > 0);
    carat_engine_close(e);
}

/* Steps of others in between leave no row of the sequence on the device. */
static void a_sequence_that_was_paused_is_guessed_again(void **state)
{
    (void)state;
    const struct pair *pair = &pairs[GEMMA_E2B];
    static struct answer plain[N_SEQ], drafted[N_SEQ];
    struct carat_engine_options options = options_of("cpu", 2, 0);
    answer_all(pair->model, &options, plain);
    options.n_draft = 3;
    options.drafter = pair->knowing;
    carat_engine *e = open_engine(pair->model, &options);
    struct carat_error err = {0};
    memset(drafted, 0, sizeof drafted);
    for (int i = 0; i < 2; i++) {
        int32_t prompt[128];
        struct carat_request r = request(i, prompt);
        drafted[i].request = submit(e, &r);
    }
    for (int step = 0; !drafted[0].is_done || !drafted[1].is_done; step++) {
        assert_true(carat_step(e, &err) >= 0);
        take_events(e, drafted, 2);
        carat_pause(e, drafted[1].request, step % 4 >= 2 && !drafted[0].is_done);
        carat_pause(e, drafted[0].request, step % 4 < 2 && !drafted[1].is_done);
    }
    for (int i = 0; i < 2; i++) check_same(&plain[i], &drafted[i]);
    assert_true(carat_engine_stats(e)->accepted > 0);
    carat_engine_close(e);
}

static void what_is_printed_about_memory_is_what_is_taken(void **state)
{
    (void)state;
    for (int i = 0; i < GEMMA_SIZES; i++) {
        struct carat_memory without, with, estimate;
        struct carat_error err = {0};
        struct carat_engine_options options = options_of("cpu", 1, 0);
        carat_engine *e = open_engine(pairs[i].model, &options);
        without = *carat_engine_memory(e);
        carat_engine_close(e);
        options.drafter = pairs[i].knowing;
        e = open_engine(pairs[i].model, &options); /* n_draft is 0: it is not used */
        assert_int_equal(carat_engine_memory(e)->total, without.total);
        carat_engine_close(e);
        options.n_draft = 7;
        e = open_engine(pairs[i].model, &options);
        with = *carat_engine_memory(e);
        carat_engine_close(e);
        assert_int_equal(carat_memory_estimate(pairs[i].model, &options, &estimate, &err),
                         CARAT_OK);
        assert_int_equal(estimate.total, with.total);
        assert_true(with.weights > without.weights);
        assert_true(with.weights_mapped > without.weights_mapped);
    }
}

/* ---- Files ------------------------------------------------------------------------------ */

static void expect_refused(const char *path, const carat_model *model, const char *expected)
{
    carat_drafter *drafter;
    struct carat_error err = {0};
    assert_int_equal(carat_drafter_open(&drafter, path, model, &err), CARAT_EFORMAT);
    assert_null(drafter);
    if (!strstr(err.message, expected))
        fail_msg("\"%s\" expected in \"%s\"", expected, err.message);
    assert_non_null(strstr(err.message, path));
}

static void drafters_of_other_models_are_refused(void **state)
{
    (void)state;
    char path[512];
    struct carat_error err = {0};
    struct tiny_options options = {.format = FORMAT_F32, .seed = TINY_SEED};
    scratch_file(&scratch, "other.gguf", path);
    assert_int_equal(tiny_model_save(path, &options, &err), CARAT_OK);
    expect_refused(path, models[GEMMA_E2B], "\"gemma4-assistant\" expected, \"gemma4\" found");
    assert_int_equal(tiny_drafter_save(path, &options, &err), CARAT_OK);
    expect_refused(path, models[GEMMA_E4B], "shares those of layer");
    carat_model *model;
    assert_int_equal(carat_model_open(&model, path, &err), CARAT_EFORMAT);
    assert_non_null(strstr(err.message, "this is a drafter"));
    assert_non_null(strstr(err.hint, "--model-draft"));
    remove(path);
    struct carat_engine_options with = options_of("cpu", 1, 0);
    carat_engine *e;
    with.n_draft = 3;
    with.drafter = pairs[GEMMA_E2B].knowing;
    assert_int_equal(carat_engine_open(&e, models[GEMMA_E2B], &with, &err), CARAT_EUSAGE);
    assert_non_null(strstr(err.message, "another model"));
}

/* One thing of a good file is changed. */
static void damaged_drafters_are_refused(void **state)
{
    (void)state;
#define D "gemma4-assistant."
    static const struct {
        const char *key;
        uint32_t value;
        const char *expected;
    } cases[] = {{D "block_count", 0, "1 to 256 expected"},
                 {D "block_count", 3, "3"},
                 {D "embedding_length", 64, "token_embd.weight"},
                 {D "embedding_length_out", 128, "width of the model: 64 expected, 128 found"},
                 {D "attention.shared_kv_layers", 3, "4 to 4 expected, 3 found"},
                 {D "attention.key_length", 64, "as the key length"},
                 {D "attention.sliding_window", 16, "sliding window: 8 expected, 16 found"},
                 {D "attention.head_count", 3, "attn_q.weight"},
                 {D "feed_forward_length", 32, "ffn_gate.weight"}};
    char path[512];
    struct carat_error err = {0};
    scratch_file(&scratch, "damaged.gguf", path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {0};
        struct tiny_options options = {.format = FORMAT_F32, .seed = TINY_SEED};
        tiny_drafter_put(&w, &options);
        gguf_put_u32(&w, cases[i].key, cases[i].value);
        assert_int_equal(gguf_save(&w, path, &err), CARAT_OK);
        gguf_writer_deinit(&w);
        expect_refused(path, models[GEMMA_E2B], cases[i].expected);
    }
    static const char *const tensors[] = {"nextn.pre_projection.weight",
                                          "nextn.post_projection.weight", "token_embd.weight",
                                          "blk.3.attn_q_norm.weight", "rope_freqs.weight"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        struct gguf_writer w = {0};
        struct tiny_options options = {.format = FORMAT_F32, .seed = TINY_SEED};
        tiny_drafter_put(&w, &options);
        gguf_drop_tensor(&w, tensors[i]);
        assert_int_equal(gguf_save(&w, path, &err), CARAT_OK);
        gguf_writer_deinit(&w);
        expect_refused(path, models[GEMMA_E2B], tensors[i]);
    }
    remove(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_drafters_change_no_answer),
        cmocka_unit_test(cpu_drafters_change_no_answer),
        cmocka_unit_test(cuda_drafters_change_no_answer),
        cmocka_unit_test(drafters_of_many_sequences_change_no_answer),
        cmocka_unit_test(cuda_drafters_of_many_sequences_change_no_answer),
        cmocka_unit_test(drafters_of_divided_models_change_no_answer),
        cmocka_unit_test(a_drafter_that_knows_nothing_changes_no_answer),
        cmocka_unit_test(a_step_with_a_drafter_allocates_nothing),
        cmocka_unit_test(a_sequence_that_was_paused_is_guessed_again),
        cmocka_unit_test(what_is_printed_about_memory_is_what_is_taken),
        cmocka_unit_test(drafters_of_other_models_are_refused),
        cmocka_unit_test(damaged_drafters_are_refused),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_pairs, close_pairs);
}
