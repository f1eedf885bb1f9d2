/* Products of more rows than matvec_ring.cuh takes, with tiles. Weights are one stream from device
 * memory to registers. Activations pass through shared memory, in one stage that is filled once or
 * in two by turns. */
#ifndef CUDA_MATVEC_STREAM_CUH
#define CUDA_MATVEC_STREAM_CUH

#include "backend/cuda/kernels/matvec_choice.cuh"
#include "backend/cuda/kernels/matvec_product.cuh"

/* Copies STAGE_KTILES tiles of columns of a turn's slices; row r is row first + r, or
 * x_rows[first + r]. A thread copies 16 bytes: the first ROWS * STAGE_KTILES * 4 threads copy the
 * values of one slice; the next as many copy those of the next slice. */
template <int ROWS, bool IS_FINE>
__device__ __forceinline__ void copy_stage(const matvec_product &a, uint8_t *stage,
                                           const int *x_rows, int first, int n_rows, int turn,
                                           int chunk)
{
    constexpr int VALUES = ROWS * STAGE_KTILES * 4, SCALES = ROWS * STAGE_KTILES;
    int n_threads = blockDim.x;
    const uint8_t *x_values = static_cast<const uint8_t *>(a.x.values);
    const uint8_t *x_scales = reinterpret_cast<const uint8_t *>(a.x.scale);
    {
        int i = threadIdx.x, c = i % (STAGE_KTILES * 4), row = i / (STAGE_KTILES * 4) % ROWS,
            k_in = chunk * STAGE_KTILES + c / 4;
        int from = row >= n_rows ? 0 : x_rows ? x_rows[first + row] : first + row;
        int64_t at = (int64_t)from * a.x.stride + k_in * 64 + c % 4 * 16;
        uint8_t *to = stage + row * value_step(STAGE_KTILES) + c * 16;
        for (int part = i / VALUES; part < a.abreast; part += n_threads / VALUES) {
            int k0 = slice_begin(a, turn * a.abreast + part);
            if (row >= n_rows || k0 + k_in >= slice_begin(a, turn * a.abreast + part + 1)) continue;
            copy16_through_l1(to + part * a.slice_bytes, x_values + at + k0 * 64);
            if (IS_FINE)
                copy16_through_l1(to + part * a.slice_bytes + a.to_low, a.x.low + at + k0 * 64);
        }
    }
    int i = threadIdx.x, c = i % STAGE_KTILES, row = i / STAGE_KTILES % ROWS,
        k_in = chunk * STAGE_KTILES + c;
    int from = row >= n_rows ? 0 : x_rows ? x_rows[first + row] : first + row;
    const uint8_t *d = x_scales + (int64_t)from * (a.x.stride / 4) + k_in * 16;
    uint8_t *to = stage + ROWS * value_step(STAGE_KTILES) + row * scale_step(STAGE_KTILES) + c * 16;
    for (int part = i / SCALES; part < a.abreast; part += n_threads / SCALES) {
        int k0 = slice_begin(a, turn * a.abreast + part);
        if (row < n_rows && k0 + k_in < slice_begin(a, turn * a.abreast + part + 1))
            copy16_through_l1(to + part * a.slice_bytes, d + k0 * 16);
    }
}

/* What a block does next: a turn's slices of a unit, for rows from `first` on. */
struct job {
    int unit, turn, first;
};

/* Rows of `job` in shared memory: all of the launch, live or not, since nothing shall wait for
 * their number; of experts those up to `end`. */
__device__ __forceinline__ int rows_to_copy(const matvec_product &a, const job &job, int end)
{
    return min((a.ids ? end : a.rows.max) - job.first, 1 << a.row_shift);
}

/* False: `now` is the last. `end` is that of the rows. */
template <bool IS_EXPERT>
__device__ __forceinline__ bool next_job(const matvec_product &a, const job &now, int end,
                                         job *next)
{
    *next = now;
    if (IS_EXPERT) {
        next->first += 1 << a.row_shift;
        return next->first < end;
    }
    next->turn = now.turn + 1;
    if (next->turn * a.abreast < 1 << a.slice_shift) return true;
    next->turn = 0;
    next->unit += gridDim.y;
    return next->unit < a.n_units;
}

/* A warp's share of a job, chunk by chunk. `stage` is the stage that holds the next chunk of
 * activations; the chunk after it goes to the other stage. */
template <enum form F, int ROW_TILES, bool IS_FINE, typename Locate>
__device__ __forceinline__ void matvec_multiply_job(
    const matvec_product &a, float (&acc)[ROW_TILES][WARP_GROUPS * 2],
    tile_share<F> (&share)[DEPTH][WARP_GROUPS], slice<F> &now, uint8_t *shared, const int *x_rows,
    const job &here, const job &next, bool has_next, int end, bool is_filled, int *stage,
    operand_place place, Locate locate_next)
{
    constexpr int ROWS = 8 * ROW_TILES;
    int stage_ktiles = ROW_TILES == 1 ? a.stage_ktiles : STAGE_KTILES;
    for (int chunk = 0; chunk < a.n_chunks; chunk++) {
        if (!is_filled) {
            copies_wait_all();
            __syncthreads();
        }
        bool is_same = chunk + 1 < a.n_chunks;
        if (!a.is_filled_once && (is_same || has_next)) {
            const job &to = is_same ? here : next;
            copy_stage<ROWS, IS_FINE>(a, shared + (*stage ^ 1) * a.stage_bytes, x_rows, to.first,
                                      rows_to_copy(a, to, end), to.turn, is_same ? chunk + 1 : 0);
        }
        const uint8_t *at = shared + *stage * a.stage_bytes;
        int to_low = ROW_TILES == 1 ? a.to_low : low_step(ROWS, STAGE_KTILES);
        operands x = {at + place.values, at + place.scales, scale_step(stage_ktiles), to_low};
        matvec_multiply_stage<F, ROW_TILES, 2, IS_FINE>(acc, share, now, stage_ktiles, x,
                                                        locate_next);
        if (!a.is_filled_once) *stage ^= 1;
    }
}

