/* The table of per-layer embeddings on a GPU: where it goes, and that a step has its rows if the
 * table is in the file, whatever is copied meanwhile. On a runtime that only counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_CUDA

#include "backend/cuda/cuda.h"
#include "backend/cuda/program.h"
#include "backend/cuda/row_table.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "support/fake_cuda.h"
#include "support/engines.h"

static carat_engine *open_counted(const struct carat_engine_options *o)
{
    carat_engine *e = open_engine(models[GEMMA_E4B], o);
    assert_int_equal(fake.device, told(carat_engine_memory(e)));
    assert_int_equal(fake.pinned, carat_engine_memory(e)->pinned);
    return e;
}

/* What an engine decided. */
struct decided {
    struct carat_memory memory;
    struct carat_setup setup;
};

static struct decided decide(const struct carat_engine_options *o)
{
    carat_engine *e = open_counted(o);
    struct decided d = {*carat_engine_memory(e), *carat_engine_setup(e)};
    carat_engine_close(e);
    assert_int_equal(fake.device, 0);
    assert_int_equal(fake.pinned, 0);
    return d;
}

static uint64_t table_bytes(void)
{
    struct carat_engine_options o = {.backend = "cuda"};
    carat_engine *e = open_counted(&o);
    uint64_t bytes = weight_span(e->runner->layout.targets[FIRST_TARGET].own.ple_embd);
    carat_engine_close(e);
    return bytes;
}

/* Bytes that are pinned only while weights are loaded. */
static size_t loading_bytes(void)
{
    struct carat_engine_options o = {.backend = "cuda", .ple_place = CARAT_PLE_PINNED};
    reset(GIGABYTE);
    carat_engine *e = open_counted(&o);
    size_t bytes = fake.pinned_most - fake.pinned;
    carat_engine_close(e);
    assert_in_range(bytes, 1, 64 << 20);
    return bytes;
}

/* The table leaves the device before the context gets shorter or layers leave. It is pinned
 * where that is allowed. */
static void a_table_goes_to_the_first_place_with_room(void **state)
{
    (void)state;
    struct carat_engine_options o = {.backend = "cuda", .matmul = CARAT_MATMUL_FP16, .chunk = 20};
    struct carat_engine_options plain = o;
    plain.mirror_budget = -1;
    size_t loading = loading_bytes();
    reset(GIGABYTE);
    uint64_t table = table_bytes();
    struct decided all = decide(&plain);
    assert_int_equal(all.setup.ple_place, CARAT_PLE_GPU);
    assert_int_equal(all.setup.ple_reason, CARAT_REASON_DEFAULT);
    assert_int_equal(all.memory.ple_cache, 0);
    assert_int_equal(decide(&o).setup.ple_place, CARAT_PLE_GPU);
    /* Caches take 9 tenths of what is left. */
    uint64_t caches = all.memory.kv_local + all.memory.kv_global;
    uint64_t least = told(&all.memory) - table;
    size_t total = (size_t)(all.memory.driver + least + table / 3 + caches / 8);
    assert_true(total < all.memory.driver + told(&all.memory));
    for (unsigned k = 0; k < 2; k++) {
        reset(total);
        fake.pinned_total = loading + (size_t)(all.memory.pinned + table - k);
        struct decided d = decide(&o);
        assert_int_equal(d.setup.ple_place, k ? CARAT_PLE_HOST : CARAT_PLE_PINNED);
        assert_int_equal(d.setup.ple_reason, CARAT_REASON_MEMORY);
        assert_int_equal(d.memory.n_ctx, all.memory.n_ctx);
        assert_int_equal(d.memory.gpu_layers, all.memory.gpu_layers);
        assert_int_equal(d.memory.ple_cache > 0, k);
    }
}

/* If a place was asked for, the table is there or opening fails. */
static void a_table_that_cannot_be_pinned_as_asked_is_an_error(void **state)
{
    (void)state;
    struct carat_error err = {0};
    carat_engine *e;
    struct carat_engine_options o = {.backend = "cuda", .ple_place = CARAT_PLE_PINNED};
    size_t loading = loading_bytes();
    reset(GIGABYTE);
    fake.pinned_total = loading + (size_t)decide(&o).memory.pinned - 1;
    assert_int_equal(carat_engine_open(&e, models[GEMMA_E4B], &o, &err), CARAT_EMEMORY);
    assert_non_null(strstr(err.message, "tables in pinned memory"));
    assert_int_equal(fake.device, 0);
    assert_int_equal(fake.pinned, 0);
}

