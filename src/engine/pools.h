/* How many pages the pools of both kinds get. Arithmetic only.
 *
 * A sequence that decodes holds one window of local pages and all pages of its positions in the
 * global pool. One that reads its prompt holds, for a step, also the local pages of its rows. Pages
 * beyond these keep what was read: an anchor is one window of local pages, with which the global
 * pages before it can be used again. */
#ifndef ENGINE_POOLS_H
#define ENGINE_POOLS_H

#include <stdbool.h>

#include "plan/kv.h"

struct pools_shape {
    int32_t n_seq, chunk;
    int32_t slots[KV_KINDS];       /* of a sequence */
    int32_t window_pages;          /* local pages of a sequence that decodes, */
    int32_t anchor_pages;          /* of an anchor */
    int32_t split;                 /* positions of the global pool for each anchor */
    uint64_t page_bytes[KV_KINDS]; /* on the device that is counted; 0: nothing */
};

struct pools {
    int32_t n_pages[KV_KINDS]; /* page 0 included */
    int32_t n_anchors;         /* that fit beyond what running sequences need */
};

/* Every sequence has pages of its own for all its slots. */
struct pools pools_fixed(const struct pools_shape *s);

/* What running sequences need, if all of them are full; if only one is. */
struct pools pools_full(const struct pools_shape *s);
struct pools pools_least(const struct pools_shape *s);

/* As many pages as this many bytes hold: first for running sequences, as many at a time as there is
 * room for, then for anchors (if they are wanted) and global pages in the proportion of `split`.
 * If even one sequence needs more than `bytes`, the pools are as large as it needs. */
struct pools pools_within(const struct pools_shape *s, uint64_t bytes, bool has_anchors);

/* Anchors that go with the global pool. */
int32_t pools_anchors_wanted(const struct pools_shape *s, const struct pools *p);
void pools_add_anchors(const struct pools_shape *s, struct pools *p, int32_t n);

/* Bytes of both pools. Saturates at BYTES_MAX. */
uint64_t pools_bytes(const struct pools_shape *s, const struct pools *p);

#endif
