/* What must not change an answer: other sequences in the step, guesses, a ring that wraps, replay
 * instead of launches, where a table is. Ids and the bits of their log-probabilities are compared,
 * on the small models of the family, for every fast backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "carat.h"
#include "support/devices.h"
#include "support/guesses.h"

enum { SEED = 20261121, PROMPT_MAX = 128, SEQUENCES_MAX = 16, TOKENS_MAX = 4000 };

static const char *const models[] = {"e2b-q8_0", "e4b-q4_0", "12b-q4_k", "26b-q4_0", "31b-mixed"};
enum { N_MODELS = sizeof models / sizeof *models, WITH_LAYER_INPUTS = 2 /* the first ones */ };

struct answer {
    int32_t ids[TOKENS_MAX];
    float logprobs[TOKENS_MAX];
    int32_t n;
    carat_request_id request;
};

static struct answer answers[SEQUENCES_MAX], alone;

static carat_model *open_model(const char *name)
{
    char path[512];
    struct carat_error err = {0};
    carat_model *model;
    snprintf(path, sizeof path, "%s/tests/golden/fixtures/%s.gguf", CARAT_SOURCE_DIR, name);
    if (carat_model_open(&model, path, &err)) fail_msg("%s", err.message);
    return model;
}

static carat_engine *open_engine(const carat_model *model,
                                 const struct carat_engine_options *options)
{
    struct carat_error err = {0};
    carat_engine *engine;
    if (carat_engine_open(&engine, model, options, &err)) fail_msg("%s", err.message);
    return engine;
}

/* Prompt `i` of the test. Its length and its ids differ from those of all others. */
static size_t draw_prompt(const carat_model *model, int i, int32_t *ids)
{
    struct rng rng = {.state = SEED + (uint64_t)i};
    size_t n = 3 + (size_t)(i * 7) % (PROMPT_MAX - 3);
    uint32_t n_vocab = (uint32_t)carat_model_info(model)->n_vocab;
    for (size_t k = 0; k < n; k++) ids[k] = (int32_t)rng_below(&rng, n_vocab);
    return n;
}

/* Guesses for prompt `i` will be tokens of this answer. */
static void know_answer(const carat_model *model, int i, const struct answer *answer)
{
    static int32_t prompts[SEQUENCES_MAX][PROMPT_MAX];
    size_t n = draw_prompt(model, i, prompts[i]);
    guesses_add(prompts[i], (int32_t)n, answer->ids, answer->n);
}

static void submit_as(carat_engine *engine, const carat_model *model, int i, int32_t n_tokens,
                      int32_t priority, struct answer *out)
{
    int32_t ids[PROMPT_MAX];
    struct carat_error err = {0};
    struct carat_request request = {.prompt = ids,
                                    .n_prompt = draw_prompt(model, i, ids),
                                    .max_tokens = n_tokens,
                                    .sampling = {.temperature = 0, .top_p = 1, .repeat_penalty = 1},
                                    .ignore_stop = true,
                                    .want_logprob = true,
                                    .priority = priority};
    out->n = 0;
    assert_int_equal(carat_submit(engine, &request, &out->request, &err), CARAT_OK);
}

static void submit(carat_engine *engine, const carat_model *model, int i, int32_t n_tokens,
                   struct answer *out)
{
    submit_as(engine, model, i, n_tokens, 0, out);
}

static void take_events(carat_engine *engine, struct answer *all, int n)
{
    const struct carat_event *event;
    while ((event = carat_next_event(engine))) {
        if (event->kind != CARAT_EVENT_TOKEN) continue;
        for (int i = 0; i < n; i++) {
            if (all[i].request != event->request) continue;
            all[i].ids[all[i].n] = event->id;
            all[i].logprobs[all[i].n++] = event->logprob;
        }
    }
}

static void run(carat_engine *engine, struct answer *all, int n)
{
    struct carat_error err = {0};
    for (int more = 1; more > 0;) {
        more = carat_step(engine, &err);
        if (more < 0) fail_msg("%s", err.message);
        take_events(engine, all, n);
    }
}

