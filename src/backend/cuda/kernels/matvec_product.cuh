/* One product of a few rows with tiles, as matvec_launch.cuh gives it to its two kernels
 * (matvec_ring.cuh for up to four rows, on Hopper eight, matvec_stream.cuh for more).
 *
 * A block has across x abreast warps. It makes a unit: across * WARP_GROUPS groups of weight rows,
 * for as many rows as its kernel takes. `abreast` slices of the columns are summed at a time; where
 * there are more slices, further turns do the others.
 *
 * Grid x counts tiles of rows, grid y units. Where there are more units than resident blocks, a
 * block takes several units; the first tiles of the next unit are loaded while the sums of one are
 * finished. For experts grid x counts the experts that the step's rows chose: a block collects the
 * pairs of its expert and takes up to four (ring) or eight (stream) of them at a time, for which
 * the expert's weights are read once. */
#ifndef CUDA_MATVEC_PRODUCT_CUH
#define CUDA_MATVEC_PRODUCT_CUH

#include "backend/cuda/kernels/matvec_tile.cuh"

/* With activations of 8 bits, of 16 (types.h: ACT_FINE), or with the experts that rows chose. */
enum product_kind { PLAIN, FINE, EXPERTS };

/* Shared memory that every chip grants a block (99 KB, some of it for static arrays); what a
 * server's chip grants (227 KB); what a stage that is filled once may take. */
enum { SHARED_MAX = 98 << 10, SHARED_LARGE = 224 << 10, STAGE_MAX = 80 << 10 };

struct matvec_product {
    struct step_view step;
    struct rows rows;
    int32_t n_w;
    struct cuda_weight w[3];
    float *y[3]; /* MATVEC_STORE, */
    float cap;   /* and this, or 0 */
    struct act x;
    struct gelu_epilogue gelu;
    const int32_t *ids; /* experts */
    int32_t n_used;

    int32_t columns_apart; /* of warps, for weights of the same rows in another form: slices are
                            * those of all of them together */
    int32_t slice_shift;   /* 1 << slice_shift slices */
    int32_t across, abreast, n_units;
    /* columns of warps that a weight takes; the pair of gate and up counts once */
    int32_t columns[3];
    /* Activations in shared memory: a stage has 1 << row_shift rows of `stage_ktiles` tiles of
     * columns of each slice abreast. One stage that is filled once if everything fits, else two by
     * turns. */
    int32_t row_shift, stage_ktiles, n_chunks;
    bool is_filled_once;
    int32_t slice_bytes, stage_bytes;
    int32_t to_low;                       /* FINE: from the values of a slice to their low plane */
    int32_t ring_at, partial_at, list_at; /* in shared memory */
};

__device__ __forceinline__ int slice_begin(const matvec_product &a, int slice)
{
    return a.w[0].n_ktiles * slice >> a.slice_shift;
}

/* Where the groups of a column of warps lie: weight w[which[g]], first tile of slice `index`.
 * Columns after the last repeat a valid one; finish_unit drops them. Returns the slice's length. */
__device__ __forceinline__ int locate(const matvec_product &a, int expert, int column, int index,
                                      int which[WARP_GROUPS], int64_t tile[WARP_GROUPS])
{
    int k0 = slice_begin(a, index), k = 0;
    bool has_two = a.gelu.kind == MATVEC_GELU_MUL;
    while (k + 1 < a.n_w && column >= a.columns[k] && !has_two) column -= a.columns[k++];
#pragma unroll
    for (int g = 0; g < WARP_GROUPS; g++) {
        which[g] = has_two ? g : k;
        int groups = a.w[which[g]].n_groups;
        int group = min(has_two ? column : column * WARP_GROUPS + g, groups - 1);
        tile[g] = ((int64_t)expert * groups + group) * a.w[0].n_ktiles + k0;
    }
    return slice_begin(a, index + 1) - k0;
}

template <enum form F>
__device__ __forceinline__ void locate_slice(const matvec_product &a, int expert, int column,
                                             int index, slice<F> &s)
{
    int which[WARP_GROUPS];
    int64_t tile[WARP_GROUPS];
    s.length = locate(a, expert, column, index, which, tile);
#pragma unroll
    for (int g = 0; g < WARP_GROUPS; g++) s.at[g] = matvec_share_at<F>(a.w[which[g]], tile[g]);
}

