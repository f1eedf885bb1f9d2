/* Passes that are divided between two devices: the same answers as on one, wherever the parts
 * are, and what is said about memory. The devices are those of every machine: the reference and
 * the CPU. */
#include <math.h>
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
#include "support/engines.h"

enum { N_CTX = 96, N_TEXT = 40, N_ANSWER = 10, N_SEQ = 3 };

/* ---- A device with little memory -------------------------------------------------------- */

static struct backend small; /* the reference, as a device other than the host */
static size_t small_memory;  /* 0: not used */
static size_t small_bytes;   /* taken from it */

static void describe_small(const struct device *device, struct device_facts *out)
{
    ref_backend.describe(device, out);
    out->memory_available = out->memory_total = small_memory;
}

static int alloc_small(struct device *device, size_t bytes, void **out, struct carat_error *err)
{
    small_bytes += bytes;
    return ref_backend.alloc(device, bytes, out, err);
}

/* ---- A device that does everything in the fence ----------------------------------------- */

enum { PENDING_MAX = 16 };

static struct backend late;
static bool is_late;
static struct {
    struct program *program; /* NULL: a copy */
    const struct step *step;
    void *to;
    const void *from;
    size_t bytes;
} pending[PENDING_MAX];
static int n_pending;
enum { SHARED_MAX = 4 };
static struct {
    char *host;
    size_t bytes;
} shared[SHARED_MAX]; /* host memory that rows are copied to or from */
static int n_shared;
static const struct runner *late_runner; /* of the engine that uses this backend */

static void run_late(struct program *program, const struct step *step)
{
    assert_true(n_pending < PENDING_MAX);
    pending[n_pending].program = program;
    pending[n_pending++].step = step;
}

static void copy_late(void *to, const void *from, size_t bytes)
{
    assert_true(n_pending < PENDING_MAX);
    pending[n_pending].program = NULL;
    pending[n_pending].to = to;
    pending[n_pending].from = from;
    pending[n_pending++].bytes = bytes;
}

static bool is_table(const char *host, size_t bytes)
{
    for (int kind = 0; late_runner && kind < KV_KINDS; kind++) {
        const struct table *t = &late_runner->tables.of[kind];
        const char *begin = (const char *)t->sent;
        const char *end = begin + (size_t)t->n_seq * (size_t)t->slots * sizeof *t->sent;
        if (host >= begin && host + bytes <= end) return true;
    }
    return false;
}

static void upload_late(struct device *device, void *memory, const void *host, size_t bytes)
{
    (void)device;
    const char *begin = host;
    bool is_shared = false;
    for (int i = 0; i < n_shared; i++)
        is_shared |= begin >= shared[i].host && begin + bytes <= shared[i].host + shared[i].bytes;
    assert_true(is_shared || is_table(begin, bytes));
    copy_late(memory, host, bytes);
}

/* Whether an earlier copy, which has to come first, reads any of this. */
static bool is_to_be_read(const char *host, size_t bytes)
{
    for (int i = 0; i < n_pending; i++) {
        const char *from = pending[i].from;
        if (!pending[i].program && from < host + bytes && host < from + pending[i].bytes)
            return true;
    }
    return false;
}

/* Rows that are read too early are NaN. */
static void download_late(struct device *device, void *host, const void *memory, size_t bytes)
{
    (void)device;
    if (!is_to_be_read(host, bytes)) memset(host, 0xFF, bytes);
    copy_late(host, memory, bytes);
}

static int fence_late(struct device *device, struct carat_error *err)
{
    (void)device, (void)err;
    for (int i = 0; i < n_pending; i++)
        if (pending[i].program)
            ref_backend.run(pending[i].program, pending[i].step);
        else
            memcpy(pending[i].to, pending[i].from, pending[i].bytes);
    n_pending = 0;
    return CARAT_OK;
}

static void share_late(struct device *device, void *host, size_t bytes)
{
    (void)device;
    assert_true(n_shared < SHARED_MAX);
    shared[n_shared].host = host;
    shared[n_shared++].bytes = bytes;
}

static void unshare_late(struct device *device, void *host)
{
    (void)device;
    int i = 0;
    while (i < n_shared && shared[i].host != host) i++;
    assert_true(i < n_shared);
    shared[i] = shared[--n_shared];
}