static void assert_same(const struct answer *a, const struct answer *b, const char *model,
                        const char *what)
{
    assert_int_equal(a->n, b->n);
    for (int32_t i = 0; i < a->n; i++)
        if (a->ids[i] != b->ids[i] ||
            memcmp(&a->logprobs[i], &b->logprobs[i], sizeof a->logprobs[i]) != 0)
            fail_msg("%s: %s: token %d is %d (%a), expected %d (%a)", model, what, i, a->ids[i],
                     (double)a->logprobs[i], b->ids[i], (double)b->logprobs[i]);
}

/* Steps stay below 64 rows, or at 8 if these decide the arithmetic: larger ones go through other
 * products on a GPU. */
static void check_model_among_others(const char *name, const char *backend,
                                     enum carat_matmul decode, int32_t n_seq, int32_t chunk)
{
    enum { TOKENS = 40 };
    carat_model *model = open_model(name);
    struct carat_engine_options options = {.backend = backend,
                                           .n_ctx = 512,
                                           .n_seq = n_seq,
                                           .chunk = chunk,
                                           .decode_matmul = decode,
                                           .isa = forced_isa()};
    carat_engine *engine = open_engine(model, &options);
    for (int i = 0; i < SEQUENCES_MAX; i++) submit(engine, model, i, TOKENS, &answers[i]);
    run(engine, answers, SEQUENCES_MAX);
    for (int i = 0; i < SEQUENCES_MAX; i += 5) {
        submit(engine, model, i, TOKENS, &alone);
        run(engine, &alone, 1);
        assert_same(&answers[i], &alone, name, "among others");
    }
    carat_engine_close(engine);
    carat_model_close(model);
}

static void check_alone_and_among_others(const char *backend, enum carat_matmul decode,
                                         int32_t n_seq, int32_t chunk)
{
    for (int m = 0; m < N_MODELS; m++)
        check_model_among_others(models[m], backend, decode, n_seq, chunk);
}

/* With a window of 32 and steps of one row the ring has 33 cells. With large steps it holds all. */
static void check_wrapped_ring(const char *backend, enum carat_matmul decode, int32_t n_tokens)
{
    for (int m = 0; m < N_MODELS; m += 3) {
        carat_model *model = open_model(models[m]);
        struct carat_engine_options options = {
            .backend = backend, .n_ctx = 4096, .decode_matmul = decode, .isa = forced_isa()};
        for (int full = 0; full < 2; full++) {
            options.chunk = full ? 4096 : 8;
            carat_engine *engine = open_engine(model, &options);
            submit(engine, model, 0, n_tokens, &answers[full]);
            run(engine, &answers[full], 1);
            carat_engine_close(engine);
        }
        assert_int_equal(answers[0].n, n_tokens);
        assert_same(&answers[0], &answers[1], models[m], "wrapped ring");
        carat_model_close(model);
    }
}

static void check_replay(enum carat_matmul decode, int32_t gpu_layers, int32_t cpu_expert_layers)
{
    need_device("cuda");
    for (int m = 0; m < N_MODELS; m++) {
        carat_model *model = open_model(models[m]);
        for (int direct = 0; direct < 2; direct++) {
            struct carat_engine_options options = {.backend = "cuda",
                                                   .n_ctx = 512,
                                                   .n_seq = 3,
                                                   .profile = direct,
                                                   .decode_matmul = decode,
                                                   .gpu_layers = gpu_layers,
                                                   .cpu_expert_layers = cpu_expert_layers};
            carat_engine *engine = open_engine(model, &options);
            for (int i = 0; i < 3; i++) submit(engine, model, i, 60, &answers[3 * direct + i]);
            run(engine, answers + 3 * direct, 3);
            carat_engine_close(engine);
        }
        for (int i = 0; i < 3; i++)
            assert_same(&answers[i], &answers[3 + i], models[m], "replayed");
        carat_model_close(model);
    }
}

