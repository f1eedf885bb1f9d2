/* Drafters against Hugging Face transformers in fp32 on the dequantised weights: the logits of each
 * pass, and the rows that go from pass to pass. Each round follows a prefix of a text, shorter than
 * the window of 32 positions, as long, or longer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_JSON

#include <jansson.h>

#include "base/mem.h"
#include "engine/batch.h"
#include "engine/drafter_file.h"
#include "engine/runner.h"
#include "support/devices.h"
#include "support/oracle_file.h"

#define FIXTURES CARAT_SOURCE_DIR "/tests/golden/fixtures/"

enum { N_TOKENS = 200, N_ROUNDS = 6, N_STEPS = 4, N_VOCAB = 768, WIDTH_MAX = 512, N_CTX = 256 };

static const char *const names[] = {"e2b-q8_0", "e4b-q4_0", "12b-q4_k", "26b-q4_0", "31b-mixed"};
enum { N_DRAFTERS = sizeof names / sizeof *names };

struct oracle {
    carat_model *model;
    carat_drafter *drafter;
    int32_t tokens[N_TOKENS], position[N_ROUNDS];
    float logits[N_ROUNDS][N_STEPS][N_VOCAB];
    float hidden[N_ROUNDS][N_STEPS][WIDTH_MAX]; /* n_embd of them */
};

static struct oracle oracles[N_DRAFTERS];

/* ---- Fixtures --------------------------------------------------------------------------- */

static void read_rows(const char *name, const char *what, float *out, size_t cols, size_t stride)
{
    char path[4096];
    snprintf(path, sizeof path, FIXTURES "%s.draft.%s.f32", name, what);
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    for (size_t row = 0; row < N_ROUNDS * N_STEPS; row++)
        assert_int_equal(fread(out + row * stride, sizeof *out, cols, f), cols);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

static void read_oracle(struct oracle *o, const char *name)
{
    char path[4096];
    json_error_t problem;
    struct carat_error err = {0};
    snprintf(path, sizeof path, FIXTURES "%s.draft.json", name);
    json_t *root = json_load_file(path, 0, &problem);
    assert_non_null(root);
    read_integers(root, "tokens", o->tokens, N_TOKENS);
    read_integers(root, "positions", o->position, N_ROUNDS);
    json_decref(root);
    snprintf(path, sizeof path, FIXTURES "%s.gguf", name);
    if (carat_model_open(&o->model, path, &err)) fail_msg("%s", err.message);
    snprintf(path, sizeof path, FIXTURES "%s.draft.gguf", name);
    if (carat_drafter_open(&o->drafter, path, o->model, &err)) fail_msg("%s", err.message);
    size_t n_embd = (size_t)o->model->config.n_embd;
    assert_true(n_embd <= WIDTH_MAX);
    read_rows(name, "logits", &o->logits[0][0][0], N_VOCAB, N_VOCAB);
    read_rows(name, "hidden", &o->hidden[0][0][0], n_embd, WIDTH_MAX);
}

static int open_all(void **state)
{
    (void)state;
    for (int i = 0; i < N_DRAFTERS; i++) read_oracle(&oracles[i], names[i]);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < N_DRAFTERS; i++) {
        carat_drafter_close(oracles[i].drafter);
        carat_model_close(oracles[i].model);
    }
    assert_int_equal(mem_blocks_live(), 0);
    return 0;
}

/* ---- Rounds ----------------------------------------------------------------------------- */

struct found {
    float logits[N_ROUNDS][N_STEPS][N_VOCAB];
    double logits_error, hidden_error; /* root of the mean square over all passes */
};

/* The model reads the first `n` tokens as a prompt; the row that gave its last logits becomes the
 * drafter's first one. */
static void read_prefix(struct runner *r, struct step *step, const struct oracle *o, int32_t n,
                        int32_t sequence)
{
    struct carat_error err = {0};
    const int32_t last = 0;
    batch_clear(step);
    for (int32_t p = 0; p < n; p++) batch_add(step, o->tokens[p], p, sequence, p == n - 1);
    if (runner_run(r, step, &err) || runner_take_hidden(r, step, &last, 1, &err))
        fail_msg("%s", err.message);
}

/* Row `row` of the last pass, of n rows. */
static void read_logits(struct runner *r, int32_t n, int32_t row, float out[N_VOCAB])
{
    struct carat_error err = {0};
    const struct segment *last = bucket_last(plans_get_draft(&r->layout.plans, n));
    const struct target *t = &r->layout.targets[last->site];
    const struct plan_buf *logits = plan_buf_at(last->plan, last->plan->logits);
    size_t row_bytes = N_VOCAB * sizeof *out;
    t->backend->download(t->device, out,
                         (char *)t->memory + logits->offset + (size_t)row * row_bytes, row_bytes);
    assert_int_equal(t->backend->fence(t->device, &err), CARAT_OK);
}

/* Passes of rounds [first, first + n), one row for each, with the tokens that the text has. */
static void run_passes(struct runner *r, struct step *step, const struct oracle *o, int32_t first,
                       int32_t n, struct found *out)
{
    struct carat_error err = {0};
    int32_t n_embd = o->model->config.n_embd;
    for (int32_t k = 0; k < N_STEPS; k++) {
        batch_clear(step);
        for (int32_t i = 0; i < n; i++) {
            int32_t p = o->position[first + i];
            batch_add(step, o->tokens[p + k], p - 1, i, true);
        }
        step->n_decode = n;
        if (runner_draft(r, step, &err)) fail_msg("%s", err.message);
        for (int32_t i = 0; i < n; i++) {
            float row[N_VOCAB];
            struct logit_pair best[2];
            float *found = out->logits[first + i][k];
            const float(*logits)[N_VOCAB] = o->logits[first + i];
            assert_int_equal(runner_draft_best(r, n, i, best, &err), CARAT_OK);
            read_logits(r, n, i, row);
            memcpy(found, row, sizeof out->logits[first + i][k]);
            assert_true(best[0].logit == row[best[0].id] && best[1].logit == row[best[1].id]);
            for (int32_t id = 0; id < N_VOCAB; id++)
                assert_true(row[id] <= best[1].logit || id == best[0].id);
            double a = relative_error(found, logits[k], N_VOCAB);
            double b = relative_error(runner_hidden(r, i), o->hidden[first + i][k], n_embd);
            out->logits_error += a * a / (N_ROUNDS * N_STEPS);
            out->hidden_error += b * b / (N_ROUNDS * N_STEPS);
        }
    }
}