static void be_late(void)
{
    is_late = true;
    late_runner = NULL;
    late = ref_backend;
    late.is_host = false;
    late.run = run_late;
    late.fence = fence_late;
    late.upload = upload_late;
    late.download = download_late;
    late.share = share_late;
    late.unshare = unshare_late;
}

static int be_in_time(void **state)
{
    (void)state;
    is_late = false;
    n_pending = 0;
    n_shared = 0;
    return 0;
}

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    int status = __real_backend_find(out, name, err);
    if (!status && small_memory && *out == &ref_backend) *out = &small;
    if (!status && is_late && *out == &ref_backend) *out = &late;
    return status;
}

static void limit_memory(size_t bytes)
{
    small_memory = bytes;
    small_bytes = 0;
    small = ref_backend;
    small.is_host = false;
    small.describe = describe_small;
    small.alloc = alloc_small;
}

static int unlimit_memory(void **state)
{
    (void)state;
    small_memory = 0;
    return 0;
}

/* ---- Helpers ---------------------------------------------------------------------------- */

/* `n_near` as people count it: 0 is none. */
static struct carat_engine_options divided(const char *backend, int32_t n_near, int32_t far_experts)
{
    return (struct carat_engine_options){.backend = backend,
                                         .n_ctx = N_CTX,
                                         .n_seq = N_SEQ,
                                         .chunk = 9,
                                         .n_threads = 1,
                                         .gpu_layers = n_near ? n_near : -1,
                                         .cpu_expert_layers = far_experts};
}

/* Everything that an engine says: logits of a text, then answers to requests that come one by
 * one. */
struct said {
    float logits[N_TEXT][TINY_VOCABULARY];
    int32_t ids[N_SEQ][N_ANSWER], n[N_SEQ];
};

static int take_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct said *s = user;
    assert_int_equal(n_vocab, TINY_VOCABULARY);
    memcpy(s->logits[position], logits, sizeof s->logits[position]);
    return 0;
}

static void take_events(carat_engine *e, const carat_request_id *requests, struct said *out)
{
    const struct carat_event *event;
    while ((event = carat_next_event(e)))
        for (int i = 0; i < N_SEQ; i++)
            if (event->kind == CARAT_EVENT_TOKEN && event->request == requests[i])
                out->ids[i][out->n[i]++] = event->id;
}

