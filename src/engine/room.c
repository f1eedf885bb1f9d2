#include "engine/room.h"

#include "engine/request.h"

/* The order in which sequences make room: paused ones, lower priority, later arrival. */
static struct schedule_item rank(const struct sequence *s)
{
    return (struct schedule_item){
        .is_paused = s->is_paused, .priority = s->priority, .order = s->request};
}

struct sequence *room_victim(const carat_engine *e)
{
    struct sequence *victim = NULL;
    for (int32_t i = 0; i < e->paging.n_seq; i++) {
        struct sequence *s = e->slots[i];
        if (!s) continue;
        struct schedule_item a = rank(s), b = victim ? rank(victim) : a;
        if (!victim || schedule_yields(&a, &b)) victim = s;
    }
    return victim;
}

/* Nobody is stopped because of guesses. */
static void drop_guesses(struct sequence *s)
{
    s->n_rows -= s->draft.n;
    s->draft.n = 0;
}

/* Takes pages for the rows of s, and stops others as long as that helps. */
static void take(carat_engine *e, struct sequence *s)
{
    int32_t covered;
    if (s->draft.n > 0 && paging_extend(&e->paging, s->slot, s->n_cached, s->n_rows) < s->n_rows)
        drop_guesses(s);
    while ((covered = paging_extend(&e->paging, s->slot, s->n_cached, s->n_rows)) < s->n_rows) {
        struct sequence *victim = room_victim(e);
        struct schedule_item a = rank(victim), b = rank(s);
        if (!schedule_yields(&a, &b)) break;
        request_stop(e, victim);
    }
    if (covered == s->n_rows) return;
    if (s->state == SEQUENCE_DECODE)
        request_stop(e, s);
    else
        s->n_rows = covered;
}

void room_take(carat_engine *e)
{
    static const enum sequence_state order[] = {SEQUENCE_DECODE, SEQUENCE_PREFILL};
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < e->paging.n_seq; i++) {
            struct sequence *s = e->slots[i];
            if (s && s->state == order[k] && s->n_rows > 0) take(e, s);
        }
}