static void cuda_replay_equals_launches(void **state)
{
    (void)state;
    check_replay(CARAT_MATMUL_INT8, 0, 0);
    check_replay(CARAT_MATMUL_FP16, 0, 0);
}

static void cuda_replay_equals_launches_with_layers_and_experts_on_the_cpu(void **state)
{
    (void)state;
    check_replay(CARAT_MATMUL_INT8, 3, INT32_MAX);
    check_replay(CARAT_MATMUL_FP16, 3, INT32_MAX);
}

/* ---- Prompts: replayed, launched, and launched by the profile ------------------------------ */

enum { LONG_MAX = 4100 };

static void submit_long(carat_engine *engine, const carat_model *model, int32_t n_prompt,
                        struct answer *out)
{
    static int32_t ids[LONG_MAX];
    struct rng rng = {.state = SEED};
    struct carat_error err = {0};
    uint32_t n_vocab = (uint32_t)carat_model_info(model)->n_vocab;
    for (int32_t i = 0; i < n_prompt; i++) ids[i] = (int32_t)rng_below(&rng, n_vocab);
    struct carat_request request = {.prompt = ids,
                                    .n_prompt = (size_t)n_prompt,
                                    .max_tokens = 3,
                                    .sampling = {.temperature = 0, .top_p = 1, .repeat_penalty = 1},
                                    .ignore_stop = true,
                                    .want_logprob = true};
    out->n = 0;
    assert_int_equal(carat_submit(engine, &request, &out->request, &err), CARAT_OK);
}

static void read_long_prompt(const carat_model *model, const struct carat_engine_options *options,
                             int32_t n_prompt, struct answer *out)
{
    carat_engine *engine = open_engine(model, options);
    submit_long(engine, model, n_prompt, out);
    run(engine, out, 1);
    carat_engine_close(engine);
}

/* Lengths around the sizes that are recorded, and around the limits between few rows and many. */
static void check_prompts(enum carat_matmul decode)
{
    static const struct {
        int32_t chunk, lengths[12];
    } cases[] = {{0, {1, 16, 40, 64, 65, 100, 120, 300, 500, 1000, 2047, 2200}},
                 {64, {55, 56, 57, 63, 64, 65, 66, 121, 128, 200}},
                 {256, {31, 129, 224, 256, 257, 600}}};
    for (int m = 0; m < N_MODELS; m++) {
        carat_model *model = open_model(models[m]);
        for (int k = 0; k < 36; k++) {
            int32_t n = cases[k / 12].lengths[k % 12];
            struct carat_engine_options o = {.backend = "cuda",
                                             .n_ctx = 2400,
                                             .chunk = cases[k / 12].chunk,
                                             .decode_matmul = decode};
            if (n == 0 || (n > 1000 && m > 1)) continue;
            char what[64];
            snprintf(what, sizeof what, "prompt of %d, chunks of %d", n, o.chunk);
            read_long_prompt(model, &o, n, &answers[0]);
            o.no_graphs = true;
            read_long_prompt(model, &o, n, &answers[1]);
            o.no_graphs = false;
            o.profile = true;
            read_long_prompt(model, &o, n, &answers[2]);
            assert_int_equal(answers[0].n, 3);
            assert_same(&answers[0], &answers[1], models[m], what);
            assert_same(&answers[0], &answers[2], models[m], what);
        }
        carat_model_close(model);
    }
}

static void cuda_replayed_prompts_equal_launched_ones(void **state)
{
    (void)state;
    need_device("cuda");
    check_prompts(CARAT_MATMUL_INT8);
    check_prompts(CARAT_MATMUL_FP16);
}

/* ---- Prompts on Hopper: any chunks, any others in their steps ------------------------------- */

/* The models take 4096 positions: the longest prompt that leaves room for an answer. */
enum { LAW_CTX = 4096, LAW_PROMPT = LAW_CTX - 16, LAW_CHUNKS = 7 };
static const int32_t law_chunks[LAW_CHUNKS] = {4096, 1, 7, 64, 65, 512, 2048};

