/* One engine, and the thread that owns it. Jobs come through a mailbox; events go into each job's
 * ring. The thread sleeps while all its jobs are paused or there are none.
 *
 * Two locks, none of which is held while the engine computes: `mail` guards what other threads want
 * (jobs, cancels, resumes), `news` the rings and the last counts. */
#ifndef SERVER_REPLICA_H
#define SERVER_REPLICA_H

#include "server/affinity.h"
#include "server/job.h"

struct replica;

struct replicas_events {
    void *user;
    /* In an engine's thread, once after a step: these jobs have new events. Must be quick, and must
     * not call replicas_take, because a lock is held that it needs; nor wait for a lock that
     * somebody holds around replicas_take. So no job is named here after its DONE was taken. */
    void (*on_news)(void *user, struct job *const *jobs, size_t n);
    /* Of engine i, before its thread begins and after it has ended: no step runs, and there are no
     * jobs. on_open may fail, which closes all. In the thread that opens, and that stops; each may
     * be NULL. */
    int (*on_open)(void *user, size_t i, carat_engine *engine, struct carat_error *err);
    void (*on_end)(void *user, size_t i, carat_engine *engine);
};

/* Opens engine i in the caller's thread, then starts its own. At most `jobs_max` jobs may be there
 * at any time. */
int replica_open(struct replica **out, size_t i, const carat_model *model,
                 const struct carat_engine_options *options, int32_t jobs_max,
                 const struct replicas_events *events, struct carat_error *err);
/* No job may come any more: cancels what is left. Returns at once. */
void replica_stop(struct replica *r);
void replica_join(struct replica *r);  /* after replica_stop: every job has its DONE */
void replica_close(struct replica *r); /* after replica_join */

/* Any thread; none waits for a step. A job that job_init has prepared. `to_read`: tokens of its
 * prompt that are probably not cached. */
void replica_submit(struct replica *r, struct job *job, int64_t to_read);
void replica_cancel(struct replica *r, struct job *job);
size_t replica_take(struct replica *r, struct job *job, struct job_event *out, size_t room);

/* Any thread: as of now, but for `stats`, which are those of the last step. */
struct replica_now {
    struct affinity_load load;
    int32_t n_jobs, n_mail; /* not ended; not taken by the engine yet */
    struct carat_stats stats;
};
void replica_look(struct replica *r, struct replica_now *out);
struct affinity_load replica_load(struct replica *r);
int32_t replica_jobs(struct replica *r);
/* The reason of a failure; only when replica_load says that it is out. */
void replica_problem(struct replica *r, struct carat_error *out);

const struct carat_setup *replica_setup(const struct replica *r);
const struct carat_memory *replica_memory(const struct replica *r);

#endif
