/* Pages that the runner's user gives out: any page may hold any positions, pages that were given
 * back may hold anything, and the bits are those of a sequence with pages of its own. Sizes of the
 * pools: what fits, what is told, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/model_file.h"
#include "engine/runner.h"
#include "support/engines.h"
#include "support/late_device.h"

enum { N_TEXT = 200, N_CTX = 256, N_CHUNK = 27, N_SEQ = 3, SEED = 20261122 };

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    if (strcmp(name, "late") != 0) return __real_backend_find(out, name, err);
    *out = late_backend();
    return CARAT_OK;
}

/* ---- A user of a runner that gives out pages at random ---------------------------------- */

struct user {
    struct runner *r;
    struct rng rng;
    int32_t *free[KV_KINDS], n_free[KV_KINDS];
    char *poison; /* of a page */
    struct {
        int32_t first, end; /* pages of positions that a sequence holds */
    } held[N_SEQ][KV_KINDS];
};

static struct layout_source source_of(const carat_model *model, const struct layout_part *parts,
                                      int32_t n_parts)
{
    return (struct layout_source){.config = &model->config,
                                  .gguf = model->gguf,
                                  .outs_max = N_CHUNK,
                                  .parts = parts,
                                  .n_parts = n_parts};
}

static struct runner *open_runner(const carat_model *model, const char *backend,
                                  const struct layout_part *parts, int32_t n_parts,
                                  bool shares_pages)
{
    struct runner *r;
    struct carat_error err = {0};
    struct carat_engine_options o = {
        .backend = backend, .n_ctx = N_CTX, .n_seq = N_SEQ, .chunk = N_CHUNK, .n_threads = 1};
    struct layout_source from = source_of(model, parts, n_parts);
    from.shares_pages = shares_pages;
    if (runner_open(&r, &from, &o, &err)) fail_msg("%s", err.message);
    return r;
}

static void give_back(struct user *u, enum kv_kind kind, int32_t page)
{
    const struct layout *y = &u->r->layout;
    struct carat_error err = {0};
    u->free[kind][u->n_free[kind]++] = page;
    for (int32_t i = 0; i < y->n_targets; i++) {
        uint64_t bytes = y->caches.page_bytes[i][kind];
        const struct target *t = &y->targets[i];
        if (bytes == 0) continue;
        t->backend->upload(t->device, y->caches.pools[i][kind] + (size_t)page * bytes, u->poison,
                           bytes);
        assert_int_equal(t->backend->fence(t->device, &err), CARAT_OK);
    }
}

static int32_t take_page(struct user *u, enum kv_kind kind)
{
    assert_true(u->n_free[kind] > 0);
    int32_t i = (int32_t)rng_below(&u->rng, (uint32_t)u->n_free[kind]);
    int32_t page = u->free[kind][i];
    u->free[kind][i] = u->free[kind][--u->n_free[kind]];
    return page;
}

/* All pages but page 0 are free, and NaN. */
static void begin(struct user *u, struct runner *r)
{
    const struct caches *k = &r->layout.caches;
    size_t most = 0;
    *u = (struct user){.r = r, .rng = {.state = SEED}};
    for (int i = 0; i < SITES_MAX * KV_KINDS; i++)
        if (k->page_bytes[i / KV_KINDS][i % KV_KINDS] > most)
            most = k->page_bytes[i / KV_KINDS][i % KV_KINDS];
    u->poison = mem_alloc(most, 1);
    assert_non_null(u->poison);
    memset(u->poison, 0xFF, most);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        u->free[kind] = mem_alloc((size_t)k->n_pages[kind], sizeof(int32_t));
        assert_non_null(u->free[kind]);
        for (int32_t page = 1; page < k->n_pages[kind]; page++)
            give_back(u, (enum kv_kind)kind, page);
    }
}

static void finish(struct user *u)
{
    mem_free(u->poison);
    for (int kind = 0; kind < KV_KINDS; kind++) mem_free(u->free[kind]);
}

/* Gives back pages before the window of row `done`, and takes pages for rows [done, done + n). */
static void hold(struct user *u, int32_t sequence, int32_t done, int32_t n)
{
    const struct caches *k = &u->r->layout.caches;
    int32_t window = u->r->layout.config->window;
    int32_t first_seen[KV_KINDS] = {[KV_LOCAL] =
                                        done >= window ? (done - window + 1) / KV_PAGE : 0};
    for (int i = 0; i < KV_KINDS; i++) {
        enum kv_kind kind = (enum kv_kind)i;
        int32_t *first = &u->held[sequence][i].first, *end = &u->held[sequence][i].end;
        for (; *first < first_seen[i]; ++*first) {
            int32_t slot = *first % k->slots[i], page = runner_page(u->r, kind, sequence, slot);
            runner_set_page(u->r, kind, sequence, slot, 0);
            give_back(u, kind, page);
        }
        for (; *end < kv_pages(done + n); ++*end) {
            assert_true(*end - *first < k->slots[i]);
            assert_int_equal(runner_page(u->r, kind, sequence, *end % k->slots[i]), 0);
            runner_set_page(u->r, kind, sequence, *end % k->slots[i], take_page(u, kind));
        }
    }
}