/* A device whose decode steps are 8 bits or fp16, by their rows. */
static bool is_hopper(const carat_model *model)
{
    struct carat_engine_options o = {.backend = "cuda", .n_ctx = 256};
    carat_engine *engine = open_engine(model, &o);
    bool is_by_rows = carat_engine_setup(engine)->decode_matmul == CARAT_MATMUL_AUTO;
    carat_engine_close(engine);
    return is_by_rows;
}

/* Chunks of one row are slow: they read fewer. */
static int32_t law_length(int32_t chunk)
{
    return chunk == 1 ? 300 : LAW_PROMPT;
}

static void read_in_chunks(const carat_model *model, bool is_deterministic, int32_t chunk,
                           int32_t n_prompt, struct answer *out)
{
    struct carat_engine_options o = {
        .backend = "cuda", .n_ctx = LAW_CTX, .chunk = chunk, .deterministic = is_deterministic};
    read_long_prompt(model, &o, n_prompt, out);
}

static void cuda_deterministic_prompts_do_not_depend_on_chunks(void **state)
{
    (void)state;
    need_device("cuda");
    for (int m = 0; m < N_MODELS; m++) {
        carat_model *model = open_model(models[m]);
        if (!is_hopper(model)) skip();
        for (int k = 1; k < LAW_CHUNKS; k++) {
            char what[64];
            int32_t chunk = law_chunks[k], n = law_length(chunk);
            snprintf(what, sizeof what, "prompt of %d, chunks of %d", n, chunk);
            if (k < 3) read_in_chunks(model, true, law_chunks[0], n, &answers[0]);
            read_in_chunks(model, true, chunk, n, &answers[1]);
            assert_int_equal(answers[0].n, 3);
            assert_same(&answers[0], &answers[1], models[m], what);
        }
        carat_model_close(model);
    }
}

/* Unless asked, few rows have another arithmetic: this is what the test above would see. */
static void cuda_chunks_of_another_arithmetic_would_be_noticed(void **state)
{
    (void)state;
    need_device("cuda");
    carat_model *model = open_model(models[0]);
    read_in_chunks(model, false, 512, 300, &answers[0]);
    read_in_chunks(model, false, 7, 300, &answers[1]);
    assert_int_equal(answers[0].n, answers[1].n);
    assert_true(answers[0].logprobs[0] != answers[1].logprobs[0]);
    carat_model_close(model);
}

/* The first token of each prompt of many that come while others decode, against that of the prompt
 * alone. */
static void check_first_tokens(const carat_model *model, const char *name, int32_t n_seq,
                               int32_t chunk)
{
    struct carat_error err = {0};
    struct carat_engine_options o = {.backend = "cuda",
                                     .n_ctx = 1024,
                                     .n_seq = n_seq,
                                     .chunk = chunk,
                                     .no_prefix_cache = true,
                                     .deterministic = true};
    carat_engine *engine = open_engine(model, &o);
    for (int i = 0; i < SEQUENCES_MAX; i++) {
        if (i == 5)
            submit_long(engine, model, 700, &answers[i]);
        else
            submit(engine, model, i, 20, &answers[i]);
        if (i % 3 == 0) assert_true(carat_step(engine, &err) >= 0);
        take_events(engine, answers, i + 1);
    }
    run(engine, answers, SEQUENCES_MAX);
    for (int i = 0; i < SEQUENCES_MAX; i++) {
        if (i == 5)
            submit_long(engine, model, 700, &alone);
        else
            submit(engine, model, i, 1, &alone);
        run(engine, &alone, 1);
        alone.n = answers[i].n = 1;
        assert_same(&alone, &answers[i], name, "first token among others");
    }
    carat_engine_close(engine);
}

