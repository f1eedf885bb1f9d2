#include "support/engines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"

carat_model *models[GEMMA_SIZES];
struct scratch scratch;

int open_models(void **state)
{
    (void)state;
    print_message("seed %d\n", TINY_SEED);
    scratch_open(&scratch);
    for (int i = 0; i < GEMMA_SIZES; i++) {
        char path[512];
        struct carat_error err = {0};
        struct tiny_options options = {
            .size = (enum gemma_size)i, .format = FORMAT_Q8_0, .seed = TINY_SEED};
        scratch_file(&scratch, "tiny.gguf", path);
        if (tiny_model_save(path, &options, &err) || carat_model_open(&models[i], path, &err)) {
            print_message("%s\n", err.message);
            return -1;
        }
        remove(path); /* the mapping stays */
    }
    return 0;
}

int close_models(void **state)
{
    (void)state;
    for (int i = 0; i < GEMMA_SIZES; i++) carat_model_close(models[i]);
    scratch_close(&scratch);
    if (mem_blocks_live() == 0) return 0;
    print_message("%ld blocks of memory left\n", mem_blocks_live());
    return -1;
}

carat_engine *open_engine(const carat_model *model, const struct carat_engine_options *options)
{
    carat_engine *engine;
    struct carat_error err = {0};
    if (carat_engine_open(&engine, model, options, &err)) fail_msg("%s", err.message);
    return engine;
}

void draw_ids(uint64_t seed, int32_t *ids, size_t n)
{
    enum { BEGIN_OF_TEXT = 2 };
    struct rng rng = {.state = seed};
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)rng_below(&rng, TINY_VOCABULARY);
    ids[0] = BEGIN_OF_TEXT;
}

int ignore_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    (void)user, (void)position, (void)logits, (void)n_vocab;
    return 0;
}
