/* test_replicas [CASE]
 *
 * Several engines behind one queue: who takes how much, cancels, or fails changes nothing for the
 * others. Takers are threads of their own. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "backend/ref/ref.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "server/replicas.h"
#include "support/crowd.h"
#include "support/engines.h"

enum { N_CTX = 512, N_ASKS = 12 };

/* ---- One device that can break ---------------------------------------------------------- */

static struct {
    int n_opened, victim; /* devices so far; which one breaks */
    struct device *device;
    atomic_bool is_broken;
} fault;

static struct backend breaking;

static int open_device(struct device **out, int index, const struct device_options *options,
                       struct carat_error *err)
{
    int status = ref_backend.open(out, index, options, err);
    if (fault.n_opened++ == fault.victim) fault.device = *out;
    return status;
}

static int breaking_fence(struct device *device, struct carat_error *err)
{
    if (device == fault.device && atomic_load(&fault.is_broken))
        return err_set(err, CARAT_EDEVICE, "the device is gone");
    return CARAT_OK;
}

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    int status = __real_backend_find(out, name, err);
    breaking = ref_backend;
    breaking.open = open_device;
    breaking.fence = breaking_fence;
    if (!status && *out == &ref_backend) *out = &breaking;
    return status;
}

/* ---- Jobs and their takers -------------------------------------------------------------- */

struct taker; /* a thread that submits and takes */

struct task {
    struct job job;
    struct taker *taker;
    const struct crowd_ask *ask;
    bool is_there, has_news, is_cancelled, is_slow;
    int n_done;
    int32_t n;
    struct job_event done;
    struct carat_error error; /* by ERROR */
};

struct taker {
    struct replicas *engines;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int n_news;
};

static void taker_init(struct taker *t, struct replicas *engines)
{
    *t = (struct taker){.engines = engines};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
}

static void on_news(void *user, struct job *const *jobs, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        struct task *task = jobs[i]->user;
        pthread_mutex_lock(&task->taker->lock);
        task->has_news = true;
        task->taker->n_news++;
        pthread_cond_signal(&task->taker->wake);
        pthread_mutex_unlock(&task->taker->lock);
    }
}

static void wait_for_news(struct taker *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->n_news == 0) pthread_cond_wait(&t->wake, &t->lock);
    t->n_news = 0;
    pthread_mutex_unlock(&t->lock);
}

static bool takes_news(struct task *task)
{
    pthread_mutex_lock(&task->taker->lock);
    bool has_news = task->has_news;
    task->has_news = false;
    pthread_mutex_unlock(&task->taker->lock);
    return has_news;
}

static void fill_task(struct task *task, struct taker *taker, const struct crowd_ask *ask)
{
    *task = (struct task){.taker = taker, .ask = ask, .is_there = true};
    task->job.user = task;
    task->job.request = (struct carat_request){.prompt = ask->ids,
                                               .n_prompt = (size_t)ask->n_ids,
                                               .max_tokens = ask->max_tokens,
                                               .sampling = ask->sampling,
                                               .ignore_stop = ask->ignore_stop,
                                               .want_logprob = true};
}

/* cmocka may only fail in the main thread, so what is wrong is counted. */
static atomic_int n_wrong;

static void check(bool is_right, const char *what)
{
    if (is_right) return;
    if (atomic_fetch_add(&n_wrong, 1) < 10) printf("wrong: %s\n", what);
}

static void look_at_token(struct task *task, const struct job_event *event)
{
    const struct crowd_answer *expected = &task->ask->expected;
    int32_t at = task->n++;
    check(task->n_done == 0, "a token after DONE");
    check(at < expected->n && event->id == expected->ids[at], "a token of the answer");
    check(at < expected->n && !memcmp(&event->logprob, &expected->logprobs[at], sizeof(float)),
          "the bits of a log-probability");
}

/* Up to `most` events. Returns how many came. */
static size_t take(struct task *task, size_t most)
{
    struct job_event events[64];
    size_t n = replicas_take(task->taker->engines, &task->job, events, most < 64 ? most : 64);
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == JOB_TOKEN) look_at_token(task, &events[i]);
        if (events[i].kind != JOB_DONE) continue;
        task->done = events[i];
        if (events[i].error) task->error = *events[i].error;
        task->n_done++;
    }
    return n;
}

