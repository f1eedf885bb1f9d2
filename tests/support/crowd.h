/* Many requests to one engine, each with the answer that it must get: the one that a fresh engine
 * gives to this request alone. Ids and the bits of log-probabilities are compared as they come. For
 * programs of cmocka cases: what differs ends the running case. */
#ifndef SUPPORT_CROWD_H
#define SUPPORT_CROWD_H

#include "carat.h"

enum { CROWD_CTX_MAX = 4096, CROWD_MAX = 96 };

/* Under sanitizers all this takes ten times as long: cases do one part in CROWD_SHARE. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CROWD_SHARE = 10 };
#else
enum { CROWD_SHARE = 1 };
#endif

struct crowd_answer {
    int32_t ids[CROWD_CTX_MAX];
    float logprobs[CROWD_CTX_MAX];
    int32_t n;
    enum carat_finish finish;
};

/* A request, and what must come of it. */
struct crowd_ask {
    int32_t ids[CROWD_CTX_MAX];
    int32_t n_ids, max_tokens;
    struct carat_sampling sampling;
    bool ignore_stop;
    struct crowd_answer expected;
};

/* One that was submitted and has not ended. */
struct crowd_request {
    carat_request_id id; /* 0: free */
    const struct crowd_ask *ask;
    int32_t n;     /* tokens that came */
    bool is_asked; /* to end early: crowd_cancel was called */
    bool may_end;  /* by its deadline */
    bool is_paused;
};

struct crowd {
    carat_engine *engine;
    bool is_unchecked; /* answers that come now are not compared */
    struct crowd_request requests[CROWD_MAX];
    int32_t n;                             /* of them */
    uint64_t n_tokens, n_compared;         /* tokens that came; requests whose whole answer came */
    uint64_t finished[CARAT_FINISH_COUNT]; /* DONE events */
    struct carat_event last_done;
};

/* Answers of a fresh engine: `expected` of an ask that is filled in otherwise. */
void crowd_answer_alone(const carat_model *model, const char *backend, int32_t n_ctx,
                        struct crowd_ask *ask);

void crowd_open(struct crowd *c, const carat_model *model,
                const struct carat_engine_options *options);

/* cache_bytes with which an engine of these options has this many more pages of each kind than one
 * full sequence needs, about. */
int64_t crowd_least_bytes(const carat_model *model, const struct carat_engine_options *options,
                          int32_t more_local, int32_t more_global);

/* Fails when a page is still used, or is left after a flush. */
void crowd_close(struct crowd *c);

/* The members of a carat_request that an ask does not have; NULL: all 0. */
struct crowd_manner {
    int32_t priority;
    uint64_t fairness_key, salt;
    double deadline_seconds;
    bool no_cache;
    const int32_t *anchors;
    size_t n_anchors;
};

/* CARAT_OK, or CARAT_EBUSY when the queue is full; *id may be NULL. */
int crowd_submit(struct crowd *c, const struct crowd_ask *ask, const struct crowd_manner *manner,
                 carat_request_id *id);

void crowd_cancel(struct crowd *c, carat_request_id id);

void crowd_pause(struct crowd *c, carat_request_id id, bool is_paused);

/* A step, and the checks of what it gave and of all pages. Returns what carat_step returns. */
int crowd_step(struct crowd *c);

/* Resumes those that are paused, and steps until nothing is left to do. */
void crowd_finish(struct crowd *c);

/* Whether the pages of an engine add up: those in tables, those in the cache, those that are free.
 * Looks at all of them. */
void crowd_check_pages(carat_engine *engine);

#endif