static void a_cache_takes_what_it_was_given(void **state)
{
    (void)state;
    struct carat_engine_options o = {.backend = "cuda", .ple_place = CARAT_PLE_HOST, .chunk = 20};
    const struct weight *table = NULL;
    for (int k = 0; k < 4; k++) {
        reset(GIGABYTE);
        carat_engine *e = open_counted(&o);
        table = e->runner->layout.targets[FIRST_TARGET].own.ple_embd;
        const struct carat_memory *m = carat_engine_memory(e);
        size_t rows =
            (size_t)e->runner->layout.targets[FIRST_TARGET].device->rows->gather.cache.n_slots;
        size_t expected[] = {(size_t)table->rows, 2 * 21, 50, (size_t)table->rows};
        assert_int_equal(rows, expected[k]);
        assert_in_range(m->ple_cache, rows * table->row_bytes, rows * table->row_bytes + 255);
        int64_t next[] = {-1, 50 * (int64_t)table->row_bytes, INT64_MAX, 0};
        o.ple_cache = next[k];
        carat_engine_close(e);
    }
}

/* For every row of the step, the slot that the kernels get holds the row of the file. */
static void check_rows(const carat_engine *e)
{
    const struct step *s = &e->step;
    const struct bucket *b = plans_get(&e->runner->layout.plans, s->n_token, s->n_decode, s->n_out);
    const struct program *p = b->segments[0].program;
    const struct gather *g = &p->rows->gather;
    const int32_t *slot = step_arrays_at(p->device->step_host, p->rows_max).slot;
    size_t bytes = g->table->row_bytes;
    for (int32_t t = 0; t < s->n_token; t++) {
        assert_in_range(slot[t], 0, g->cache.n_slots - 1);
        assert_memory_equal(p->rows->rows + (size_t)slot[t] * bytes,
                            (const char *)g->table->data + (size_t)s->id[t] * bytes, bytes);
    }
}

/* Steps of decoding sequences and chunks of prompts. The announced chunk comes, or another one.
 * The rows of a step are there when its launches are made, and they stay until it ends although
 * those of the next step are copied meanwhile: here at the latest possible time. */
static void run_steps(carat_engine *e, int32_t n_seq, int32_t chunk, uint64_t seed)
{
    struct carat_error err = {0};
    struct rng rng = {.state = seed};
    static int32_t next[64];
    int32_t n_next = 0;
    for (int k = 0; k < 400; k++) {
        struct step *s = &e->step;
        uint32_t n_ids = k % 100 < 50 ? (uint32_t)e->model->config.n_vocab : 60;
        batch_clear(s);
        for (int32_t i = (int32_t)rng_below(&rng, (uint32_t)n_seq + 1); i > 0; i--)
            batch_add(s, (int32_t)rng_below(&rng, n_ids), k, i - 1, true);
        s->n_decode = s->n_token;
        for (int32_t i = 0; i < n_next && k % 5; i++) batch_add(s, next[i], i, 0, false);
        if (s->n_token == 0) batch_add(s, 1, 0, 0, false);
        int32_t announced[64];
        s->n_next = n_next = (int32_t)rng_below(&rng, (uint32_t)chunk + 1);
        for (int32_t i = 0; i < n_next; i++) next[i] = (int32_t)rng_below(&rng, n_ids);
        memcpy(announced, next, sizeof next);
        s->next_id = announced;
        assert_int_equal(runner_run(e->runner, &e->step, &err), CARAT_OK);
        check_rows(e);
        if (k % 3 == 0) end_late(fake.n_late); /* else they may still be under way */
        check_rows(e);
    }
}

static void a_step_has_its_rows_whatever_is_copied_meanwhile(void **state)
{
    (void)state;
    static const int32_t chunks[] = {1, 7, 40};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        for (int launched = 0; launched < 2; launched++) {
            struct carat_engine_options o = {.backend = "cuda",
                                             .ple_place = CARAT_PLE_HOST,
                                             .ple_cache = -1,
                                             .n_seq = 5,
                                             .chunk = chunks[i],
                                             .n_ctx = 512,
                                             .profile = launched};
            reset(GIGABYTE);
            fake.n_late_most = 1 << 16;
            fake.late = mem_alloc(fake.n_late_most, sizeof *fake.late);
            assert_non_null(fake.late);
            carat_engine *e = open_counted(&o);
            run_steps(e, o.n_seq, o.chunk, TINY_SEED + i);
            const struct gather *g = &e->runner->layout.targets[FIRST_TARGET].device->rows->gather;
            assert_int_equal(g->cache.n_slots, 2 * (o.chunk + o.n_seq));
            assert_true(g->n_brought > 2 * g->cache.n_slots);
            assert_true(fake.n_late > 100);
            carat_engine_close(e);
            assert_int_equal(fake.device, 0);
            assert_int_equal(fake.pinned, 0);
            mem_free(fake.late);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_goes_to_the_first_place_with_room),
        cmocka_unit_test(a_table_that_cannot_be_pinned_as_asked_is_an_error),
        cmocka_unit_test(a_cache_takes_what_it_was_given),
        cmocka_unit_test(a_step_has_its_rows_whatever_is_copied_meanwhile),
    };
    return cmocka_run_group_tests_name("row table", tests, open_models, close_models);
}

#else

static void rows_of_a_table_on_a_gpu(void **state)
{
    (void)state;
    print_message("skipped: built without CUDA\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_a_table_on_a_gpu)};
    return cmocka_run_group_tests_name("row table", tests, NULL, NULL);
}

#endif
