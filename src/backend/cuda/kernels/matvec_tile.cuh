/* The arithmetic of products of a few rows with tiles (matvec_ring.cuh, matvec_stream.cuh,
 * experts.cu): what one warp sums over its part of the columns.
 *
 * A warp has WARP_GROUPS groups of 8 weight rows and one slice of the columns. Weights are the A
 * operand of mma.sync m16n8k32. Activations are the B operand, ROW_TILES tiles of 8 rows, in shared
 * memory. LANE_ROWS says how many rows a lane has sums of for each tile of rows: 2, or 1 where a
 * product has at most four rows; these take every other column of B. For every 32 columns, or 16
 *     acc = fma(d_w, d_x * (float)dot, acc), then fma(minus, d_x * sum of codes, acc)
 * in rising order. With factors (form.cuh) both dots of 32 columns are added up in integers, and so
 * are sums of codes, which are dots by ones. Slices are added in rising order at the end. Nothing
 * of this depends on the other rows or on how many there are, so neither do the bits of a row.
 *
 * FINE (types.h: ACT_FINE): dot = FINE_STEPS * (dot with the values) + (dot with their low plane),
 * which is exact in 32 bits. With LANE_ROWS = 1 the low plane takes the free columns of B and costs
 * no extra mma; with LANE_ROWS = 2 it takes a second one. */
#ifndef CUDA_MATVEC_TILE_CUH
#define CUDA_MATVEC_TILE_CUH

#include "backend/cuda/kernels/form.cuh"
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/matvec_sums.cuh"

/* Groups of 8 weight rows of a warp; warps of a block. */
enum { WARP_GROUPS = 2, MATVEC_WARPS = 8 };

/* Tiles of columns that a warp loads ahead; tiles of columns in a stage of activations where whole
 * slices do not fit, a multiple of DEPTH. */
enum { DEPTH = 4, STAGE_KTILES = 4 };

/* From a row to the next in a stage: eight rows' 32 bytes, and their scales' 16, lie on banks of
 * their own. */
__host__ __device__ constexpr int value_step(int stage_ktiles)
{
    return stage_ktiles * 64 + 32;
}
__host__ __device__ constexpr int scale_step(int stage_ktiles)
{
    return (stage_ktiles | 1) * 16;
}

/* From the values of a slice in shared memory to their low plane, after the scales, where rows of
 * both planes that are read at once lie on banks of their own. */
__host__ __device__ constexpr int low_step(int rows, int stage_ktiles)
{
    return (rows * (value_step(stage_ktiles) + scale_step(stage_ktiles)) + 64 + 127) / 128 * 128 -
           64;
}

/* As rows of A all of a lane's values belong to weight row lane / 4. */
template <enum form F>
__device__ __forceinline__ share_place matvec_share_at(const struct cuda_weight &w, int64_t tile)
{
    return share_place_at<F>(w, tile, threadIdx.x % 32);
}

/* A lane's codes of a tile as operands. */
template <enum form F> struct fragments {
    uint32_t of[form_parts(F)][2][2];
};

/* The dots of a block of 32 columns, or of half of it where halves have scales: those of group g at
 * 2 g and 2 g + 1; or, IS_ONTO, on top of what is there. */
template <enum form F, bool IS_ONTO>
__device__ __forceinline__ void matvec_multiply_block(int dots[4],
                                                      const fragments<F> (&b)[WARP_GROUPS],
                                                      int part, int block, int half, uint2 x)
{
    const uint32_t(&first)[2] = b[0].of[part][block], (&second)[2] = b[1].of[part][block];
    if constexpr (form_scales(F) == 4) {
        uint32_t x_half = half ? x.y : x.x;
        if (IS_ONTO)
            mma_i8_k16_add(dots, first[half], second[half], x_half);
        else
            mma_i8_k16_apart(dots, first[half], second[half], x_half);
    } else {
        uint32_t a[4] = {first[0], second[0], first[1], second[1]};
        if (IS_ONTO)
            mma_i8_k32_add(dots, a, x.x, x.y);
        else
            mma_i8_k32_apart(dots, a, x.x, x.y);
    }
}

