/* A device that is lost at any moment: every request ends, no stale number passes for a result,
 * and every later call gets the same reason at once. */
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
#include "support/engines.h"

enum { N_CTX = 64, N_TEXT = 40 };

/* ---- A backend whose fences fail from the n-th on --------------------------------------- */

static struct {
    int fences_left; /* < 0: as many as wanted */
    int fences;      /* that were called */
    /* A download is complete after the next fence, if that does not fail, as on a device. */
    void *to;
    const void *from;
    size_t bytes;
} fake;

static struct backend losing;

static void lose_after(int fences)
{
    memset(&fake, 0, sizeof fake);
    fake.fences_left = fences;
}

static void late_download(struct device *device, void *host, const void *memory, size_t bytes)
{
    (void)device;
    fake.to = host;
    fake.from = memory;
    fake.bytes = bytes;
}

static int failing_fence(struct device *device, struct carat_error *err)
{
    (void)device;
    fake.fences++;
    if (fake.fences_left == 0) return err_set(err, CARAT_EDEVICE, "the device is gone");
    if (fake.fences_left > 0) fake.fences_left--;
    if (fake.to) memcpy(fake.to, fake.from, fake.bytes);
    fake.to = NULL;
    return CARAT_OK;
}

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    int status = __real_backend_find(out, name, err);
    losing = ref_backend;
    losing.download = late_download;
    losing.fence = failing_fence;
    if (!status && *out == &ref_backend) *out = &losing;
    return status;
}

/* ---- Helpers ---------------------------------------------------------------------------- */

static carat_drafter *drafter; /* of the engines that are opened; NULL: none */

static carat_engine *open_reference(int32_t n_seq)
{
    struct carat_engine_options o = {.size = sizeof o,
                                     .backend = "ref",
                                     .n_ctx = N_CTX,
                                     .n_seq = n_seq,
                                     .chunk = 16,
                                     .n_draft = drafter ? 3 : 0,
                                     .drafter = drafter};
    return open_engine(models[GEMMA_E2B], &o);
}

static void expect_reason(int status, const struct carat_error *err)
{
    assert_int_equal(status, CARAT_EDEVICE);
    assert_int_equal(err->code, CARAT_EDEVICE);
    assert_non_null(strstr(err->message, "the device is gone"));
    assert_non_null(strstr(err->message, "started again"));
}

/* Nothing works any more, nothing reaches the device, and every call says why. */
static void expect_lost(carat_engine *e, const struct carat_request *request)
{
    int32_t text[N_TEXT];
    carat_request_id id = 99;
    double seconds;
    struct carat_roofline roofline;
    struct carat_measure what = {.n_prompt = 4};
    int before = fake.fences;
    struct carat_error err[5] = {{0}};
    draw_ids(TINY_SEED, text, N_TEXT);
    expect_reason(carat_submit(e, request, &id, &err[0]), &err[0]);
    assert_int_equal(id, 0);
    expect_reason(carat_step(e, &err[1]), &err[1]);
    expect_reason(carat_score(e, text, 4, NULL, 0, ignore_row, NULL, &err[2]), &err[2]);
    expect_reason(carat_measure(e, &what, &seconds, &err[3]), &err[3]);
    expect_reason(carat_measure_roofline(e, &roofline, &err[4]), &err[4]);
    assert_int_equal(carat_step(e, NULL), CARAT_EDEVICE);
    assert_int_equal(fake.fences, before);
}

/* ---- Requests --------------------------------------------------------------------------- */

enum { N_REQUESTS = 3, N_ANSWER = 5 };

struct outcome {
    int32_t ids[N_ANSWER], n;
    int n_done;
    enum carat_finish finish;
    char message[600];
};

static void take_events(carat_engine *e, const carat_request_id *ids, struct outcome *out)
{
    const struct carat_event *event;
    while ((event = carat_next_event(e))) {
        int i = 0;
        while (ids[i] != event->request) assert_true(++i < N_REQUESTS);
        assert_int_equal(out[i].n_done, 0);
        if (event->kind == CARAT_EVENT_TOKEN) {
            assert_true(out[i].n < N_ANSWER);
            out[i].ids[out[i].n++] = event->id;
        } else if (event->kind == CARAT_EVENT_DONE) {
            out[i].n_done++;
            out[i].finish = event->finish;
            snprintf(out[i].message, sizeof out[i].message, "%s", event->message);
        }
    }
}

/* Three prompts of several chunks, so that one is answered while another waits. Returns the
 * status of the last step. */
