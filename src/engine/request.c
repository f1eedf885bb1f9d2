#include "engine/request.h"

#include "base/assert.h"
#include "base/os.h"

static void leave_slot(carat_engine *e, struct sequence *s)
{
    if (s->slot < 0) return;
    paging_release(&e->paging, s->slot);
    e->slots[s->slot] = NULL;
    s->slot = -1;
    s->n_rows = 0;
}

void request_end(carat_engine *e, struct sequence *s, enum carat_finish finish, const char *message)
{
    if (s->slot >= 0 && s->has_cache && finish != CARAT_FINISH_ERROR)
        paging_leave_anchor(&e->paging, s->slot);
    leave_slot(e, s);
    fairness_leave(&e->fairness, s->key);
    struct carat_event event = sequence_end(s, finish, os_seconds());
    cancel_end(&e->cancels[s - e->requests]);
    while (e->end > 0 && e->requests[e->end - 1].state == SEQUENCE_FREE) e->end--;
    if (message) event.message = message;
    e->stats.finished[finish]++;
    events_add(&e->events, event);
}

/* Counts what the first look-up of a request has found, and reports it as progress. */
static void note_hit(carat_engine *e, struct sequence *s)
{
    e->stats.lookups += s->has_cache;
    e->stats.hits += s->n_cached > 0;
    e->stats.prompt_tokens += (uint64_t)s->n_prompt;
    e->stats.cached_tokens += (uint64_t)s->n_cached;
    s->n_reused = s->n_reported = s->n_cached;
    if (s->n_cached > 0)
        events_add(&e->events, (struct carat_event){.request = s->request,
                                                    .user = s->user,
                                                    .kind = CARAT_EVENT_PROGRESS,
                                                    .done = s->n_cached,
                                                    .total = s->n_prompt});
}

void request_start(carat_engine *e, struct sequence *s, int32_t slot, const struct prefix_hit *hit)
{
    carat_assert(sequence_is_queued(s) && !e->slots[slot]);
    s->state = SEQUENCE_PREFILL;
    s->slot = slot;
    s->n_cached = hit->n_blocks * KV_PAGE;
    s->n_rows = 0;
    e->slots[slot] = s;
    e->n_admitted++;
    if (hit->n_matched > hit->n_blocks) marks_add(&s->marks, hit->n_matched);
    if (s->n_preempted == 0) note_hit(e, s);
}

void request_stop(carat_engine *e, struct sequence *s)
{
    carat_assert(sequence_runs(s));
    s->n_cached = s->has_cache ? paging_leave_anchor(&e->paging, s->slot) : 0;
    leave_slot(e, s);
    s->state = SEQUENCE_QUEUED;
    s->n_preempted++;
    e->stats.preemptions++;
}

struct schedule_item request_item(const carat_engine *e, const struct sequence *s, uint64_t least)
{
    int32_t left = sequence_read_end(s, e->is_apart) - s->n_cached;
    return (struct schedule_item){
        .priority = s->priority,
        .is_back = s->n_preempted > 0 && s->slot < 0,
        .order = s->request,
        .position = s->n_cached,
        .left = left,
        .near = left,
        .waited = e->stats.prompt_rows - s->since,
        .excess = fairness_excess(&e->fairness, s->key, least),
    };
}