/* The prompts are longer than a chunk, and read while others decode; nothing may be allocated. */
static void listen(carat_engine *e, struct said *out)
{
    int32_t text[N_TEXT];
    struct carat_error err = {0};
    carat_request_id requests[N_SEQ] = {0};
    memset(out, 0, sizeof *out);
    draw_ids(TINY_SEED, text, N_TEXT);
    if (carat_score(e, text, N_TEXT, NULL, 0, take_row, out, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < N_SEQ; i++) {
        struct carat_request r = {.prompt = text + i,
                                  .n_prompt = (size_t)(7 + 11 * i),
                                  .max_tokens = N_ANSWER,
                                  .sampling = {.top_p = 1, .repeat_penalty = 1},
                                  .ignore_stop = true};
        if (carat_submit(e, &r, &requests[i], &err)) fail_msg("%s", err.message);
        assert_true(carat_step(e, &err) >= 0);
        take_events(e, requests, out);
    }
    mem_fail_after(0);
    for (int left = 1; left > 0;) {
        left = carat_step(e, &err);
        if (left < 0) fail_msg("%s", err.message);
        take_events(e, requests, out);
    }
    assert_int_equal(mem_fail_after(-1), 0);
    for (int i = 0; i < N_SEQ; i++) assert_int_equal(out->n[i], N_ANSWER);
}

/* ---- The same answers ------------------------------------------------------------------- */

static struct said whole, parts;

static void check_same_tokens(int size, int32_t n_near, int32_t far_experts)
{
    if (memcmp(whole.ids, parts.ids, sizeof whole.ids) != 0)
        fail_msg("size %d, %d layers, experts %d: other tokens", size, n_near, far_experts);
}

/* Layers whose experts are on the CPU: none, the first two, ... all and more. */
static int32_t most_far_experts(const struct gemma_config *c)
{
    return c->n_expert ? c->n_layer + 1 : 0;
}

/* Calls `check` with `whole` and `parts` filled in, for every way to divide every model. */
static void for_all_divisions(struct carat_engine_options undivided,
                              void (*check)(int size, int32_t n_near, int32_t far_experts))
{
    for (int size = 0; size < GEMMA_SIZES; size++) {
        const struct gemma_config *c = &models[size]->config;
        carat_engine *e = open_engine(models[size], &undivided);
        assert_int_equal(e->runner->layout.n_targets, 1);
        listen(e, &whole);
        carat_engine_close(e);
        for (int32_t n = 0; n <= c->n_layer; n++)
            for (int32_t experts = 0; experts <= most_far_experts(c); experts += 2) {
                struct carat_engine_options o = divided(undivided.backend, n, experts);
                o.precision = undivided.precision;
                o.kv_type = undivided.kv_type;
                e = open_engine(models[size], &o);
                listen(e, &parts);
                check(size, n, experts);
                check_same_tokens(size, n, experts);
                carat_engine_close(e);
            }
    }
}

static void check_bits(int size, int32_t n_near, int32_t far_experts)
{
    if (memcmp(whole.logits, parts.logits, sizeof whole.logits) != 0)
        fail_msg("size %d, %d layers, experts %d: other logits", size, n_near, far_experts);
}

static void two_devices_of_a_kind_give_the_bits_of_one(void **state)
{
    (void)state;
    struct carat_engine_options undivided = divided("cpu", 0, 0);
    undivided.gpu_layers = 0;
    for_all_divisions(undivided, check_bits);
}

static void check_close(int size, int32_t n_near, int32_t far_experts)
{
    double error = 0, sum = 0;
    for (int p = 0; p < N_TEXT; p++)
        for (int i = 0; i < TINY_VOCABULARY; i++) {
            double d = (double)parts.logits[p][i] - (double)whole.logits[p][i];
            error += d * d;
            sum += (double)whole.logits[p][i] * (double)whole.logits[p][i];
        }
    if (!(sqrt(error / sum) < 1e-5))
        fail_msg("size %d, %d layers, experts %d: relative error %g", size, n_near, far_experts,
                 sqrt(error / sum));
}

static void the_reference_and_the_cpu_agree_as_one_exact_device(void **state)
{
    (void)state;
    struct carat_engine_options undivided = divided("ref", 0, 0);
    undivided.gpu_layers = 0;
    undivided.precision = CARAT_PRECISION_FP32;
    for_all_divisions(undivided, check_close);
}

/* Nothing reads too early or writes over what is still to be copied. */
static void a_device_that_works_only_when_waited_for_gives_the_same_bits(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        const struct gemma_config *c = &models[size]->config;
        for (int32_t n = 1; n <= c->n_layer; n++)
            for (int32_t experts = 0; experts <= most_far_experts(c); experts += 2) {
                struct carat_engine_options o = divided("ref", n, experts);
                carat_engine *e = open_engine(models[size], &o);
                listen(e, &whole);
                carat_engine_close(e);
                be_late();
                e = open_engine(models[size], &o);
                late_runner = e->runner;
                listen(e, &parts);
                check_bits(size, n, experts);
                check_same_tokens(size, n, experts);
                carat_engine_close(e);
                assert_int_equal(n_shared, 0);
                be_in_time(NULL);
            }
    }
}

/* ---- Where things are ------------------------------------------------------------------- */

