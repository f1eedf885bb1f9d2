/* test_many_users [CASE [SEED]]
 *
 * Many users at once give each user the answer of an engine of his own. Random events from a seed
 * (requests with shared beginnings, salts, priorities and deadlines, cancels, pauses, evictions) on
 * every model of the family, with pools so small that running requests are stopped and what is
 * cached is dropped all the time. Tokens are guessed, some of them wrongly, in half of the cases
 * also by a drafter that knows nothing. Every token's id and the bits of its log-probability are
 * compared with those of the request alone on a fresh engine.
 * After every step all pages must add up. The build for this program has pages of 32 positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "support/crowd.h"
#include "support/guesses.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

/* A model whose window, of 80 positions, is no multiple of a page; the fixtures' fills one. */
#define WIDE "window of 80"

static const char *const models[] = {"e2b-q8_0", "e4b-q4_0",  "12b-q4_k",
                                     "26b-q4_0", "31b-mixed", WIDE};

enum {
    N_MODELS = sizeof models / sizeof *models,
    CPU_EVENTS = 1400, /* of each model; with those of the reference 10,000 on the fixtures */
    REF_EVENTS = 600,
    N_ASKS = CROWD_SHARE > 1 ? 8 : 36,
    REF_STEP = CROWD_SHARE > 1 ? N_MODELS - 1 : 1, /* under sanitizers the first and the last */
    N_CTX = 256
};

static uint64_t seed = 13;
static struct crowd_ask asks[N_ASKS];
static struct crowd crowd;
static uint64_t n_late;           /* requests of the running case that ended by their deadline */
static uint64_t n_right, n_wrong; /* its guesses */

static void save_wide(const char *path)
{
    struct gemma_shape shape = gemma_tiny_shape(GEMMA_E4B);
    struct gemma_layout layout = gemma_layout_plain(FORMAT_Q8_0);
    struct gguf_writer w = {0};
    struct carat_error err = {0};
    shape.window = 80;
    tiny_model_put_shape(&w, &shape, &layout, seed);
    if (gguf_save(&w, path, &err)) fail_msg("%s", err.message);
    gguf_writer_deinit(&w);
}

static carat_model *open_model(const char *name)
{
    char path[512];
    struct carat_error err = {0};
    struct scratch scratch;
    carat_model *model;
    bool is_wide = strcmp(name, WIDE) == 0;
    snprintf(path, sizeof path, "%s/tests/golden/fixtures/%s.gguf", CARAT_SOURCE_DIR, name);
    if (is_wide) {
        scratch_open(&scratch);
        save_wide(scratch_file(&scratch, "wide.gguf", path));
    }
    if (carat_model_open(&model, path, &err)) fail_msg("%s", err.message);
    if (is_wide) scratch_close(&scratch); /* the mapping stays */
    return model;
}

/* The random one of a fixture; NULL: there is none. */
static carat_drafter *open_drafter(const char *name, const carat_model *model)
{
    char path[512];
    carat_drafter *drafter;
    struct carat_error err = {0};
    if (strcmp(name, WIDE) == 0) return NULL;
    snprintf(path, sizeof path, "%s/tests/golden/fixtures/%s.draft.gguf", CARAT_SOURCE_DIR, name);
    if (carat_drafter_open(&drafter, path, model, &err)) fail_msg("%s", err.message);
    return drafter;
}

/* ---- What is asked ---------------------------------------------------------------------- */

static void add_ids(struct crowd_ask *ask, struct rng *rng, int32_t n, uint32_t n_vocab)
{
    for (; n > 0 && ask->n_ids < N_CTX - 1; n--)
        ask->ids[ask->n_ids++] = (int32_t)rng_below(rng, n_vocab);
}

static void add_copy(struct crowd_ask *ask, const int32_t *ids, int32_t n)
{
    for (int32_t i = 0; i < n && ask->n_ids < N_CTX - 1; i++) ask->ids[ask->n_ids++] = ids[i];
}

/* A prompt that goes on from an earlier one, after its answer or from some place in it; or one of a
 * length that lies at an edge; or a new one. */
static void draw_prompt(struct crowd_ask *ask, int i, struct rng *rng, uint32_t n_vocab)
{
    static const int32_t edges[] = {64, 65, 32, 33, 31, 96, N_CTX - 1};
    const struct crowd_ask *before = &asks[i ? rng_below(rng, (uint32_t)i) : 0];
    uint32_t kind = i ? rng_below(rng, 10) : 9;
    ask->n_ids = 0;
    if (kind < 4) {
        add_copy(ask, before->ids, before->n_ids);
        add_copy(ask, before->expected.ids, before->expected.n);
    } else if (kind < 7) {
        add_copy(ask, before->ids, 1 + (int32_t)rng_below(rng, (uint32_t)before->n_ids));
    } else if (kind < 9) {
        uint32_t edge = rng_below(rng, sizeof edges / sizeof *edges);
        add_copy(ask, before->ids, before->n_ids < edges[edge] ? before->n_ids : edges[edge]);
        add_ids(ask, rng, edges[edge] - ask->n_ids, n_vocab);
        return;
    }
    add_ids(ask, rng, 1 + (int32_t)rng_below(rng, i % 4 ? 30 : 100), n_vocab);
}

