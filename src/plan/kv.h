/* Keys and values of past positions, and where they lie: the one place that says it, for ref, cpu,
 * cuda and the tests. C and CUDA common subset.
 *
 * A cell holds one position's keys, or its values: n_heads heads of head_dim values, one after the
 * other. A page holds KV_PAGE consecutive positions of one sequence: the keys and values of all
 * layers of a kind (layers with a window, or layers without), so that moving a page is one copy.
 * Pages of a kind lie one after the other in a pool, page_bytes apart. Page 0 holds zeros and is
 * never written.
 *
 * A table in the device's memory says where a sequence's pages are. A sequence has `slots` entries,
 * used as a ring; entries of positions that nobody holds are 0.
 *
 *     offset = table[sequence * slots + position / KV_PAGE % slots] * page_bytes
 *              + position % KV_PAGE * cell_bytes
 *
 * The same offset leads to the keys (from `k`) and to the values (from `v`) of a position.
 *
 * In a layer without a V of its own, keys equal values, except in the columns that the rotation
 * turns (model/weights.c moves the norm's weights out of the others). Its cells hold both at once
 * (kv_share): head_dim + turned numbers a head, with the columns in an order of their own.
 *
 *     place      0 .. turned           .. head_dim     .. head_dim + turned
 *     column     turned ones (values)  all others      turned ones (keys)
 *
 * `v` leads to the first place and `k` to place `turned`, so that either has head_dim numbers one
 * after the other. Turned are the first turned / 2 columns of both halves of a head.
 * kv_value_column and kv_key_column say which column a number is, counted from `v` and from `k`.
 *
 * Positions are never negative. A layer with a window needs slots for window + rows of a step - 1
 * positions and one page more, else rows of one step would overwrite keys that earlier rows of the
 * same step still see. A position before a row's window may be in a page that was given back: its
 * entry is 0, or the page is the sequence's own. */
#ifndef PLAN_KV_H
#define PLAN_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/format.h"

/* Positions of a page. A multiple of 32, the tile of the attention kernels and a block of keys on
 * the CPU, so that a tile lies in one page. Tests are also built with 32. */
#ifndef KV_PAGE
#define KV_PAGE 64
#endif

#ifdef __CUDACC__
#define KV_INLINE static __host__ __device__ __forceinline__
#else
#define KV_INLINE static inline
#endif

enum kv_kind { KV_LOCAL, KV_GLOBAL, KV_KINDS }; /* layers with a window; without */

/* One layer's keys and values, of all sequences. */
struct kv_cache {
    enum format format; /* F16, BF16, F32 or Q8_0; head_dim is a multiple of its block */
    int32_t slots;      /* pages of a sequence that the table has room for */
    int32_t n_heads, head_dim;
    int32_t turned;       /* of the columns of a shared head; 0: keys and values lie apart */
    int32_t head_bytes;   /* from a head to the next */
    size_t page_bytes;    /* from a page to the next */
    const int32_t *table; /* device memory [sequences * slots], owned by the runner */
    void *k, *v;          /* device memory: this layer's part of page 0; NULL: only a shape */
};

/* Without memory or table, in pages of its own: page_bytes is what one layer needs. */
struct kv_cache kv_cache_shape(enum format format, int32_t slots, int32_t n_heads,
                               int32_t head_dim);

/* Makes cells of such a shape hold keys and values at once; turned: a multiple of 64, as kernels
 * read and round 32 columns at a time, or 0: they lie apart. `turned` is raised until keys begin at
 * a multiple of 16 bytes (128 become 256 in q8_0). Nothing is done if that reaches head_dim. */
void kv_share(struct kv_cache *c, int32_t turned);

/* `turned` of kv_share for a head in which the first n_pairs of the pairs (i, i + head_dim / 2) are
 * rotated; 0: nothing can be shared. */
int32_t kv_turned(int32_t head_dim, int32_t n_pairs);

/* Sets k and v. This layer's part of page 0 begins at `at`; values that lie apart begin v_offset
 * bytes after it. */
void kv_place(struct kv_cache *c, void *at, size_t v_offset);

/* Pages that hold this many positions. */
KV_INLINE int32_t kv_pages(int32_t positions)
{
    return (positions + KV_PAGE - 1) / KV_PAGE;
}

KV_INLINE int32_t kv_cell_bytes(const struct kv_cache *c)
{
    return c->n_heads * c->head_bytes;
}

/* Bytes of a position's keys and values. */
KV_INLINE int32_t kv_position_bytes(const struct kv_cache *c)
{
    return (c->turned ? 1 : 2) * kv_cell_bytes(c);
}

/* Whether a column's key is stored apart from its value. `column` may count on from head to
 * head. */
KV_INLINE bool kv_has_own_key(int32_t head_dim, int32_t turned, int32_t column)
{
    return turned == 0 || column % (head_dim / 2) < turned / 2;
}

/* The column of a head that is number i of its values. */
KV_INLINE int32_t kv_value_column(const struct kv_cache *c, int32_t i)
{
    int32_t half = c->turned / 2, rest = c->head_dim / 2 - half;
    if (c->turned == 0) return i;
    if (i < c->turned) return i < half ? i : i - half + c->head_dim / 2;
    return i < c->turned + rest ? i - half : i;
}

/* The column of a head that is number i of its keys. */
KV_INLINE int32_t kv_key_column(const struct kv_cache *c, int32_t i)
{
    return kv_value_column(c, i + c->turned < c->head_dim ? i + c->turned
                                                          : i + c->turned - c->head_dim);
}

/* Which number of a head's values this column is: the inverse of kv_value_column. */
KV_INLINE int32_t kv_value_place(const struct kv_cache *c, int32_t column)
{
    int32_t half = c->turned / 2, middle = c->head_dim / 2;
    if (c->turned == 0) return column;
    if (column < middle) return column < half ? column : column + half;
    return column < middle + half ? column - middle + half : column;
}

/* Which number of a head's keys this column is: the inverse of kv_key_column. */
KV_INLINE int32_t kv_key_place(const struct kv_cache *c, int32_t column)
{
    int32_t i = kv_value_place(c, column) - c->turned;
    return i < 0 ? i + c->head_dim : i;
}

/* Positions of a sequence that the table has room for. */
KV_INLINE int32_t kv_capacity(const struct kv_cache *c)
{
    return c->slots * KV_PAGE;
}

/* Bytes from `k` to the first cell of the page that holds a position. */
KV_INLINE size_t kv_page_offset(const struct kv_cache *c, int32_t sequence, int32_t position)
{
    int32_t slot = position / KV_PAGE % c->slots;
    return (size_t)c->table[(size_t)sequence * (size_t)c->slots + (size_t)slot] * c->page_bytes;
}

/* Bytes from `k` to the keys of a position, and from `v` to its values. */
KV_INLINE size_t kv_offset(const struct kv_cache *c, int32_t sequence, int32_t position)
{
    return kv_page_offset(c, sequence, position) +
           (size_t)(position % KV_PAGE) * (size_t)kv_cell_bytes(c);
}

/* How many positions from this one on have cells one after the other, kv_cell_bytes apart. */
KV_INLINE int32_t kv_stretch(int32_t position)
{
    return KV_PAGE - position % KV_PAGE;
}

#endif
