/* How many rows each fairness key has had: users who send much come after users who send little.
 *
 * A key exists as long as a request has it. A key that comes (again) starts with the count of the
 * least served key, so nobody saves up rows by being away. Asking for little saves up only some: no
 * key counts as more than FAIRNESS_LEAD rows behind another. Pure bookkeeping; allocates nothing
 * after fairness_init. */
#ifndef ENGINE_FAIRNESS_H
#define ENGINE_FAIRNESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { FAIRNESS_LEAD = 32768 }; /* as long as the longest prompts of most users */

struct fair_key {
    uint64_t key;
    uint64_t served;    /* rows */
    int32_t n_requests; /* 0: a free place */
};

struct fairness {
    struct fair_key *keys; /* [size] */
    int32_t size, end;     /* places from `end` on are free */
    uint64_t most;         /* rows of the most served key since there were no keys */
};

/* For at most `size` requests at a time. CARAT_EMEMORY. */
int fairness_init(struct fairness *f, struct arena *arena, int32_t size, struct carat_error *err);

/* A request enters with its key. Returns the key's place. There must be room. */
int32_t fairness_enter(struct fairness *f, uint64_t key);

/* A request of the key at this place leaves. */
void fairness_leave(struct fairness *f, int32_t place);

void fairness_charge(struct fairness *f, int32_t place, int32_t rows);

/* Rows that the least served key counts as having had; 0 when there is none. */
uint64_t fairness_least(const struct fairness *f);

/* How many rows more than the least served key this key has had. `least`: fairness_least. */
static inline uint64_t fairness_excess(const struct fairness *f, int32_t place, uint64_t least)
{
    return f->keys[place].served > least ? f->keys[place].served - least : 0;
}

#endif