static void check_end(const struct task *task)
{
    const struct crowd_answer *expected = &task->ask->expected;
    check(task->n_done == 1, "one DONE");
    if (task->is_cancelled && task->done.finish == CARAT_FINISH_CANCELLED) return;
    check(task->done.finish == expected->finish, "the answer's end");
    check(task->n == expected->n && task->done.n_generated == task->n, "the answer's length");
}

static struct crowd_ask asks[N_ASKS];

/* Prompts that begin alike in three families, and answers that are alone what they must be. */
static void draw_asks(int32_t max_tokens)
{
    static int32_t drawn = -1;
    if (max_tokens == drawn) return;
    drawn = max_tokens;
    atomic_store(&fault.is_broken, false); /* a new device may lie where a broken one was */
    struct rng rng = {.state = TINY_SEED};
    for (int i = 0; i < N_ASKS; i++) {
        struct crowd_ask *ask = &asks[i];
        ask->n_ids = 60 + (int32_t)rng_below(&rng, 100);
        draw_ids((uint64_t)i, ask->ids, (size_t)ask->n_ids);
        draw_ids((uint64_t)(i % 3), ask->ids, (size_t)ask->n_ids / 2);
        ask->max_tokens = max_tokens > 0 ? max_tokens : 1 + (int32_t)rng_below(&rng, 60);
        ask->ignore_stop = true;
        ask->sampling =
            (struct carat_sampling){.temperature = i % 2 ? 0.8f : 0, .seed = (uint64_t)i};
        crowd_answer_alone(models[GEMMA_E2B], "ref", N_CTX, ask);
    }
}

static struct replicas *open_replicas(size_t n, int32_t n_seq, int32_t n_waiting)
{
    struct carat_engine_options options[4];
    struct carat_error err = {0};
    struct replicas *engines;
    for (size_t i = 0; i < n; i++)
        options[i] = (struct carat_engine_options){
            .backend = "ref", .n_ctx = N_CTX, .n_seq = n_seq, .chunk = 64};
    struct replicas_options o = {.engines = options, .n = n, .n_waiting_max = n_waiting};
    struct replicas_events events = {.on_news = on_news};
    fault.n_opened = 0;
    fault.device = NULL;
    atomic_store(&fault.is_broken, false);
    atomic_store(&n_wrong, 0);
    if (replicas_open(&engines, models[GEMMA_E2B], &o, &events, &err)) fail_msg("%s", err.message);
    return engines;
}

static int submit_one(struct replicas *engines, struct job *job, struct carat_error *err)
{
    return replicas_submit(engines, &job, 1, err);
}

static void submit_task(struct task *task)
{
    struct carat_error err = {0};
    int status = submit_one(task->taker->engines, &task->job, &err);
    if (status) fail_msg("%s", err.message);
}

static void finish_task(struct task *task)
{
    while (task->n_done == 0)
        if (take(task, 64) == 0) wait_for_news(task->taker);
    job_deinit(&task->job);
}

/* ---- Cases ------------------------------------------------------------------------------ */

enum { N_THREADS = 4, N_OPEN = 10 };

struct user {
    struct taker taker;
    struct task tasks[N_OPEN];
    struct rng rng;
    int n_jobs, n_cancelled;
};

static void begin_task(struct user *u, struct task *task)
{
    struct carat_error err = {0};
    fill_task(task, &u->taker, &asks[rng_below(&u->rng, N_ASKS)]);
    task->is_slow = rng_below(&u->rng, 4) == 0;
    int status = submit_one(u->taker.engines, &task->job, &err);
    task->is_there = status == CARAT_OK;
    check(status == CARAT_OK || status == CARAT_EBUSY, err.message);
    if (task->is_there) u->n_jobs--;
}

/* Slow ones take one event at a time, and not each time. */
static void go_on(struct user *u, struct task *task)
{
    if (!takes_news(task) && !task->is_slow) return;
    if (!task->is_slow)
        while (task->n_done == 0 && take(task, 64) > 0) continue;
    else if (rng_below(&u->rng, 2))
        take(task, 1);
    if (task->n_done == 0 && !task->is_cancelled && rng_below(&u->rng, 200) == 0) {
        task->is_cancelled = true;
        u->n_cancelled++;
        replicas_cancel(u->taker.engines, &task->job);
    }
    if (task->n_done == 0) return;
    check_end(task);
    job_deinit(&task->job);
    task->is_there = false;
}