static void cuda_deterministic_prompts_do_not_depend_on_others(void **state)
{
    (void)state;
    need_device("cuda");
    for (int m = 0; m < N_MODELS; m++) {
        carat_model *model = open_model(models[m]);
        if (!is_hopper(model)) skip();
        check_first_tokens(model, models[m], SEQUENCES_MAX, 2048);
        check_first_tokens(model, models[m], SEQUENCES_MAX, 7);
        check_first_tokens(model, models[m], 40, 65);
        carat_model_close(model);
    }
}

/* One that loses its slot to another in the middle of its answer. */
static void check_stopped(const carat_model *model, const char *backend, const char *name)
{
    struct carat_error err = {0};
    struct carat_engine_options o = {.backend = backend, .n_ctx = 512, .deterministic = true};
    carat_engine *engine = open_engine(model, &o);
    submit(engine, model, 13, 150, &alone);
    run(engine, &alone, 1);
    submit(engine, model, 13, 150, &answers[0]);
    for (int i = 0; i < 100; i++) {
        assert_true(carat_step(engine, &err) >= 0);
        take_events(engine, answers, 1);
    }
    submit_as(engine, model, 5, 10, 1, &answers[1]);
    run(engine, answers, 2);
    assert_true(carat_engine_stats(engine)->preemptions > 0);
    assert_same(&alone, &answers[0], name, "stopped");
    carat_engine_close(engine);
}

/* Whole answers of many against each of them alone, with guesses. */
static void check_deterministic(const carat_model *model, const char *name, int32_t n_seq)
{
    struct carat_error err = {0};
    struct carat_engine_options o = {
        .size = sizeof o, .backend = "cuda", .n_ctx = 512, .n_seq = n_seq, .deterministic = true};
    carat_engine *engine = open_engine(model, &o);
    for (int round = 0; round < 2; round++) { /* the second finds what the first has left */
        for (int i = 0; i < SEQUENCES_MAX; i++) {
            submit(engine, model, i, 30, &answers[i]);
            if (i % 3 == round) assert_true(carat_step(engine, &err) >= 0);
            take_events(engine, answers, i + 1);
        }
        run(engine, answers, SEQUENCES_MAX);
    }
    carat_engine_close(engine);
    o.no_prefix_cache = true;
    o.n_draft = CARAT_DRAFT_MAX;
    guesses_clear();
    for (int i = 0; i < SEQUENCES_MAX; i++) know_answer(model, i, &answers[i]);
    engine = open_engine(model, &o);
    for (int i = 0; i < SEQUENCES_MAX; i++) {
        submit(engine, model, i, 30, &alone);
        run(engine, &alone, 1);
        assert_same(&alone, &answers[i], name, "deterministic");
    }
    assert_true(carat_engine_stats(engine)->accepted > 0);
    carat_engine_close(engine);
}

static void cuda_deterministic_answers_do_not_depend_on_others(void **state)
{
    (void)state;
    need_device("cuda");
    for (int m = 0; m < N_MODELS; m++) {
        carat_model *model = open_model(models[m]);
        check_deterministic(model, models[m], 6);
        check_deterministic(model, models[m], 20);
        check_stopped(model, "cuda", models[m]);
        carat_model_close(model);
    }
}

/* Where the table is, and how much of it the device may keep. */
static const struct table_setting {
    const char *label;
    enum carat_ple place;
    int64_t cache;
} tables[] = {{"on the device", CARAT_PLE_GPU, 0},
              {"pinned", CARAT_PLE_PINNED, 0},
              {"in the file", CARAT_PLE_HOST, 0},
              {"in the file, a few rows on the device", CARAT_PLE_HOST, -1}};
enum { N_TABLES = sizeof tables / sizeof *tables };

/* Chunks are read ahead, after decoding rows. One is read in vain: its request is cancelled.
 * Steps are launched and replayed, and the smallest model has layers on the CPU. If the device
 * holds only a few rows, they have to make room for others all the time. */
