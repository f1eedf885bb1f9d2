/* A runner on its own: two next to each other, and one on any number of devices, any of which
 * may be the host. The bits are those of one runner on one device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/model_file.h"
#include "engine/runner.h"
#include "support/engines.h"
#include "support/late_device.h"

enum { N_TEXT = 30, N_CHUNK = 11, N_CTX = 64, ROWS_MAX = 16 };

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    if (strcmp(name, "late") != 0) return __real_backend_find(out, name, err);
    *out = late_backend();
    return CARAT_OK;
}

/* ---- Helpers ---------------------------------------------------------------------------- */

static struct runner *open_runner(const carat_model *model, const char *backend,
                                  const struct layout_part *parts, int32_t n_parts)
{
    struct runner *r;
    struct carat_error err = {0};
    struct carat_engine_options o = {
        .backend = backend, .n_ctx = N_CTX, .n_seq = 2, .chunk = N_CHUNK, .n_threads = 1};
    struct layout_source from = {.config = &model->config,
                                 .gguf = model->gguf,
                                 .outs_max = N_CHUNK,
                                 .parts = parts,
                                 .n_parts = n_parts};
    late_reset();
    if (runner_open(&r, &from, &o, &err)) fail_msg("%s", err.message);
    return r;
}

/* The first `n` ids of a text of sequence `s`, starting at `done`. The logits of all of them are
 * wanted. */
static void run_rows(struct runner *r, const int32_t *ids, int32_t s, int32_t done, int32_t n,
                     float (*logits)[TINY_VOCABULARY])
{
    int32_t id[ROWS_MAX], position[ROWS_MAX], sequence[ROWS_MAX], out_row[ROWS_MAX];
    struct step step = {.n_token = n,
                        .n_decode = n == 1,
                        .n_out = n,
                        .id = id,
                        .position = position,
                        .sequence = sequence,
                        .out_row = out_row};
    struct carat_error err = {0};
    for (int32_t i = 0; i < n; i++) {
        id[i] = ids[done + i];
        position[i] = done + i;
        sequence[i] = s;
        out_row[i] = i;
    }
    if (runner_run(r, &step, &err)) fail_msg("%s", err.message);
    for (int32_t i = 0; i < n; i++) {
        const float *row;
        assert_int_equal(runner_logits(r, &step, i, &row, &err), CARAT_OK);
        memcpy(logits[done + i], row, sizeof *logits);
    }
}

/* The steps of a text: chunks, then single rows. */
static int32_t step_rows(int32_t done)
{
    return done < 2 * N_CHUNK ? N_CHUNK : 1;
}

static void run_text(struct runner *r, const int32_t *ids, float (*logits)[TINY_VOCABULARY])
{
    for (int32_t done = 0; done < N_TEXT; done += step_rows(done))
        run_rows(r, ids, 1, done, step_rows(done), logits);
}

static float alone[2][N_TEXT][TINY_VOCABULARY], found[2][N_TEXT][TINY_VOCABULARY];

/* ---- Two runners ------------------------------------------------------------------------ */

/* Steps take turns, as those of a model and its drafter would. */
static void check_two(const carat_model *const *which, const char *const *backends)
{
    int32_t ids[2][N_TEXT];
    struct runner *r[2];
    for (int i = 0; i < 2; i++) {
        draw_ids(TINY_SEED + (uint64_t)i, ids[i], N_TEXT);
        r[i] = open_runner(which[i], backends[i], NULL, 0);
        run_text(r[i], ids[i], alone[i]);
        runner_close(r[i]);
    }
    for (int i = 0; i < 2; i++) r[i] = open_runner(which[i], backends[i], NULL, 0);
    mem_fail_after(0); /* a step allocates nothing */
    for (int32_t done = 0; done < N_TEXT; done += step_rows(done))
        for (int i = 0; i < 2; i++) run_rows(r[i], ids[i], i, done, step_rows(done), found[i]);
    assert_int_equal(mem_fail_after(-1), 0);
    for (int i = 0; i < 2; i++) {
        runner_close(r[i]);
        assert_memory_equal(found[i], alone[i], sizeof alone[i]);
    }
}

static void two_runners_in_turns_give_the_bits_of_each_alone(void **state)
{
    (void)state;
    static const char *const backends[][2] = {{"ref", "ref"}, {"cpu", "cpu"}, {"ref", "cpu"}};
    for (int k = 0; k < 3; k++)
        for (int size = 0; size < GEMMA_SIZES; size++) {
            const carat_model *other[] = {models[size], models[(size + 1) % GEMMA_SIZES]};
            const carat_model *same[] = {models[size], models[size]};
            check_two(other, backends[k]);
            check_two(same, backends[k]);
        }
}