/* What experts give is never capped. */
template <bool IS_EXPERT, typename RowOf>
__device__ __forceinline__ void finish_store(const matvec_product &a, const partial_sums &p,
                                             int unit, int n_rows, RowOf row_of)
{
    int outs = p.slots * 8;
    for (int i = threadIdx.x; i < outs * n_rows; i += blockDim.x) {
        int row = i / outs, slot = i % outs / 8, j = i % 8;
        int column = unit * a.across + slot / WARP_GROUPS, k = 0;
        while (k < a.n_w && column >= a.columns[k]) column -= a.columns[k++];
        if (k == a.n_w) continue;
        int out = (column * WARP_GROUPS + slot % WARP_GROUPS) * 8 + j, outs_w = a.w[k].rows;
        if (out < outs_w)
            a.y[k][(int64_t)row_of(row) * outs_w + out] =
                p.capped_total(slot, j, row, IS_EXPERT ? 0.0f : a.cap);
    }
}

/* Local row r is row first + r of the launch, or pair list[first + r]. */
template <bool IS_EXPERT>
__device__ __forceinline__ void finish_unit(const matvec_product &a, const partial_sums &p,
                                            int unit, const int *list, int first, int n_rows)
{
    auto row_of = [&](int r) { return list ? list[first + r] : first + r; };
    if (a.gelu.kind == MATVEC_STORE) {
        finish_store<IS_EXPERT>(a, p, unit, n_rows, row_of);
        return;
    }
    int per_column = a.gelu.kind == MATVEC_GELU_MUL ? 8 : 8 * WARP_GROUPS;
    finish_gelu(a.gelu, p, unit * a.across * per_column, n_rows, row_of);
}

/* Activations of the whole slices; row r is row first + r, or x_rows[first + r]. IS_EARLY, before
 * the wait for the launch before: past L1. */
template <bool IS_FINE, bool IS_EARLY = false>
__device__ __forceinline__ void fill_stage(const matvec_product &a, uint8_t *stage,
                                           const int *x_rows, int first, int n_rows)
{
    int lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    for (int i = threadIdx.x / 32; i < a.abreast * n_rows; i += n_warps) {
        int part = i / n_rows, row = i - part * n_rows;
        int k = slice_begin(a, part), n = slice_begin(a, part + 1) - k;
        uint8_t *to = stage + part * a.slice_bytes;
        uint8_t *values = to + row * value_step(a.stage_ktiles);
        uint8_t *scales =
            to + (value_step(a.stage_ktiles) << a.row_shift) + row * scale_step(a.stage_ktiles);
        int from = x_rows ? x_rows[first + row] : first + row;
        int64_t at = (int64_t)from * a.x.stride + k * 64;
        const uint8_t *x = static_cast<const uint8_t *>(a.x.values) + at;
        const uint8_t *d = reinterpret_cast<const uint8_t *>(a.x.scale) + at / 4;
        auto copy = [](uint8_t *shared, const uint8_t *global) {
            if (IS_EARLY)
                copy16(shared_address(shared), global);
            else
                copy16_through_l1(shared, global);
        };
        for (int j = lane; j < n * 4; j += 32) copy(values + j * 16, x + j * 16);
        for (int j = lane; j < n; j += 32) copy(scales + j * 16, d + j * 16);
        for (int j = lane; IS_FINE && j < n * 4; j += 32)
            copy(values + a.to_low + j * 16,
                 reinterpret_cast<const uint8_t *>(a.x.low) + at + j * 16);
    }
}

template <bool IS_FINE, bool IS_EARLY = false>
__device__ __forceinline__ void fill_stage_now(const matvec_product &a, uint8_t *stage,
                                               const int *x_rows, int first, int n_rows)
{
    fill_stage<IS_FINE, IS_EARLY>(a, stage, x_rows, first, n_rows);
    copies_wait_all();
    __syncthreads();
}

/* Where in a stage a lane finds its part of row row_b's values and the scales of row row_c. */
struct operand_place {
    int values, scales;
};

__device__ __forceinline__ operand_place operands_in_stage(const matvec_product &a,
                                                           int stage_ktiles, int part, int row_b,
                                                           int row_c)
{
    int at = part * a.slice_bytes;
    return {at + row_b * value_step(stage_ktiles) + (int)threadIdx.x % 4 * 8,
            at + (value_step(stage_ktiles) << a.row_shift) + row_c * scale_step(stage_ktiles)};
}

__device__ __forceinline__ partial_sums partial_sums_of(const matvec_product &a, uint8_t *shared)
{
    return {reinterpret_cast<float *>(shared + a.partial_at), 1 << a.slice_shift,
            a.across * WARP_GROUPS, 1 << a.row_shift};
}

#endif
