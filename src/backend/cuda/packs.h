/* Packs of decode rows that read shared pages once (types.h: struct pack). Pure. */
#ifndef CUDA_PACKS_H
#define CUDA_PACKS_H

#include "backend/cuda/types.h"
#include "plan/share.h"

/* Which packs are made. */
struct pack_rule {
    int32_t rows;   /* of a pack at most; 0: there are none */
    int32_t splits; /* segments.h */
    struct share_least least;
};

/* For layers without a window, all of one shape. */
struct pack_rule pack_rule_of(int32_t n_heads, int32_t head_dim, int32_t n_kv_heads,
                              enum share_kind kind);

/* Fills is_packed [n_token], and packs and their members (at most n_decode of each); returns the
 * number of packs. Rows of a pack see equally many segments, and packs of a group differ by at most
 * one row. */
int32_t packs_fill(const struct pack_rule *rule, const struct step *step, struct pack *pack,
                   int32_t *member, int32_t *is_packed);

#endif
