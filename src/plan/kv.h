/* Keys and values of past positions, and where they lie: the one place that says it, for ref, cpu,
 * cuda and the tests. C and CUDA common subset.
 *
 * A cell holds one position's keys, or its values: n_heads heads of head_dim values, one after the
 * other. A page is KV_PAGE cells of following positions. A sequence has `capacity` cells in
 * capacity / KV_PAGE slots, and a table says which page is in each slot:
 *
 *     offset = table[sequence * slots + position / KV_PAGE % slots] * page_bytes
 *              + position % KV_PAGE * cell_bytes
 *
 * The same offset leads to the keys (from `k`) and to the values (from `v`) of a position.
 *
 * Today the table is the identity, table[i] = i, and is not stored; a page is one cell, so that any
 * capacity is a whole number of pages, and position p of sequence s is in cell
 * s * capacity + p % capacity. With larger pages a capacity has to be rounded up to whole pages.
 *
 * Positions are never negative. A layer with a window needs window + rows of a step - 1 cells or
 * more, else rows of one step would overwrite keys that earlier rows of the same step still see. */
#ifndef PLAN_KV_H
#define PLAN_KV_H

#include <stddef.h>
#include <stdint.h>

#include "quant/format.h"

#ifndef KV_PAGE
#define KV_PAGE 1 /* positions of a page */
#endif

#ifdef __CUDACC__
#define KV_INLINE static __host__ __device__ __forceinline__
#else
#define KV_INLINE static inline
#endif

/* One layer's keys and values, of all sequences. */
struct kv_cache {
    enum format format; /* F16, BF16, F32 or Q8_0; head_dim is a multiple of its block */
    int32_t capacity;   /* positions of a sequence that are kept; a multiple of KV_PAGE */
    int32_t n_heads, head_dim;
    int32_t head_bytes; /* of head_dim values */
    void *k, *v;        /* device memory, owned by the runner; NULL: only the shape is known */
};

/* Without memory. */
struct kv_cache kv_cache_shape(enum format format, int32_t capacity, int32_t n_heads,
                               int32_t head_dim);

KV_INLINE int32_t kv_cell_bytes(const struct kv_cache *c)
{
    return c->n_heads * c->head_bytes;
}

/* Page in a slot of a sequence: the table. */
KV_INLINE int64_t kv_page(const struct kv_cache *c, int32_t sequence, int32_t slot)
{
    return (int64_t)sequence * (c->capacity / KV_PAGE) + slot;
}

/* Bytes from `k` to the keys of a position, and from `v` to its values. */
KV_INLINE size_t kv_offset(const struct kv_cache *c, int32_t sequence, int32_t position)
{
    size_t cell_bytes = (size_t)kv_cell_bytes(c);
    int32_t slot = position / KV_PAGE % (c->capacity / KV_PAGE);
    return (size_t)kv_page(c, sequence, slot) * (KV_PAGE * cell_bytes) +
           (size_t)(position % KV_PAGE) * cell_bytes;
}

/* How many positions from this one on have cells one after the other, kv_cell_bytes apart. */
KV_INLINE int32_t kv_stretch(const struct kv_cache *c, int32_t position)
{
    return c->capacity - position % c->capacity;
}

/* Following positions of one sequence, at most `capacity`: their offsets without a division. */
struct kv_run {
    size_t sequence_offset;
    int32_t slot, in_page; /* of the first position */
    int32_t slots, cell_bytes;
};

KV_INLINE struct kv_run kv_run_from(const struct kv_cache *c, int32_t sequence, int32_t position)
{
    struct kv_run r;
    r.slots = c->capacity / KV_PAGE;
    r.cell_bytes = kv_cell_bytes(c);
    r.slot = position / KV_PAGE % r.slots;
    r.in_page = position % KV_PAGE;
    r.sequence_offset = (size_t)kv_page(c, sequence, 0) * (KV_PAGE * (size_t)r.cell_bytes);
    return r;
}

/* kv_offset of the i-th position of the run. */
KV_INLINE size_t kv_run_offset(const struct kv_run *r, int32_t i)
{
    int32_t cell = r->in_page + i, slot = r->slot + cell / KV_PAGE;
    if (slot >= r->slots) slot -= r->slots;
    cell = slot * KV_PAGE + cell % KV_PAGE;
    return r->sequence_offset + (size_t)(uint32_t)cell * (uint32_t)r->cell_bytes;
}

/* A sequence's cells as a ring, for inner loops that carry a cell along instead of a position: the
 * same addresses as kv_offset in the fewest instructions. The cell of a position is its place in
 * the sequence, 0 .. capacity - 1. */
KV_INLINE int32_t kv_ring_cell(int32_t position, int32_t capacity)
{
    return position % capacity;
}

/* Bytes to the first cell of a sequence. */
KV_INLINE uint64_t kv_ring_offset(int32_t capacity, int32_t cell_bytes, int32_t sequence)
{
    return (uint64_t)sequence * (uint64_t)capacity * (uint64_t)cell_bytes;
}

/* The cell after the last one is the first; cell < 2 * capacity. */
KV_INLINE int32_t kv_ring_wrap(int32_t cell, int32_t capacity)
{
    if (cell >= capacity) cell -= capacity;
    return cell;
}

/* Bytes from the first cell of a sequence to this one. */
KV_INLINE uint64_t kv_ring_cell_offset(int32_t cell_bytes, int32_t cell)
{
    return (uint64_t)(uint32_t)cell * (uint32_t)cell_bytes;
}

#endif
