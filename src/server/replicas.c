#include "server/replicas.h"

#include <pthread.h>

#include "base/mem.h"
#include "base/status.h"

struct replicas {
    struct replica **all; /* [n] */
    size_t n;
    int32_t n_waiting_max;
    pthread_mutex_t lock; /* guards what follows, and that jobs are counted and added at once */
    struct affinity *affinity;
    bool is_stopped;
};

/* ---- Opening and closing ---------------------------------------------------------------- */

static int32_t sequences(const struct carat_engine_options *o)
{
    return o->n_seq > 0 ? o->n_seq : 1;
}

/* Every engine has places for all jobs that there may be: what it cannot run waits in its own
 * queue, in the order of its scheduler. The request that takes the last room may have more jobs
 * than there is room for. */
static int open_all(struct replicas *r, const carat_model *model,
                    const struct replicas_options *options, const struct replicas_events *events,
                    struct carat_error *err)
{
    int32_t jobs_max = options->n_waiting_max + REPLICAS_AT_ONCE - 1;
    for (size_t i = 0; i < options->n; i++) jobs_max += sequences(&options->engines[i]);
    for (; r->n < options->n; r->n++) {
        struct carat_engine_options o = options->engines[r->n];
        o.n_queue = jobs_max - sequences(&o);
        if (o.n_queue < 1) o.n_queue = 1; /* 0 stands for the default */
        if (options->kv_events) kv_events_watch(options->kv_events, r->n, &o);
        int status = replica_open(&r->all[r->n], r->n, model, &o, jobs_max, events, err);
        if (status && options->n > 1) err_within(err, "engine %zu of %zu", r->n + 1, options->n);
        if (status) return status;
    }
    return CARAT_OK;
}

int replicas_open(struct replicas **out, const carat_model *model,
                  const struct replicas_options *options, const struct replicas_events *events,
                  struct carat_error *err)
{
    *out = NULL;
    struct replicas *r = mem_alloc(1, sizeof *r);
    if (!r) return err_no_memory(err, "engines", sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    r->n_waiting_max = options->n_waiting_max;
    r->all = mem_alloc(options->n, sizeof(struct replica *));
    int status = r->all ? CARAT_OK : err_no_memory(err, "engines", options->n * sizeof *r->all);
    if (!status && options->n > 1) status = affinity_open(&r->affinity, options->n, err);
    if (!status) status = open_all(r, model, options, events, err);
    if (status)
        replicas_close(r);
    else
        *out = r;
    return status;
}

void replicas_stop(struct replicas *r)
{
    pthread_mutex_lock(&r->lock);
    bool was_stopped = r->is_stopped;
    r->is_stopped = true;
    pthread_mutex_unlock(&r->lock);
    if (was_stopped) return;
    for (size_t i = 0; i < r->n; i++) replica_stop(r->all[i]);
    for (size_t i = 0; i < r->n; i++) replica_join(r->all[i]);
}

void replicas_close(struct replicas *r)
{
    if (!r) return;
    replicas_stop(r);
    for (size_t i = 0; i < r->n; i++) replica_close(r->all[i]);
    affinity_close(r->affinity);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->all);
    mem_free(r);
}

/* ---- Jobs ------------------------------------------------------------------------------- */

/* With the lock: the engine that a job goes to; *n_matched tokens of it are probably cached. */
static int32_t choose(struct replicas *r, const struct job *job, int32_t *n_matched)
{
    const struct affinity_prompt prompt = {.salt = job->request.cache_salt,
                                           .session = job->session,
                                           .ids = job->request.prompt,
                                           .n = job->request.n_prompt,
                                           .is_private = job->request.no_cache};
    struct affinity_load loads[AFFINITY_ENGINES_MAX];
    for (size_t i = 0; i < r->n; i++) loads[i] = replica_load(r->all[i]);
    *n_matched = 0;
    if (!r->affinity) return loads[0].is_out ? -1 : 0;
    struct affinity_choice choice = affinity_choose(r->affinity, loads, &prompt);
    *n_matched = choice.n_matched;
    return choice.engine;
}

/* Once for a request, whatever it asks for: else one with more answers than slots and queue would
 * be told to try again later, and never be taken. */
static int check_room(struct replicas *r, struct carat_error *err)
{
    int32_t n_jobs = 0, n_seq = 0;
    if (r->is_stopped) return err_set(err, CARAT_EBUSY, "the server is stopping");
    for (size_t i = 0; i < r->n; i++) {
        struct affinity_load load = replica_load(r->all[i]);
        n_jobs += replica_jobs(r->all[i]);
        if (!load.is_out) n_seq += load.n_seq;
    }
    if (n_jobs < n_seq + r->n_waiting_max || n_seq == 0) return CARAT_OK;
    err_set(err, CARAT_EBUSY, "%d answers run and %d wait, as many as the queue has room for",
            n_seq, n_jobs - n_seq);
    err_hint(err, "try again later, or start the server with a longer queue (--max-queue)");
    return CARAT_EBUSY;
}