static void layers_that_share_keys_stay_with_their_donors(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        const struct gemma_config *c = &models[size]->config;
        for (int32_t n = 0; n <= c->n_layer + 3; n++) {
            struct split split = split_with_rest(c, n, 0);
            int32_t n_near = split_count_layers(c, &split, FIRST_TARGET), first = n_near;
            assert_true(n_near >= 0 && n_near <= n);
            for (int32_t l = c->n_layer; l-- > 0;)
                if (split.layer[l] == FIRST_TARGET) first = l;
            for (int32_t l = 0; l < c->n_layer; l++) /* in one piece, at one end */
                assert_int_equal(split.layer[l] == FIRST_TARGET, l >= first && l < first + n_near);
            assert_true(n_near == 0 || first == 0 || first + n_near == c->n_layer);
            if (n_near > 0 && c->n_kv_layer == c->n_layer)
                assert_int_equal(first + n_near, c->n_layer);
            if (n >= c->n_layer || c->n_kv_layer == c->n_layer)
                assert_int_equal(n_near, n < c->n_layer ? n : c->n_layer);
            assert_true(split_is_sound(c, &split));
        }
    }
    const struct gemma_config *e2b = &models[GEMMA_E2B]->config;
    int32_t donor = e2b->n_layer, n_layer = e2b->n_layer;
    for (int32_t l = e2b->n_kv_layer; l < e2b->n_layer; l++)
        if (e2b->layer[l].kv_layer < donor) donor = e2b->layer[l].kv_layer;
    struct split most = split_with_rest(e2b, n_layer - 1, 0);
    struct split tail = split_with_rest(e2b, donor + 1, 0);
    struct split least = split_with_rest(e2b, n_layer - donor, 0);
    assert_int_equal(most.layer[0], REST_TARGET); /* the head and all that shares are near */
    assert_int_equal(most.layer[1], FIRST_TARGET);
    for (int32_t l = 0; l < n_layer; l++)
        assert_int_equal(least.layer[l], l < donor ? REST_TARGET : FIRST_TARGET);
    if (n_layer - donor > donor + 1)
        for (int32_t l = 0; l < n_layer; l++)
            assert_int_equal(tail.layer[l], l < donor ? FIRST_TARGET : REST_TARGET);
    struct split parted = split_in_order(e2b, (int32_t[]){donor + 1, n_layer - donor - 1}, 2);
    assert_false(split_is_sound(e2b, &parted));
}

/* The plans of a bucket against those of one device: the same ops, each once, in runs that can be
 * executed one after the other. */
static void check_segments(const carat_engine *whole_engine, const carat_engine *e)
{
    for (int32_t i = 0; i < e->runner->layout.plans.n_buckets; i++) {
        const struct bucket *b = &e->runner->layout.plans.buckets[i];
        const struct plan *one = &whole_engine->runner->layout.plans.buckets[i].plans[FIRST_TARGET];
        int32_t n_ops = 0;
        for (int32_t k = 0; k < b->n_segments; k++) {
            const struct segment *s = &b->segments[k];
            if (k > 0) assert_int_equal(s->plan->ops[0].code, OP_INPUT);
            assert_int_equal(s->plan->logits != BUF_NONE, k == b->n_segments - 1);
            for (int32_t j = 0; j < s->plan->n_ops; j++) {
                const struct op *op = &s->plan->ops[j];
                if (op->code == OP_INPUT || op->code == OP_OUTPUT) continue;
                n_ops++;
                bool is_expert = op->code == OP_EXPERT_IN || op->code == OP_EXPERT_OUT ||
                                 op->code == OP_GELU_MUL; /* or of the dense branch */
                if (is_expert && op->layer < e->runner->layout.n_far_experts)
                    assert_true(s->site == REST_TARGET || op->code == OP_GELU_MUL);
                else if (op->layer != LAYER_NONE)
                    assert_int_equal(s->site, e->runner->layout.split.layer[op->layer]);
            }
        }
        assert_int_equal(n_ops, one->n_ops);
    }
}

static void every_op_runs_once_where_its_layer_is(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        const struct gemma_config *c = &models[size]->config;
        struct carat_engine_options o = divided("ref", c->n_layer, 0);
        carat_engine *one = open_engine(models[size], &o);
        assert_int_equal(one->runner->layout.n_targets, 1);
        for (int32_t n = 0; n <= c->n_layer; n++)
            for (int32_t experts = 0; experts <= most_far_experts(c); experts += 2) {
                o = divided("ref", n, experts);
                carat_engine *e = open_engine(models[size], &o);
                const struct bucket *b = &e->runner->layout.plans.buckets[0];
                struct split split = split_with_rest(c, n, 0);
                int32_t n_near = split_count_layers(c, &split, FIRST_TARGET);
                int32_t expected = (n_near > 0) + (n_near < c->n_layer);
                for (int32_t l = 0; l < c->n_layer && l < experts; l++)
                    if (split.layer[l] == FIRST_TARGET) expected += 2; /* there and back */
                assert_int_equal(b->n_segments, expected);
                check_segments(one, e);
                carat_engine_close(e);
            }
        carat_engine_close(one);
    }
}

