/* Every maximum of the engine, in one place. */
#ifndef ENGINE_LIMITS_H
#define ENGINE_LIMITS_H

#include "model/config.h"

enum {
    CTX_MIN = 16, /* positions of a sequence */
    SEQUENCES_MAX = 1024,
    CHUNK_MAX = 8192,   /* rows of a prefill step */
    SCORE_ROWS = 32,    /* rows of logits that one step of scoring gives */
    CACHE_SPLIT = 4096, /* positions of the global pool for each anchor in the local one */
    CACHE_SPLIT_MAX = 1 << 24,
    ANCHORS_MIN = 2,     /* where there is room: the end of a prompt and that of its answer */
    QUEUE_MAX = 1 << 17, /* requests that wait */
    STEADY_ROWS = 64,    /* if deterministic, steps up to here round alike on all backends */
    EVENTS_PER_SLOT = 4, /* of a step at most: two of progress, a token and an end */
    HOST_REST = 4 << 20  /* bytes of host memory for what is not counted one by one */
};

#endif
