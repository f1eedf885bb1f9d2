#include "server/replica.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/status.h"

struct replica {
    carat_engine *engine;
    size_t index;
    int32_t n_seq;
    struct replicas_events events;
    pthread_t thread;
    atomic_llong work; /* as in affinity_load */
    atomic_int n_jobs;
    atomic_int n_mail; /* jobs that `stats` lacks; with `news`, both change when it gets them */
    atomic_bool is_failed;

    pthread_mutex_t mail; /* guards these */
    pthread_cond_t wake;
    struct job *first, *last;     /* that the engine has not taken */
    bool is_stopping, has_wishes; /* a cancel, or a ring with room again */
    struct carat_error problem;

    pthread_mutex_t news; /* guards the rings of all jobs, and this */
    struct carat_stats stats;

    /* The thread's own. */
    struct job *running; /* taken by the engine, not ended */
    struct job *refused; /* ended before the engine had them */
    bool has_work;       /* the last step said so */
    struct job **noted;  /* [jobs_max]: with news of this step */
    size_t n_noted;
};

/* ---- Lists ------------------------------------------------------------------------------ */

static void push(struct job **list, struct job *job)
{
    struct job *after = *list;
    job->state->next = after;
    job->state->before = NULL;
    if (after) after->state->before = job;
    *list = job;
}

static void unlink_job(struct job **list, struct job *job)
{
    struct job *before = job->state->before, *after = job->state->next;
    if (before)
        before->state->next = after;
    else
        *list = after;
    if (after) after->state->before = before;
}

/* ---- Any thread ------------------------------------------------------------------------- */

static void wish(struct replica *r)
{
    r->has_wishes = true;
    pthread_cond_signal(&r->wake);
}

void replica_submit(struct replica *r, struct job *job, int64_t to_read)
{
    struct job_state *s = job->state;
    s->replica = r;
    s->to_read = to_read;
    s->next = NULL;
    atomic_fetch_add(&r->n_jobs, 1);
    atomic_fetch_add(&r->work, to_read + AFFINITY_JOB);
    pthread_mutex_lock(&r->mail);
    if (r->last)
        r->last->state->next = job;
    else
        r->first = job;
    r->last = job;
    atomic_fetch_add(&r->n_mail, 1);
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mail);
}

void replica_cancel(struct replica *r, struct job *job)
{
    pthread_mutex_lock(&r->mail);
    job->state->is_cancelled = true;
    if (job->state->request) carat_cancel(r->engine, job->state->request);
    wish(r);
    pthread_mutex_unlock(&r->mail);
}

size_t replica_take(struct replica *r, struct job *job, struct job_event *out, size_t room)
{
    struct job_state *s = job->state;
    pthread_mutex_lock(&r->news);
    bool was_low = job_is_low(s);
    size_t n = job_take(s, out, room);
    bool is_low = job_is_low(s);
    pthread_mutex_unlock(&r->news);
    if (was_low || !is_low) return n;
    pthread_mutex_lock(&r->mail);
    wish(r);
    pthread_mutex_unlock(&r->mail);
    return n;
}

struct affinity_load replica_load(struct replica *r)
{
    return (struct affinity_load){
        .work = atomic_load(&r->work), .n_seq = r->n_seq, .is_out = atomic_load(&r->is_failed)};
}

int32_t replica_jobs(struct replica *r)
{
    return atomic_load(&r->n_jobs);
}

void replica_look(struct replica *r, struct replica_now *out)
{
    out->load = replica_load(r);
    out->n_jobs = replica_jobs(r);
    pthread_mutex_lock(&r->news);
    out->n_mail = atomic_load(&r->n_mail);
    out->stats = r->stats;
    pthread_mutex_unlock(&r->news);
}

void replica_problem(struct replica *r, struct carat_error *out)
{
    pthread_mutex_lock(&r->mail);
    *out = r->problem;
    pthread_mutex_unlock(&r->mail);
}

const struct carat_setup *replica_setup(const struct replica *r)
{
    return carat_engine_setup(r->engine);
}

const struct carat_memory *replica_memory(const struct replica *r)
{
    return carat_engine_memory(r->engine);
}

/* ---- The thread: waiting ---------------------------------------------------------------- */

/* The earliest deadline of a job; 0: none. While the engine has no work, all that run are paused:
 * nothing but a wish or a deadline can change that. */
static double next_deadline(const struct replica *r)
{
    double first = 0;
    for (struct job *j = r->running; j; j = j->state->next)
        if (j->state->deadline > 0 && (first <= 0 || j->state->deadline < first))
            first = j->state->deadline;
    return first;
}

/* Until something is to be done; with `mail` held. */
static void wait_for_work(struct replica *r)
{
    double deadline = r->has_work ? 0 : next_deadline(r);
    struct timespec until = {.tv_sec = (time_t)deadline};
    until.tv_nsec = (long)((deadline - (double)until.tv_sec) * 1e9);
    while (!r->has_work && !r->first && !r->has_wishes && !r->is_stopping) {
        if (deadline <= 0)
            pthread_cond_wait(&r->wake, &r->mail);
        else if (pthread_cond_timedwait(&r->wake, &r->mail, &until))
            return;
    }
}