static void answer_with_table(const carat_model *model, const struct table_setting *table,
                              int32_t chunk, bool is_launched, struct answer *out)
{
    enum { N = SEQUENCES_MAX / 2 };
    struct carat_error err = {0};
    struct carat_engine_options options = {.backend = "cuda",
                                           .n_ctx = 512,
                                           .n_seq = N,
                                           .chunk = chunk,
                                           .decode_matmul = CARAT_MATMUL_INT8,
                                           .no_graphs = is_launched,
                                           .gpu_layers = chunk < 10 ? 3 : 0,
                                           .ple_place = table->place,
                                           .ple_cache = table->cache};
    carat_engine *engine = open_engine(model, &options);
    assert_int_equal(carat_engine_setup(engine)->ple_place, table->place);
    assert_int_equal(carat_engine_memory(engine)->ple_cache > 0, table->place == CARAT_PLE_HOST);
    for (int i = 0; i < N; i++) submit(engine, model, 2 * i + 1, 30, &out[i]);
    for (int i = 0; i < 2; i++) assert_true(carat_step(engine, &err) >= 0);
    for (int i = 1; i < N; i += 3) assert_int_equal(carat_cancel(engine, out[i].request), CARAT_OK);
    run(engine, out, N);
    carat_engine_close(engine);
}

static void cuda_place_of_the_table_does_not_matter(void **state)
{
    (void)state;
    static const int32_t chunks[] = {8, 32, 70, 200};
    enum { N = SEQUENCES_MAX / 2, N_CHUNKS = sizeof chunks / sizeof *chunks };
    need_device("cuda");
    for (int m = 0; m < WITH_LAYER_INPUTS; m++) {
        carat_model *model = open_model(models[m]);
        for (int k = 0; k < 2 * N_CHUNKS; k++)
            for (int t = 0; t < N_TABLES; t++) {
                struct answer *found = t ? answers + N : answers;
                answer_with_table(model, &tables[t], chunks[k / 2], k % 2, found);
                for (int i = 0; i < N; i++)
                    assert_same(&found[i], &answers[i], models[m], tables[t].label);
            }
        carat_model_close(model);
    }
}

static void cpu_answers_do_not_depend_on_other_sequences(void **state)
{
    (void)state;
    check_alone_and_among_others("cpu", CARAT_MATMUL_AUTO, SEQUENCES_MAX, 32);
}

static void cuda_answers_do_not_depend_on_other_sequences(void **state)
{
    (void)state;
    need_device("cuda");
    check_alone_and_among_others("cuda", CARAT_MATMUL_INT8, SEQUENCES_MAX, 32);
    check_alone_and_among_others("cuda", CARAT_MATMUL_FP16, SEQUENCES_MAX, 32);
    /* Steps of up to 8 rows, or 4 of models with per-layer embeddings. */
    for (int m = 0; m < N_MODELS; m++)
        check_model_among_others(models[m], "cuda", CARAT_MATMUL_AUTO,
                                 m < WITH_LAYER_INPUTS ? 2 : 4, m < WITH_LAYER_INPUTS ? 3 : 4);
}

static void cpu_wrapped_ring_equals_a_full_cache(void **state)
{
    (void)state;
    check_wrapped_ring("cpu", CARAT_MATMUL_AUTO, 200);
}

static void cuda_wrapped_ring_equals_a_full_cache_for_4000_tokens(void **state)
{
    (void)state;
    need_device("cuda");
    check_wrapped_ring("cuda", CARAT_MATMUL_INT8, TOKENS_MAX);
    check_wrapped_ring("cuda", CARAT_MATMUL_FP16, TOKENS_MAX / 10);
}

/* ---- Guesses ---------------------------------------------------------------------------- */

enum { GUESSERS = 6, GUESSED_CTX = 256 };

/* Answers of some sequences at once, which end with the context. Returns the steps. */
static uint64_t answer_some(const carat_model *model, const struct carat_engine_options *options,
                            struct answer *out)
{
    carat_engine *engine = open_engine(model, options);
    for (int i = 0; i < options->n_seq; i++) submit(engine, model, i, 0, &out[i]);
    run(engine, out, options->n_seq);
    struct carat_stats stats = *carat_engine_stats(engine);
    carat_engine_close(engine);
    if (options->n_draft == 0) return stats.steps;
    printf("%d sequences, up to %d guesses: %d of %d were right, %d steps\n", options->n_seq,
           options->n_draft, (int)stats.accepted, (int)stats.drafted, (int)stats.steps);
    assert_true(stats.accepted <= stats.drafted);
    return stats.steps;
}

