/* The host side of the CUDA backend, on a runtime that only counts: what is taken, and what is
 * decided before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_CUDA

#include "backend/cuda/cublas.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/device.h"
#include "backend/cuda/recording.h"
#include "base/mem.h"
#include "carat_inspect.h"
#include "engine/engine.h"
#include "engine/fit.h"
#include "support/fake_cuda.h"
#include "support/engines.h"

/* ---- Memory ----------------------------------------------------------------------------- */

static const struct {
    const char *label;
    struct carat_engine_options options;
} settings[] = {
    {"fp16", {.matmul = CARAT_MATMUL_FP16}},
    {"fp16, some mirrors", {.matmul = CARAT_MATMUL_FP16, .mirror_budget = 100000}},
    {"fp16, no mirrors", {.matmul = CARAT_MATMUL_FP16, .mirror_budget = -1}},
    {"8 bits", {.matmul = CARAT_MATMUL_INT8, .chunk = 300}},
    {"fp32", {.precision = CARAT_PRECISION_FP32}},
    {"small chunks", {.matmul = CARAT_MATMUL_INT8, .n_seq = 5, .chunk = 16}},
    {"pinned table", {.matmul = CARAT_MATMUL_FP16, .ple_place = CARAT_PLE_PINNED}},
    {"table in the file", {.matmul = CARAT_MATMUL_INT8, .ple_place = CARAT_PLE_HOST, .n_seq = 3}},
    {"table in the file, a few rows on the device",
     {.matmul = CARAT_MATMUL_INT8, .ple_place = CARAT_PLE_HOST, .ple_cache = -1, .chunk = 70}},
    {"table in the file, some rows on the device",
     {.matmul = CARAT_MATMUL_FP16, .ple_place = CARAT_PLE_HOST, .ple_cache = 20000, .chunk = 9}},
    {"some layers", {.matmul = CARAT_MATMUL_FP16, .gpu_layers = 3}},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

/* After opening, the memory that is taken is what the table says. There was never more, and all
 * of it is given back. */
static void check_engine(const carat_model *model, const struct carat_engine_options *o,
                         const char *label)
{
    carat_engine *e = open_engine(model, o);
    const struct carat_memory *m = carat_engine_memory(e);
    const struct carat_setup *setup = carat_engine_setup(e);
    bool has_table = model->config.n_ple > 0 && e->runner->layout.split.layer[0] == FIRST_TARGET;
    enum carat_ple asked = o->ple_place ? o->ple_place : CARAT_PLE_GPU;
    assert_string_equal(setup->device, "books");
    assert_int_equal(setup->ple_place, has_table ? asked : CARAT_PLE_AUTO);
    if (fake.device != told(m) || fake.device_most != fake.device || fake.pinned != m->pinned)
        fail_msg("%s: %zu bytes taken, %zu at most, %zu pinned; %zu and %zu pinned told", label,
                 fake.device, fake.device_most, fake.pinned, (size_t)told(m), (size_t)m->pinned);
    carat_engine_close(e);
    assert_int_equal(fake.device, 0);
    assert_int_equal(fake.pinned, 0);
}

static void an_engine_takes_what_its_table_says(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++)
        for (size_t i = 0; i < N_SETTINGS; i++) {
            struct carat_engine_options o = settings[i].options;
            o.backend = "cuda";
            for (int k = 0; k < 2; k++) {
                reset(GIGABYTE);
                fake.has_cublas = k == 0;
                check_engine(models[size], &o, settings[i].label);
            }
        }
}

