/* What an engine takes and gives back: the memory table against a backend that counts, every
 * allocation failing in turn, a device that is too small or lost. Also, which chunks the engine
 * announces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/ref/ref.h"
#include "base/mem.h"
#include "carat_inspect.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "support/answers.h"

enum { N_CTX = 128 };

/* ---- A backend that counts -------------------------------------------------------------- */

static struct {
    bool is_on, must_lose;
    size_t bytes, memory_available; /* 0: as it is */
    size_t pinned;
    int allocated, programs, weights, wrong_order;
    int32_t next_id[N_CTX], n_next; /* the chunk that the last step announced */
    int announced, surprising;      /* chunks that were announced, and chunks that were not */
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

/* Rows that are read ahead are used only if they are the whole chunk of the next step. */
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

/* ---- Memory ----------------------------------------------------------------------------- */

static carat_engine *open_reference(enum gemma_size size, int32_t n_seq, int32_t chunk)
{
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = N_CTX, .n_seq = n_seq, .chunk = chunk};
    return open_engine(models[size], &options);
}

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

/* All allocations fail while the engine steps, and nothing goes wrong. */
static void a_step_allocates_nothing(void **state)
{
    (void)state;
    int32_t prompt[N_CTX];
    for (int size = 0; size < GEMMA_SIZES; size++) {
        carat_engine *e = open_reference((enum gemma_size)size, N_MIXED, 16);
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
    struct carat_request request = greedy_request(prompt, 3, 4);
    request.bias = &bias;
    request.n_bias = 1;
    request.sampling.frequency_penalty = 0.5f;
    request.sampling.repeat_last_n = 64;
    carat_request_id id;
    const struct carat_event *event;
    int status = carat_submit(sweep_engine, &request, &id, err);
    if (status) return status;
    carat_cancel(sweep_engine, id);
    carat_step(sweep_engine, err);
    while ((event = carat_next_event(sweep_engine))) {
    }
    return CARAT_OK;
}

static void running_out_of_memory_anywhere_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct tiny_options options = {.size = GEMMA_26B, .format = FORMAT_Q4_0, .seed = TINY_SEED};
    scratch_file(&scratch, "sweep.gguf", sweep_path);
    assert_int_equal(tiny_model_save(sweep_path, &options, &err), CARAT_OK);
    sweep(open_model_once, "carat_model_open");
    sweep(show_once, "carat_show_json");
    sweep(open_engine_once, "carat_engine_open");
    sweep(open_cpu_engine_once, "carat_engine_open of the cpu backend");
    sweep(estimate_once, "carat_memory_estimate");
    sweep(plan_text_once, "carat_plan_text");
    sweep(devices_once, "carat_devices_json");
    sweep_engine = open_reference(GEMMA_E2B, 2, 8);
    sweep(submit_once, "carat_submit");
    carat_engine_close(sweep_engine);
    remove(sweep_path);
}

static void what_does_not_fit_is_refused_with_need_and_have(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_memory memory;
    /* As large as can be: else the pools get smaller. */
    struct carat_engine_options options = {.backend = "ref",
                                           .n_ctx = 512,
                                           .n_seq = 64,
                                           .cache_bytes = INT64_C(1) << 40,
                                           .no_prefix_cache = true};
    carat_engine *e;
    count_from_now();
    assert_int_equal(carat_memory_estimate(models[GEMMA_31B], &options, &memory, &err), CARAT_OK);
    size_t needed = memory.total - memory.weights_mapped;
    /* Not in the table: requests, what is known of each page, a 256th, and a row of logits. */
    struct carat_engine_options complete;
    assert_int_equal(options_copy(&complete, &options, &err), CARAT_OK);
    struct layout_source source = engine_source(models[GEMMA_31B], &complete);
    size_t row = sizeof(float) * (size_t)carat_model_info(models[GEMMA_31B])->n_vocab;
    assert_true(source.host_bytes > (4 << 20) + 64 * row);
    size_t pages = (size_t)memory.pages_local + (size_t)memory.pages_global;
    size_t rest = (size_t)source.host_bytes + pages * source.host_page_bytes + needed / 256 + row;
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

static void closing_with_running_requests_frees_everything(void **state)
{
    (void)state;
    int32_t prompt[30];
    struct carat_error err = {0};
    long before = mem_blocks_live();
    carat_engine *e = open_reference(GEMMA_31B, 3, 10);
    draw_ids(TINY_SEED, prompt, 30);
    struct carat_request request = greedy_request(prompt, 30, 20);
    submit(e, &request);
    assert_int_equal(carat_step(e, &err), 1);
    submit(e, &request);
    carat_engine_close(e);
    assert_int_equal(mem_blocks_live(), before);
}

/* ---- Steps ------------------------------------------------------------------------------ */

/* All chunks of a prompt but the first are announced, with sequences that decode in front of them.
 * The chunk of a cancelled request is not run. */
static void every_chunk_is_announced_by_the_step_before_it(void **state)
{
    (void)state;
    enum { CHUNK = 5 };
    int32_t prompt[N_CTX];
    double seconds;
    struct carat_error err = {0};
    struct answer answers[N_MIXED] = {0};
    int chunks = 0;
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = N_CTX, .n_seq = N_MIXED, .chunk = CHUNK, .max_itl_ms = 1e9};
    count_from_now();
    carat_engine *e = open_engine(models[GEMMA_E2B], &options);
    for (int i = 0; i < N_MIXED; i++) {
        struct carat_request request = mixed_request(i, prompt);
        answers[i].request = submit(e, &request);
        chunks += ((int)request.n_prompt + CHUNK - 1) / CHUNK;
        while (answers[i].n == 0) {
            assert_int_equal(carat_step(e, &err), 1);
            take_events(e, answers, N_MIXED);
        }
    }
    run_all(e, answers, N_MIXED);
    assert_int_equal(counted.surprising, N_MIXED);
    assert_int_equal(counted.announced, chunks - N_MIXED);
    struct carat_request request = greedy_request(prompt, 4 * CHUNK, 1);
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

static void a_lost_device_is_reported_by_every_later_step(void **state)
{
    (void)state;
    int32_t prompt[8];
    struct carat_error err = {0};
    count_from_now();
    carat_engine *e = open_reference(GEMMA_E2B, 1, 8);
    draw_ids(TINY_SEED, prompt, 8);
    struct carat_request request = greedy_request(prompt, 8, 8);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_with_running_requests_frees_everything),
        cmocka_unit_test_teardown(every_chunk_is_announced_by_the_step_before_it, stop_counting),
        cmocka_unit_test_teardown(the_memory_table_is_what_is_taken, stop_counting),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(running_out_of_memory_anywhere_is_reported_and_leaks_nothing),
        cmocka_unit_test_teardown(what_does_not_fit_is_refused_with_need_and_have, stop_counting),
        cmocka_unit_test_teardown(pinned_memory_is_told_and_has_to_be_there, stop_counting),
        cmocka_unit_test_teardown(a_lost_device_is_reported_by_every_later_step, stop_counting),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
