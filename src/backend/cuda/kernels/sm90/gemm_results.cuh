/* What launch_gemm_wgmma makes, tile by tile, and where its sums go: straight from registers, or,
 * where a cluster of blocks shares a tile, added up through shared memory. */
#ifndef CUDA_SM90_GEMM_RESULTS_CUH
#define CUDA_SM90_GEMM_RESULTS_CUH

#include <cuda.h>

#include "backend/cuda/kernels/gelu.cuh"
#include "backend/cuda/kernels/round.cuh"
#include "backend/cuda/kernels/sm90/async.cuh"
#include "backend/cuda/slices.h"

namespace {

enum {
    GROUP = 128, /* threads that multiply together */
    GROUPS = 2,
    THREADS = (GROUPS + 1) * GROUP,
    STEP = 64, /* columns of a stage */
    ROW_BYTES = STEP * 2,
    SLAB = 64,     /* rows of its first operand that a wgmma takes */
    BOX = 128,     /* of these in a box, */
    FEW_ROWS = 16, /* or all rows of x, if there are no more (8 rows of gate and up: 8 % faster) */
    BAND = 2048    /* rows of x that are multiplied with the same rows of W, one tile after the
                        other, before the next ones of W: they stay in L2 */
};

/* A group has SLABS slabs of the first operand, which is x, M rows of it a tile, and N rows of W
 * are the other one. IS_TURNED: W is the first operand and x the other one, so that a tile may have
 * any multiple of 16 rows of x. */
template <int SLABS_, int N_, int STAGES_, bool IS_SLICED_, bool IS_TURNED_> struct variant {
    enum {
        SLABS = SLABS_,
        M = GROUPS * SLABS * SLAB,
        N = N_,
        STAGES = STAGES_,
        IS_TURNED = IS_TURNED_,
        ROWS = IS_TURNED ? N : M, /* of x in a tile, */
        COLS = IS_TURNED ? M : N, /* of W */
        /* Rows of the first operand from a group to the next, and from a group's slab to its next:
         * of a turned pair all gates, then all ups. */
        GROUP_STEP = IS_TURNED ? SLAB : SLABS * SLAB,
        SLAB_STEP = IS_TURNED ? GROUPS * SLAB : SLAB,
        IS_SLICED = IS_SLICED_,                             /* a block does all slices of K */
        IS_JOINED = !IS_SLICED && SLABS == 1 && !IS_TURNED, /* or a cluster, a slice each */
        FIRST_BYTES = M * ROW_BYTES,
        STAGE_BYTES = FIRST_BYTES + N * ROW_BYTES,
        SHARED = 1024 + STAGES * (STAGE_BYTES + 16),
        SUMS_STRIDE = N + 8, /* floats from row to row of exchanged sums: no bank twice */
        IS_LARGE = (1 + IS_SLICED) * SLABS * N > 320, /* more than 160 sums a thread */
        REGISTERS_MANY = IS_LARGE ? 240 : 232,
        REGISTERS_FEW = IS_LARGE ? 24 : 40
    };
    static_assert(SHARED <= 227 * 1024, "shared memory of a block");
    static_assert(!IS_JOINED || M * SUMS_STRIDE * 4 <= STAGES * STAGE_BYTES,
                  "sums lie over the ring");
};

struct product {
    CUtensorMap first, other; /* operands */
    int32_t n_rows, n_cols, n_steps;
    bool is_few;             /* no more than FEW_ROWS, in one box */
    int32_t n_high, n_wide;  /* tiles */
    int32_t n_slices, ranks; /* slices of K; blocks that share them, 1 or n_slices */
    const float *scale;      /* of rows; NULL: 1 */
    float *y;                /* [n_rows][n_cols], or NULL: */
    uint16_t *half;          /* [n_rows][half_cols] */
    int32_t half_cols;
    /* Gate and up, each half of W and of the columns of a tile: `half` gets gelu(gate) * up times
     * hidden_inverse, in its first n_hidden columns, zeros in the others. n_hidden 0: they are not
     * a pair. */
    int32_t n_hidden;
    float hidden_inverse, *hidden_scale; /* [n_rows], gets 1 / hidden_inverse */
};

/* ---- Results --------------------------------------------------------------------------------- */

/* Exchanges a of the upper lane of each pair (by `mask`) with b of the lower one. */
__device__ __forceinline__ void swap_words(uint32_t &a, uint32_t &b, int mask)
{
    bool is_upper = threadIdx.x & mask;
    uint32_t got = __shfl_xor_sync(~0u, is_upper ? a : b, mask);
    if (is_upper)
        a = got;
    else
        b = got;
}

/* The four words of four neighbouring lanes, turned: word i of lane j to word j of lane i. */
__device__ __forceinline__ uint4 turned(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    swap_words(a, b, 1);
    swap_words(c, d, 1);
    swap_words(a, c, 2);
    swap_words(b, d, 2);
    return make_uint4(a, b, c, d);
}

/* Columns col .. col + COLS - 1 of rows row and row + 8, 32 at a time: 64 bytes of each row by four
 * lanes. `pair_at(j, h)`: columns 8j + 2 (lane % 4) and the next of row + 8h. Columns from `n` on
 * are zeros, from `end` on they are not stored. */
template <int COLS, typename Pair>
__device__ __forceinline__ void store_words(const product &p, int row, int col, int n, int end,
                                            Pair pair_at)
{
    col += threadIdx.x % 4 * 8;
#pragma unroll
    for (int j = 0; j < COLS / 8; j += 4)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t word[4];
#pragma unroll
            for (int e = 0; e < 4; e++) /* COLS may be an odd multiple of 8 */
                word[e] = pair_at(j + e < COLS / 8 ? j + e : j, h);
            uint4 words = turned(word[0], word[1], word[2], word[3]);
            if (col + j * 8 >= n) words = make_uint4(0, 0, 0, 0);
            int64_t at = (int64_t)(row + 8 * h) * p.half_cols + col + j * 8;
            bool is_there = j + threadIdx.x % 4 < COLS / 8 && col + j * 8 < end;
            if (row + 8 * h < p.n_rows && is_there) *reinterpret_cast<uint4 *>(p.half + at) = words;
        }
}

