#include "engine/admit.h"

#include "engine/request.h"
#include "engine/room.h"

/* Tokens of an answer for which there should be room when a request starts, so that it need not be
 * stopped soon. */
enum { AHEAD = 2 * KV_PAGE };

/* ---- In flight -------------------------------------------------------------------------- */

/* Length of the common prefix of both, within what each of them reads. */
static int32_t count_common(const carat_engine *e, const struct sequence *a,
                            const struct sequence *b)
{
    int32_t n_a = sequence_read_end(a, e->is_apart), n_b = sequence_read_end(b, e->is_apart);
    int32_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a->ids[i] == b->ids[i]) i++;
    return i;
}

/* Finds a running prompt that will read more than `n_blocks` blocks of the prefix that it shares
 * with `s`, and makes `s` wait for an anchor at the end of that prefix. `s` always computes its
 * last id itself. */
static bool follow(carat_engine *e, struct sequence *s, int32_t n_blocks)
{
    int32_t most = n_blocks, last = (sequence_read_end(s, e->is_apart) - 1) / KV_PAGE;
    struct sequence *leader = NULL;
    for (int32_t i = 0; s->has_cache && i < e->paging.n_seq; i++) {
        struct sequence *l = e->slots[i];
        if (!l || l->state != SEQUENCE_PREFILL || l->is_paused || !l->has_cache ||
            l->salt != s->salt || l->priority < s->priority)
            continue;
        int32_t common = count_common(e, l, s) / KV_PAGE;
        if (common > last) common = last;
        if (common <= most || l->n_cached >= common * KV_PAGE) continue;
        most = common;
        leader = l;
    }
    if (!leader || !marks_add(&leader->marks, most)) return false;
    s->state = SEQUENCE_WAITING;
    s->leader = (int32_t)(leader - e->requests);
    s->leader_request = leader->request;
    s->wait_position = most * KV_PAGE;
    return true;
}

/* However the leader's reading ends, the waiting request goes back to the queue. */
static void look_again(const carat_engine *e, struct sequence *s)
{
    const struct sequence *l = &e->requests[s->leader];
    if (l->request != s->leader_request || l->state != SEQUENCE_PREFILL || l->is_paused ||
        l->n_cached >= s->wait_position)
        s->state = SEQUENCE_QUEUED;
}

/* ---- Slots and pages -------------------------------------------------------------------- */

static int32_t free_slot(const carat_engine *e)
{
    int32_t slot = 0;
    while (slot < e->paging.n_seq && e->slots[slot]) slot++;
    return slot < e->paging.n_seq ? slot : -1;
}

/* The sequence to stop so that `s` can start: a paused one, or one of lower priority; or NULL. */
static struct sequence *find_victim(const carat_engine *e, const struct sequence *s)
{
    struct sequence *victim = room_victim(e);
    return victim && (victim->is_paused || victim->priority < s->priority) ? victim : NULL;
}

static bool may_start(const carat_engine *e, const struct sequence *s)
{
    return free_slot(e) >= 0 || find_victim(e, s);
}

static bool stop_lower(carat_engine *e, const struct sequence *s)
{
    struct sequence *victim = find_victim(e, s);
    if (!victim) return false;
    request_stop(e, victim);
    return true;
}

/* Ids for which a request should have room when it starts: those that it knows, and the next ones
 * of its answer. */
static int32_t reach(const struct sequence *s)
{
    int32_t all = s->n_prompt + s->max_tokens, soon = sequence_known(s) + AHEAD;
    return soon < all ? soon : all;
}

/* Whether there is room for the request and for what the running ones still need. A sequence that
 * runs alone always has room. */
static bool has_room(const carat_engine *e, const struct sequence *s, int32_t slot)
{
    struct page_wants wants = paging_wants(&e->paging, slot, reach(s));
    bool is_alone = true;
    for (int32_t i = 0; i < e->paging.n_seq; i++) {
        const struct sequence *other = e->slots[i];
        if (!other) continue;
        struct page_wants more = paging_wants(&e->paging, i, reach(other));
        wants.of[KV_GLOBAL] += more.of[KV_GLOBAL];
        wants.of[KV_LOCAL] += more.of[KV_LOCAL];
        is_alone = false;
    }
    return is_alone || paging_has_room(&e->paging, wants);
}

static struct prefix_hit look_up(const carat_engine *e, const struct sequence *s)
{
    if (!s->has_cache) return (struct prefix_hit){0};
    return paging_find(&e->paging, s->salt, s->ids, sequence_read_end(s, e->is_apart));
}

static bool start(carat_engine *e, struct sequence *s)
{
    int32_t slot;
    while ((slot = free_slot(e)) < 0)
        if (!stop_lower(e, s)) return false;
    struct prefix_hit hit = look_up(e, s); /* only now: stopping others has changed the cache */
    if (s->has_cache) paging_resume(&e->paging, slot, &hit, s->salt);
    while (!has_room(e, s, slot))
        if (!stop_lower(e, s)) {
            paging_release(&e->paging, slot);
            return false;
        }
    request_start(e, s, slot, &hit);
    return true;
}

/* ---- All -------------------------------------------------------------------------------- */

static int32_t list_queued(carat_engine *e)
{
    uint64_t least = fairness_least(&e->fairness);
    int32_t n = 0;
    for (int32_t i = 0; i < e->end; i++) {
        struct sequence *s = &e->requests[i];
        if (s->state == SEQUENCE_WAITING) look_again(e, s);
        if (s->state != SEQUENCE_QUEUED || s->is_paused) continue;
        e->items[n] = request_item(e, s, least);
        e->whose[n++] = s;
    }
    return n;
}

void admit_requests(carat_engine *e)
{
    int32_t n = list_queued(e);
    while (n > 0) {
        int32_t next = schedule_next(e->items, n, e->n_admitted);
        struct sequence *s = e->whose[next];
        if (!may_start(e, s)) return;
        if (!follow(e, s, look_up(e, s).n_blocks) && !start(e, s)) return;
        e->items[next] = e->items[--n];
        e->whose[next] = e->whose[n];
    }
}
