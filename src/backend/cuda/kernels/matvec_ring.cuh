/* Products of up to four rows with tiles, or up to eight (LANE_ROWS 2: sm90/matvec_eight.cu).
 *
 * Only the reading of weights matters here. They come by cp.async into a ring of shared memory that
 * each warp has for itself, always two stages ahead, also across units; activations of the whole
 * slices stay in shared memory. With registers instead of the ring it was a quarter slower (H200):
 * the compiler moves the loads to the end of a round, and half of the latency showed. */
#ifndef CUDA_MATVEC_RING_CUH
#define CUDA_MATVEC_RING_CUH

#include "backend/cuda/kernels/choose.cuh"
#include "backend/cuda/kernels/matvec_choice.cuh"
#include "backend/cuda/kernels/matvec_product.cuh"
#include "backend/cuda/kernels/policy.cuh"

enum { RING = 3 }; /* places of a warp's ring */

/* PARTS: 2 for half a stage. */
template <enum form F, int PARTS = 1> struct ring_stage {
    enum {
        TILES = (F == FORM_S8 || F == FORM_S6 ? 2 : 4) / PARTS,
        QUANTS = TILES * form_quant_bytes(F),
        SCALE = TILES * form_scale_bytes(F),
        HIGH = TILES * form_high_bytes(F),
        MINUS = TILES * form_minus_bytes(F),
        /* of a stage: quants of both groups, then scales, high bits, minus of both */
        SCALE_AT = WARP_GROUPS * QUANTS,
        HIGH_AT = SCALE_AT + WARP_GROUPS * SCALE,
        MINUS_AT = HIGH_AT + WARP_GROUPS * HIGH,
        BYTES = MINUS_AT + WARP_GROUPS * MINUS
    };
};

/* What is still to be loaded of a slice. Quants: a lane's 16 bytes of each group. The smaller
 * planes: lanes 0..15 the first group, 16..31 the second. */
template <enum form F> struct ring_feed {
    const uint8_t *quants[WARP_GROUPS], *scale, *high, *minus;
    int left;
    struct l2_policy policy;
    int unit, first; /* what the slice is of; first: of an expert's pairs */
    int place;       /* in the ring */
};

template <enum form F> __device__ __forceinline__ ring_feed<F> feed_of(int unit)
{
    ring_feed<F> feed = {};
    feed.policy = policy_of(true);
    feed.unit = unit;
    return feed;
}

template <enum form F>
__device__ __forceinline__ void aim(ring_feed<F> &f, const matvec_product &a, int expert,
                                    int column, int index)
{
    int which[WARP_GROUPS], lane = threadIdx.x % 32, g = lane / 16, at = lane % 16 * 16;
    int64_t tile[WARP_GROUPS];
    f.left = locate(a, expert, column, index, which, tile);
    for (int i = 0; i < WARP_GROUPS; i++)
        f.quants[i] = a.w[which[i]].quants + tile[i] * form_quant_bytes(F) + lane * 16;
    const struct cuda_weight &w = a.w[which[g]];
    int64_t t = g ? tile[1] : tile[0];
    f.scale = reinterpret_cast<const uint8_t *>(w.scale) + t * form_scale_bytes(F) + at;
    if (form_high_bits(F)) f.high = w.high + t * form_high_bytes(F) + at;
    if (form_minus_bytes(F))
        f.minus = reinterpret_cast<const uint8_t *>(w.minus) + t * form_minus_bytes(F) + at;
}