/* Loads those of the first DEPTH tiles of slice `next` for which the slice before, of `length`
 * tiles, was too short. */
template <enum form F>
__device__ __forceinline__ void load_longer(tile_share<F> (&share)[DEPTH][WARP_GROUPS],
                                            const slice<F> &next, int length)
{
#pragma unroll
    for (int i = 0; i < DEPTH * WARP_GROUPS; i++)
        if (i / WARP_GROUPS >= length && i / WARP_GROUPS < next.length)
            read_share<F>(share[i / WARP_GROUPS][i % WARP_GROUPS], next.at[i % WARP_GROUPS],
                          i / WARP_GROUPS);
}

template <enum form F, int ROW_TILES, enum product_kind KIND>
__global__ void __launch_bounds__(32 * MATVEC_WARPS, 2)
    matvec_tiles(const __grid_constant__ matvec_product a)
{
    constexpr bool IS_EXPERT = KIND == EXPERTS, IS_FINE = KIND == FINE;
    constexpr int ROWS = 8 * ROW_TILES;
    extern __shared__ __align__(128) uint8_t shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int column = warp % a.across, part = warp / a.across, expert = 0, end = a.rows.max;
    job here = {(int)blockIdx.y, 0, IS_EXPERT ? 0 : (int)blockIdx.x * ROWS}, next;
    int *list = IS_EXPERT ? reinterpret_cast<int *>(shared + a.list_at) : nullptr;
    int *x_rows = IS_EXPERT ? list + a.rows.max * a.n_used : nullptr;
    slice<F> now;
    tile_share<F> share[DEPTH][WARP_GROUPS];

    if (!IS_EXPERT) {
        locate_slice<F>(a, 0, here.unit * a.across + column, part, now);
        start_slice<F>(share, now);
    }
    grid_wait();
    grid_release();
    int live = rows_live(a.rows, a.step);
    if (IS_EXPERT) {
        if (!choose_expert(a.ids, live * a.n_used, a.n_used, a.w[0].n_expert, blockIdx.x, list,
                           x_rows, &end, &expert))
            return;
        locate_slice<F>(a, max(expert, 0), here.unit * a.across + column, part, now);
        start_slice<F>(share, now);
    }
    if (a.is_filled_once)
        fill_stage<IS_FINE>(a, shared, nullptr, here.first, rows_to_copy(a, here, end));
    else
        copy_stage<ROWS, IS_FINE>(a, shared, x_rows, here.first, rows_to_copy(a, here, end), 0, 0);
    if (!IS_EXPERT) end = min(live, here.first + ROWS);

    int stage = 0;
    /* The lane supplies row lane / 4 of B and receives sums for rows 2t and 2t + 1. */
    operand_place at = operands_in_stage(a, ROW_TILES == 1 ? a.stage_ktiles : STAGE_KTILES, part,
                                         lane / 4, lane % 4 * 2);
    partial_sums p = partial_sums_of(a, shared);
    bool is_filled = false, has_next = here.first < end;
    while (has_next) {
        has_next = next_job<IS_EXPERT>(a, here, end, &next);
        auto locate_next = [&](slice<F> *s) {
            s->length = 0;
            if (has_next)
                locate_slice<F>(a, max(expert, 0), next.unit * a.across + column,
                                next.turn * a.abreast + part, *s);
        };
        float acc[ROW_TILES][WARP_GROUPS * 2], start = expert < 0 ? not_a_number() : 0.0f;
#pragma unroll
        for (int i = 0; i < ROW_TILES * WARP_GROUPS * 2; i++)
            acc[i / (WARP_GROUPS * 2)][i % (WARP_GROUPS * 2)] = start;
        int length = now.length;
        matvec_multiply_job<F, ROW_TILES, IS_FINE>(a, acc, share, now, shared, x_rows, here, next,
                                                   has_next, end, is_filled, &stage, at,
                                                   locate_next);
        is_filled = a.is_filled_once;
        locate_next(&now);
        load_longer<F>(share, now, length);
        if (here.turn == 0) __syncthreads();
        put_partial<F, ROW_TILES, 2>(p, here.turn * a.abreast + part, column * WARP_GROUPS, acc);
        if (!has_next || next.turn == 0) {
            __syncthreads();
            finish_unit<IS_EXPERT>(a, p, here.unit, list, here.first, min(end - here.first, ROWS));
        }
        here = next;
    }
    copies_wait_all();
}

#endif