static void it_fits_into_what_it_needs_and_not_into_less(void **state)
{
    (void)state;
    struct carat_error err = {0};
    for (size_t i = 0; i < N_SETTINGS; i++) {
        struct carat_engine_options o = settings[i].options;
        struct carat_memory m;
        carat_engine *e;
        if (o.gpu_layers) continue;
        const carat_model *model = models[GEMMA_E4B];
        o.backend = "cuda";
        o.n_ctx = 128; /* and everything else that would adapt itself */
        o.cache_bytes = 16 << 20;
        o.mirror_budget = -1;
        o.kv_type = o.precision == CARAT_PRECISION_FP32 ? CARAT_KV_F32 : CARAT_KV_F16;
        o.gpu_layers = model->config.n_layer;
        if (o.ple_place == CARAT_PLE_AUTO) o.ple_place = CARAT_PLE_GPU;
        reset(GIGABYTE);
        assert_int_equal(carat_memory_estimate(model, &o, &m, &err), CARAT_OK);
        reset(told(&m) + m.driver);
        check_engine(model, &o, settings[i].label);
        reset(told(&m) + m.driver - 1);
        assert_int_equal(carat_engine_open(&e, model, &o, &err), CARAT_EMEMORY);
        assert_non_null(strstr(err.message, "needed"));
        assert_int_equal(fake.device, 0);
        if (o.matmul) assert_int_equal(fake.device_most, 0); /* else it was measured */
    }
}

/* The bytes that an engine takes of a device with this much memory. */
static struct carat_memory taken_of(size_t total, size_t others,
                                    const struct carat_engine_options *o)
{
    reset(total);
    fake.others = others;
    carat_engine *e = open_engine(models[GEMMA_E4B], o);
    struct carat_memory m = *carat_engine_memory(e);
    assert_int_equal(fake.device, told(&m));
    carat_engine_close(e);
    return m;
}

static void copies_that_only_make_it_faster_leave_a_tenth_to_others(void **state)
{
    (void)state;
    struct carat_engine_options o = {.backend = "cuda",
                                     .matmul = CARAT_MATMUL_FP16,
                                     .n_ctx = 128,
                                     .no_prefix_cache = true}; /* or anchors would take some */
    struct carat_engine_options none = o;
    none.mirror_budget = -1;
    struct carat_memory m = taken_of(GIGABYTE, 0, &o), less = taken_of(GIGABYTE, 0, &none);
    uint64_t all = told(&m), least = told(&less);
    assert_true(least < all);
    uint64_t first = (least + m.driver) / 9 * 10, last = (all + m.driver) / 9 * 10 + 10;
    int n_partly = 0;
    m = taken_of(least + m.driver, 0, &o);
    assert_int_equal(told(&m), least);
    for (uint64_t total = first; total < last; total += (last - first) / 37 + 1) {
        m = taken_of(total, 0, &o);
        uint64_t most = total - total / 10 - m.driver;
        if (m.mirrors > 0) assert_true(told(&m) <= most);
        if (most >= all) assert_int_equal(told(&m), all);
        n_partly += m.mirrors > 0 && told(&m) < all;
    }
    assert_true(n_partly > 0);
    o.gpu_memory_percent = 100; /* somebody else takes all of it */
    m = taken_of(all + m.driver, 0, &o);
    assert_int_equal(told(&m), all);
}

/* The limit holds for all of an engine and its driver, whoever else is on the device. */
static void nothing_is_taken_beyond_what_is_allowed(void **state)
{
    (void)state;
    static const size_t others[] = {0, 400 << 20};
    struct carat_error err = {0};
    for (size_t i = 0; i < N_SETTINGS; i++)
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            struct carat_engine_options o = settings[i].options;
            carat_engine *e;
            o.backend = "cuda";
            o.n_ctx = 128;
            o.gpu_layers = models[GEMMA_E4B]->config.n_layer;
            if (!o.matmul) o.matmul = CARAT_MATMUL_FP16; /* measuring it takes long here */
            struct carat_memory all = taken_of(GIGABYTE, others[k], &o);
            o.gpu_memory = INT64_MAX;
            struct carat_memory m = taken_of(GIGABYTE, others[k], &o);
            assert_int_equal(m.driver, all.driver + others[k]); /* it may all be the driver's */
            uint64_t most = told(&m) + m.driver;
            uint64_t least = most - m.mirrors;
            for (uint64_t limit = least; limit <= most; limit += (most - least) / 5 + 1) {
                o.gpu_memory = (int64_t)limit;
                m = taken_of(GIGABYTE, others[k], &o);
                assert_true(fake.device_most + m.driver <= limit);
            }
            o.gpu_memory = 1 << 20;
            assert_int_equal(carat_engine_open(&e, models[GEMMA_E4B], &o, &err), CARAT_EMEMORY);
            assert_non_null(strstr(err.hint, "--gpu-memory"));
        }
}