/* ---- The thread: jobs in ---------------------------------------------------------------- */

/* Ends a job that the engine does not have. `error` by ERROR. */
static void refuse(struct replica *r, struct job *job, enum carat_finish finish,
                   const struct carat_error *error)
{
    job->state->finish = finish;
    if (error) job->state->error = *error;
    push(&r->refused, job);
}

/* Tells other threads the request's id. A cancel that came before could not use it. */
static void note_request(struct replica *r, struct job_state *s, carat_request_id id)
{
    pthread_mutex_lock(&r->mail);
    s->request = id;
    if (s->is_cancelled) carat_cancel(r->engine, id);
    pthread_mutex_unlock(&r->mail);
}

static void start(struct replica *r, struct job *job)
{
    struct job_state *s = job->state;
    struct carat_request request = job->request;
    struct carat_error err = {0};
    carat_request_id id;
    double now = os_seconds();
    if (s->deadline > 0 && now >= s->deadline) {
        refuse(r, job, CARAT_FINISH_DEADLINE, NULL);
        return;
    }
    if (atomic_load(&r->is_failed)) {
        refuse(r, job, CARAT_FINISH_ERROR, &r->problem);
        return;
    }
    request.user = job;
    request.deadline_seconds = s->deadline > 0 ? s->deadline - now : 0;
    if (carat_submit(r->engine, &request, &id, &err)) {
        refuse(r, job, CARAT_FINISH_ERROR, &err);
        return;
    }
    push(&r->running, job);
    note_request(r, s, id);
}

/* Gives jobs to the engine, but those that were cancelled before. */
static void start_all(struct replica *r, struct job *first)
{
    while (first) {
        struct job *job = first;
        first = job->state->next;
        pthread_mutex_lock(&r->mail);
        bool is_cancelled = job->state->is_cancelled || r->is_stopping;
        pthread_mutex_unlock(&r->mail);
        if (is_cancelled)
            refuse(r, job, CARAT_FINISH_CANCELLED, NULL);
        else
            start(r, job);
    }
}

static void cancel_all(struct replica *r)
{
    for (struct job *j = r->running; j; j = j->state->next)
        carat_cancel(r->engine, j->state->request);
}

/* Resumes those whose rings have room again. */
static void resume(struct replica *r)
{
    pthread_mutex_lock(&r->news);
    for (struct job *j = r->running; j; j = j->state->next) {
        struct job_state *s = j->state;
        if (!s->is_paused || !job_is_low(s)) continue;
        s->is_paused = false;
        carat_pause(r->engine, s->request, false);
    }
    pthread_mutex_unlock(&r->news);
}

/* ---- The thread: events out ------------------------------------------------------------- */

static void note_news(struct replica *r, struct job *job)
{
    if (job->state->is_news) return;
    job->state->is_news = true;
    r->noted[r->n_noted++] = job;
}

/* Prompt tokens that are left to read. */
static void note_left(struct replica *r, struct job_state *s, int64_t left)
{
    if (left >= s->to_read) return;
    atomic_fetch_sub(&r->work, s->to_read - left);
    s->to_read = left;
}

static void end(struct replica *r, struct job *job, const struct carat_event *event,
                const struct carat_error *error, double now)
{
    job_put_done(job->state, event, error, now);
    note_news(r, job);
    note_left(r, job->state, 0);
    atomic_fetch_sub(&r->work, AFFINITY_JOB);
    atomic_fetch_sub(&r->n_jobs, 1);
}

/* If the device is lost, the engine's failure says more than the message of the request. */
static void end_request(struct replica *r, struct job *job, const struct carat_event *event,
                        double now)
{
    struct carat_error error = {.code = CARAT_ENUMERIC};
    bool has_failed = event->finish == CARAT_FINISH_ERROR;
    if (has_failed) snprintf(error.message, sizeof error.message, "%s", event->message);
    if (atomic_load(&r->is_failed)) error = r->problem;
    unlink_job(&r->running, job);
    end(r, job, event, has_failed ? &error : NULL, now);
}

static void take_event(struct replica *r, const struct carat_event *event, double now)
{
    struct job *job = event->user;
    struct job_state *s = job->state;
    if (event->kind == CARAT_EVENT_DONE) {
        end_request(r, job, event, now);
        return;
    }
    note_news(r, job);
    if (event->kind == CARAT_EVENT_PROGRESS) {
        note_left(r, s, event->total - event->done);
        job_put_progress(s, event->done, event->total, now);
        return;
    }
    note_left(r, s, 0);
    job_put_token(s, event, now);
    if (s->is_paused || !job_is_full(s)) return;
    s->is_paused = true;
    carat_pause(r->engine, s->request, true);
}