/* ---- Steps ------------------------------------------------------------------------------ */

struct rows {
    int32_t id[N_CHUNK], position[N_CHUNK], sequence[N_CHUNK], out_row[N_CHUNK];
    struct step step;
};

/* All rows want their logits. */
static void fill_rows(struct rows *t, const int32_t *ids, int32_t sequence, int32_t done, int32_t n)
{
    t->step = (struct step){.n_token = n,
                            .n_decode = n == 1,
                            .n_out = n,
                            .id = t->id,
                            .position = t->position,
                            .sequence = t->sequence,
                            .out_row = t->out_row};
    for (int32_t i = 0; i < n; i++) {
        t->id[i] = ids[done + i];
        t->position[i] = done + i;
        t->sequence[i] = sequence;
        t->out_row[i] = i;
    }
}

static void take_rows(struct runner *r, const struct rows *t, float (*logits)[TINY_VOCABULARY])
{
    struct carat_error err = {0};
    for (int32_t i = 0; i < t->step.n_out; i++) {
        const float *row;
        assert_int_equal(runner_logits(r, &t->step, i, &row, &err), CARAT_OK);
        memcpy(logits[t->position[i]], row, sizeof *logits);
    }
}

/* Chunks, then single rows, then a chunk again. */
static int32_t rows_at(int32_t done)
{
    int32_t n = done < 5 * N_CHUNK || done >= 150 ? N_CHUNK : 1;
    return done + n <= N_TEXT ? n : N_TEXT - done;
}

static void run_text(struct runner *r, const int32_t *ids, float (*logits)[TINY_VOCABULARY])
{
    struct carat_error err = {0};
    for (int32_t done = 0, n; done < N_TEXT; done += n) {
        struct rows t;
        n = rows_at(done);
        fill_rows(&t, ids, 1, done, n);
        if (runner_run(r, &t.step, &err)) fail_msg("%s", err.message);
        take_rows(r, &t, logits);
    }
}

static float alone[N_SEQ][N_TEXT][TINY_VOCABULARY], found[N_SEQ][N_TEXT][TINY_VOCABULARY];
static int32_t texts[N_SEQ][N_TEXT];

/* The texts of all sequences in turns. While a step runs, the tables are changed for the next one:
 * here to the worst and back. */
static void run_in_turns(struct user *u)
{
    struct carat_error err = {0};
    for (int32_t done = 0, n; done < N_TEXT; done += n)
        for (int32_t s = 0; s < N_SEQ; s++) {
            struct rows t;
            n = rows_at(done);
            hold(u, s, done, n);
            fill_rows(&t, texts[s], s, done, n);
            if (runner_start(u->r, &t.step, &err)) fail_msg("%s", err.message);
            int32_t slot = done / KV_PAGE % u->r->layout.caches.slots[KV_GLOBAL];
            int32_t page = runner_page(u->r, KV_GLOBAL, s, slot);
            runner_set_page(u->r, KV_GLOBAL, s, slot, 0);
            if (runner_wait(u->r, &err)) fail_msg("%s", err.message);
            runner_set_page(u->r, KV_GLOBAL, s, slot, page);
            take_rows(u->r, &t, found[s]);
        }
}

static void check_zero_pages(const struct runner *r)
{
    const struct layout *y = &r->layout;
    for (int i = 0; i < y->n_targets * KV_KINDS; i++) {
        const char *page = y->caches.pools[i / KV_KINDS][i % KV_KINDS];
        for (uint64_t k = 0; page && k < y->caches.page_bytes[i / KV_KINDS][i % KV_KINDS]; k++)
            assert_int_equal(page[k], 0); /* all these devices are in the host's memory */
    }
}

