/* A device that fails in any step of many users: every request ends with an error, and nothing of a
 * step that did not succeed is in the prefix cache. The build for this program has pages of 32
 * positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/ref/ref.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "support/crowd.h"

enum { SEED = 19, N_CTX = 256, N_REQUESTS = 5, STEPS_MAX = 200 };

/* ---- A backend whose fences fail from the n-th on --------------------------------------- */

static struct {
    int fences_left; /* < 0: as many as wanted */
    int fences;      /* that were called */
} fake;

static struct backend failing;

static int failing_fence(struct device *device, struct carat_error *err)
{
    (void)device;
    fake.fences++;
    if (fake.fences_left == 0) return err_set(err, CARAT_EDEVICE, "the device is gone");
    if (fake.fences_left > 0) fake.fences_left--;
    return CARAT_OK;
}

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    int status = __real_backend_find(out, name, err);
    failing = ref_backend;
    failing.fence = failing_fence;
    if (!status && *out == &ref_backend) *out = &failing;
    return status;
}

/* ---- What is in the cache --------------------------------------------------------------- */

/* What the cache says after a step, and how many fences the steps so far took. */
struct moment {
    int fences;
    uint64_t published, anchored;
};

static struct moment moments[STEPS_MAX];

static struct moment now(const carat_engine *e)
{
    struct prefix_counts n = prefix_count(e->paging.cache);
    return (struct moment){fake.fences, n.published + n.duplicates, n.anchored};
}

static void submit_all(carat_engine *e)
{
    static int32_t ids[N_CTX];
    for (int i = 0; i < N_REQUESTS; i++) { /* two texts, of which each begins three prompts */
        struct rng same = {SEED + (uint64_t)i % 2}, own = {SEED + 100 + (uint64_t)i};
        struct carat_error err = {0};
        carat_request_id id;
        for (int k = 0; k < N_CTX; k++) ids[k] = (int32_t)rng_below(k < 70 ? &same : &own, 700);
        struct carat_request request = {.prompt = ids,
                                        .n_prompt = 72 + 13 * (size_t)i,
                                        .max_tokens = 6,
                                        .sampling = {.top_p = 1, .repeat_penalty = 1},
                                        .ignore_stop = true,
                                        .priority = i == N_REQUESTS - 1};
        if (carat_submit(e, &request, &id, &err)) fail_msg("%s", err.message);
    }
}

static carat_engine *open_engine(const carat_model *model)
{
    struct carat_error err = {0};
    carat_engine *e;
    struct carat_engine_options options = {.backend = "ref",
                                           .n_ctx = N_CTX,
                                           .n_seq = 3,
                                           .chunk = 40,
                                           .n_threads = 1,
                                           .max_itl_ms = 1e9};
    if (carat_engine_open(&e, model, &options, &err)) fail_msg("%s", err.message);
    memset(&fake, 0, sizeof fake);
    fake.fences_left = -1;
    submit_all(e);
    return e;
}

/* Takes all events; returns the number of requests that ended. Those with an error say why, and
 * are counted too. */
static int count_ended(carat_engine *e, int *n_errors)
{
    const struct carat_event *event;
    int n = 0;
    while ((event = carat_next_event(e))) {
        if (event->kind != CARAT_EVENT_DONE) continue;
        n++;
        if (event->finish == CARAT_FINISH_LENGTH) continue;
        assert_int_equal(event->finish, CARAT_FINISH_ERROR);
        assert_non_null(strstr(event->message, "the device is gone"));
        (*n_errors)++;
    }
    return n;
}

/* The first fence of a step says whether it succeeded: if that fails, nothing of the step may be
 * published. Later ones only wait for rows of logits. */
static void check_published(struct moment found, int fence, int n_good)
{
    struct moment good = n_good ? moments[n_good - 1] : (struct moment){0};
    struct moment most = fence == good.fences ? good : moments[n_good];
    assert_true(fence >= good.fences && fence < moments[n_good].fences);
    assert_in_range(found.published, good.published, most.published);
    assert_in_range(found.anchored, good.anchored, most.anchored);
}

static void check_failure(const carat_model *model, int fence)
{
    struct carat_error err = {0};
    carat_engine *e = open_engine(model);
    int status, n_ended = 0, n_errors = 0, n_steps = 0;
    fake.fences_left = fence;
    while ((status = carat_step(e, &err)) > 0) {
        n_ended += count_ended(e, &n_errors);
        struct moment found = now(e);
        assert_memory_equal(&found, &moments[n_steps++], sizeof found);
    }
    assert_int_equal(status, CARAT_EDEVICE);
    assert_int_equal(n_errors, 0);
    assert_int_equal(n_ended + count_ended(e, &n_errors), N_REQUESTS);
    assert_true(n_errors > 0);
    check_published(now(e), fence, n_steps);
    crowd_check_pages(e);
    const struct carat_stats *s = carat_engine_stats(e);
    assert_int_equal(s->pages_local.referenced + s->pages_global.referenced, 0);
    assert_int_equal(s->finished[CARAT_FINISH_ERROR], n_errors);
    carat_engine_close(e);
}

static void nothing_of_a_broken_step_is_published(void **state)
{
    (void)state;
    char path[512];
    struct carat_error err = {0};
    carat_model *model;
    snprintf(path, sizeof path, "%s/tests/golden/fixtures/e2b-q8_0.gguf", CARAT_SOURCE_DIR);
    if (carat_model_open(&model, path, &err)) fail_msg("%s", err.message);
    long blocks = mem_blocks_live();
    carat_engine *e = open_engine(model);
    int n_steps = 0, n_ended = 0, n_errors = 0;
    for (int status = 1; status > 0;) {
        status = carat_step(e, &err);
        if (status < 0) fail_msg("%s", err.message);
        n_ended += count_ended(e, &n_errors);
        moments[n_steps++] = now(e);
        assert_true(n_steps < STEPS_MAX);
    }
    struct moment end = now(e);
    assert_true(n_ended == N_REQUESTS && n_errors == 0);
    printf("seed %d: %d steps, %d fences, %d blocks published, %d anchors\n", SEED, n_steps,
           end.fences, (int)end.published, (int)end.anchored);
    assert_true(end.published >= 8 && end.anchored > 3 && carat_engine_stats(e)->hits > 0);
    carat_engine_close(e);
    for (int fence = 0; fence<end.fences; fence += CROWD_SHARE> 1 ? 5 : 1)
        check_failure(model, fence);
    assert_int_equal(mem_blocks_live(), blocks);
    carat_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_a_broken_step_is_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