/* What depends on the tokens so far must not depend on steps, guesses and lost slots. */
static void add_samplers(struct carat_sampling *s, int i)
{
    if (i % 3 == 0) s->dry_multiplier = 2;
    if (i % 3 == 0) s->dry_allowed_length = 1;
    if (i % 5 == 0) s->mirostat = 2;
    if (i % 5 == 1) s->xtc_probability = 0.5F;
    if (i % 5 == 2) s->typical_p = 0.8F;
    if (i % 5 == 3) s->dynatemp_range = 0.5F;
}

static void draw_asks(const carat_model *model, const char *backend, struct rng *rng)
{
    guesses_clear();
    for (int i = 0; i < N_ASKS; i++) {
        struct crowd_ask *ask = &asks[i];
        draw_prompt(ask, i, rng, (uint32_t)carat_model_info(model)->n_vocab);
        ask->max_tokens = 1 + (int32_t)rng_below(rng, i % 5 ? 12 : 60);
        ask->ignore_stop = rng_below(rng, 4) > 0;
        ask->sampling = (struct carat_sampling){.top_p = 1, .repeat_penalty = 1};
        if (i % 2) {
            ask->sampling.temperature = 1;
            ask->sampling.repeat_penalty = 1.1F;
            ask->sampling.seed = rng_next(rng);
            add_samplers(&ask->sampling, i);
        }
        crowd_answer_alone(model, backend, N_CTX, ask);
        guesses_add(ask->ids, ask->n_ids, ask->expected.ids, ask->expected.n);
    }
}

/* ---- Events ----------------------------------------------------------------------------- */

static void submit_one(struct rng *rng, uint64_t *n_busy)
{
    int32_t anchors[3];
    const struct crowd_ask *ask = &asks[rng_below(rng, N_ASKS)];
    struct crowd_manner manner = {.priority = (int32_t)rng_below(rng, 3),
                                  .fairness_key = rng_below(rng, 3),
                                  .salt = rng_below(rng, 4) == 0,
                                  .no_cache = rng_below(rng, 12) == 0,
                                  .anchors = anchors,
                                  .n_anchors = rng_below(rng, 4)};
    for (size_t i = 0; i < manner.n_anchors; i++)
        anchors[i] = (int32_t)rng_below(rng, (uint32_t)ask->n_ids + 1);
    if (rng_below(rng, 25) == 0) manner.deadline_seconds = rng_below(rng, 2) ? 1e-9 : 0.01;
    *n_busy += crowd_submit(&crowd, ask, &manner, NULL) == CARAT_EBUSY;
}

static const struct crowd_request *draw_request(struct rng *rng)
{
    uint32_t at = rng_below(rng, CROWD_MAX);
    for (uint32_t i = 0; i < CROWD_MAX; i++) {
        const struct crowd_request *r = &crowd.requests[(at + i) % CROWD_MAX];
        if (r->id) return r;
    }
    return NULL;
}

static void cancel_one(struct rng *rng)
{
    const struct crowd_request *r = draw_request(rng);
    if (r) crowd_cancel(&crowd, r->id);
}

/* Or resumes it. */
static void pause_one(struct rng *rng)
{
    const struct crowd_request *r = draw_request(rng);
    if (r) crowd_pause(&crowd, r->id, !r->is_paused);
}

static void evict_some(struct rng *rng)
{
    struct prefix_cache *cache = crowd.engine->paging.cache;
    enum kv_kind kind = rng_below(rng, 2) ? KV_LOCAL : KV_GLOBAL;
    if (rng_below(rng, 8) == 0) {
        prefix_flush(cache);
        return;
    }
    prefix_make_room(cache, kind,
                     (int32_t)rng_below(rng, (uint32_t)prefix_available(cache, kind) + 1));
}

/* `submits` of 100 events are new requests. */
static void run_events(int n_events, uint32_t submits, struct rng *rng, uint64_t *n_busy)
{
    for (int i = 0; i < n_events; i++) {
        uint32_t what = rng_below(rng, 100);
        if (what < submits)
            submit_one(rng, n_busy);
        else if (what < submits + 3)
            cancel_one(rng);
        else if (what < submits + 5)
            evict_some(rng);
        else if (what < submits + 12)
            pause_one(rng);
        else
            crowd_step(&crowd);
    }
    crowd_finish(&crowd);
}

/* ---- Models ----------------------------------------------------------------------------- */

/* What a case does to a model: how many requests run, and pages beyond what one full one needs. */
struct shape {
    int32_t n_seq, n_queue, chunk, n_threads, more_pages;
    double max_itl_ms; /* 0: chunks depend on measured times */
    uint32_t submits;
};

