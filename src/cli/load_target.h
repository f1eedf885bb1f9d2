/* What answers a load's requests: an engine in this thread (load_engine.h), or a server
 * (load_http.h). Requests are known by their index in the plan. One thread. */
#ifndef CLI_LOAD_TARGET_H
#define CLI_LOAD_TARGET_H

#include "carat.h"

enum load_outcome {
    LOAD_WAITING,
    LOAD_RUNNING,
    LOAD_COMPLETED,
    LOAD_CANCELLED,
    LOAD_EXPIRED, /* by its deadline */
    LOAD_FAILED
};

struct load_event {
    enum carat_event_kind kind;
    int32_t index;
    double seconds;      /* os_seconds() */
    int32_t done, total; /* PROGRESS */
    int32_t id;          /* TOKEN */
    /* DONE */
    enum load_outcome outcome;
    double queue_seconds; /* since it was sent */
    int32_t n_cached, n_preempted;
    const char *message; /* FAILED: why; until the function returns */
};

struct load_target {
    void *self;
    int32_t n_vocab;
    const bool *is_banned; /* [n_vocab]: ids that are no text and may not stand in prompts */
    bool has_steps;        /* go_on is one step of an engine */
    /* The prompt lives until DONE. CARAT_EBUSY: later. */
    int (*send)(void *self, int32_t index, const struct carat_request *request,
                struct carat_error *err);
    void (*cancel)(void *self, int32_t index); /* may be called by on_event; DONE follows */
    /* A step, or what comes within this many seconds. Calls on_event. */
    int (*go_on)(void *self, double seconds, struct carat_error *err);
    void (*look)(void *self, struct carat_stats *out);
    /* Set by load_run_do. */
    void (*on_event)(void *user, const struct load_event *event);
    void *user;
};

#endif
