/* The end of a unit of half.cu: sums of slices become results. */
#ifndef CUDA_SM90_HALF_RESULTS_CUH
#define CUDA_SM90_HALF_RESULTS_CUH

#include "backend/cuda/kernels/gelu.cuh"
#include "backend/cuda/kernels/round.cuh"
#include "backend/cuda/kernels/sm90/half.cuh"

/* The first n of four values; zeros instead of the others. */
__device__ __forceinline__ float4 quad_within(float4 x, int n)
{
    return make_float4(n > 0 ? x.x : 0.0f, n > 1 ? x.y : 0.0f, n > 2 ? x.z : 0.0f,
                       n > 3 ? x.w : 0.0f);
}

/* Writes four neighbouring results of a row. */
__device__ __forceinline__ void put_results(const half_product &p, const half_side &side, int row,
                                            int at, float4 sum)
{
    int col = side.row + at;
    if (col >= side.end) return;
    float v[4] = {sum.x, sum.y, sum.z, sum.w};
    int n = min(side.end - col, 4);
    if (p.half) {
        uint16_t *out = p.half + (int64_t)row * p.half_cols + p.first_col[side.which] + col;
        uint2 bits = make_uint2(pack_halves(v[0], v[1]), pack_halves(v[2], v[3]));
        if (n == 4 && (reinterpret_cast<uintptr_t>(out) & 7) == 0) {
            *reinterpret_cast<uint2 *>(out) = bits;
            return;
        }
        for (int i = 0; i < n; i++) out[i] = (uint16_t)((i < 2 ? bits.x : bits.y) >> i % 2 * 16);
        return;
    }
    float scale = p.is_unscaled ? 1.0f : p.x.scale[row];
    for (int i = 0; i < 4; i++) {
        v[i] = __fmul_rn(v[i], scale);
        if (p.cap > 0) v[i] = soft_capped(v[i], p.cap);
    }
    float *out = p.y[side.which] + (int64_t)row * side.end + col;
    if (n == 4 && (reinterpret_cast<uintptr_t>(out) & 15) == 0) {
        *reinterpret_cast<float4 *>(out) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
    for (int i = 0; i < n; i++) out[i] = v[i];
}

/* gelu(sum[0]) * sum[1] of four neighbouring columns, as activations of the next product. */
__device__ __forceinline__ void put_gated(const half_product &p, int row, int col,
                                          const float4 (&sum)[2])
{
    float scale = p.x.scale[row];
    float4 v = quad_gelu_mul(quad_scaled(sum[0], scale), quad_scaled(sum[1], scale));
    act_store_half(p.hidden, row, col / 4, quad_within(v, p.w[0].rows - col), p.hidden_inverse);
    if (col == 0) p.hidden.scale[row] = p.hidden_scale;
}

/* gelu(sum) * by of a row of which the warp has all columns, those from `at` on of both sides. */
__device__ __forceinline__ void put_gated_by(const half_product &p, int row, int at, int side_rows,
                                             const float4 (&sum)[2])
{
    float scale = p.x.scale[row];
    float4 v[2];
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int col = i * side_rows + at;
        float4 by = load_quad(p.by + (int64_t)row * p.by_cols, col, p.w[0].rows);
        v[i] = quad_within(quad_gelu_mul(quad_scaled(sum[i], scale), by), p.w[0].rows - col);
        most = max(most, quad_most(v[i]));
    }
    float inverse, row_scale = act_half_scale(__reduce_max_sync(~0u, most), &inverse);
#pragma unroll
    for (int i = 0; i < 2; i++)
        act_store_half(p.hidden, row, (i * side_rows + at) / 4, v[i], inverse);
    if (at == 0) p.hidden.scale[row] = row_scale;
}

/* Four columns of each side of a row, added up over the slices in rising order. The loads of
 * several slices are issued together. */
__device__ __forceinline__ void add_slices(float4 (&sum)[2], uint32_t first, uint32_t second,
                                           int ranks)
{
    enum { FEW = 4 };
    sum[0] = cluster_load4(cluster_address(first, 0));
    sum[1] = cluster_load4(cluster_address(second, 0));
#pragma unroll 1
    for (int from = 1; from < ranks; from += FEW) {
        float4 part[2][FEW] = {};
#pragma unroll
        for (int i = 0; i < FEW; i++) {
            if (from + i >= ranks) continue;
            part[0][i] = cluster_load4(cluster_address(first, from + i));
            part[1][i] = cluster_load4(cluster_address(second, from + i));
        }
#pragma unroll
        for (int i = 0; i < FEW; i++) {
            if (from + i >= ranks) continue;
            sum[0] = quad_add(sum[0], part[0][i]);
            sum[1] = quad_add(sum[1], part[1][i]);
        }
    }
}

