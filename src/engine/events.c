#include "engine/events.h"

#include "base/assert.h"

int events_init(struct events *e, struct arena *arena, int32_t size, struct carat_error *err)
{
    size_t n = (size_t)size;
    *e = (struct events){.size = size,
                         .ring = arena_take(arena, n, sizeof *e->ring),
                         .tops = arena_take(arena, n * CARAT_TOP_LOGPROBS_MAX, sizeof *e->tops)};
    return e->ring && e->tops ? CARAT_OK : err_no_memory(err, "events", n * sizeof *e->ring);
}

static int32_t next_place(const struct events *e)
{
    return (e->first + e->count) % e->size;
}

struct carat_logprob *events_top(const struct events *e)
{
    return e->tops + (size_t)next_place(e) * CARAT_TOP_LOGPROBS_MAX;
}

void events_add(struct events *e, struct carat_event event)
{
    carat_assert(e->count < e->size);
    e->ring[next_place(e)] = event;
    e->count++;
}

const struct carat_event *events_next(struct events *e)
{
    if (e->count == 0) return NULL;
    const struct carat_event *event = &e->ring[e->first];
    e->first = (e->first + 1) % e->size;
    e->count--;
    return event;
}