static int play(carat_engine *e, struct outcome *out, const struct carat_request *request)
{
    carat_request_id ids[N_REQUESTS];
    struct carat_error err = {0};
    int status;
    for (int i = 0; i < N_REQUESTS; i++) {
        memset(&out[i], 0, sizeof out[i]);
        assert_int_equal(carat_submit(e, request, &ids[i], &err), CARAT_OK);
    }
    while ((status = carat_step(e, &err)) > 0) take_events(e, ids, out);
    take_events(e, ids, out);
    for (int i = 0; i < N_REQUESTS; i++) assert_int_equal(out[i].n_done, 1);
    if (status < 0) expect_reason(status, &err);
    return status;
}

/* How many passes a drafter makes depends on times, so a run may be over before the n-th fence. */
static void check_every_fence(void)
{
    int32_t prompt[N_TEXT];
    struct outcome whole[N_REQUESTS], cut[N_REQUESTS];
    draw_ids(TINY_SEED, prompt, N_TEXT);
    struct carat_request request = {.prompt = prompt,
                                    .n_prompt = N_TEXT,
                                    .max_tokens = N_ANSWER,
                                    .sampling = {.top_p = 1, .repeat_penalty = 1},
                                    .ignore_stop = true,
                                    .want_logprob = true};
    carat_engine *e = open_reference(N_REQUESTS);
    lose_after(-1);
    assert_int_equal(play(e, whole, &request), 0);
    carat_engine_close(e);
    int n_fences = fake.fences, n_errors = 0, n_answered = 0;
    assert_true(n_fences > 15);
    for (int n = 0; n < n_fences; n++) {
        long before = mem_blocks_live();
        e = open_reference(N_REQUESTS);
        lose_after(n);
        int status = play(e, cut, &request);
        assert_true(status == CARAT_EDEVICE || (drafter && status == 0));
        for (int i = 0; i < N_REQUESTS; i++) {
            bool is_lost = cut[i].finish == CARAT_FINISH_ERROR;
            assert_true(is_lost || cut[i].n == N_ANSWER);
            assert_memory_equal(cut[i].ids, whole[i].ids, (size_t)cut[i].n * sizeof *cut[i].ids);
            if (is_lost) assert_non_null(strstr(cut[i].message, "started again"));
            *(is_lost ? &n_errors : &n_answered) += 1;
        }
        if (status) expect_lost(e, &request);
        carat_engine_close(e);
        assert_int_equal(mem_blocks_live(), before);
    }
    assert_true(n_errors > n_answered && n_answered > 0);
}

static void every_request_ends_with_the_reason(void **state)
{
    (void)state;
    check_every_fence();
}

static void requests_end_with_the_reason_in_a_pass_of_the_drafter(void **state)
{
    (void)state;
    char path[512];
    struct carat_error err = {0};
    struct tiny_options options = {.format = FORMAT_Q8_0, .seed = TINY_SEED};
    scratch_file(&scratch, "drafter.gguf", path);
    assert_int_equal(tiny_drafter_save(path, &options, &err), CARAT_OK);
    if (carat_drafter_open(&drafter, path, models[GEMMA_E2B], &err)) fail_msg("%s", err.message);
    check_every_fence();
    carat_drafter_close(drafter);
    drafter = NULL;
}

/* ---- Scores ----------------------------------------------------------------------------- */

struct rows {
    float at[N_TEXT][TINY_VOCABULARY];
    int32_t n;
};

static int keep_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct rows *rows = user;
    assert_int_equal(position, rows->n);
    assert_int_equal(n_vocab, TINY_VOCABULARY);
    memcpy(rows->at[rows->n++], logits, TINY_VOCABULARY * sizeof *logits);
    return 0;
}

static void no_old_row_passes_for_a_new_one(void **state)
{
    (void)state;
    static struct rows whole, cut;
    int32_t text[N_TEXT];
    draw_ids(TINY_SEED, text, N_TEXT);
    carat_engine *e = open_reference(1);
    lose_after(-1);
    assert_int_equal(carat_score(e, text, N_TEXT, NULL, 0, keep_row, &whole, NULL), CARAT_OK);
    carat_engine_close(e);
    int n_fences = fake.fences;
    assert_true(n_fences > N_TEXT); /* one a row and one a step: the last row has its own */
    for (int n = 0; n < n_fences; n++) {
        struct carat_error err = {0};
        cut.n = 0;
        e = open_reference(1);
        lose_after(n);
        int status = carat_score(e, text, N_TEXT, NULL, 0, keep_row, &cut, &err);
        expect_reason(status, &err);
        assert_in_range(cut.n, 0, N_TEXT - 1);
        assert_memory_equal(cut.at, whole.at, (size_t)cut.n * sizeof *cut.at);
        carat_engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_ends_with_the_reason),
        cmocka_unit_test(requests_end_with_the_reason_in_a_pass_of_the_drafter),
        cmocka_unit_test(no_old_row_passes_for_a_new_one),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