/* Everything must have happened at least this many times. */
static void check_counts(const struct carat_stats *s, uint64_t least, uint64_t n_busy)
{
    assert_true(crowd.n_compared > 15 * least && s->hits > least && n_busy > least);
    assert_true(s->preemptions > least);
    assert_true(s->evicted_pages > least && s->evicted_anchors > least);
    assert_true(crowd.finished[CARAT_FINISH_CANCELLED] >= least);
}

static void check_shape(const carat_model *model, const carat_drafter *drafter, const char *name,
                        const char *backend, struct shape shape, int n_events, struct rng *rng)
{
    uint64_t n_busy = 0;
    struct carat_engine_options options = {.size = sizeof options,
                                           .backend = backend,
                                           .n_ctx = N_CTX,
                                           .n_seq = shape.n_seq,
                                           .n_queue = shape.n_queue,
                                           .n_threads = shape.n_threads,
                                           .chunk = shape.chunk,
                                           .max_itl_ms = shape.max_itl_ms,
                                           .cache_split = 64,
                                           .deterministic = true,
                                           .n_draft = 1 + (int32_t)rng_below(rng, CARAT_DRAFT_MAX),
                                           .drafter = drafter};
    options.cache_bytes = crowd_least_bytes(model, &options, shape.more_pages, shape.more_pages);
    crowd_open(&crowd, model, &options);
    run_events(n_events, shape.submits, rng, &n_busy);
    struct carat_stats s = *carat_engine_stats(crowd.engine);
    printf("%s, %s, seed %d: %d events, %d pages; %d answers compared, %d tokens; cached %d of %d "
           "prompt tokens, %d hits, %d stopped, %d pages and %d anchors dropped, %d cancelled, %d "
           "by deadline, %d times busy; %d of %d guesses right\n",
           name, backend, (int)seed, n_events, (int)(s.pages_local.all + s.pages_global.all),
           (int)crowd.n_compared, (int)crowd.n_tokens, (int)s.cached_tokens, (int)s.prompt_tokens,
           (int)s.hits, (int)s.preemptions, (int)s.evicted_pages, (int)s.evicted_anchors,
           (int)crowd.finished[CARAT_FINISH_CANCELLED], (int)crowd.finished[CARAT_FINISH_DEADLINE],
           (int)n_busy, (int)s.accepted, (int)s.drafted);
    assert_int_equal(crowd.finished[CARAT_FINISH_ERROR], 0);
    n_late += crowd.finished[CARAT_FINISH_DEADLINE];
    n_right += s.accepted;
    n_wrong += s.drafted - s.accepted;
    if (CROWD_SHARE == 1) check_counts(&s, (uint64_t)n_events / 300, n_busy);
    crowd_close(&crowd);
}

/* A pool for hardly more than one, then one with some room for what was read. */
static void check_model(const char *name, const char *backend, int n_events)
{
    struct rng rng = {seed};
    carat_model *model = open_model(name);
    carat_drafter *drafter = open_drafter(name, model);
    draw_asks(model, backend, &rng);
    check_shape(model, NULL, name, backend, (struct shape){5, 6, 40, 1, 3, 1e9, 25}, n_events / 2,
                &rng);
    check_shape(model, drafter, name, backend, (struct shape){3, 6, 23, 2, 30, 0, 25}, n_events / 2,
                &rng);
    carat_drafter_close(drafter);
    carat_model_close(model);
}

static void answers_on_the_cpu_are_those_of_each_alone(void **state)
{
    (void)state;
    n_late = n_right = n_wrong = 0;
    for (int m = 0; m < N_MODELS; m++) check_model(models[m], "cpu", CPU_EVENTS / CROWD_SHARE);
    assert_true(n_late > 0 || CROWD_SHARE > 1);
    assert_true((n_right > 100 && n_wrong > 50) || CROWD_SHARE > 1);
}

static void answers_of_the_reference_are_those_of_each_alone(void **state)
{
    (void)state;
    n_late = n_right = n_wrong = 0;
    for (int m = 0; m < N_MODELS; m += REF_STEP)
        check_model(models[m], "ref", REF_EVENTS / CROWD_SHARE);
    assert_true(n_late > 0 || CROWD_SHARE > 1);
    assert_true((n_right > 100 && n_wrong > 50) || CROWD_SHARE > 1);
}

static void sixty_four_users_share_a_pool_for_eight(void **state)
{
    (void)state;
    struct rng rng = {seed};
    carat_model *model = open_model("e2b-q8_0");
    carat_drafter *drafter = open_drafter("e2b-q8_0", model);
    draw_asks(model, "cpu", &rng);
    int32_t more_pages = 24; /* prompts and answers have about four */
    check_shape(model, drafter, "e2b-q8_0", "cpu",
                (struct shape){64, 20, 64, 2, more_pages, 1e9, 80}, 500 / CROWD_SHARE, &rng);
    carat_drafter_close(drafter);
    carat_model_close(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_on_the_cpu_are_those_of_each_alone),
        cmocka_unit_test(sixty_four_users_share_a_pool_for_eight),
        cmocka_unit_test(answers_of_the_reference_are_those_of_each_alone),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