static void dense_models_have_no_experts_to_divide(void **state)
{
    (void)state;
    struct carat_engine_options o = divided("ref", 100, 100);
    carat_engine *e = open_engine(models[GEMMA_12B], &o);
    assert_int_equal(e->runner->layout.n_targets, 1);
    assert_int_equal(carat_engine_setup(e)->cpu_expert_layers, 0);
    assert_string_equal(carat_engine_setup(e)->second_device, "");
    carat_engine_close(e);
    o.gpu_layers = 0; /* a host backend that need not divide does not */
    e = open_engine(models[GEMMA_26B], &o);
    assert_int_equal(e->runner->layout.n_targets, 1);
    carat_engine_close(e);
}

/* ---- Memory ----------------------------------------------------------------------------- */

static struct carat_memory estimate(int size, const struct carat_engine_options *o)
{
    struct carat_memory m;
    struct carat_error err = {0};
    if (carat_memory_estimate(models[size], o, &m, &err)) fail_msg("%s", err.message);
    return m;
}

/* What is on the device: the mapped file and the step's rows are the host's. */
static size_t bytes_there(const struct carat_memory *m)
{
    return (size_t)(m->total - m->weights_mapped - m->step);
}

/* `memory` is less than what all layers take. */
static int32_t check_largest(int size, const struct carat_engine_options *o, size_t memory)
{
    limit_memory(memory);
    carat_engine *e = open_engine(models[size], o);
    struct carat_memory m = *carat_engine_memory(e);
    assert_true(m.gpu_layers < models[size]->config.n_layer);
    assert_true(m.second_total > 0 && m.second_available > 0);
    assert_true(bytes_there(&m) <= memory);
    const struct carat_setup *setup = carat_engine_setup(e);
    assert_int_equal(setup->gpu_layers, m.gpu_layers);
    assert_int_equal(setup->n_layer, models[size]->config.n_layer);
    assert_int_equal(setup->layers_reason, CARAT_REASON_MEMORY);
    assert_int_equal(setup->layers_available, memory);
    assert_true(setup->layers_needed > memory);
    assert_true(setup->device[0] && setup->second_device[0]);
    assert_int_equal(small_bytes, m.kv_local + m.kv_global + m.buffers);
    carat_engine_close(e);
    limit_memory(SIZE_MAX / 4);
    struct carat_engine_options next = divided("ref", m.gpu_layers + 1, 0);
    struct carat_memory more = estimate(size, &next);
    if (more.gpu_layers > m.gpu_layers) assert_true(bytes_there(&more) > memory);
    return m.gpu_layers;
}

static void as_many_layers_are_near_as_fit(void **state)
{
    (void)state;
    struct carat_engine_options o = divided("ref", 0, 0);
    o.gpu_layers = 0;
    o.cache_bytes = INT64_C(1) << 40; /* pools that do not get smaller */
    o.no_prefix_cache = true;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        int32_t n_layer = models[size]->config.n_layer, last = n_layer;
        limit_memory(SIZE_MAX / 4);
        struct carat_memory all = estimate(size, &o), m;
        limit_memory(bytes_there(&all));
        m = estimate(size, &o);
        assert_int_equal(m.gpu_layers, n_layer);
        assert_int_equal(m.second_total, 0);
        for (size_t part = 20; part-- > 0;) {
            int32_t n = check_largest(size, &o, (bytes_there(&all) - 1) / 20 * part + 1);
            assert_true(n <= last);
            last = n;
        }
        assert_int_equal(last, 0);
    }
}

static void what_was_asked_for_and_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options o = divided("ref", 4, 0);
    struct carat_memory m;
    o.cache_bytes = INT64_C(1) << 40; /* pools that do not get smaller */
    o.no_prefix_cache = true;
    limit_memory(SIZE_MAX / 4);
    assert_int_equal(carat_memory_estimate(models[GEMMA_31B], &o, &m, &err), CARAT_OK);
    limit_memory(bytes_there(&m) - 1);
    assert_int_equal(carat_memory_estimate(models[GEMMA_31B], &o, &m, &err), CARAT_EMEMORY);
    assert_non_null(strstr(err.hint, "--gpu-layers"));
    unlimit_memory(NULL);
    o.kv_type = CARAT_KV_BF16; /* the reference has it, the second device has not */
    assert_int_equal(carat_memory_estimate(models[GEMMA_31B], &o, &m, &err), CARAT_EUSAGE);
    assert_non_null(strstr(err.message, "not supported on cpu"));
}