static void end_refused(struct replica *r, double now)
{
    while (r->refused) {
        struct job *job = r->refused;
        struct job_state *s = job->state;
        struct carat_event event = {.finish = s->finish,
                                    .stop_id = -1,
                                    .n_prompt = (int32_t)job->request.n_prompt,
                                    .queue_seconds = now - s->submitted};
        unlink_job(&r->refused, job);
        end(r, job, &event, s->finish == CARAT_FINISH_ERROR ? &s->error : NULL, now);
    }
}

/* Hands out everything that a step gave, with one call. From now on `n_taken` jobs are in `stats`:
 * whoever sees a token of one must not find it among those that wait. */
static void publish(struct replica *r, int32_t n_taken)
{
    double now = os_seconds();
    const struct carat_event *event;
    pthread_mutex_lock(&r->news);
    while ((event = carat_next_event(r->engine))) take_event(r, event, now);
    while (atomic_load(&r->is_failed) && r->running) {
        struct job *job = r->running;
        unlink_job(&r->running, job);
        refuse(r, job, CARAT_FINISH_ERROR, &r->problem);
    }
    end_refused(r, now);
    r->stats = *carat_engine_stats(r->engine);
    atomic_fetch_sub(&r->n_mail, n_taken);
    for (size_t i = 0; i < r->n_noted; i++) r->noted[i]->state->is_news = false;
    if (r->n_noted && r->events.on_news) r->events.on_news(r->events.user, r->noted, r->n_noted);
    r->n_noted = 0;
    pthread_mutex_unlock(&r->news);
}

/* ---- The thread ------------------------------------------------------------------------- */

static void fail(struct replica *r, const struct carat_error *error)
{
    pthread_mutex_lock(&r->mail);
    r->problem = *error;
    pthread_mutex_unlock(&r->mail);
    atomic_store(&r->is_failed, true);
}

static void step(struct replica *r)
{
    struct carat_error err = {0};
    if (!r->running) {
        r->has_work = false;
        return;
    }
    int status = carat_step(r->engine, &err);
    r->has_work = status > 0;
    if (status < 0) fail(r, &err);
}

/* One round: what others want, a step, what came of it. False: it was the last. */
static bool go_round(struct replica *r)
{
    pthread_mutex_lock(&r->mail);
    wait_for_work(r);
    struct job *first = r->first;
    int32_t n_taken = atomic_load(&r->n_mail);
    bool is_stopping = r->is_stopping;
    r->first = r->last = NULL;
    r->has_wishes = false;
    pthread_mutex_unlock(&r->mail);
    if (is_stopping) cancel_all(r);
    start_all(r, first);
    resume(r);
    step(r);
    publish(r, n_taken);
    pthread_mutex_lock(&r->mail);
    bool is_over = is_stopping && !r->first && !r->running;
    pthread_mutex_unlock(&r->mail);
    return !is_over;
}

/* Signals are the main thread's. */
static void *work(void *user)
{
    struct replica *r = user;
    while (go_round(r)) {
    }
    return NULL;
}

static int start_thread(struct replica *r, struct carat_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&r->thread, NULL, work, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status) return err_set(err, CARAT_EMEMORY, "engine: its thread cannot be started");
    return CARAT_OK;
}

/* ---- Opening and closing ---------------------------------------------------------------- */

static void init_locks(struct replica *r)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&r->mail, NULL);
    pthread_mutex_init(&r->news, NULL);
}

int replica_open(struct replica **out, size_t i, const carat_model *model,
                 const struct carat_engine_options *options, int32_t jobs_max,
                 const struct replicas_events *events, struct carat_error *err)
{
    *out = NULL;
    struct replica *r = mem_alloc(1, sizeof *r);
    if (!r) return err_no_memory(err, "engine", sizeof *r);
    init_locks(r);
    r->events = *events;
    r->index = i;
    r->n_seq = options->n_seq > 0 ? options->n_seq : 1;
    r->noted = mem_alloc((size_t)jobs_max, sizeof(struct job *));
    int status = r->noted ? carat_engine_open(&r->engine, model, options, err)
                          : err_no_memory(err, "engine", (size_t)jobs_max * sizeof(struct job *));
    if (!status && events->on_open) status = events->on_open(events->user, i, r->engine, err);
    if (!status) r->stats = *carat_engine_stats(r->engine);
    if (!status) status = start_thread(r, err);
    if (status)
        replica_close(r);
    else
        *out = r;
    return status;
}

void replica_stop(struct replica *r)
{
    pthread_mutex_lock(&r->mail);
    r->is_stopping = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mail);
}

void replica_join(struct replica *r)
{
    pthread_join(r->thread, NULL);
    if (r->events.on_end) r->events.on_end(r->events.user, r->index, r->engine);
}

void replica_close(struct replica *r)
{
    carat_engine_close(r->engine);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->mail);
    pthread_mutex_destroy(&r->news);
    mem_free(r->noted);
    mem_free(r);
}