static void *use(void *user)
{
    struct user *u = user;
    for (bool is_busy = true; is_busy;) {
        is_busy = false;
        bool has_slow = false;
        for (int i = 0; i < N_OPEN; i++) {
            struct task *task = &u->tasks[i];
            if (!task->is_there && u->n_jobs > 0) begin_task(u, task);
            if (task->is_there) go_on(u, task);
            is_busy = is_busy || task->is_there || u->n_jobs > 0;
            has_slow = has_slow || (task->is_there && task->is_slow) || u->n_jobs > 0;
        }
        if (has_slow)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        else if (is_busy)
            wait_for_news(&u->taker);
    }
    return NULL;
}

static void jobs_of_many_threads_get_the_answers_of_one_engine_alone(void **state)
{
    (void)state;
    static struct user users[N_THREADS];
    pthread_t threads[N_THREADS];
    draw_asks(0);
    struct replicas *engines = open_replicas(3, 3, 12);
    int n_cancelled = 0;
    for (int i = 0; i < N_THREADS; i++) {
        users[i] = (struct user){.n_jobs = 50, .rng = {.state = (uint64_t)i + TINY_SEED}};
        taker_init(&users[i].taker, engines);
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        n_cancelled += users[i].n_cancelled;
    }
    assert_int_equal(atomic_load(&n_wrong), 0);
    assert_true(n_cancelled > 5);
    struct replicas_now now;
    replicas_look(engines, &now);
    assert_int_equal(now.waiting, 0);
    assert_int_equal(now.running, 0);
    assert_int_equal(now.n, 3);
    assert_int_equal(now.n_failed, 0);
    assert_int_equal(now.n_seq, 9);
    assert_true(now.stats.submitted <= 200 && now.stats.submitted > 150);
    assert_int_equal(now.stats.pages_local.referenced + now.stats.pages_global.referenced, 0);
    for (size_t i = 0; i < 3; i++) assert_string_equal(replicas_setup(engines, i)->backend, "ref");
    replicas_close(engines);
}

static uint64_t decode_rows(const struct replicas_now *now)
{
    return now->stats.rows - now->stats.prompt_rows;
}

/* Rows that were decoded up to now. */
static uint64_t rows_so_far(struct replicas *engines)
{
    struct replicas_now now;
    replicas_look(engines, &now);
    return decode_rows(&now);
}

/* Until this many jobs, which are all there are, have as many tokens as fit into their rings, or
 * one has ended. Then the engine sleeps. `rows` were decoded before the first one was submitted:
 * the engine may have begun with them by now. */
static void wait_until_paused(struct replicas *engines, int32_t n_jobs, uint64_t rows)
{
    struct replicas_now before, now;
    rows += (uint64_t)(n_jobs * (JOB_RING - JOB_SPARE - 1));
    do {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        replicas_look(engines, &before);
    } while (before.waiting + before.running == n_jobs && decode_rows(&before) < rows);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    replicas_look(engines, &now);
    if (now.running == n_jobs) assert_int_equal(now.stats.steps, before.stats.steps);
}

static void wait_until_none_runs(struct replicas *engines)
{
    struct replicas_now now;
    do {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        replicas_look(engines, &now);
    } while (now.running > 0);
}

/* 300 tokens are more than a ring holds. */
static void who_takes_nothing_pauses_and_holds_up_nobody(void **state)
{
    (void)state;
    struct taker taker;
    struct task slow[2], quick;
    struct replicas_now now;
    draw_asks(300);
    struct replicas *engines = open_replicas(1, 2, 8);
    taker_init(&taker, engines);
    for (int i = 0; i < 2; i++) {
        fill_task(&slow[i], &taker, &asks[i]);
        submit_task(&slow[i]);
    }
    wait_until_paused(engines, 2, 0);
    replicas_look(engines, &now);
    assert_int_equal(decode_rows(&now), 2 * (JOB_RING - JOB_SPARE - 1));
    assert_int_equal(now.stats.decoding, 2);
    for (int i = 0; i < 3; i++) { /* both slots are taken: a paused one makes room */
        fill_task(&quick, &taker, &asks[3 + i]);
        submit_task(&quick);
        finish_task(&quick);
        check_end(&quick);
    }
    for (int i = 0; i < 2; i++) {
        finish_task(&slow[i]);
        check_end(&slow[i]);
    }
    assert_int_equal(atomic_load(&n_wrong), 0);
    assert_true(slow[0].done.n_preempted + slow[1].done.n_preempted > 0);
    replicas_close(engines);
}

