/* One answer: what is asked, and its events on their way from an engine's thread to whoever takes
 * them. Tokens wait in a ring of a fixed size, which never drops one: the sequence pauses before
 * its ring is full. */
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include "carat.h"

enum job_event_kind { JOB_PROGRESS, JOB_TOKEN, JOB_DONE };
struct job_event {
    enum job_event_kind kind;
    int32_t id; /* TOKEN */
    float logprob;
    int32_t n_top;
    struct carat_logprob top[CARAT_TOP_LOGPROBS_MAX];
    int32_t done, total; /* PROGRESS: prompt positions; only the newest is kept */
    double seconds;      /* os_seconds() at the end of the step */
    /* DONE */
    enum carat_finish finish;
    int32_t stop_id, n_prompt, n_generated, n_cached, n_preempted, n_thinking;
    int32_t n_drafted, n_accepted;
    double queue_seconds, prefill_seconds, decode_seconds;
    const struct carat_error *error; /* by ERROR: why; lives until job_deinit. Else NULL */
};

struct job {
    /* The caller's, set before replicas_submit; all that it points to lives until DONE is taken.
     * request.user is that of the replicas. */
    struct carat_request request;
    uint64_t session; /* a conversation: at one engine if nothing else decides; 0: none */
    void *user;
    /* That of the replicas. */
    struct job_state *state;
};

/* After DONE was taken, or when replicas_submit has failed. Frees nothing of the caller's. */
void job_deinit(struct job *job);

/* ---- For the engine's thread and replica.c ---------------------------------------------- */

enum {
    JOB_RING = 256, /* tokens that wait at most */
    JOB_SPARE = 8   /* places that are left when a sequence pauses: what a step gives at most */
};

struct job_token {
    double seconds;
    int32_t id, n_top;
    float logprob;
};

struct job_state {
    struct replica *replica;
    struct job *next, *before;  /* in the mailbox, or among those that run */
    carat_request_id request;   /* 0: in the mailbox */
    bool is_cancelled;          /* wanted while it was in the mailbox */
    double submitted, deadline; /* deadline 0: none */
    int64_t to_read;            /* prompt tokens, as far as it is known */
    bool is_paused, is_news;
    enum carat_finish finish; /* of a job that the engine never had */
    /* What was not taken yet. */
    struct job_token *ring;
    struct carat_logprob *tops; /* [size][n_top]; NULL: not wanted */
    int32_t size, n_top, first, count;
    bool has_progress, has_done;
    struct job_event progress, done;
    struct carat_error error;
};

/* CARAT_EMEMORY. */
int job_init(struct job *job, struct carat_error *err);

void job_put_progress(struct job_state *s, int32_t done, int32_t total, double seconds);
void job_put_token(struct job_state *s, const struct carat_event *event, double seconds);
/* `error` by ERROR; else NULL. */
void job_put_done(struct job_state *s, const struct carat_event *event,
                  const struct carat_error *error, double seconds);

/* Moves up to `room` events to `out`, in their order. */
size_t job_take(struct job_state *s, struct job_event *out, size_t room);

/* Whether the sequence has to pause, and whether it may go on. */
bool job_is_full(const struct job_state *s);
bool job_is_low(const struct job_state *s);

#endif
