/* How keys and values come to shared memory on Hopper: TMA copies boxes of pages into the units of
 * a ring, in the order in which they are used.
 *
 * A unit is 16 KB: the 64 keys of a page x 128 columns, or 32 positions x 256 columns of values, in
 * blocks of 64 columns. Rows of 64 values are 128 bytes, swizzled, which is what wgmma takes.
 *
 * A shape S says how long its ring is (RING) and how many warps use each unit (USERS). */
#ifndef CUDA_SM90_ATTENTION_RING_CUH
#define CUDA_SM90_ATTENTION_RING_CUH

#include "backend/cuda/kernels/sm90/attention_instructions.cuh"
#include "backend/cuda/kernels/sm90/tensor_map.cuh"
#include "backend/cuda/types.h"

namespace {

/* UNIT_KEYS: blocks of 64 columns of keys in a unit; UNIT_VALUES: positions of values. */
enum { PAGE = 64, UNIT_BYTES = 16384, UNIT_KEYS = 2, UNIT_VALUES = 32 };

/* ---- A ring ---------------------------------------------------------------------------------- */

struct ring {
    uint32_t data, full, empty; /* units; their barriers */
    uint32_t slot, parity;      /* of the next unit */
};

template <class S> __device__ __forceinline__ struct ring ring_at(uint32_t data, uint32_t barriers)
{
    return {data, barriers, barriers + S::RING * 8, 0, 0};
}

/* By one thread, before any other uses it. */
template <class S> __device__ __forceinline__ void ring_init(const struct ring &ring)
{
    for (uint32_t i = 0; i < S::RING; i++) {
        barrier_init(ring.full + i * 8, 1);
        barrier_init(ring.empty + i * 8, S::USERS);
    }
}

template <class S> __device__ __forceinline__ void ring_next(struct ring &ring)
{
    if (++ring.slot == S::RING) ring.slot = 0, ring.parity ^= 1;
}

/* The next unit, when it is there. */
template <class S> __device__ __forceinline__ uint32_t ring_unit(const struct ring &ring)
{
    barrier_wait(ring.full + ring.slot * 8, ring.parity);
    return ring.data + ring.slot * UNIT_BYTES;
}

/* This warp is done with the unit before the next one. */
template <class S> __device__ __forceinline__ void ring_release(const struct ring &ring, int lane)
{
    uint32_t before = (ring.slot == 0 ? S::RING : ring.slot) - 1;
    if (lane == 0) barrier_arrive(ring.empty + before * 8);
}

/* ---- The thread that copies ------------------------------------------------------------------ */

struct boxes {
    const CUtensorMap *k, *v;
    const int32_t *table; /* the sequence's */
    int32_t slots, head;
};

__device__ __forceinline__ int page_in(const struct boxes &from, int page)
{
    return __ldg(from.table + page % from.slots);
}

/* Begins a unit: where it goes, and the barrier that waits for it. */
template <class S>
__device__ __forceinline__ uint32_t ring_take(struct ring &ring, uint32_t *barrier)
{
    barrier_wait(ring.empty + ring.slot * 8, ring.parity ^ 1);
    uint32_t to = ring.data + ring.slot * UNIT_BYTES;
    *barrier = ring.full + ring.slot * 8;
    barrier_expect(*barrier, UNIT_BYTES);
    ring_next<S>(ring);
    return to;
}

/* The keys of the page with this number, HEAD columns. */
template <class S>
__device__ __forceinline__ void copy_keys(struct ring &ring, const struct boxes &from, int number)
{
#pragma unroll 1
    for (int block = 0; block < S::HEAD / 64; block += UNIT_KEYS) {
        uint32_t barrier, to = ring_take<S>(ring, &barrier);
        copy_box(to, from.k, barrier, 0, block, from.head, number);
    }
}

/* Its values, 256 columns from block `block` of 64 on. */
template <class S>
__device__ __forceinline__ void copy_values(struct ring &ring, const struct boxes &from, int block,
                                            int number)
{
#pragma unroll 1
    for (int first = 0; first < PAGE; first += UNIT_VALUES) {
        uint32_t barrier, to = ring_take<S>(ring, &barrier);
        copy_box(to, from.v, barrier, first, block, from.head, number);
    }
}

/* Values of positions outside [begin, end) may be anything, and a share of zero times NaN is NaN:
 * zeros instead. By the 128 threads that multiply by the unit, whose first position is `first`;
 * barrier `number` of the block is theirs. */
__device__ __forceinline__ void clear_values(uint32_t unit, int first, int begin, int end,
                                             int number)
{
    for (int i = (int)threadIdx.x % 128; i < UNIT_BYTES / 16; i += 128) {
        int position = first + i / 8 % UNIT_VALUES;
        if (position < begin || position >= end)
            store_shared4(unit + (uint32_t)i * 16, make_uint4(0, 0, 0, 0));
    }
    show_to_async();
    meet<128>(number);
}

/* ---- What TMA must know ---------------------------------------------------------------------- */

/* Boxes of a cache: 64 columns x positions x blocks of 64 columns, of a head and a page. Gives
 * false when the driver refuses. */
static bool boxes_of(CUtensorMap *map, const struct kv_cache &cache, void *base, int positions,
                     int blocks)
{
    /* The cache does not say how many pages its pool has; tables name none that is not there. */
    return make_tensor_map(
        map,
        {CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
         5,
         base,
         {64, PAGE, (cuuint64_t)cache.head_dim / 64, (cuuint64_t)cache.n_heads, 1u << 24},
         {(cuuint64_t)kv_cell_bytes(&cache), 128, (cuuint64_t)cache.head_bytes, cache.page_bytes},
         {64, (cuuint32_t)positions, (cuuint32_t)blocks, 1, 1},
         CU_TENSOR_MAP_SWIZZLE_128B});
}

} // namespace

#endif