static void check_random_pages(int size, const char *backend, const struct layout_part *parts,
                               int32_t n_parts)
{
    struct user u;
    late_reset();
    struct runner *r = open_runner(models[size], backend, parts, n_parts, true);
    begin(&u, r);
    mem_fail_after(0); /* giving out pages and sending tables allocates nothing */
    run_in_turns(&u);
    assert_int_equal(mem_fail_after(-1), 0);
    check_zero_pages(r);
    finish(&u);
    runner_close(r);
    for (int32_t s = 0; s < N_SEQ; s++)
        if (memcmp(found[s], alone[s], sizeof alone[s]) != 0)
            fail_msg("size %d, %s, %d parts, sequence %d: other bits", size, backend, n_parts, s);
}

static void pages_at_random_give_the_bits_of_pages_in_order(void **state)
{
    (void)state;
    static const char *const backends[][2] = {{"ref", "ref"}, {"ref", "late"}, {"cpu", "cpu"}};
    print_message("seed %d\n", SEED);
    for (int size = 0; size < GEMMA_SIZES; size++)
        for (int b = 0; b < 3; b++) {
            int32_t n_layer = models[size]->config.n_layer, n_near = n_layer / 2;
            struct runner *r = open_runner(models[size], backends[b][0], NULL, 0, false);
            for (int32_t s = 0; s < N_SEQ; s++) {
                draw_ids(TINY_SEED + (uint64_t)s, texts[s], N_TEXT);
                run_text(r, texts[s], alone[s]);
            }
            runner_close(r);
            check_random_pages(size, backends[b][1], NULL, 0);
            const int32_t n_layers[] = {n_near, n_layer - n_near};
            struct split split = split_in_order(&models[size]->config, n_layers, 2);
            struct layout_part parts[] = {{backends[b][1], 0, n_near},
                                          {b == 1 ? "ref" : backends[b][1], 0, n_layer - n_near}};
            if (split_is_sound(&models[size]->config, &split))
                check_random_pages(size, backends[b][1], parts, 2);
        }
}

static void nothing_is_sent_when_nothing_changed(void **state)
{
    (void)state;
    struct carat_error err = {0};
    late_reset();
    struct runner *r = open_runner(models[GEMMA_12B], "late", NULL, 0, true);
    struct rows t;
    draw_ids(TINY_SEED, texts[0], N_TEXT);
    for (int kind = 0; kind < KV_KINDS; kind++) runner_set_page(r, (enum kv_kind)kind, 2, 0, 1);
    for (int32_t done = 0; done < 8; done++) {
        fill_rows(&t, texts[0], 2, done, 1);
        runner_set_page(r, KV_LOCAL, 2, 0, 1); /* as it is */
        assert_int_equal(runner_run(r, &t.step, &err), CARAT_OK);
        assert_int_equal(late_counts.uploads, 2);
    }
    runner_set_page(r, KV_LOCAL, 0, 0, 2);
    runner_set_page(r, KV_LOCAL, 1, 0, 3); /* one copy for both */
    assert_int_equal(runner_run(r, &t.step, &err), CARAT_OK);
    assert_int_equal(late_counts.uploads, 3);
    runner_close(r);
}

/* ---- Sizes ------------------------------------------------------------------------------ */

static const struct carat_engine_options many = {
    .backend = "late", .n_ctx = N_CTX, .n_seq = 40, .chunk = N_CHUNK};

/* What an open runner has taken is what its table says. */
static struct carat_memory open_once(const struct carat_engine_options *o, size_t memory)
{
    struct carat_error err = {0};
    struct runner *r;
    struct layout_source from = source_of(models[GEMMA_12B], NULL, 0);
    from.shares_pages = true;
    late_reset();
    late_memory = memory;
    if (runner_open(&r, &from, o, &err)) fail_msg("%s", err.message);
    struct carat_memory m = r->layout.memory;
    assert_int_equal(late_counts.bytes_taken, m.kv_local + m.kv_global + m.buffers);
    assert_int_equal(m.pages_local, r->layout.caches.n_pages[KV_LOCAL]);
    assert_int_equal(m.cache_positions, (m.pages_global - 1) * KV_PAGE);
    assert_true(m.kv_local >= (uint64_t)m.pages_local * m.page_bytes_local);
    assert_true(m.kv_global >= (uint64_t)m.pages_global * m.page_bytes_global);
    runner_close(r);
    return m;
}

static int refuse(const struct carat_engine_options *o, size_t memory, struct carat_error *err)
{
    struct runner *r;
    struct layout_source from = source_of(models[GEMMA_12B], NULL, 0);
    from.shares_pages = true;
    late_reset();
    late_memory = memory;
    int status = runner_open(&r, &from, o, err);
    assert_int_equal(late_counts.bytes_taken, 0);
    if (!status) runner_close(r);
    return status;
}

static uint64_t there(const struct carat_memory *m)
{
    return m->weights + m->kv_local + m->kv_global + m->buffers;
}

