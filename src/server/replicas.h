/* Engines that answer side by side, each on its device and in its thread, behind one queue.
 *
 * A job is one answer. It goes to the engine that has read the longest beginning of its prompt
 * lately, else to the one with the least to do. Its events wait in a ring until they are taken.
 * When the ring is full, the sequence pauses: nobody's slow reading takes memory or holds up
 * others. When an engine fails, its jobs end by an error, and the others go on. */
#ifndef SERVER_REPLICAS_H
#define SERVER_REPLICAS_H

#include "carat.h"

struct replicas;

enum job_event_kind { JOB_PROGRESS, JOB_TOKEN, JOB_DONE };
struct job_event {
    enum job_event_kind kind;
    int32_t id; /* TOKEN */
    float logprob;
    int32_t n_top;
    struct carat_logprob top[CARAT_TOP_LOGPROBS_MAX];
    int32_t done, total; /* PROGRESS: prompt positions */
    double seconds;      /* os_seconds() at the end of the step */
    /* DONE */
    enum carat_finish finish;
    int32_t stop_id, n_prompt, n_generated, n_cached, n_preempted;
    double queue_seconds, prefill_seconds, decode_seconds;
    enum carat_status status; /* by ERROR: why */
    char message[256];
};

struct job {
    /* The caller's, set before replicas_submit; all that it points to lives until DONE is taken. */
    struct carat_request request;
    void *user;
    /* Theirs. */
    struct job_state *state;
};

struct replicas_events {
    void *user;
    /* In an engine's thread, once after a step: these jobs have new events. Must be quick. */
    void (*on_news)(void *user, struct job *const *jobs, size_t n);
};

struct replicas_options {
    const struct carat_engine_options *engines; /* [n], one for each */
    size_t n;
    int32_t n_waiting_max; /* jobs that no engine has taken yet, over all; more: CARAT_EBUSY */
};

/* Opens the engines one after another and starts their threads. Fails when one of them does. */
int replicas_open(struct replicas **out, const carat_model *model,
                  const struct replicas_options *options, const struct replicas_events *events,
                  struct carat_error *err);
/* Cancels what is left; every job gets its DONE (on_news), then the threads end. */
void replicas_close(struct replicas *r);

/* Any thread. Never waits for a step. CARAT_EBUSY, CARAT_EMEMORY; CARAT_EDEVICE: all engines have
 * failed. A prompt that is too long and the like end the job by ERROR. */
int replicas_submit(struct replicas *r, struct job *job, struct carat_error *err);
/* Any thread. DONE follows, within one step. */
void replicas_cancel(struct replicas *r, struct job *job);
/* The consumer's thread: moves up to `room` events to `out`, in their order. After DONE the job
 * belongs to the caller again, and may be freed with job_deinit. */
size_t replicas_take(struct replicas *r, struct job *job, struct job_event *out, size_t room);
void job_deinit(struct job *job);

/* Any thread: sums over all engines, as of the last steps. Positions of one sequence. */
struct replicas_now {
    struct carat_stats stats;
    int32_t n, n_failed;
    int32_t waiting; /* jobs that no engine has taken yet */
    int32_t n_ctx, n_seq;
    int64_t pages_all; /* of the scarcer pool, for kv usage */
    double kv_usage;   /* 0 .. 1 */
};
void replicas_look(struct replicas *r, struct replicas_now *out);
/* Of engine i; lives as long as they do. */
const struct carat_setup *replicas_setup(const struct replicas *r, size_t i);
const struct carat_memory *replicas_memory(const struct replicas *r, size_t i);

#endif