/* The table and the layers of a device go to the host before anything is refused. */
static void a_small_share_of_a_large_device_is_a_small_device(void **state)
{
    (void)state;
    struct carat_engine_options o = {.backend = "cuda", .n_ctx = 128};
    struct carat_memory all = taken_of(GIGABYTE, 0, &o);
    o.gpu_memory = (int64_t)(told(&all) - all.mirrors) / 2 + (int64_t)all.driver;
    struct carat_memory m = taken_of(GIGABYTE, 0, &o);
    assert_true(told(&m) + m.driver <= (uint64_t)o.gpu_memory);
    assert_true(m.gpu_layers < all.gpu_layers || m.pinned > all.pinned);
    size_t small = (size_t)o.gpu_memory;
    o.gpu_memory = 0;
    struct carat_memory same = taken_of(small, 0, &o);
    assert_int_equal(m.gpu_layers, same.gpu_layers);
    assert_int_equal(told(&m) - m.mirrors, told(&same) - same.mirrors);
}

/* bind does what was decided for the engine, whatever was asked in between. */
static void asking_where_weights_would_go_decides_nothing(void **state)
{
    (void)state;
    const carat_model *model = models[GEMMA_E4B];
    struct carat_engine_options o = {.backend = "cuda", .matmul = CARAT_MATMUL_FP16};
    struct carat_error err = {0};
    struct arena arena = {0};
    struct layout y;
    struct layout_source from = {
        .config = &model->config, .gguf = model->gguf, .arena = &arena, .outs_max = 1};
    struct room none = {.pinned_bytes = GIGABYTE};
    struct placement other;
    reset(GIGABYTE);
    assert_int_equal(layout_init(&y, &from, &o, &err), CARAT_OK);
    struct target *t = &y.targets[FIRST_TARGET];
    plans_place(&y.plans, t, FIRST_TARGET, &none, &other);
    assert_int_equal(other.mirror_bytes, 0);
    assert_int_equal(other.tables, TABLE_PINNED);
    assert_int_equal(target_take(t, y.plans.bytes[0], y.plans.scratch_bytes[0], &err), CARAT_OK);
    size_t before = fake.device;
    assert_int_equal(plans_bind(&y.plans, y.targets, &err), CARAT_OK);
    assert_true(t->placement.mirror_bytes > 0);
    assert_int_equal(fake.device - before, t->placement.device_bytes);
    assert_int_equal(fake.pinned, t->placement.pinned_bytes);
    plans_deinit(&y.plans, y.targets);
    target_give(t);
    layout_deinit(&y);
    assert_int_equal(fake.device, 0);
    arena_deinit(&arena);
}

/* Decided by the size of the device alone. Layers stay where they are as long as caches can
 * shrink. The pool of several sequences would shrink first; one sequence keeps its own. */
