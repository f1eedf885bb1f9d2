#include "backend/cuda/row_cache.h"

#include "base/assert.h"
#include "base/mem.h"

int row_cache_init(struct row_cache *c, int32_t n_slots, int32_t n_ids, struct carat_error *err)
{
    if (n_slots > n_ids) n_slots = n_ids;
    *c = (struct row_cache){.n_slots = n_slots, .n_ids = n_ids};
    c->slot_of = mem_alloc((size_t)n_ids, sizeof *c->slot_of);
    c->slots = mem_alloc((size_t)n_slots, sizeof *c->slots);
    if (!c->slot_of || !c->slots) {
        row_cache_deinit(c);
        return err_no_memory(err, "cache of rows", (size_t)n_ids * sizeof *c->slot_of);
    }
    for (int32_t i = 0; i < n_ids; i++) c->slot_of[i] = -1;
    for (int32_t i = 0; i < n_slots; i++) c->slots[i] = (struct row_slot){.id = -1, .round = -2};
    return CARAT_OK;
}

void row_cache_deinit(struct row_cache *c)
{
    mem_free(c->slot_of);
    mem_free(c->slots);
    *c = (struct row_cache){0};
}

void row_cache_begin(struct row_cache *c)
{
    c->round++;
}

/* Of this round or the one before. */
static bool is_at_work(const struct row_cache *c, const struct row_slot *s)
{
    return s->round >= c->round - 1;
}

/* The next slot that may be given away. It is found in the second turn at the latest: two rounds do
 * not use all slots, unless there is one for each id. */
static int32_t turn_hand(struct row_cache *c)
{
    for (int64_t i = 0; i < 2 * (int64_t)c->n_slots; i++) {
        int32_t at = c->hand;
        struct row_slot *s = &c->slots[at];
        c->hand = at + 1 < c->n_slots ? at + 1 : 0;
        if (is_at_work(c, s)) continue;
        if (!s->is_again) return at;
        s->is_again = false;
    }
    carat_assert(!"a round of more rows than half of the slots");
    return 0;
}

bool row_cache_get(struct row_cache *c, int32_t id, int32_t *slot)
{
    carat_assert(id >= 0 && id < c->n_ids);
    bool is_there = c->slot_of[id] >= 0;
    if (!is_there) {
        int32_t at = turn_hand(c);
        if (c->slots[at].id >= 0) c->slot_of[c->slots[at].id] = -1;
        c->slots[at] = (struct row_slot){.id = id, .round = c->round};
        c->slot_of[id] = at;
    }
    *slot = c->slot_of[id];
    struct row_slot *s = &c->slots[*slot];
    if (!is_at_work(c, s)) s->is_again = true;
    s->round = c->round;
    return is_there;
}
