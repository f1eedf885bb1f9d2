/* The warps of half.cu that fetch: weights by 16 bytes a lane, activations by a copy a tile. */
#ifndef CUDA_SM90_HALF_FETCH_CUH
#define CUDA_SM90_HALF_FETCH_CUH

#include "backend/cuda/kernels/policy.cuh"
#include "backend/cuda/kernels/sm90/half.cuh"

/* A lane's copies of 16 bytes of a plane's tiles of a side. Groups that are not there are left
 * out: nobody uses what they would give. */
template <int TILE_BYTES, int GROUPS> struct plane_copies {
    enum { PIECES = TILE_BYTES / 16, AT_A_TIME = FETCHERS / PIECES };
    const uint8_t *from;
    int n; /* groups from the lane's first one on */
    uint32_t step;

    __device__ __forceinline__ void aim(const void *plane, int first_group, int n_groups,
                                        int n_ktiles, int begin, int me)
    {
        int group = me / PIECES;
        from = static_cast<const uint8_t *>(plane) +
               ((int64_t)(first_group + group) * n_ktiles + begin) * TILE_BYTES + me % PIECES * 16;
        n = n_groups - group;
        step = (uint32_t)(AT_A_TIME * n_ktiles * TILE_BYTES);
    }
    __device__ __forceinline__ void fetch(struct l2_policy policy, uint32_t shared)
    {
        const uint8_t *at = from;
        asm volatile("" : "+l"(at)); /* so that no sum is kept in registers */
#pragma unroll
        for (int i = 0; i * AT_A_TIME < GROUPS; i++, at += step)
            if (i * AT_A_TIME < n) copy16_under(policy, shared + i * FETCHERS * 16, at);
        from += TILE_BYTES;
    }
};

template <enum form F, int GROUPS> struct weight_copies {
    typedef weight_stage<F, GROUPS> S;
    plane_copies<form_quant_bytes(F), GROUPS> quants;
    plane_copies<form_scale_bytes(F), GROUPS> scale;
    plane_copies<form_high_bits(F) ? form_high_bytes(F) : 16, GROUPS> high;
    plane_copies<32, GROUPS> minus;

    __device__ __forceinline__ void aim(const struct cuda_weight &w, int row, int begin, int me)
    {
        int group = row / TILE_ROWS, n = min(w.n_groups - group, GROUPS);
        quants.aim(w.quants, group, n, w.n_ktiles, begin, me);
        scale.aim(w.scale, group, n, w.n_ktiles, begin, me);
        if constexpr (form_high_bits(F) != 0) high.aim(w.high, group, n, w.n_ktiles, begin, me);
        if constexpr (form_minus_bytes(F) != 0) minus.aim(w.minus, group, n, w.n_ktiles, begin, me);
    }
    /* The next tile; stage: the lane's place in it. */
    __device__ __forceinline__ void fetch(struct l2_policy policy, uint32_t stage)
    {
        quants.fetch(policy, stage);
        scale.fetch(policy, stage + S::SCALE_AT);
        if constexpr (form_high_bits(F) != 0) high.fetch(policy, stage + S::HIGH_AT);
        if constexpr (form_minus_bytes(F) != 0) minus.fetch(policy, stage + S::MINUS_AT);
    }
};

template <class R>
__device__ __forceinline__ void fetch_weights(const half_product &p, uint32_t shared,
                                              half_turns turns)
{
    struct l2_policy policy = policy_of(p.n_passes == 1);
    int me = (int)threadIdx.x - R::MULTIPLIERS;
    ring_place<R::STAGES> place = {0, 1};
#pragma unroll 1
    for (; turns.at < turns.n; turns.at += turns.step) {
        weight_copies<R::FORM, R::SIDE_GROUPS> copies[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            half_side side = turns.side(p, i, R::SIDE_ROWS);
            copies[i].aim(p.w[side.which], side.row, turns.begin, me);
        }
#pragma unroll 1
        for (int t = turns.begin; t < turns.end; t++, place.next()) {
            uint32_t stage =
                shared + R::RING_AT + place.at * R::STAGE_BYTES + R::ACT_BYTES + me * 16;
            barrier_wait(barrier_at(shared, STAGE_EMPTY, place.at), place.parity);
#pragma unroll
            for (int i = 0; i < 2; i++) copies[i].fetch(policy, stage + i * R::SIDE_BYTES);
            barrier_arrive_after_copies(barrier_at(shared, WEIGHTS_FULL, place.at));
        }
    }
    copies_wait_all();
}

/* n eights of rows, from `first` on, of a tile of columns: a copy of each piece that has some. */
__device__ __forceinline__ void fetch_eights(const struct act &x, int first, int n, int tile,
                                             uint32_t shared, uint32_t full)
{
    enum { OF_PIECE = PIECE_ROWS / TILE_ROWS };
    const uint8_t *values = static_cast<const uint8_t *>(x.values);
    int n_tiles = x.stride / TILE_COLS;
    while (n > 0) {
        int piece = first / OF_PIECE, at = first % OF_PIECE, some = min(n, OF_PIECE - at);
        int64_t from = ((int64_t)piece * n_tiles + tile) * OF_PIECE + at;
        copy_bulk(shared, values + from * EIGHT_BYTES, (uint32_t)(some * EIGHT_BYTES), full);
        first += some, n -= some, shared += (uint32_t)(some * EIGHT_BYTES);
    }
}

template <class R>
__device__ __forceinline__ void fetch_rows(const half_product &p, uint32_t shared, half_turns turns)
{
    if (threadIdx.x % WARP > 0) return;
    ring_place<R::STAGES> place = {0, 1};
    for (; turns.at < turns.n; turns.at += turns.step) {
        int first = turns.first_row(p) / TILE_ROWS;
        int n = (turns.rows(p) + TILE_ROWS - 1) / TILE_ROWS;
        for (int t = turns.begin; t < turns.end; t++, place.next()) {
            uint32_t full = barrier_at(shared, ACT_FULL, place.at);
            barrier_wait(barrier_at(shared, STAGE_EMPTY, place.at), place.parity);
            barrier_expect(full, (uint32_t)(n * EIGHT_BYTES));
            fetch_eights(p.x, first, n, t, shared + R::RING_AT + place.at * R::STAGE_BYTES, full);
        }
    }
}

#endif
