/* Every maximum of the engine, in one place. */
#ifndef ENGINE_LIMITS_H
#define ENGINE_LIMITS_H

#include <assert.h>

#include "model/config.h"

enum {
    CTX_MIN = 16, /* positions of a sequence */
    SEQUENCES_MAX = 1024,
    CHUNK_MAX = 8192, /* rows of a prefill step */
    SCORE_ROWS = 32,  /* rows of logits that one step of scoring gives */
    EVENTS_PER_SEQUENCE = 4,
    CACHE_SPLIT = 4096, /* positions of the global pool for each anchor in the local one */
    CACHE_SPLIT_MAX = 1 << 24,
    ANCHORS_MIN = 2,    /* where there is room: the end of a prompt and that of its answer */
    HOST_REST = 4 << 20 /* bytes of host memory for what is not counted one by one */
};

/* Progress, a token and an end may come from one step of one sequence. */
static_assert(EVENTS_PER_SEQUENCE >= 3, "a step's events fit");

#endif