/* Starts copying the next stage of a slice, or nothing at its end; commits a group in any case. */
template <enum form F, typename S = ring_stage<F>>
__device__ __forceinline__ void feed_stage(ring_feed<F> &f, uint32_t stage)
{
    int lane = threadIdx.x % 32, n = min(f.left, (int)S::TILES), g = lane / 16;
    int at = lane % 16 * 16;
    if (n > 0) {
#pragma unroll
        for (int i = 0; i < WARP_GROUPS; i++)
#pragma unroll
            for (int j = 0; j < S::QUANTS; j += 512)
                if (j + lane * 16 < n * form_quant_bytes(F))
                    copy16_under(f.policy, stage + i * S::QUANTS + j + lane * 16, f.quants[i] + j);
        if (at < n * form_scale_bytes(F))
            copy16_under(f.policy, stage + S::SCALE_AT + g * S::SCALE + at, f.scale);
        if (form_high_bits(F) && at < n * form_high_bytes(F))
            copy16_under(f.policy, stage + S::HIGH_AT + g * S::HIGH + at, f.high);
        if (form_minus_bytes(F) && at < n * form_minus_bytes(F))
            copy16_under(f.policy, stage + S::MINUS_AT + g * S::MINUS + at, f.minus);
        for (int i = 0; i < WARP_GROUPS; i++) f.quants[i] += S::QUANTS;
        f.scale += S::SCALE;
        if (form_high_bits(F)) f.high += S::HIGH;
        if (form_minus_bytes(F)) f.minus += S::MINUS;
        f.left -= n;
    }
    copies_commit();
}

/* Feeds the next stage into the ring; at the end of a unit the next one follows without a gap. */
template <enum form F, typename S, bool IS_EXPERT, int PLACES, typename Grid>
__device__ __forceinline__ void feed_ring(ring_feed<F> &f, const matvec_product &a, int expert,
                                          int column, int part, int end, int rows, Grid at,
                                          uint32_t ring)
{
    int first = f.first + rows, unit = f.unit + at.n_y();
    if (f.left == 0 && (IS_EXPERT ? first < end : unit < a.n_units)) {
        if (IS_EXPERT)
            f.first = first;
        else
            f.unit = unit;
        aim<F>(f, a, max(expert, 0), f.unit * a.across + column, part);
    }
    feed_stage<F, S>(f, ring + f.place * S::BYTES);
    f.place = f.place + 1 == PLACES ? 0 : f.place + 1;
}

template <enum form F, typename S, int LANE_ROWS, bool IS_FINE>
__device__ __forceinline__ void matvec_multiply_ring_stage(float (&acc)[1][WARP_GROUPS * LANE_ROWS],
                                                           const uint8_t *stage, operands x, int n)
{
#pragma unroll
    for (int j = 0; j < S::TILES; j++) {
        if (j >= n) break;
        tile_share<F> share[WARP_GROUPS];
#pragma unroll
        for (int g = 0; g < WARP_GROUPS; g++)
            read_tile<F>(share[g], stage + g * S::QUANTS + j * form_quant_bytes(F),
                         stage + S::SCALE_AT + g * S::SCALE + j * form_scale_bytes(F),
                         stage + S::HIGH_AT + g * S::HIGH + j * form_high_bytes(F),
                         stage + S::MINUS_AT + g * S::MINUS + j * form_minus_bytes(F));
        matvec_multiply<F, 1, LANE_ROWS, IS_FINE>(acc, share, x.at(j));
    }
}

/* A slice of `length` tiles from place `taken` of the ring on; returns the next place. */
template <enum form F, int PLACES, bool IS_FINE, typename S = ring_stage<F>, int LANE_ROWS = 1,
          typename FeedNext>
__device__ __forceinline__ int multiply_ring(float (&acc)[1][WARP_GROUPS * LANE_ROWS],
                                             const uint8_t *ring, int taken, operands x, int length,
                                             FeedNext feed_next)
{
    for (int k = 0; k < length; k += S::TILES) {
        copies_wait<PLACES - 2>();
        __syncwarp();
        feed_next();
        matvec_multiply_ring_stage<F, S, LANE_ROWS, IS_FINE>(acc, ring + taken * S::BYTES, x.at(k),
                                                             length - k);
        taken = taken + 1 == PLACES ? 0 : taken + 1;
    }
    return taken;
}

/* Where a block is: in a grid of its own, or in a part of one that does something else too
 * (beside.cu). Two types, since blockIdx as an argument gives other machine code than in place. */
struct own_grid {
    __device__ unsigned x() const
    {
        return blockIdx.x;
    }
    __device__ unsigned y() const
    {
        return blockIdx.y;
    }
    __device__ unsigned n_y() const
    {
        return gridDim.y;
    }
};
struct part_of_grid {
    unsigned at_x, at_y, of_y;

