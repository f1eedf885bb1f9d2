#include "backend/cuda/scratch.h"

#include "backend/cuda/device.h"
#include "base/assert.h"
#include "base/bytes.h"

static size_t window_offset(const struct scratch_parts *parts)
{
    return parts->step + ACT_SLOTS * parts->slot;
}

static size_t workspace_offset(const struct scratch_parts *parts)
{
    return window_offset(parts) + parts->window;
}

size_t scratch_total(const struct scratch_parts *parts)
{
    return workspace_offset(parts) + parts->workspace;
}

struct scratch_parts scratch_most(const struct scratch_parts *a, const struct scratch_parts *b)
{
    return (struct scratch_parts){.step = bytes_larger(a->step, b->step),
                                  .slot = bytes_larger(a->slot, b->slot),
                                  .window = bytes_larger(a->window, b->window),
                                  .workspace = bytes_larger(a->workspace, b->workspace)};
}

/* Notes that a part was used up to `bytes`; it must have that many. */
static void note_used(const struct scratch *s, size_t *used, size_t have, size_t bytes)
{
    if (bytes > *used) *used = bytes;
    carat_assert(!s->memory || *used <= have);
}

static void *memory_at(const struct scratch *s, size_t offset)
{
    return s->memory ? s->memory + offset : NULL;
}

void *scratch_step(struct scratch *s, size_t bytes)
{
    note_used(s, &s->used.step, s->have.step, aligned(bytes));
    return memory_at(s, 0);
}

void *scratch_slot(struct scratch *s, int32_t slot, size_t bytes)
{
    note_used(s, &s->used.slot, s->have.slot, aligned(bytes));
    return memory_at(s, s->have.step + (size_t)slot * s->have.slot);
}

void *scratch_workspace(struct scratch *s, size_t bytes)
{
    note_used(s, &s->used.workspace, s->have.workspace, aligned(bytes));
    return memory_at(s, workspace_offset(&s->have));
}

void scratch_begin_window(struct scratch *s)
{
    s->at = 0;
}

void *scratch_take(struct scratch *s, size_t bytes)
{
    size_t begin = s->at;
    s->at += aligned(bytes);
    note_used(s, &s->used.window, s->have.window, s->at);
    return memory_at(s, window_offset(&s->have) + begin);
}