/* If no context was asked for, the caches of both devices have to fit. */
static void a_context_is_chosen_for_both_devices(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options o = divided("ref", 3, 0);
    struct carat_memory m;
    o.n_ctx = 0;
    assert_int_equal(carat_memory_estimate(models[GEMMA_12B], &o, &m, &err), CARAT_OK);
    assert_int_equal(m.n_ctx, models[GEMMA_12B]->config.n_ctx_train);
    assert_int_equal(m.gpu_layers, 3);
}

static int open_once(struct carat_error *err)
{
    carat_engine *e;
    struct carat_engine_options o = divided("ref", 3, 100);
    int status = carat_engine_open(&e, models[GEMMA_26B], &o, err);
    carat_engine_close(e);
    return status;
}

static int print_once(struct carat_error *err)
{
    char *text = NULL;
    struct carat_engine_options o = divided("ref", 2, 0);
    int status = carat_plan_text(models[GEMMA_E2B], &o, 1, 1, &text, err);
    carat_free(text);
    return status;
}

static int choose_once(struct carat_error *err)
{
    struct carat_memory m;
    struct carat_engine_options o = divided("ref", 0, 0);
    o.gpu_layers = 0;
    limit_memory(200000);
    int status = carat_memory_estimate(models[GEMMA_E4B], &o, &m, err);
    unlimit_memory(NULL);
    if (!status) assert_true(m.second_total > 0);
    return status;
}

static void running_out_of_memory_anywhere_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    static int (*const calls[])(struct carat_error *) = {open_once, print_once, choose_once};
    long before = mem_blocks_live();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (long n = 0;; n++) {
            struct carat_error err = {0};
            mem_fail_after(n);
            int status = calls[i](&err);
            int delivered = mem_fail_after(-1);
            if (mem_blocks_live() != before) fail_msg("call %zu: allocation %ld: a leak", i, n);
            if (status != (delivered ? CARAT_EMEMORY : CARAT_OK))
                fail_msg("call %zu: allocation %ld: status %d, %s", i, n, status, err.message);
            if (!delivered) break;
        }
}

/* ---- Looking inside --------------------------------------------------------------------- */

static void all_segments_are_printed_and_counted(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options o = divided("ref", 2, 100);
    char *text;
    assert_int_equal(carat_plan_text(models[GEMMA_26B], &o, 2, 2, &text, &err), CARAT_OK);
    assert_non_null(strstr(text, "# segment 1 of 6, on cpu"));
    assert_non_null(strstr(text, "# segment 6 of 6, on ref"));
    assert_non_null(strstr(text, " of site 1"));
    assert_non_null(strstr(text, "SOFTCAP"));
    carat_free(text);
    struct carat_measure what = {.n_prompt = 20, .n_gen = 5, .depth = 7, .users = 2};
    struct carat_work divided_work, work;
    carat_engine *e = open_engine(models[GEMMA_26B], &o);
    carat_measure_work(e, &what, &divided_work);
    carat_engine_close(e);
    o.gpu_layers = 0;
    e = open_engine(models[GEMMA_26B], &o);
    carat_measure_work(e, &what, &work);
    carat_engine_close(e);
    assert_true(fabs(work.bytes / divided_work.bytes - 1) < 1e-9);
    assert_true(fabs(work.operations / divided_work.operations - 1) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_devices_of_a_kind_give_the_bits_of_one),
        cmocka_unit_test(the_reference_and_the_cpu_agree_as_one_exact_device),
        cmocka_unit_test_teardown(a_device_that_works_only_when_waited_for_gives_the_same_bits,
                                  be_in_time),
        cmocka_unit_test(layers_that_share_keys_stay_with_their_donors),
        cmocka_unit_test(every_op_runs_once_where_its_layer_is),
        cmocka_unit_test(dense_models_have_no_experts_to_divide),
        cmocka_unit_test_teardown(as_many_layers_are_near_as_fit, unlimit_memory),
        cmocka_unit_test_teardown(what_was_asked_for_and_does_not_fit_is_refused, unlimit_memory),
        cmocka_unit_test(a_context_is_chosen_for_both_devices),
        cmocka_unit_test_teardown(running_out_of_memory_anywhere_is_reported_and_leaks_nothing,
                                  unlimit_memory),
        cmocka_unit_test(all_segments_are_printed_and_counted),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
