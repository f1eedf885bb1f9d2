/* The engine behind carat.h: owner of the device, weights, caches, plans and sequences. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/batch.h"
#include "engine/layout.h"

struct carat_engine {
    const carat_model *model;
    struct layout layout;
    struct weights weights[SITE_COUNT]; /* this engine's copies: device_data is of their device */
    struct arena arena;           /* weights' tables, sequences, events, step; sealed after start */
    int32_t n_loaded[SITE_COUNT]; /* weights that a device has */
    void *kv[SITE_COUNT], *memory[SITE_COUNT], *scratch[SITE_COUNT];
    struct step step;
    struct sequence *sequences;
    float *row; /* n_vocab logits on the host */
    int32_t *suppressed;
    size_t n_suppressed;
    struct carat_event *events; /* a ring */
    int32_t events_size, events_first, events_count;
    carat_request_id last_request;
    struct carat_error loss; /* set once the device has failed: only closing is left */
};

/* Runs the rows of e->step. CARAT_EDEVICE when the device is lost. */
int engine_run(carat_engine *e, struct carat_error *err);

/* Row `out` of the step's logits, on the host, until the next call. CARAT_EDEVICE as above: then
 * *row is not to be read. */
int engine_logits(carat_engine *e, int32_t out, const float **row, struct carat_error *err);

/* CARAT_EDEVICE with the reason once the device is lost. */
int engine_check(const carat_engine *e, struct carat_error *err);

bool engine_is_idle(const carat_engine *e);

#endif