/* The same for all parts. */
template <enum form F, bool IS_ONTO>
__device__ __forceinline__ void matvec_dots(int dots[4], const fragments<F> (&b)[WARP_GROUPS],
                                            int block, int half, uint2 x)
{
    matvec_multiply_block<F, IS_ONTO>(dots, b, 0, block, half, x);
    if constexpr (form_parts(F) == 2) {
        int below[4];
        matvec_multiply_block<F, false>(below, b, 1, block, half, x);
#pragma unroll
        for (int i = 0; i < 4; i++) dots[i] -= below[i];
    }
}

/* What a lane reads of a stage: `values` at the row that it gives to B (FINE, LANE_ROWS = 1: odd
 * columns of B at that row's low plane), `scales` at its first row of sums, with {d, d sum, d, d
 * sum} of both blocks, `scales` + `next_scale` at its second; FINE, LANE_ROWS = 2: the low plane is
 * `to_low` after `values`. */
struct operands {
    const uint8_t *values, *scales;
    int next_scale, to_low;

    __device__ __forceinline__ operands at(int n_tiles) const
    {
        return {values + n_tiles * 64, scales + n_tiles * 16, next_scale, to_low};
    }
};

/* The dots of half a block, or of all of it: those of group g and the lane's row c at
 * g * LANE_ROWS + c. */
template <enum form F, int LANE_ROWS, bool IS_FINE>
__device__ __forceinline__ void matvec_row_dots(int (&out)[WARP_GROUPS * LANE_ROWS],
                                                const fragments<F> (&b)[WARP_GROUPS], int block,
                                                int half, uint2 x, uint2 low)
{
    int dots[4];
    matvec_dots<F, false>(dots, b, block, half, x);
    if (IS_FINE && LANE_ROWS == 2) {
#pragma unroll
        for (int i = 0; i < 4; i++) dots[i] *= FINE_STEPS;
        matvec_dots<F, true>(dots, b, block, half, low);
    }
#pragma unroll
    for (int i = 0; i < WARP_GROUPS * LANE_ROWS; i++) {
        int at = i / LANE_ROWS * 2 + i % LANE_ROWS;
        out[i] = IS_FINE && LANE_ROWS == 1 ? dots[at] * FINE_STEPS + dots[at + 1] : dots[at];
    }
}

/* The sums of both halves of a block's activations of the lane's rows, as dots by ones: rows 0 .. 7
 * of A have ones in the first half, the others in the second. */
template <int LANE_ROWS, bool IS_FINE>
__device__ __forceinline__ void matvec_row_sums(int (&out)[2][LANE_ROWS], uint2 x, uint2 low)
{
    constexpr uint32_t ONES = 0x01010101u;
    const uint32_t a[4] = {ONES, 0, 0, ONES};
    int sums[4];
    mma_i8_k32_apart(sums, a, x.x, x.y);
    if (IS_FINE && LANE_ROWS == 2) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] *= FINE_STEPS;
        mma_i8_k32_add(sums, a, low.x, low.y);
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int c = 0; c < LANE_ROWS; c++) {
            int at = half * 2 + c;
            out[half][c] =
                IS_FINE && LANE_ROWS == 1 ? sums[at] * FINE_STEPS + sums[at + 1] : sums[at];
        }
}