static void contexts_may_add_up_to_more_than_the_pool(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options o = many;
    o.no_prefix_cache = true;
    o.gpu_layers = 100; /* all: no layer goes elsewhere for lack of memory */
    o.kv_type = CARAT_KV_F16;
    struct carat_memory all = open_once(&o, 0);
    int32_t slots = kv_pages(N_CTX);
    assert_int_equal(all.pages_global, 40 * slots + 1);
    assert_int_equal(all.n_anchors, 0);
    uint64_t most = there(&all), least = most - (uint64_t)(39 * slots) * all.page_bytes_global;
    for (uint64_t bytes = least; bytes < most; bytes += (most - least) / 50) {
        struct carat_memory m = open_once(&o, bytes);
        assert_int_equal(m.pages_local, all.pages_local);
        assert_in_range(there(&m), bytes - all.page_bytes_global + 1, bytes);
        assert_in_range(m.pages_global, slots + 1, 40 * slots);
    }
    assert_int_equal(refuse(&o, least - 1, &err), CARAT_EMEMORY);
    assert_non_null(strstr(err.message, "256 positions for 40 sequences"));
}

static void anchors_get_a_part_of_what_is_left(void **state)
{
    (void)state;
    struct carat_engine_options o = many;
    o.gpu_layers = 100;
    o.cache_split = 2 * KV_PAGE;
    struct carat_memory all = open_once(&o, 0);
    assert_int_equal(all.n_anchors, all.cache_positions / o.cache_split);
    uint64_t anchor = (uint64_t)kv_pages(models[GEMMA_12B]->config.window) * all.page_bytes_local;
    uint64_t needed = there(&all) - (uint64_t)all.n_anchors * anchor;
    for (uint64_t extra = 0; extra < 1000 * anchor; extra += 1 + extra / 3) {
        struct carat_memory m = open_once(&o, needed + extra);
        uint64_t wanted = extra / 8 / anchor;
        if (wanted < 2) wanted = extra / 4 / anchor >= 2 ? 2 : wanted;
        if (wanted > (uint64_t)all.n_anchors) wanted = (uint64_t)all.n_anchors;
        assert_int_equal(m.n_anchors, wanted);
        assert_int_equal(there(&m), needed + wanted * anchor);
        assert_int_equal(m.pages_global, all.pages_global);
    }
    o.no_prefix_cache = true;
    struct carat_memory none = open_once(&o, 0);
    assert_int_equal(none.n_anchors, 0);
    assert_int_equal(there(&none), needed);
}

static void a_cache_has_the_bytes_that_were_asked_for(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options o = many;
    o.cache_bytes = 1;
    assert_int_equal(refuse(&o, 0, &err), CARAT_EMEMORY);
    assert_non_null(strstr(err.message, "one sequence of 256 positions needs"));
    assert_non_null(strstr(err.hint, "--cache-memory"));
    struct carat_engine_options one = many;
    one.n_seq = 1;
    one.no_prefix_cache = true;
    struct carat_memory m = open_once(&one, 0);
    uint64_t least = (uint64_t)m.pages_local * m.page_bytes_local +
                     (uint64_t)m.pages_global * m.page_bytes_global;
    o.cache_bytes = (int64_t)least - 1;
    assert_int_equal(refuse(&o, 0, &err), CARAT_EMEMORY);
    for (uint64_t bytes = least; bytes < 100 * least; bytes += bytes / 2) {
        o.cache_bytes = (int64_t)bytes;
        m = open_once(&o, 0);
        uint64_t taken = (uint64_t)m.pages_local * m.page_bytes_local +
                         (uint64_t)m.pages_global * m.page_bytes_global;
        assert_true(taken <= bytes);
    }
    o.cache_bytes = INT64_MAX; /* more than there is */
    assert_int_equal(refuse(&o, 0, &err), CARAT_EMEMORY);
    assert_non_null(strstr(err.hint, "--cache-memory"));
    o.cache_bytes = -1;
    assert_int_equal(refuse(&o, 0, &err), CARAT_EUSAGE);
    o.cache_bytes = 0;
    o.cache_split = KV_PAGE / 2;
    assert_int_equal(refuse(&o, 0, &err), CARAT_EUSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_at_random_give_the_bits_of_pages_in_order),
        cmocka_unit_test(nothing_is_sent_when_nothing_changed),
        cmocka_unit_test(contexts_may_add_up_to_more_than_the_pool),
        cmocka_unit_test(anchors_get_a_part_of_what_is_left),
        cmocka_unit_test(a_cache_has_the_bytes_that_were_asked_for),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