/* ---- Several devices -------------------------------------------------------------------- */

/* All ways to divide the layers among three devices that keep layers with the keys that they
 * read. */
static int check_three(int size, const char *const *backends, const char *one)
{
    const struct gemma_config *c = &models[size]->config;
    int32_t ids[N_TEXT], n_checked = 0;
    draw_ids(TINY_SEED, ids, N_TEXT);
    struct runner *r = open_runner(models[size], one, NULL, 0);
    run_text(r, ids, alone[0]);
    runner_close(r);
    for (int32_t a = 1; a < c->n_layer - 1; a++)
        for (int32_t b = 1; a + b < c->n_layer; b++) {
            int32_t n_layers[] = {a, b, c->n_layer - a - b};
            struct split split = split_in_order(c, n_layers, 3);
            if (!split_is_sound(c, &split)) continue;
            struct layout_part parts[3];
            for (int i = 0; i < 3; i++)
                parts[i] = (struct layout_part){backends[i], 0, n_layers[i]};
            r = open_runner(models[size], NULL, parts, 3);
            assert_int_equal(r->layout.n_targets, 3);
            assert_int_equal(r->layout.plans.buckets[0].n_segments, 3);
            run_text(r, ids, found[0]);
            runner_close(r);
            if (memcmp(found[0], alone[0], sizeof alone[0]) != 0)
                fail_msg("size %d, %s %s %s, %d and %d layers: other bits", size, backends[0],
                         backends[1], backends[2], a, b);
            n_checked++;
        }
    return n_checked;
}

static void three_devices_give_the_bits_of_one(void **state)
{
    (void)state;
    static const char *const kinds[] = {"ref", "late"}; /* the host, and what is not the host */
    static const char *const cpus[] = {"cpu", "cpu", "cpu"};
    for (int size = 0; size < GEMMA_SIZES; size++) {
        int n = check_three(size, cpus, "cpu");
        for (int k = 0; k < 8; k++) {
            const char *backends[] = {kinds[k & 1], kinds[k >> 1 & 1], kinds[k >> 2]};
            n += check_three(size, backends, "ref");
        }
        const struct gemma_config *c = &models[size]->config;
        if (c->n_kv_layer == c->n_layer) assert_true(n > 0);
    }
}

/* Rows between two devices, neither of them the host, go through memory that is counted. */
static void rows_between_devices_go_through_the_host(void **state)
{
    (void)state;
    struct layout_part parts[] = {{"late", 0, 2}, {"late", 0, 1}, {"ref", 0, 0}};
    const carat_model *model = models[GEMMA_12B];
    struct runner *r = open_runner(model, NULL, parts, 3);
    size_t row_bytes = (size_t)model->config.n_embd * sizeof(float);
    size_t step_bytes = (N_CHUNK + 2) * 4 * sizeof(int32_t) + tables_bytes(&r->layout.caches);
    assert_int_equal(r->layout.plans.staging_bytes, (N_CHUNK + 2) * row_bytes);
    assert_int_equal(r->layout.memory.step, step_bytes + r->layout.plans.staging_bytes);
    runner_close(r);
    parts[1].backend = "ref";
    r = open_runner(model, NULL, parts, 3);
    assert_int_equal(r->layout.plans.staging_bytes, 0);
    runner_close(r);
}

static void layers_that_would_leave_their_keys_are_refused(void **state)
{
    (void)state;
    const struct gemma_config *c = &models[GEMMA_E2B]->config;
    struct layout_part parts[] = {{"ref", 0, c->n_layer - 1}, {"ref", 0, 1}};
    struct layout_source from = {
        .config = c, .gguf = models[GEMMA_E2B]->gguf, .outs_max = 1, .parts = parts, .n_parts = 2};
    struct carat_error err = {0};
    struct runner *r;
    assert_int_equal(runner_open(&r, &from, NULL, &err), CARAT_EUSAGE);
    assert_null(r);
    assert_non_null(strstr(err.message, "keys of another"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_runners_in_turns_give_the_bits_of_each_alone),
        cmocka_unit_test(three_devices_give_the_bits_of_one),
        cmocka_unit_test(rows_between_devices_go_through_the_host),
        cmocka_unit_test(layers_that_would_leave_their_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