template <int N>
__device__ __forceinline__ void store_halves(const product &p, const float (&d)[N / 2], int row,
                                             int col)
{
    store_words<N>(p, row, col, p.n_cols, p.n_cols, [&](int j, int h) {
        return pack_halves(d[4 * j + 2 * h], d[4 * j + 2 * h + 1]);
    });
}

__device__ __forceinline__ float hidden_of(const product &p, float gate, float up, float scale)
{
    return gelu_mul(gate * scale, up * scale) * p.hidden_inverse;
}

/* gelu(gate) * up: gate is in the first half of the tile's columns, up in the other. */
template <int N>
__device__ __forceinline__ void store_hidden(const product &p, const float (&d)[N / 2], int row,
                                             int col)
{
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bool is_there = row + 8 * h < p.n_rows;
        scale[h] = is_there ? p.scale[row + 8 * h] : 1.0f;
        if (is_there && col == 0 && threadIdx.x % 4 == 0)
            p.hidden_scale[row + 8 * h] = 1.0f / p.hidden_inverse;
    }
    store_words<N / 2>(p, row, col / 2, p.n_hidden, p.half_cols, [&](int j, int h) {
        int k = 4 * j + 2 * h;
        return pack_halves(hidden_of(p, d[k], d[k + N / 4], scale[h]),
                           hidden_of(p, d[k + 1], d[k + 1 + N / 4], scale[h]));
    });
}

/* The same in fp32, 8 columns at a time. */
template <int N>
__device__ __forceinline__ void store_floats(const product &p, const float (&d)[N / 2], int row,
                                             int col)
{
    col += threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (row + 8 * h >= p.n_rows) return;
        float scale = p.scale ? p.scale[row + 8 * h] : 1.0f;
        float *y = p.y + (int64_t)(row + 8 * h) * p.n_cols + col;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            if (col + j * 8 < p.n_cols)
                *reinterpret_cast<float2 *>(y + j * 8) =
                    make_float2(d[4 * j + 2 * h] * scale, d[4 * j + 2 * h + 1] * scale);
    }
}

/* ---- Sums of a cluster's blocks -------------------------------------------------------------- */

/* All threads of all blocks of the cluster. */
__device__ __forceinline__ void cluster_meet()
{
    __syncwarp();
    cluster_arrive();
    cluster_wait();
}

__device__ __forceinline__ void multipliers_meet()
{
    asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * GROUP) : "memory");
}