static void caches_narrow_when_a_context_that_was_asked_for_does_not_fit(void **state)
{
    (void)state;
    const carat_model *model = models[GEMMA_12B];
    struct carat_error err = {0};
    struct carat_engine_options o = {.backend = "cuda",
                                     .matmul = CARAT_MATMUL_INT8,
                                     .n_ctx = 512,
                                     .chunk = 32,
                                     .no_prefix_cache = true};
    struct carat_memory wide, m;
    carat_engine *e;
    reset(GIGABYTE);
    assert_int_equal(carat_memory_estimate(model, &o, &wide, &err), CARAT_OK);
    assert_int_equal(wide.kv_type, CARAT_KV_F16);
    assert_false(wide.kv_is_narrowed);
    size_t least = told(&wide) + wide.driver;
    reset(least);
    assert_int_equal(carat_memory_estimate(model, &o, &m, &err), CARAT_OK);
    assert_false(m.kv_is_narrowed);
    reset(least - 1);
    check_engine(model, &o, "narrow caches");
    assert_int_equal(carat_memory_estimate(model, &o, &m, &err), CARAT_OK);
    assert_int_equal(m.kv_type, CARAT_KV_Q8_0);
    assert_true(m.kv_is_narrowed);
    assert_int_equal(m.kv_local, wide.kv_local);
    assert_true(m.kv_global < wide.kv_global);
    assert_int_equal(m.gpu_layers, model->config.n_layer);
    assert_int_equal(m.n_ctx, 512);
    o.gpu_layers = model->config.n_layer; /* or some would go */
    o.kv_type = CARAT_KV_F16;             /* what was asked for is kept */
    assert_int_equal(carat_engine_open(&e, model, &o, &err), CARAT_EMEMORY);
    o.kv_type = CARAT_KV_AUTO;
    o.n_ctx = 0; /* nobody asked for a context */
    assert_int_equal(carat_engine_open(&e, model, &o, &err), CARAT_EMEMORY);
    o.kv_type = CARAT_KV_Q8_0;
    assert_int_equal(carat_memory_estimate(model, &o, &m, &err), CARAT_OK);
    assert_int_equal(m.kv_type, CARAT_KV_Q8_0);
    assert_false(m.kv_is_narrowed);
}

struct plan_seen {
    struct carat_memory memory;
    size_t device; /* that was taken then */
    int n;
};

static void see_plan(void *user, const struct carat_memory *memory)
{
    struct plan_seen *seen = user;
    seen->memory = *memory;
    seen->device = fake.device;
    seen->n++;
}

static void the_table_is_told_before_anything_is_taken(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct plan_seen seen = {.n = 0};
    carat_engine *e;
    struct carat_engine_options o = {
        .backend = "cuda", .planned = see_plan, .progress_user = &seen};
    reset(GIGABYTE);
    assert_int_equal(carat_engine_open(&e, models[GEMMA_E4B], &o, &err), CARAT_OK);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.device, 0);
    assert_memory_equal(&seen.memory, carat_engine_memory(e), sizeof seen.memory);
    carat_engine_close(e);
}

/* Measured before anything is taken, within the limit. If the limit is too small, nothing is
 * measured. */
static void measuring_limits_stays_below_what_is_allowed(void **state)
{
    (void)state;
    static const int64_t allowed[] = {700 << 20, 300 << 20};
    struct carat_engine_options o = {
        .backend = "cuda", .matmul = CARAT_MATMUL_INT8, .n_ctx = 128, .measure_limits = true};
    for (int i = 0; i < 2; i++) {
        struct carat_error err = {0};
        struct carat_roofline limit;
        carat_engine *e;
        reset(GIGABYTE);
        o.gpu_memory = allowed[i];
        assert_int_equal(carat_engine_open(&e, models[GEMMA_E4B], &o, &err), CARAT_OK);
        assert_int_equal(carat_measure_roofline(e, &limit, &err), CARAT_OK);
        assert_true(fake.device_most + carat_engine_memory(e)->driver <= (size_t)allowed[i]);
        assert_int_equal(limit.read_bytes > 0, i == 0);
        carat_engine_close(e);
        assert_int_equal(fake.device, 0);
    }
}

/* ---- Weights of several types ------------------------------------------------------------ */

static carat_model *open_shape(const struct gemma_shape *shape, const struct gemma_layout *layout)
{
    char path[512];
    carat_model *model;
    struct carat_error err = {0};
    struct gguf_writer w = {0};
    tiny_model_put_shape(&w, shape, layout, TINY_SEED);
    scratch_file(&scratch, "shape.gguf", path);
    if (gguf_save(&w, path, &err) || carat_model_open(&model, path, &err))
        fail_msg("%s", err.message);
    gguf_writer_deinit(&w);
    remove(path);
    return model;
}

/* Opening goes through the launches of steps of all sizes. Products that share their rows may read
 * them in 8 bits, in fp16 and in fp32. */