template <class R> __device__ __forceinline__ void multipliers_meet()
{
    asm volatile("bar.sync 1, %0;" ::"n"((int)R::MULTIPLIERS) : "memory");
}

/* A warp's sums of a piece of the rows to shared memory: columns of the first side, then of the
 * second. */
template <class R, int PIECE>
__device__ __forceinline__ void show_sums(const float (&acc)[R::N / 2], uint8_t *memory)
{
    int thread = anew(threadIdx.x), warp = thread / WARP, lane = thread % WARP;
    float *mine = reinterpret_cast<float *>(memory + R::SUMS_AT) + lane % 4 * 2 * R::SUM_STEP +
                  warp * TILE_ROWS + lane / 4;
#pragma unroll
    for (int i = 0; i < R::SUM_ROWS / 2; i++)
        mine[(i / 4 * 8 + i % 2) * R::SUM_STEP + i % 4 / 2 * R::SIDE_ROWS] =
            acc[PIECE * R::SUM_ROWS / 2 + i];
}

/* Adds up the block's share of a piece's rows over the slices and writes the results. */
template <class R, int PIECE>
__device__ __forceinline__ void put_rows(const half_product &p, uint32_t shared,
                                         const half_turns &turns)
{
    constexpr int QUADS = R::SIDE_ROWS / 4, BEFORE = PIECE * R::SUM_ROWS;
    int first = turns.first_row(p) + BEFORE, n = min(turns.rows(p) - BEFORE, (int)R::SUM_ROWS);
    half_side side[2] = {turns.side(p, 0, R::SIDE_ROWS), turns.side(p, 1, R::SIDE_ROWS)};
    for (int i = anew(threadIdx.x);; i += R::MULTIPLIERS) {
        int row = turns.rank + i / QUADS * turns.ranks, at = i % QUADS * 4;
        if (row >= n) return;
        uint32_t from = shared + R::SUMS_AT + (row * R::SUM_STEP + at) * 4;
        float4 sum[2];
        add_slices(sum, from, from + R::SIDE_ROWS * 4, turns.ranks);
        if (turns.is_pair) {
            put_gated(p, first + row, side[0].row + at, sum);
        } else if (R::HAS_BY && p.by) {
            put_gated_by(p, first + row, at, R::SIDE_ROWS, sum);
        } else {
            put_results(p, side[0], first + row, at, sum[0]);
            put_results(p, side[1], first + row, at, sum[1]);
        }
    }
}

/* The end of a unit for a piece of its rows. `round`: how many ends there were before. */
template <class R, int PIECE>
__device__ __forceinline__ void finish_piece(const half_product &p, const float (&acc)[R::N / 2],
                                             uint8_t *memory, uint32_t shared, uint32_t round,
                                             const half_turns &turns)
{
    uint32_t full = barrier_at(shared, SUMS_FULL, 0), empty = barrier_at(shared, SUMS_EMPTY, 0);
    int ranks = turns.ranks;
    if (ranks == 1)
        multipliers_meet<R>();
    else if (round > 0)
        barrier_wait_cluster(empty, (round - 1) & 1);
    show_sums<R, PIECE>(acc, memory);
    multipliers_meet<R>();
    if (ranks > 1) {
        if (threadIdx.x < ranks) barrier_arrive_cluster(cluster_address(full, threadIdx.x));
        barrier_wait_cluster(full, round & 1);
    }
    put_rows<R, PIECE>(p, shared, turns);
    if (ranks > 1) {
        multipliers_meet<R>();
        if (threadIdx.x < ranks) barrier_arrive_cluster(cluster_address(empty, threadIdx.x));
    }
}

/* The end of a unit, for each piece of its rows; all blocks of a cluster have equally many pieces.
 * Not a loop, which would keep in registers the sums that were already shown. */
template <class R>
__device__ __forceinline__ void finish_unit(const half_product &p, const float (&acc)[R::N / 2],
                                            uint8_t *memory, uint32_t shared, uint32_t &round,
                                            const half_turns &turns)
{
    static_assert(R::N <= 2 * R::SUM_ROWS, "a pass has one piece or two");
    finish_piece<R, 0>(p, acc, memory, shared, round++, turns);
    if constexpr (R::N > R::SUM_ROWS) {
        if (turns.rows(p) > R::SUM_ROWS) finish_piece<R, 1>(p, acc, memory, shared, round++, turns);
    }
}

#endif
