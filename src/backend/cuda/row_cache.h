/* Which rows of a table have a slot of a cache, by id. Numbers only: the rows themselves are the
 * caller's. Needs neither GPU nor toolkit.
 *
 * Rows are asked for in rounds of at most n_slots / 2. What a round gave stays for the next too: a
 * step has all its rows at once, and those of the step after it can be brought while it computes.
 *
 * A hand goes around the slots (CLOCK): a row that was asked for again since the hand last passed
 * stays, the others give way. LRU would hit about as often, but it scatters the freed slots more
 * with every round, and each stretch of slots that a round gets is a copy of its own. */
#ifndef CUDA_ROW_CACHE_H
#define CUDA_ROW_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct row_cache {
    int32_t n_slots, n_ids;
    int32_t *slot_of; /* [n_ids]; -1: none */
    struct row_slot {
        int32_t id;    /* -1: free */
        bool is_again; /* asked for after the round that brought it and the next one */
        int64_t round; /* that asked for it last */
    } * slots;
    int32_t hand;  /* the slot that is looked at next */
    int64_t round; /* this one */
};

/* For ids 0 .. n_ids - 1. There are never more slots than ids. */
int row_cache_init(struct row_cache *c, int32_t n_slots, int32_t n_ids, struct carat_error *err);
void row_cache_deinit(struct row_cache *c);

/* A round begins. */
void row_cache_begin(struct row_cache *c);

/* The slot that the row of `id` has from now on. False: it has just got it, and the caller puts the
 * row there. */
bool row_cache_get(struct row_cache *c, int32_t id, int32_t *slot);

#endif
