/* The memory table against the device: an engine takes what its table says, in every setting that
 * changes what is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "support/devices.h"
#include "support/engines.h"

/* The table leaves out what the driver takes: it rounds each of the five pieces of memory of an
 * engine up to 2 MB, and needs some for recorded steps. The tolerance is below the size of a
 * workspace (32 MB) and of the buffers for loading (64 MB), which are what the table might
 * forget. No other program may be using the device. */
enum { TOLERANCE = 24 << 20 };

/* The second of two engines is measured: with the first the driver has loaded what both share,
 * kernels and libraries. */
static void check_engine(const carat_model *model, const struct carat_engine_options *o,
                         const char *label)
{
    carat_engine *first = open_engine(model, o), *second = open_engine(model, o);
    const struct target *t = &second->runner->layout.targets[FIRST_TARGET];
    const struct carat_memory *m = carat_engine_memory(second);
    struct device_facts now;
    t->backend->describe(t->device, &now);
    int64_t before = (int64_t)(m->available + m->driver); /* some of it is kept back */
    int64_t taken = before - (int64_t)now.memory_available;
    int64_t told = (int64_t)(m->weights + m->kv_local + m->kv_global + m->buffers);
    print_message("%s: %.1f MB told, %.1f MB taken\n", label, (double)told / 1e6,
                  (double)taken / 1e6);
    if (llabs(taken - told) > TOLERANCE) fail_msg("%s: more than %d bytes apart", label, TOLERANCE);
    carat_engine_close(second);
    carat_engine_close(first);
}

static void check_backend(const char *name)
{
    static const struct {
        const char *label;
        struct carat_engine_options options;
    } cases[] = {
        {"default", {.n_ctx = 0}},
        {"fp16", {.matmul = CARAT_MATMUL_FP16}},
        {"fp16, no mirrors", {.matmul = CARAT_MATMUL_FP16, .mirror_budget = -1}},
        {"8 bits", {.matmul = CARAT_MATMUL_INT8}},
        {"fp32", {.precision = CARAT_PRECISION_FP32}},
        {"4 sequences, small chunks", {.n_seq = 4, .chunk = 32}},
        {"pinned table", {.ple_place = CARAT_PLE_PINNED}},
        {"table in the file", {.ple_place = CARAT_PLE_HOST}},
        {"table in the file, a few rows on the device",
         {.ple_place = CARAT_PLE_HOST, .ple_cache = -1, .chunk = 64}},
    };
    static const char *const files[] = {"models/demo.gguf", "tests/golden/fixtures/e4b-q4_0.gguf"};
    need_device(name);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        char path[512];
        struct carat_error err = {0};
        carat_model *model;
        snprintf(path, sizeof path, "%s/%s", CARAT_SOURCE_DIR, files[f]);
        if (carat_model_open(&model, path, &err)) fail_msg("%s", err.message);
        print_message("%s\n", files[f]);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct carat_engine_options o = cases[i].options;
            o.backend = name;
            check_engine(model, &o, cases[i].label);
        }
        carat_model_close(model);
    }
}

static void cuda_takes_what_the_table_says(void **state)
{
    (void)state;
    check_backend("cuda");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cuda_takes_what_the_table_says)};
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* "cuda_*" */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