static void a_paused_answer_ends_by_a_cancel_or_its_deadline(void **state)
{
    (void)state;
    struct taker taker;
    struct task tasks[2];
    draw_asks(300);
    struct replicas *engines = open_replicas(1, 2, 8);
    taker_init(&taker, engines);
    fill_task(&tasks[0], &taker, &asks[0]);
    tasks[0].is_cancelled = true;
    double begin = os_seconds();
    submit_task(&tasks[0]);
    wait_until_paused(engines, 1, 0);
    double seconds = os_seconds() - begin;
    replicas_cancel(engines, &tasks[0].job);
    finish_task(&tasks[0]);
    assert_int_equal(tasks[0].done.finish, CARAT_FINISH_CANCELLED);

    /* Until the deadline lets it pause first: the machine may be slower than it was. */
    do {
        seconds *= 4;
        assert_true(seconds < 1000);
        fill_task(&tasks[1], &taker, &asks[1]);
        tasks[1].job.request.deadline_seconds = seconds;
        uint64_t rows = rows_so_far(engines);
        submit_task(&tasks[1]);
        wait_until_paused(engines, 1, rows);
        wait_until_none_runs(engines);
        finish_task(&tasks[1]);
        assert_int_equal(tasks[1].done.finish, CARAT_FINISH_DEADLINE);
    } while (tasks[1].n < JOB_RING - JOB_SPARE);
    assert_int_equal(tasks[1].n, JOB_RING - JOB_SPARE);
    assert_int_equal(atomic_load(&n_wrong), 0);
    replicas_close(engines);
}

static void when_an_engine_fails_its_jobs_end_and_the_others_go_on(void **state)
{
    (void)state;
    enum { N = 12 };
    struct taker taker;
    struct task tasks[N + 1];
    struct replicas_now now;
    int n_failed = 0;
    draw_asks(40);
    fault.victim = 1;
    struct replicas *engines = open_replicas(3, 2, 8);
    taker_init(&taker, engines);
    for (int i = 0; i < N; i++) {
        fill_task(&tasks[i], &taker, &asks[i]);
        submit_task(&tasks[i]);
    }
    do {
        wait_for_news(&taker);
        replicas_look(engines, &now);
    } while (now.stats.decoding < 3);
    atomic_store(&fault.is_broken, true);
    for (int i = 0; i < N; i++) {
        finish_task(&tasks[i]);
        if (tasks[i].done.finish == CARAT_FINISH_ERROR) {
            n_failed++;
            assert_int_equal(tasks[i].error.code, CARAT_EDEVICE);
            assert_non_null(strstr(tasks[i].error.message, "the device is gone"));
        } else {
            check_end(&tasks[i]);
        }
    }
    assert_true(n_failed > 0 && n_failed < N);
    for (int i = 0; i < N; i++) { /* nothing goes there any more */
        fill_task(&tasks[i], &taker, &asks[i]);
        submit_task(&tasks[i]);
        finish_task(&tasks[i]);
        check_end(&tasks[i]);
    }
    replicas_look(engines, &now);
    assert_int_equal(now.n_failed, 1);
    assert_int_equal(now.n_seq, 4);
    assert_int_equal(atomic_load(&n_wrong), 0);
    replicas_close(engines);
}

static void when_all_engines_have_failed_a_submit_says_why(void **state)
{
    (void)state;
    struct taker taker;
    struct task task;
    struct carat_error err = {0};
    fault.victim = 0;
    draw_asks(4);
    struct replicas *engines = open_replicas(1, 2, 8);
    taker_init(&taker, engines);
    atomic_store(&fault.is_broken, true);
    fill_task(&task, &taker, &asks[0]);
    submit_task(&task);
    finish_task(&task);
    assert_int_equal(task.done.finish, CARAT_FINISH_ERROR);
    fill_task(&task, &taker, &asks[0]);
    assert_int_equal(submit_one(engines, &task.job, &err), CARAT_EDEVICE);
    assert_non_null(strstr(err.message, "the device is gone"));
    assert_null(task.job.state);
    replicas_close(engines);
}