    __device__ unsigned x() const
    {
        return at_x;
    }
    __device__ unsigned y() const
    {
        return at_y;
    }
    __device__ unsigned n_y() const
    {
        return of_y;
    }
};

__device__ __forceinline__ void wait_and_release()
{
    grid_wait();
    grid_release();
}

/* Which expert a block has, and its pairs; false: none. All rows of the step come to shared memory
 * while the choice is read or made: a group of copies. */
template <typename Given>
__device__ __forceinline__ bool take_expert(const matvec_product &a, const Given &given,
                                            uint8_t *shared, int nth, int *list, int *x_rows,
                                            int *n_list, int *expert)
{
    int live = rows_live(a.rows, a.step); /* no kernel writes it */
    wait_and_release();
    const int32_t *ids = given.ids_of(a, live, nth);
    fill_stage<false>(a, shared, nullptr, 0, live);
    copies_commit();
    if (Given::IS_CHOICE_MADE) __syncthreads();
    return choose_expert(ids, live * a.n_used, a.n_used, a.w[0].n_expert, nth, list, x_rows, n_list,
                         expert);
}

/* Of n rows in shared memory: the first, or those that x_rows names. With LANE_ROWS = 2 the first
 * eight, of which some may not be there: their sums are not stored. */
template <enum product_kind KIND, int LANE_ROWS>
__device__ __forceinline__ operands operands_of(const matvec_product &a, const uint8_t *shared,
                                                int part, const int *x_rows, int n)
{
    int lane = threadIdx.x % 32, row_b = min(lane / 8, n - 1), row_c = min(lane % 4, n - 1);
    if constexpr (LANE_ROWS == 2) {
        static_assert(KIND != EXPERTS, "pairs of an expert are four at a time");
        operand_place at = operands_in_stage(a, a.stage_ktiles, part, lane / 4, lane % 4 * 2);
        return {shared + at.values, shared + at.scales, scale_step(a.stage_ktiles), a.to_low};
    }
    if (KIND == EXPERTS) row_b = x_rows[row_b], row_c = x_rows[row_c];
    operand_place place = operands_in_stage(a, a.stage_ktiles, part, row_b, row_c);
    bool is_low = KIND == FINE && lane / 4 % 2 == 1; /* of this lane's column of B */
    return {shared + place.values + (is_low ? a.to_low : 0), shared + place.scales, 0, 0};
}

/* Rows that are there as activations: copied to shared memory. */
struct given_rows {
    enum { ARE_MADE = 0, IS_CHOICE_MADE = 0 };
    __device__ __forceinline__ void early() {}
    template <bool IS_FINE, bool HAS_ROWS>
    __device__ __forceinline__ void fill(const matvec_product &a, uint8_t *stage, int n_rows, bool)
    {
        fill_stage_now<IS_FINE, HAS_ROWS>(a, stage, nullptr, 0, n_rows);
    }
    /* The choice of experts, which is there too. */
    __device__ __forceinline__ const int32_t *ids_of(const matvec_product &a, int, int) const
    {
        return a.ids;
    }
};

/* The same, except that the choice is made here from the logits, by a warp per row. With one row a
 * block needs only one id. */
struct late_choice : given_rows {
    enum { IS_CHOICE_MADE = 1 };
    const struct choice &of;

    __device__ __forceinline__ late_choice(const struct choice &choice) : of(choice) {}

    /* Before a barrier. */
    __device__ __forceinline__ const int32_t *ids_of(const matvec_product &, int live,
                                                     int nth) const
    {
        __shared__ int32_t ids[LATE_ROWS * LATE_USED];
        int row = MATVEC_WARPS - 1 - (int)threadIdx.x / 32; /* the first warps copy rows */
        if (row >= live) return ids;
        if (live > 1)
            choose_ids<LATE_V>(of, row, ids);
        else if (nth < of.n_used)
            ids[nth] = chosen_id<LATE_V>(of, 0, nth);
        return ids;
    }
};