/* Prompts are read before anything is guessed, in steps that do not depend on times. On a GPU
 * more than four would decode in one way or another, depending on how many go on. */
static void check_guesses(const char *backend, enum carat_matmul decode, int32_t gpu_layers)
{
    static const struct {
        int32_t n_seq, n_draft;
    } settings[] = {{1, 7}, {2, 3}, {1, 2}, {4, 5}, {GUESSERS, 3}};
    static struct answer guessed_answers[GUESSERS];
    bool is_host = strcmp(backend, "cpu") == 0; /* GPUs may have no room for six that guess */
    for (int m = 0; m < N_MODELS; m++) {
        carat_model *model = open_model(models[m]);
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
            struct carat_engine_options options = {.size = sizeof options,
                                                   .backend = backend,
                                                   .n_ctx = GUESSED_CTX,
                                                   .n_seq = settings[k].n_seq,
                                                   .chunk = k % 2 ? 64 : 4,
                                                   .max_itl_ms = 1e9,
                                                   .deterministic = settings[k].n_seq > 4,
                                                   .decode_matmul = decode,
                                                   .gpu_layers = gpu_layers,
                                                   .isa = forced_isa()};
            uint64_t plain = answer_some(model, &options, answers);
            guesses_clear();
            for (int i = 0; i < options.n_seq; i++) know_answer(model, i, &answers[i]);
            options.n_draft = settings[k].n_draft;
            uint64_t guessed = answer_some(model, &options, guessed_answers);
            for (int i = 0; i < options.n_seq; i++)
                assert_same(&answers[i], &guessed_answers[i], models[m], "guessed");
            bool has_room = options.n_seq < GUESSERS || decode != CARAT_MATMUL_AUTO || is_host;
            assert_true(guessed < plain || (guessed == plain && !has_room));
        }
        carat_model_close(model);
    }
}

static void cpu_guesses_change_no_answer(void **state)
{
    (void)state;
    check_guesses("cpu", CARAT_MATMUL_AUTO, 0);
}

static void cuda_guesses_change_no_answer(void **state)
{
    (void)state;
    need_device("cuda");
    check_guesses("cuda", CARAT_MATMUL_INT8, 0);
    check_guesses("cuda", CARAT_MATMUL_FP16, 0);
    check_guesses("cuda", CARAT_MATMUL_AUTO, 0);
    check_guesses("cuda", CARAT_MATMUL_AUTO, 3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_answers_do_not_depend_on_other_sequences),
        cmocka_unit_test(cuda_answers_do_not_depend_on_other_sequences),
        cmocka_unit_test(cpu_guesses_change_no_answer),
        cmocka_unit_test(cuda_guesses_change_no_answer),
        cmocka_unit_test(cpu_wrapped_ring_equals_a_full_cache),
        cmocka_unit_test(cuda_wrapped_ring_equals_a_full_cache_for_4000_tokens),
        cmocka_unit_test(cuda_replay_equals_launches),
        cmocka_unit_test(cuda_replay_equals_launches_with_layers_and_experts_on_the_cpu),
        cmocka_unit_test(cuda_replayed_prompts_equal_launched_ones),
        cmocka_unit_test(cuda_deterministic_prompts_do_not_depend_on_chunks),
        cmocka_unit_test(cuda_chunks_of_another_arithmetic_would_be_noticed),
        cmocka_unit_test(cuda_deterministic_prompts_do_not_depend_on_others),
        cmocka_unit_test(cuda_deterministic_answers_do_not_depend_on_others),
        cmocka_unit_test(cuda_place_of_the_table_does_not_matter),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