static void more_jobs_than_may_wait_are_refused(void **state)
{
    (void)state;
    enum { N_ROOM = 2 * 1 + 3 };
    struct taker taker;
    struct task tasks[N_ROOM], more;
    struct carat_error err = {0};
    draw_asks(4);
    struct replicas *engines = open_replicas(2, 1, 3);
    taker_init(&taker, engines);
    for (int i = 0; i < N_ROOM; i++) {
        fill_task(&tasks[i], &taker, &asks[i]);
        tasks[i].job.request.max_tokens = 0; /* to the end of the context: they stay */
        submit_task(&tasks[i]);
    }
    fill_task(&more, &taker, &asks[0]);
    assert_int_equal(submit_one(engines, &more.job, &err), CARAT_EBUSY);
    assert_non_null(strstr(err.message, "2 answers run and 3 wait"));
    replicas_stop(engines);
    for (int i = 0; i < N_ROOM; i++) {
        while (tasks[i].n_done == 0) assert_true(take(&tasks[i], 64) > 0);
        assert_int_equal(tasks[i].done.finish, CARAT_FINISH_CANCELLED);
        job_deinit(&tasks[i].job);
    }
    assert_int_equal(submit_one(engines, &more.job, &err), CARAT_EBUSY);
    assert_non_null(strstr(err.message, "stopping"));
    replicas_close(engines);
}

static void a_request_may_have_more_jobs_than_may_wait(void **state)
{
    (void)state;
    enum { N_JOBS = 7 };
    struct taker taker;
    struct task tasks[N_JOBS], more;
    struct job *jobs[N_JOBS];
    struct carat_error err = {0};
    draw_asks(0);
    struct replicas *engines = open_replicas(1, 2, 1);
    taker_init(&taker, engines);
    for (int i = 0; i < N_JOBS; i++) {
        fill_task(&tasks[i], &taker, &asks[i]);
        jobs[i] = &tasks[i].job;
    }
    assert_int_equal(replicas_submit(engines, jobs, N_JOBS, &err), CARAT_OK);
    fill_task(&more, &taker, &asks[0]);
    assert_int_equal(submit_one(engines, &more.job, &err), CARAT_EBUSY);
    assert_null(more.job.state);
    for (int i = 0; i < N_JOBS; i++) {
        finish_task(&tasks[i]);
        check_end(&tasks[i]);
    }
    assert_int_equal(n_wrong, 0);
    replicas_close(engines);
}

static void what_cannot_be_asked_ends_by_an_error_that_says_why(void **state)
{
    (void)state;
    static int32_t ids[N_CTX];
    struct taker taker;
    struct task task;
    draw_asks(4);
    struct replicas *engines = open_replicas(1, 1, 1);
    taker_init(&taker, engines);
    draw_ids(1, ids, N_CTX);
    fill_task(&task, &taker, &asks[0]);
    task.job.request.prompt = ids;
    task.job.request.n_prompt = N_CTX;
    submit_task(&task);
    finish_task(&task);
    assert_int_equal(task.done.finish, CARAT_FINISH_ERROR);
    assert_int_equal(task.error.code, CARAT_ECONTEXT);
    replicas_close(engines);
}

static void memory_that_runs_out_anywhere_leaves_nothing_behind(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = 64, .n_seq = 1, .chunk = 16, .n_threads = 1};
    struct replicas_options o = {.engines = &options, .n = 1, .n_waiting_max = 2};
    struct replicas_events events = {.on_news = on_news};
    long before = mem_blocks_live();
    for (long n = 0;; n++) {
        struct replicas *engines = NULL;
        mem_fail_after(n);
        int status = replicas_open(&engines, models[GEMMA_E2B], &o, &events, &err);
        int failed = mem_fail_after(-1);
        replicas_close(engines);
        assert_int_equal(mem_blocks_live(), before);
        if (!failed) break;
        assert_int_equal(status, CARAT_EMEMORY);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_many_threads_get_the_answers_of_one_engine_alone),
        cmocka_unit_test(who_takes_nothing_pauses_and_holds_up_nobody),
        cmocka_unit_test(a_paused_answer_ends_by_a_cancel_or_its_deadline),
        cmocka_unit_test(when_an_engine_fails_its_jobs_end_and_the_others_go_on),
        cmocka_unit_test(when_all_engines_have_failed_a_submit_says_why),
        cmocka_unit_test(more_jobs_than_may_wait_are_refused),
        cmocka_unit_test(a_request_may_have_more_jobs_than_may_wait),
        cmocka_unit_test(what_cannot_be_asked_ends_by_an_error_that_says_why),
        cmocka_unit_test(memory_that_runs_out_anywhere_leaves_nothing_behind),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_models, close_models);
}