/* A block's units: every at.n_y()-th. Grid x: which of the experts that were chosen. HAS_ROWS: the
 * rows are older than the launch before, so that only storing waits for that. PLACES: of a warp's
 * ring, which has a stage in PARTS. LANE_ROWS: 2 for more than four rows, but an expert's pairs are
 * taken four at a time whatever the rows are. Rows: how they come to shared memory (or normed_row,
 * matvec_normed.cuh). */
template <enum form F, enum product_kind KIND, bool HAS_ROWS = false, int PLACES = RING,
          int PARTS = 1, int LANE_ROWS = 1, typename Grid, typename Rows = given_rows>
__device__ __forceinline__ void few_units(const matvec_product &a, Grid at, Rows given = {})
{
    typedef ring_stage<F, PARTS> S;
    constexpr bool IS_EXPERT = KIND == EXPERTS, IS_FINE = KIND == FINE;
    extern __shared__ __align__(128) uint8_t shared[];
    int warp = threadIdx.x / 32, rows = min(1 << a.row_shift, 4 * LANE_ROWS);
    int column = warp % a.across, part = warp / a.across, unit = at.y();
    int expert = 0, first = 0, end = a.rows.max;
    int *list = IS_EXPERT ? reinterpret_cast<int *>(shared + a.list_at) : nullptr;
    int *x_rows = IS_EXPERT ? list + a.rows.max * a.n_used : nullptr;
    uint8_t *ring = shared + a.ring_at + warp * PLACES * S::BYTES;
    ring_feed<F> feed = feed_of<F>(unit);
    int taken = 0; /* place in the ring */
    auto feed_next = [&]() {
        feed_ring<F, S, IS_EXPERT, PLACES>(feed, a, expert, column, part, end, rows, at,
                                           shared_address(ring));
    };

    auto start = [&]() {
        aim<F>(feed, a, max(expert, 0), unit * a.across + column, part);
        for (int i = 0; i < PLACES - 1; i++) feed_next();
    };

    if constexpr (IS_EXPERT) {
        if (!take_expert(a, given, shared, at.x(), list, x_rows, &end, &expert)) {
            copies_wait_all();
            return;
        }
        start();
        copies_wait<PLACES - 1>();
        __syncthreads();
    } else {
        given.early();
        start();
        if (!HAS_ROWS) wait_and_release();
        int live = rows_live(a.rows, a.step);
        given.template fill<IS_FINE, HAS_ROWS>(a, shared, min(end, rows), at.y() == 0);
        end = min(live, rows);
    }
    if (end <= 0) {
        if (HAS_ROWS) grid_wait();
        return;
    }

    float zero = expert < 0 ? not_a_number() : 0.0f;
    partial_sums p = partial_sums_of(a, shared);
    int length = slice_begin(a, part + 1) - slice_begin(a, part);
    for (;;) {
        int n = min(end - first, rows);
        operands x;
        if constexpr (Rows::ARE_MADE)
            x = given.template row_of<IS_FINE>(a, shared, part);
        else
            x = operands_of<KIND, LANE_ROWS>(a, shared, part, x_rows + first, IS_EXPERT ? n : rows);
        float acc[1][WARP_GROUPS * LANE_ROWS];
#pragma unroll
        for (int i = 0; i < WARP_GROUPS * LANE_ROWS; i++) acc[0][i] = zero;
        taken =
            multiply_ring<F, PLACES, IS_FINE, S, LANE_ROWS>(acc, ring, taken, x, length, feed_next);
        put_partial<F, 1, LANE_ROWS>(p, part, column * WARP_GROUPS, acc);
        __syncthreads();
        if (HAS_ROWS) wait_and_release();
        finish_unit<IS_EXPERT>(a, p, unit, list, first, n);
        __syncthreads();
        if (!IS_EXPERT) {
            unit += at.n_y();
            if (unit >= a.n_units) break;
            continue;
        }
        first += rows; /* more than four pairs chose this expert */
        if (first >= end) break;
    }
    copies_wait_all();
}

template <enum form F, enum product_kind KIND>
__global__ void __launch_bounds__(32 * MATVEC_WARPS, 3)
    matvec_few(const __grid_constant__ matvec_product a)
{
    few_units<F, KIND>(a, own_grid());
}

#endif
