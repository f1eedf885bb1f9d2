#include "engine/fairness.h"

#include "base/assert.h"

int fairness_init(struct fairness *f, struct arena *arena, int32_t size, struct carat_error *err)
{
    *f = (struct fairness){.size = size};
    f->keys = arena_take(arena, (size_t)size, sizeof *f->keys);
    return f->keys ? CARAT_OK : err_no_memory(err, "queue", (size_t)size * sizeof *f->keys);
}

uint64_t fairness_least(const struct fairness *f)
{
    uint64_t least = 0;
    bool is_first = true;
    for (int32_t i = 0; i < f->end; i++) {
        const struct fair_key *k = &f->keys[i];
        if (k->n_requests == 0 || (!is_first && k->served >= least)) continue;
        least = k->served;
        is_first = false;
    }
    uint64_t floor = f->most > FAIRNESS_LEAD ? f->most - FAIRNESS_LEAD : 0;
    return least > floor ? least : floor;
}

int32_t fairness_enter(struct fairness *f, uint64_t key)
{
    int32_t place = -1;
    for (int32_t i = 0; i < f->end; i++) {
        if (f->keys[i].n_requests > 0 && f->keys[i].key == key) {
            f->keys[i].n_requests++;
            return i;
        }
        if (f->keys[i].n_requests == 0 && place < 0) place = i;
    }
    uint64_t served = fairness_least(f);
    if (place < 0) place = f->end++;
    carat_assert(place < f->size);
    f->keys[place] = (struct fair_key){.key = key, .served = served, .n_requests = 1};
    return place;
}

void fairness_leave(struct fairness *f, int32_t place)
{
    carat_assert(f->keys[place].n_requests > 0);
    f->keys[place].n_requests--;
    while (f->end > 0 && f->keys[f->end - 1].n_requests == 0) f->end--;
    if (f->end == 0) f->most = 0;
}

void fairness_charge(struct fairness *f, int32_t place, int32_t rows)
{
    struct fair_key *k = &f->keys[place];
    uint64_t least = fairness_least(f);
    k->served = (k->served > least ? k->served : least) + (uint64_t)rows;
    if (k->served > f->most) f->most = k->served;
}