/* This block's sums, over the ring that nobody needs any more: [M][SUMS_STRIDE]. */
template <class V>
__device__ __forceinline__ void share_sums(const float (&sums)[V::SLABS][V::N / 2], float *to,
                                           int row)
{
    to += row * V::SUMS_STRIDE + threadIdx.x % 4 * 2;
    multipliers_meet(); /* both groups have multiplied what lies there */
#pragma unroll
    for (int slab = 0; slab < V::SLABS; slab++)
#pragma unroll
        for (int j = 0; j < V::N / 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *reinterpret_cast<float2 *>(to + (slab * SLAB + 8 * h) * V::SUMS_STRIDE + j * 8) =
                    make_float2(sums[slab][4 * j + 2 * h], sums[slab][4 * j + 2 * h + 1]);
}

/* Four neighbouring results of a row. */
__device__ __forceinline__ void store4(const product &p, float4 v, int row, int col)
{
    if (p.half) {
        *reinterpret_cast<uint2 *>(p.half + (int64_t)row * p.half_cols + col) =
            make_uint2(pack_halves(v.x, v.y), pack_halves(v.z, v.w));
        return;
    }
    float scale = p.scale ? p.scale[row] : 1.0f;
    *reinterpret_cast<float4 *>(p.y + (int64_t)row * p.n_cols + col) =
        make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
}

/* The same of gelu(gate) * up. */
__device__ __forceinline__ void store_hidden4(const product &p, float4 gate, float4 up, int row,
                                              int col)
{
    float scale = p.scale[row];
    uint2 words = make_uint2(
        pack_halves(hidden_of(p, gate.x, up.x, scale), hidden_of(p, gate.y, up.y, scale)),
        pack_halves(hidden_of(p, gate.z, up.z, scale), hidden_of(p, gate.w, up.w, scale)));
    if (col >= p.n_hidden) words = make_uint2(0, 0);
    *reinterpret_cast<uint2 *>(p.half + (int64_t)row * p.half_cols + col) = words;
    if (col == 0) p.hidden_scale[row] = 1.0f / p.hidden_inverse;
}

/* Where a block of a cluster joins sums: first row and column of the tile, the thread's first row
 * in it, the block's number. */
struct joint {
    int first_row, first_col, row, rank;
};

/* Four sums of all blocks, slices in rising order. `from`: where they lie in each of them. */
__device__ __forceinline__ float4 sum_of_ranks(const product &p, uint32_t from)
{
    float4 part[SLICES_MAX];
#pragma unroll
    for (int i = 0; i < SLICES_MAX; i++)
        if (i < p.ranks) part[i] = cluster_load4(cluster_address(from, i));
    float4 sum = part[0];
#pragma unroll
    for (int i = 1; i < SLICES_MAX; i++)
        if (i < p.ranks) sum = quad_add(sum, part[i]);
    return sum;
}

/* Each block adds up its share of the tile's rows; of a pair, the two halves of the columns at
 * once. `shared`: where sums lie in each of them. */
template <class V, bool IS_PAIR>
__device__ __forceinline__ void add_ranks(const product &p, uint32_t shared, const joint &at)
{
    constexpr int COLS = IS_PAIR ? V::N / 2 : V::N, QUADS = COLS / 4;
    constexpr int HIGH = GROUPS * GROUP / QUADS;
    const int quad = threadIdx.x % QUADS, col = at.first_col / (IS_PAIR ? 2 : 1) + quad * 4;
    const int n = min(p.n_rows - at.first_row, (int)V::M), end = n * (at.rank + 1) / p.ranks;
    if (threadIdx.x >= QUADS * HIGH || col >= (IS_PAIR ? p.half_cols : p.n_cols)) return;
    for (int row = n * at.rank / p.ranks + threadIdx.x / QUADS; row < end; row += HIGH) {
        uint32_t from = shared + (row * V::SUMS_STRIDE + quad * 4) * 4;
        float4 sum = sum_of_ranks(p, from);
        if constexpr (IS_PAIR)
            store_hidden4(p, sum, sum_of_ranks(p, from + COLS * 4), at.first_row + row, col);
        else
            store4(p, sum, at.first_row + row, col);
    }
}

/* The tile of a cluster, of which this block has a slice in `sums`. */
template <class V>
__device__ __forceinline__ void join_tile(const product &p, const float (&sums)[V::SLABS][V::N / 2],
                                          uint32_t shared, const joint &at)
{
    share_sums<V>(sums, static_cast<float *>(__cvta_shared_to_generic(shared)), at.row);
    cluster_meet();
    if (p.n_hidden)
        add_ranks<V, true>(p, shared, at);
    else
        add_ranks<V, false>(p, shared, at);
    cluster_meet(); /* nobody reads the sums of a block that has left */
}

} // namespace

#endif