/* When the last engine fails between two jobs, the rest goes to it, too, and ends by its error. */
static int submit(struct replicas *r, struct job *const *jobs, size_t n, struct carat_error *err)
{
    int32_t engine = -1;
    TRY(check_room(r, err));
    for (size_t i = 0; i < n; i++) {
        int32_t n_matched, chosen = choose(r, jobs[i], &n_matched);
        if (chosen >= 0) engine = chosen;
        if (engine < 0) {
            struct carat_error problem;
            replica_problem(r->all[0], &problem);
            return err_set(err, CARAT_EDEVICE, "%s", problem.message);
        }
        replica_submit(r->all[engine], jobs[i], (int64_t)jobs[i]->request.n_prompt - n_matched);
    }
    return CARAT_OK;
}

int replicas_submit(struct replicas *r, struct job *const *jobs, size_t n, struct carat_error *err)
{
    size_t n_made = 0;
    int status = CARAT_OK;
    while (n_made < n && status == CARAT_OK) {
        status = job_init(jobs[n_made], err);
        if (status == CARAT_OK) n_made++;
    }
    pthread_mutex_lock(&r->lock);
    if (status == CARAT_OK) status = submit(r, jobs, n, err);
    pthread_mutex_unlock(&r->lock);
    while (status != CARAT_OK && n_made > 0) job_deinit(jobs[--n_made]);
    return status;
}

void replicas_cancel(struct replicas *r, struct job *job)
{
    (void)r;
    replica_cancel(job->state->replica, job);
}

size_t replicas_take(struct replicas *r, struct job *job, struct job_event *out, size_t room)
{
    (void)r;
    return replica_take(job->state->replica, job, out, room);
}

/* ---- Looking ---------------------------------------------------------------------------- */

static void add_pages(struct carat_page_counts *sum, const struct carat_page_counts *more)
{
    sum->all += more->all;
    sum->free += more->free;
    sum->referenced += more->referenced;
    sum->cached += more->cached;
}

static void add_stats(struct carat_stats *sum, const struct carat_stats *more)
{
    sum->queued += more->queued;
    sum->waiting += more->waiting;
    sum->prefilling += more->prefilling;
    sum->decoding += more->decoding;
    add_pages(&sum->pages_local, &more->pages_local);
    add_pages(&sum->pages_global, &more->pages_global);
    sum->anchors += more->anchors;
    sum->submitted += more->submitted;
    for (int i = 0; i < CARAT_FINISH_COUNT; i++) sum->finished[i] += more->finished[i];
    sum->lookups += more->lookups;
    sum->hits += more->hits;
    sum->prompt_tokens += more->prompt_tokens;
    sum->cached_tokens += more->cached_tokens;
    sum->evicted_pages += more->evicted_pages;
    sum->evicted_anchors += more->evicted_anchors;
    sum->preemptions += more->preemptions;
    sum->steps += more->steps;
    sum->rows += more->rows;
    sum->prompt_rows += more->prompt_rows;
    sum->drafted += more->drafted;
    sum->accepted += more->accepted;
}

double replicas_usage(const struct carat_page_counts *pool)
{
    return pool->all > 0 ? (double)pool->referenced / (double)pool->all : 0;
}

void replicas_look(struct replicas *r, struct replicas_now *out)
{
    *out = (struct replicas_now){.n = (int32_t)r->n};
    for (size_t i = 0; i < r->n; i++) {
        struct replica_now now;
        replica_look(r->all[i], &now);
        const struct carat_stats *s = &now.stats;
        const struct carat_page_counts *scarcer =
            replicas_usage(&s->pages_local) > replicas_usage(&s->pages_global) ? &s->pages_local
                                                                               : &s->pages_global;
        int32_t n_ctx = replica_memory(r->all[i])->n_ctx;
        int32_t waiting = now.n_mail + s->queued + s->waiting;
        if (waiting > now.n_jobs) waiting = now.n_jobs;
        add_stats(&out->stats, s);
        out->waiting += waiting;
        out->running += now.n_jobs - waiting;
        out->pages_all += scarcer->all;
        if (now.load.is_out)
            out->n_failed++;
        else
            out->n_seq += now.load.n_seq;
        if (i == 0 || n_ctx < out->n_ctx) out->n_ctx = n_ctx;
    }
}

const struct carat_setup *replicas_setup(const struct replicas *r, size_t i)
{
    return replica_setup(r->all[i]);
}

const struct carat_memory *replicas_memory(const struct replicas *r, size_t i)
{
    return replica_memory(r->all[i]);
}