/* acc += a block with factors. What they multiply is added in integers. */
template <enum form F, int LANE_ROWS, bool IS_FINE>
__device__ __forceinline__ void matvec_add_factored(float (&acc)[WARP_GROUPS * LANE_ROWS],
                                                    const tile_share<F> (&share)[WARP_GROUPS],
                                                    const fragments<F> (&b)[WARP_GROUPS], int block,
                                                    uint2 x, uint2 low,
                                                    const float2 (&d)[LANE_ROWS])
{
    int dots[2][WARP_GROUPS * LANE_ROWS], sums[2][LANE_ROWS];
#pragma unroll
    for (int half = 0; half < 2; half++)
        matvec_row_dots<F, LANE_ROWS, IS_FINE>(dots[half], b, block, half, x, low);
    matvec_row_sums<LANE_ROWS, IS_FINE>(sums, x, low);
#pragma unroll
    for (int g = 0; g < WARP_GROUPS; g++) {
        float2 units = half2_at(share[g].scale[UNITS]);
        uint32_t factors = share[g].scale[FACTORS];
#pragma unroll
        for (int c = 0; c < LANE_ROWS; c++) {
            int i = g * LANE_ROWS + c;
            int dot = factored<!IS_FINE>(factors & 0x0f0f0f0fu, block, dots[0][i], dots[1][i]);
            int sum = factored<!IS_FINE>(factors >> 4 & 0x0f0f0f0fu, block, sums[0][c], sums[1][c]);
            acc[i] = __fmaf_rn(units.x, __fmul_rn(d[c].x, (float)dot), acc[i]);
            acc[i] = __fmaf_rn(units.y, __fmul_rn(d[c].x, (float)sum), acc[i]);
        }
    }
}

/* acc += a block. d: {d, d sum} of the lane's rows. */
template <enum form F, int LANE_ROWS, bool IS_FINE>
__device__ __forceinline__ void matvec_add_block(float (&acc)[WARP_GROUPS * LANE_ROWS],
                                                 const tile_share<F> (&share)[WARP_GROUPS],
                                                 const fragments<F> (&b)[WARP_GROUPS], int block,
                                                 uint2 x, uint2 low, const float2 (&d)[LANE_ROWS])
{
    constexpr int HALVES = form_scales(F) / 2;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        int dots[WARP_GROUPS * LANE_ROWS];
        matvec_row_dots<F, LANE_ROWS, IS_FINE>(dots, b, block, half, x, low);
#pragma unroll
        for (int i = 0; i < WARP_GROUPS * LANE_ROWS; i++) {
            float s = half_of(share[i / LANE_ROWS].scale, block * HALVES + half);
            acc[i] = __fmaf_rn(s, __fmul_rn(d[i % LANE_ROWS].x, (float)dots[i]), acc[i]);
        }
    }
    if constexpr (form_has_minus(F)) {
#pragma unroll
        for (int i = 0; i < WARP_GROUPS * LANE_ROWS; i++)
            acc[i] =
                __fmaf_rn(half_of(&share[i / LANE_ROWS].minus, block), d[i % LANE_ROWS].y, acc[i]);
    }
}

/* One tile of columns. acc[n][g * LANE_ROWS + c] is a lane's sum for weight row lane / 4 of group g
 * and row 8 n + 2 t + c (LANE_ROWS = 1: row t). */
template <enum form F, int ROW_TILES, int LANE_ROWS, bool IS_FINE>
__device__ __forceinline__ void matvec_multiply(float (&acc)[ROW_TILES][WARP_GROUPS * LANE_ROWS],
                                                const tile_share<F> (&share)[WARP_GROUPS],
                                                operands from)
{
    constexpr int V = 8 * value_step(STAGE_KTILES), D = 8 * scale_step(STAGE_KTILES);
    fragments<F> b[WARP_GROUPS];
#pragma unroll
    for (int g = 0; g < WARP_GROUPS; g++) form_operands<F>(share[g].q, share[g].high, b[g].of);
#pragma unroll
    for (int n = 0; n < ROW_TILES; n++) {
        float4 d[LANE_ROWS];
#pragma unroll
        for (int c = 0; c < LANE_ROWS; c++)
            d[c] = *reinterpret_cast<const float4 *>(from.scales + n * D + c * from.next_scale);
#pragma unroll
        for (int block = 0; block < 2; block++) {
            const uint8_t *values = from.values + n * V + block * 32;
            uint2 x = *reinterpret_cast<const uint2 *>(values), low = {};
            if (IS_FINE && LANE_ROWS == 2)
                low = *reinterpret_cast<const uint2 *>(values + from.to_low);
            float2 dx[LANE_ROWS];
#pragma unroll
            for (int c = 0; c < LANE_ROWS; c++)
                dx[c] = block ? make_float2(d[c].z, d[c].w) : make_float2(d[c].x, d[c].y);
            if constexpr (form_has_factors(F))
                matvec_add_factored<F, LANE_ROWS, IS_FINE>(acc[n], share, b, block, x, low, dx);
            else
                matvec_add_block<F, LANE_ROWS, IS_FINE>(acc[n], share, b, block, x, low, dx);
        }
    }
}