/* All rounds, `n_rows` sequences side by side in each pass. */
static struct found run_rounds(const struct oracle *o, const struct carat_engine_options *options,
                               int32_t n_rows)
{
    struct runner *r;
    struct carat_error err = {0};
    struct step step;
    struct arena arena = {0};
    static struct found found;
    struct carat_engine_options with = *options;
    struct layout_source from = {.config = &o->model->config,
                                 .gguf = o->model->gguf,
                                 .drafter = &o->drafter->parts,
                                 .outs_max = 1};
    with.n_ctx = N_CTX;
    with.n_seq = n_rows;
    with.chunk = N_TOKENS;
    found = (struct found){.logits_error = 0};
    assert_int_equal(batch_init(&step, &arena, N_TOKENS, &err), CARAT_OK);
    if (runner_open(&r, &from, &with, &err)) fail_msg("%s", err.message);
    for (int32_t first = 0; first < N_ROUNDS; first += n_rows) {
        int32_t n = N_ROUNDS - first < n_rows ? N_ROUNDS - first : n_rows;
        float rows[N_ROUNDS][WIDTH_MAX];
        size_t row_bytes = (size_t)o->model->config.n_embd * sizeof(float);
        for (int32_t i = 0; i < n; i++) {
            read_prefix(r, &step, o, o->position[first + i], i);
            memcpy(rows[i], runner_hidden(r, 0), row_bytes);
        }
        for (int32_t i = 0; i < n; i++) memcpy(runner_hidden(r, i), rows[i], row_bytes);
        run_passes(r, &step, o, first, n, &found);
    }
    found.logits_error = sqrt(found.logits_error);
    found.hidden_error = sqrt(found.hidden_error);
    runner_close(r);
    arena_deinit(&arena);
    return found;
}

static void check_all(const char *way, const struct carat_engine_options *options, double most)
{
    for (int i = 0; i < N_DRAFTERS; i++) {
        struct found found = run_rounds(&oracles[i], options, 1);
        print_message("%s, %s: relative error of logits %.2g, of hidden rows %.2g\n", names[i], way,
                      found.logits_error, found.hidden_error);
        assert_true(found.logits_error <= most && found.hidden_error <= most);
    }
}

/* ---- Tests ------------------------------------------------------------------------------ */

static void passes_are_those_of_the_oracle(void **state)
{
    (void)state;
    check_all("reference",
              &(struct carat_engine_options){.backend = "ref", .kv_type = CARAT_KV_F32}, 1e-5);
}

/* With activations of 8 bits, as the models themselves. */
static void cpu_passes_are_close_to_the_oracle(void **state)
{
    (void)state;
    check_all("cpu", &(struct carat_engine_options){.backend = "cpu"}, 0.1);
}

static void cuda_passes_are_close_to_the_oracle(void **state)
{
    (void)state;
    need_device("cuda");
    check_all("cuda, fp32",
              &(struct carat_engine_options){.backend = "cuda", .precision = CARAT_PRECISION_FP32},
              1e-4);
    check_all("cuda", &(struct carat_engine_options){.backend = "cuda"}, 0.1);
}

/* A row of a pass is that of its sequence alone. */
static void check_rows(const char *backend)
{
    struct carat_engine_options options = {.backend = backend};
    for (int i = 0; i < N_DRAFTERS; i++) {
        static struct found alone;
        alone = run_rounds(&oracles[i], &options, 1);
        for (int32_t n = 2; n <= 4; n++) {
            struct found together = run_rounds(&oracles[i], &options, n);
            assert_memory_equal(together.logits, alone.logits, sizeof alone.logits);
        }
    }
}

static void rows_of_a_pass_do_not_depend_on_each_other(void **state)
{
    (void)state;
    check_rows("ref");
    check_rows("cpu");
}

/* The layers whose keys the drafter reads on two devices, or on one that is not the first. */
static void divided_passes_are_those_of_the_oracle(void **state)
{
    (void)state;
    for (int i = 0; i < N_DRAFTERS; i++) {
        struct carat_engine_options options = {
            .backend = "ref", .kv_type = CARAT_KV_F32, .precision = CARAT_PRECISION_FP32};
        for (int32_t n = 1; n < oracles[i].model->config.n_layer; n++) {
            options.gpu_layers = n;
            struct found divided = run_rounds(&oracles[i], &options, 2);
            double most = fmax(divided.logits_error, divided.hidden_error);
            if (most > 1e-5) fail_msg("%s: %d layers apart: %g", names[i], n, most);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_are_those_of_the_oracle),
        cmocka_unit_test(cpu_passes_are_close_to_the_oracle),
        cmocka_unit_test(cuda_passes_are_close_to_the_oracle),
        cmocka_unit_test(rows_of_a_pass_do_not_depend_on_each_other),
        cmocka_unit_test(divided_passes_are_those_of_the_oracle),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_all, close_all);
}

#else
#include "support/without_jansson.h"
#endif