static void weights_of_one_projection_may_be_of_several_types(void **state)
{
    (void)state;
    static const enum format others[] = {FORMAT_F16, FORMAT_BF16, FORMAT_F32};
    struct gemma_shape shape = gemma_tiny_shape(GEMMA_E2B);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct gemma_layout layout = gemma_layout_plain(i == 1 ? others[i] : FORMAT_Q8_0);
        layout.value = i == 1 ? FORMAT_Q8_0 : others[i];
        carat_model *model = open_shape(&shape, &layout);
        for (size_t k = 0; k < N_SETTINGS; k++) {
            struct carat_engine_options o = settings[k].options;
            o.backend = "cuda";
            reset(GIGABYTE);
            check_engine(model, &o, settings[k].label);
        }
        carat_model_close(model);
    }
}

/* ---- Recorded steps --------------------------------------------------------------------- */

static void a_step_is_launched_as_a_usual_one_of_its_own_kind(void **state)
{
    (void)state;
    static const struct plan decode = {.usual = {{{24, 24}}}, .n_usual = 1};
    static const struct plan chunk_64 = {.usual = {{{32, 1}}, {{65, 1}}, {{64, 1}}, {{64, 0}}},
                                         .n_usual = 4};
    static const struct plan prompts = {.usual = {{{128, 1}}, {{512, 1}}, {{2048, 1}}, {{2048, 0}}},
                                        .n_usual = 4};
    static const struct plan users = {.usual = {{{64, 64}, 64}, {{96, 96}, 96}, {{256, 256}, 256}},
                                      .n_usual = 3};
    static const struct {
        const struct plan *plan;
        int32_t n_token, n_decode, n_out;
        int expected;
    } cases[] = {
        {&decode, 24, 24, 24, 0},    {&decode, 17, 17, 17, 0},   {&decode, 25, 25, 25, -1},
        {&decode, 12, 12, 12, 0},    {&decode, 11, 11, 11, -1},  {&chunk_64, 20, 0, 1, 0},
        {&chunk_64, 33, 1, 1, 2},    {&chunk_64, 64, 0, 0, 3},   {&chunk_64, 56, 0, 1, 2},
        {&chunk_64, 65, 0, 1, 1},    {&chunk_64, 65, 1, 1, -1},  {&prompts, 64, 0, 1, -1},
        {&prompts, 112, 0, 1, 0},    {&prompts, 65, 0, 1, 0},    {&prompts, 128, 0, 0, -1},
        {&prompts, 448, 0, 1, 1},    {&prompts, 447, 0, 1, -1},  {&prompts, 2016, 0, 1, 2},
        {&prompts, 2015, 0, 1, -1},  {&prompts, 2048, 0, 0, 3},  {&prompts, 2048, 1, 1, -1},
        {&prompts, 2049, 0, 1, -1},  {&users, 60, 30, 31, 0},    {&users, 65, 65, 65, 1},
        {&users, 96, 96, 96, 1},     {&users, 96, 95, 96, -1},   {&users, 96, 0, 96, -1},
        {&users, 97, 97, 97, -1},    {&users, 224, 224, 224, 2}, {&users, 223, 223, 223, -1},
        {&users, 257, 257, 257, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step step = {
            .n_token = cases[i].n_token, .n_decode = cases[i].n_decode, .n_out = cases[i].n_out};
        int found = recording_for(cases[i].plan, &step, false);
        if (found != cases[i].expected)
            fail_msg("%d rows, %d of them decoding, %d out: %d, expected %d", step.n_token,
                     step.n_decode, step.n_out, found, cases[i].expected);
    }
}

/* Where prompts have an arithmetic of their own. */
static void a_step_of_prompts_is_not_launched_as_one_that_decodes(void **state)
{
    (void)state;
    static const struct plan plan = {.usual = {{{16, 16}, 16}, {{32, 1}}, {{128, 1}}},
                                     .n_usual = 3};
    static const struct {
        int32_t n_token, n_decode, n_out;
        int expected;
    } cases[] = {{16, 16, 16, 0}, {16, 0, 1, 1},   {16, 0, 16, -1}, {16, 15, 16, -1},
                 {9, 9, 9, 0},    {30, 30, 1, -1}, {30, 1, 1, -1},  {64, 0, 1, 2},
                 {63, 0, 1, -1},  {128, 0, 1, 2},  {128, 1, 1, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step step = {
            .n_token = cases[i].n_token, .n_decode = cases[i].n_decode, .n_out = cases[i].n_out};
        int found = recording_for(&plan, &step, true);
        if (found != cases[i].expected)
            fail_msg("%d rows, %d of them decoding, %d out: %d, expected %d", step.n_token,
                     step.n_decode, step.n_out, found, cases[i].expected);
    }
}

/* ---- Heads ------------------------------------------------------------------------------ */

static void heads_that_no_kernel_takes_are_refused_with_their_size(void **state)
{
    (void)state;
    static const struct {
        int local, global;
        const char *found; /* NULL: taken */
    } cases[] = {{12, 32, "12 found"},     {16, 20, "20 found"}, {16, 520, "520 found"},
                 {1024, 32, "1024 found"}, {8, 512, NULL},       {24, 40, NULL}};
    struct gemma_layout layout = gemma_layout_plain(FORMAT_F32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct carat_error err = {0};
        carat_engine *e = NULL;
        struct carat_engine_options o = {.backend = "cuda", .n_ctx = 64};
        struct gemma_shape shape = gemma_tiny_shape(GEMMA_E2B);
        shape.head_local = cases[i].local;
        shape.head_global = cases[i].global;
        carat_model *model = open_shape(&shape, &layout);
        reset(GIGABYTE);
        int status = carat_engine_open(&e, model, &o, &err);
        if (cases[i].found) {
            assert_int_equal(status, CARAT_EDEVICE);
            assert_non_null(strstr(err.message, cases[i].found));
            assert_non_null(strstr(err.hint, "--backend cpu"));
        } else if (status) {
            fail_msg("heads of %d and %d: %s", cases[i].local, cases[i].global, err.message);
        }
        carat_engine_close(e);
        carat_model_close(model);
    }
}

/* ---- The way of products of many rows --------------------------------------------------- */

static struct device_facts open_device(const struct device_options *o)
{
    struct carat_error err = {0};
    struct device *d;
    struct device_facts facts;
    assert_int_equal(cuda_backend.open(&d, 0, o, &err), CARAT_OK);
    cuda_backend.describe(d, &facts);
    cuda_backend.close(d);
    assert_int_equal(fake.device, 0);
    return facts;
}

static void the_faster_way_is_chosen(void **state)
{
    (void)state;
    static const struct {
        float half, int8; /* milliseconds */
        enum matmul_kind expected;
    } cases[] = {{1, 2, MATMUL_FP16},     {1, 1, MATMUL_FP16},    {1, 0.95f, MATMUL_FP16},
                 {1, 0.85f, MATMUL_INT8}, {1, 0.3f, MATMUL_INT8}, {0, 1, MATMUL_INT8},
                 {1, 0, MATMUL_INT8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reset(GIGABYTE);
        fake.ms[0] = cases[i].half;
        fake.ms[1] = cases[i].int8;
        struct device_facts facts = open_device(&(struct device_options){0});
        assert_int_equal(facts.matmul, cases[i].expected);
        assert_in_range(fake.device_most, 1, 100 << 20);
        if (cases[i].half > 0) assert_true(facts.fp16_rate > 60e12 / cases[i].half);
    }
}

static void nothing_is_measured_when_it_is_known_or_there_is_no_room(void **state)
{
    (void)state;
    static const struct {
        struct device_options options;
        size_t memory;
        enum matmul_kind expected;
    } cases[] = {{{.matmul = MATMUL_INT8}, GIGABYTE, MATMUL_INT8},
                 {{.matmul = MATMUL_FP16}, GIGABYTE, MATMUL_FP16},
                 {{.is_exact = true}, GIGABYTE, MATMUL_AUTO},
                 {{.is_pinned = false}, 50 << 20, MATMUL_INT8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reset(cases[i].memory);
        struct device_facts facts = open_device(&cases[i].options);
        assert_int_equal(facts.matmul, cases[i].expected);
        assert_int_equal(fake.n_measured, 0);
        assert_true(facts.fp16_rate <= 0 && facts.int8_rate <= 0);
    }
}

/* ---- No device --------------------------------------------------------------------------- */

static void why_there_is_no_device_is_told(void **state)
{
    (void)state;
    static const struct {
        cudaError_t found;
        int devices, major, driver;
        const char *message;
    } cases[] = {
        {cudaErrorInsufficientDriver, 0, 9, 0, "cuda: no driver"},
        {cudaErrorInsufficientDriver, 0, 9, 11080, "cuda: driver 11.8 is too old: "},
        {cudaErrorNoDevice, 0, 9, CUDART_VERSION, "cuda: the driver finds no device"},
        {cudaSuccess, 0, 9, CUDART_VERSION, "cuda: the driver finds no device"},
        {cudaErrorInitializationError, 1, 9, CUDART_VERSION, "cuda: a failure"},
        {cudaSuccess, 2, 7, CUDART_VERSION, "cuda: only devices before compute capability 8.0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct carat_error err = {0}, again = {0};
        struct device *d;
        reset(GIGABYTE);
        fake.found = cases[i].found;
        fake.devices = cases[i].devices;
        fake.major = cases[i].major;
        fake.driver = cases[i].driver;
        assert_int_equal(cuda_backend.count(), 0);
        assert_int_equal(cuda_backend.probe(&err), CARAT_EDEVICE);
        if (!strstr(err.message, cases[i].message)) fail_msg("%zu: %s", i, err.message);
        assert_non_null(strstr(err.hint, "--backend cpu"));
        assert_int_equal(cuda_backend.open(&d, 0, &(struct device_options){0}, &again),
                         CARAT_EDEVICE);
        if (cases[i].major >= 8) assert_string_equal(again.message, err.message);
    }
    reset(GIGABYTE);
    assert_int_equal(cuda_backend.probe(NULL), CARAT_OK);
}

static void a_build_without_code_for_the_device_is_told_at_once(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct device *d;
    reset(GIGABYTE);
    fake.loaded = cudaErrorNoKernelImageForDevice;
    assert_int_equal(cuda_backend.open(&d, 0, &(struct device_options){0}, &err), CARAT_EDEVICE);
    assert_non_null(strstr(err.hint, "CARAT_CUDA_CHIPS"));
    assert_int_equal(fake.device, 0);
    assert_int_equal(fake.pinned, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_takes_what_its_table_says),
        cmocka_unit_test(it_fits_into_what_it_needs_and_not_into_less),
        cmocka_unit_test(copies_that_only_make_it_faster_leave_a_tenth_to_others),
        cmocka_unit_test(nothing_is_taken_beyond_what_is_allowed),
        cmocka_unit_test(a_small_share_of_a_large_device_is_a_small_device),
        cmocka_unit_test(caches_narrow_when_a_context_that_was_asked_for_does_not_fit),
        cmocka_unit_test(the_table_is_told_before_anything_is_taken),
        cmocka_unit_test(measuring_limits_stays_below_what_is_allowed),
        cmocka_unit_test(asking_where_weights_would_go_decides_nothing),
        cmocka_unit_test(weights_of_one_projection_may_be_of_several_types),
        cmocka_unit_test(a_step_is_launched_as_a_usual_one_of_its_own_kind),
        cmocka_unit_test(a_step_of_prompts_is_not_launched_as_one_that_decodes),
        cmocka_unit_test(heads_that_no_kernel_takes_are_refused_with_their_size),
        cmocka_unit_test(the_faster_way_is_chosen),
        cmocka_unit_test(nothing_is_measured_when_it_is_known_or_there_is_no_room),
        cmocka_unit_test(why_there_is_no_device_is_told),
        cmocka_unit_test(a_build_without_code_for_the_device_is_told_at_once),
    };
    return cmocka_run_group_tests_name("cuda memory", tests, open_models, close_models);
}

#else

static void memory_of_the_cuda_backend(void **state)
{
    (void)state;
    print_message("skipped: built without CUDA\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_of_the_cuda_backend)};
    return cmocka_run_group_tests_name("cuda memory", tests, NULL, NULL);
}

#endif
