/* Events on their way to the caller: a ring. */
#ifndef ENGINE_EVENTS_H
#define ENGINE_EVENTS_H

#include "base/arena.h"
#include "base/status.h"
#include "carat.h"

struct events {
    struct carat_event *ring;
    struct carat_logprob *tops; /* room for `top` of each event */
    int32_t size, first, count;
};

/* CARAT_EMEMORY. */
int events_init(struct events *e, struct arena *arena, int32_t size, struct carat_error *err);

/* There must be room. */
void events_add(struct events *e, struct carat_event event);

/* Room for CARAT_TOP_LOGPROBS_MAX pairs of the event that is added next. */
struct carat_logprob *events_top(const struct events *e);

static inline int32_t events_room(const struct events *e)
{
    return e->size - e->count;
}

/* Borrowed until events are added; NULL: no more. */
const struct carat_event *events_next(struct events *e);

#endif
