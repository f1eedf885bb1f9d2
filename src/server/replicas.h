/* Engines that answer side by side, each on its device and in its thread, behind one queue.
 *
 * A job (job.h) is one answer. It goes to the engine that has read the longest beginning of its
 * prompt lately, unless that one has far more to do than the least loaded one (affinity.h). Its
 * events wait in a ring until they are taken. When the ring is full, the sequence pauses: a slow
 * reader takes no memory and holds up nobody. When an engine fails, its jobs end by an error, and
 * the others go on.
 *
 * Calling order: replicas_open; any number of replicas_submit, each followed by replicas_take until
 * it gives DONE; replicas_stop; replicas_take of what is left; replicas_close. */
#ifndef SERVER_REPLICAS_H
#define SERVER_REPLICAS_H

#include "server/job.h"
#include "server/kv_events.h"
#include "server/replica.h"

struct replicas;

enum { REPLICAS_AT_ONCE = 64 }; /* jobs of one replicas_submit */

struct replicas_options {
    const struct carat_engine_options *engines; /* [n], one for each; n_queue is ours */
    size_t n;
    /* Jobs beyond those that the engines' sequences have room for. While fewer wait, all jobs of a
     * submit are taken. */
    int32_t n_waiting_max;
    struct kv_events *kv_events; /* told what the engines cache; NULL: nobody */
};

/* Opens the engines one after another and starts their threads. Fails when one of them does. */
int replicas_open(struct replicas **out, const carat_model *model,
                  const struct replicas_options *options, const struct replicas_events *events,
                  struct carat_error *err);
/* Cancels what is left and waits until every job has its DONE (on_news). What is in rings can still
 * be taken. From then on replicas_submit fails. A second call does nothing. */
void replicas_stop(struct replicas *r);
/* Stops, too. All jobs must have been taken up to DONE, or must never be touched again but by
 * job_deinit. NULL is fine. */
void replicas_close(struct replicas *r);

/* The jobs [n] of one request, 1 to REPLICAS_AT_ONCE: all or none. Any thread. Never waits for a
 * step. CARAT_EBUSY: as many jobs as n_waiting_max allows are there, or replicas_stop was called.
 * CARAT_EMEMORY. CARAT_EDEVICE: all engines have failed. After a failure the jobs are the caller's.
 * A prompt that is too long and the like end a job by ERROR. */
int replicas_submit(struct replicas *r, struct job *const *jobs, size_t n, struct carat_error *err);
/* Any thread, until DONE was taken. DONE follows, within one step. */
void replicas_cancel(struct replicas *r, struct job *job);
/* Any thread, but one at a time for a job: moves up to `room` events to `out`, in their order.
 * After DONE the job belongs to the caller again. */
size_t replicas_take(struct replicas *r, struct job *job, struct job_event *out, size_t room);

/* Any thread: sums over all engines, as of the last steps. */
struct replicas_now {
    struct carat_stats stats;
    int32_t n, n_failed;
    int32_t waiting;   /* jobs that no sequence has taken yet */
    int32_t running;   /* the others */
    int32_t n_ctx;     /* positions of a sequence: the least of all engines */
    int32_t n_seq;     /* of the engines that have not failed */
    int64_t pages_all; /* of the scarcer pool of each engine */
};
void replicas_look(struct replicas *r, struct replicas_now *out);
/* The part of a pool that requests hold, 0 to 1; 0 of a pool without pages. */
double replicas_usage(const struct carat_page_counts *pool);
/* Of engine i; lives as long as they do. */
const struct carat_setup *replicas_setup(const struct replicas *r, size_t i);
const struct carat_memory *replicas_memory(const struct replicas *r, size_t i);

#endif
