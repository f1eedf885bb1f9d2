/* The group of half_experts.cu that fills the ring. */
#ifndef CUDA_SM90_HALF_EXPERTS_FETCH_CUH
#define CUDA_SM90_HALF_EXPERTS_FETCH_CUH

#include "backend/cuda/kernels/policy.cuh"
#include "backend/cuda/kernels/sm90/async.cuh"
#include "backend/cuda/kernels/sm90/half_experts.cuh"

namespace {

/* A thread's copies of a plane: a piece of every SPAN-th slot. Slots of gate and up take turns, and
 * SPAN is even: a thread's are all of one weight. */
template <int TILE_BYTES> struct plane_copies {
    enum {
        PIECES = TILE_BYTES / 16,
        SPAN = GROUP / PIECES,
        PASSES = SPAN < UNIT_SLOTS ? UNIT_SLOTS / SPAN : 1
    };
    const uint8_t *from;
    int64_t step; /* from pass to pass */
    int n_live;   /* passes */

    __device__ __forceinline__ void aim(const grouped_product &p, const item &it, const void *first,
                                        const void *second, int i)
    {
        int slot = i / PIECES, turns = p.n_w;
        int group = it.unit * (UNIT_SLOTS / turns) + slot / turns;
        int left = p.n_groups - group, span = SPAN / turns;
        n_live = slot < UNIT_SLOTS && left > 0 ? min((left + span - 1) / span, (int)PASSES) : 0;
        from = static_cast<const uint8_t *>(slot % turns ? second : first) +
               ((int64_t)it.tile.expert * p.n_groups + group) * p.n_ktiles * TILE_BYTES +
               i % PIECES * 16;
        step = (int64_t)span * p.n_ktiles * TILE_BYTES;
    }
    __device__ __forceinline__ void fetch(struct l2_policy policy, uint32_t to)
    {
        const uint8_t *at = from;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++, at += step)
            if (pass < n_live) copy16_under(policy, to + pass * (GROUP * 16), at);
        from += TILE_BYTES;
    }
};

template <enum form F> struct weight_copies {
    typedef stage_of<F> S;
    plane_copies<form_quant_bytes(F)> quants;
    plane_copies<form_scale_bytes(F)> scale;
    plane_copies<form_high_bits(F) ? form_high_bytes(F) : 64> high;
    plane_copies<32> minus;

    __device__ __forceinline__ void aim(const grouped_product &p, const item &it, int i)
    {
        const cuda_weight &a = p.w[0], &b = p.w[1];
        quants.aim(p, it, a.quants, b.quants, i);
        scale.aim(p, it, a.scale, b.scale, i);
        if constexpr (form_high_bits(F) != 0) high.aim(p, it, a.high, b.high, i);
        if constexpr (form_minus_bytes(F) != 0) minus.aim(p, it, a.minus, b.minus, i);
    }
    __device__ __forceinline__ void fetch(struct l2_policy policy, uint32_t own)
    {
        quants.fetch(policy, own + S::QUANTS_AT);
        scale.fetch(policy, own + S::SCALE_AT);
        if constexpr (form_high_bits(F) != 0) high.fetch(policy, own + S::HIGH_AT);
        if constexpr (form_minus_bytes(F) != 0) minus.fetch(policy, own + S::MINUS_AT);
    }
};

/* A thread's copies of rows: the same 16 bytes of every SPAN-th row. */
template <int PASSES> struct row_copies {
    enum { CHUNKS = ROW_BYTES / 16, SPAN = GROUP / CHUNKS };
    uint32_t offset[PASSES]; /* in 16 bytes */
    int n_live;
    int turn; /* by the swizzle, in bytes */

    __device__ __forceinline__ row_copies(const grouped_product &p, const item &it, int i)
    {
        int row = i / CHUNKS;
        n_live = (it.tile.n - row + SPAN - 1) / SPAN;
        turn = ((i % CHUNKS ^ row % 8) - i % CHUNKS) * 16;
#pragma unroll
        for (int k = 0; k < PASSES; k++) {
            int place = it.tile.first + min(row + k * SPAN, it.tile.n - 1);
            offset[k] = (uint32_t)(p.plan.pair[place] / p.row_div) * (uint32_t)p.x_step +
                        (uint32_t)(i % CHUNKS);
        }
    }
    __device__ __forceinline__ void fetch(const uint8_t *x, uint32_t own) const
    {
#pragma unroll
        for (int k = 0; k < PASSES; k++)
            if (k < n_live)
                copy16(own + turn + k * (SPAN * ROW_BYTES), x + (uint64_t)offset[k] * 16);
    }
};

/* `own` is the thread's first 16 bytes of the stage, carried along on its own: where the
 * destination of a copy under a policy is a uniform address plus an offset, ptxas of CUDA 13.0
 * emits an instruction that the chip rejects as illegal (LDGSTS with two uniform registers). */
template <enum form F> struct filling {
    typedef stage_of<F> S;
    uint32_t base, first, own;
    ring_place<S::STAGES> place;
    struct l2_policy policy;

    __device__ __forceinline__ void next()
    {
        place.next();
        own = place.at ? own + S::BYTES : first;
    }
};

/* An item of up to PASSES * 16 rows. */
template <enum form F, int PASSES>
__device__ __forceinline__ void fill_item(const grouped_product &p, const item &it, filling<F> &to)
{
    typedef stage_of<F> S;
    const int i = threadIdx.x % GROUP;
    row_copies<PASSES> rows(p, it, i);
    weight_copies<F> weights;
    weights.aim(p, it, i);
    const uint8_t *x = p.x;
#pragma unroll 1
    for (int k = 0; k < p.n_ktiles; k++, x += ROW_BYTES, to.next()) {
        barrier_wait(empty_at(to.base + S::BARRIERS_AT, to.place.at), to.place.parity);
        weights.fetch(to.policy, to.own);
        rows.fetch(x, to.own);
        barrier_arrive_after_copies(full_at(to.base + S::BARRIERS_AT, to.place.at));
    }
}

template <enum form F>
__device__ __forceinline__ void fill_ring(const grouped_product &p, uint32_t base)
{
    const uint32_t first = base + stage_of<F>::RING_AT + threadIdx.x % GROUP * 16;
    filling<F> to = {base, first, first, {0, 1}, policy_of(true)}; /* all stages are empty */
    int next = blockIdx.x + gridDim.x;
    const int n_tiles = *p.plan.n_tile;
    for (item it = take_item(p, blockIdx.x, n_tiles), after; it.tile.step > 0; it = after) {
        after = take_item(p, next, n_tiles);
        next += gridDim.x;
        if (it.tile.n <= 16)
            fill_item<F, 1>(p, it, to);
        else if (it.tile.n <= 48)
            fill_item<F, 3>(p, it, to);
        else
            fill_item<F, HALF_TILE / 16>(p, it, to);
    }
    copies_wait_all();
}

} // namespace

#endif
