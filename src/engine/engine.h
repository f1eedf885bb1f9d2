/* The engine of carat.h: requests, their sequences and events, on top of a runner. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/batch.h"
#include "engine/cancel.h"
#include "engine/model_file.h"
#include "engine/runner.h"

struct carat_engine {
    const carat_model *model;
    struct runner *runner;
    struct arena arena; /* sequences, events, step; sealed after opening */
    struct step step;
    struct sequence *sequences;  /* slots; the index is the sequence's number in steps and caches */
    struct cancel_slot *cancels; /* one per slot; other threads touch nothing else */
    int32_t *suppressed;
    size_t n_suppressed;
    struct carat_event *events; /* a ring */
    struct carat_logprob *tops; /* room for `top` of each event */
    int32_t events_size, events_first, events_count;
    carat_request_id last_request;
};

/* What an engine's runner is made from. */
struct layout_source engine_source(const carat_model *model,
                                   const struct carat_engine_options *options);

bool engine_is_idle(const carat_engine *e);

#endif