/* A warp's slice for one job: where its tiles lie, and how many there are. */
template <enum form F> struct slice {
    share_place at[WARP_GROUPS];
    int length;
};

/* Loads the first tiles of a slice before they are needed. */
template <enum form F>
__device__ __forceinline__ void start_slice(tile_share<F> (&share)[DEPTH][WARP_GROUPS],
                                            const slice<F> &s)
{
#pragma unroll
    for (int j = 0; j < DEPTH; j++)
#pragma unroll
        for (int g = 0; g < WARP_GROUPS; g++)
            if (j < s.length) read_share<F>(share[j][g], s.at[g], j);
}

template <enum form F> __device__ __forceinline__ void advance(slice<F> &s, int n)
{
#pragma unroll
    for (int g = 0; g < WARP_GROUPS; g++) {
        s.at[g].quants += n * form_quant_bytes(F);
        s.at[g].scale += n * form_scale_bytes(F);
        if (form_high_bits(F)) s.at[g].high += n * form_high_bytes(F);
        if (form_minus_bytes(F)) s.at[g].minus += n * form_minus_bytes(F);
    }
    s.length -= n;
}

/* The next n tiles of a slice (a multiple of DEPTH, or all that are left), whose activations lie in
 * a stage; the slice advances. Where its tiles end those of the next are asked for; locate(&next)
 * is called only there, since holding two slices' addresses throughout takes too many registers. */
template <enum form F, int ROW_TILES, int LANE_ROWS, bool IS_FINE, typename Locate>
__device__ __forceinline__ void matvec_multiply_stage(
    float (&acc)[ROW_TILES][WARP_GROUPS * LANE_ROWS], tile_share<F> (&share)[DEPTH][WARP_GROUPS],
    slice<F> &from, int n, operands x, Locate locate)
{
    int i = 0;
    for (; i + DEPTH <= n && from.length >= 2 * DEPTH; i += DEPTH) {
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            matvec_multiply<F, ROW_TILES, LANE_ROWS, IS_FINE>(acc, share[j], x.at(j));
#pragma unroll
            for (int g = 0; g < WARP_GROUPS; g++) read_share<F>(share[j][g], from.at[g], DEPTH + j);
        }
        x = x.at(DEPTH);
        advance<F>(from, DEPTH);
    }
#pragma unroll 1
    for (; i < n && from.length > 0; i += DEPTH) {
        slice<F> next;
        locate(&next);
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            if (j >= from.length) break;
            matvec_multiply<F, ROW_TILES, LANE_ROWS, IS_FINE>(acc, share[j], x.at(j));
#pragma unroll
            for (int g = 0; g < WARP_GROUPS; g++) {
                if (DEPTH + j < from.length)
                    read_share<F>(share[j][g], from.at[g], DEPTH + j);
                else if (j < next.length)
                    read_share<F>(share[j][g], next.at[g], j);
            }
        }
        x = x.at(DEPTH);
        advance<F>(from, DEPTH);
    }
}

template <enum form F, int ROW_TILES, int LANE_ROWS>
__device__ __forceinline__ void put_partial(const partial_sums &p, int slice, int group,
                                            const float (&acc)[ROW_TILES][WARP_GROUPS * LANE_ROWS])
{
    int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (int n = 0; n < ROW_TILES; n++)
#pragma unroll
        for (int i = 0; i < WARP_GROUPS * LANE_ROWS; i++) {
            int row = LANE_ROWS == 1 ? t : n * 8 + 2 * t + i % LANE_ROWS;
            if (row < p.rows)
                p.slot(slice, group + i / LANE_ROWS)[row * 8 + lane / 4] = acc[n][i] * form_unit(F);
        }
}

#endif
