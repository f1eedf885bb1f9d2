/* The room of a block of half_inputs.cu, and how operands of wgmma get there. */
#ifndef CUDA_SM90_HALF_INPUTS_CUH
#define CUDA_SM90_HALF_INPUTS_CUH

#include "backend/cuda/kernels/round.cuh"
#include "backend/cuda/kernels/sm90/half.cuh"
#include "backend/cuda/kernels/sm90/wgmma.cuh"

namespace {

enum {
    RANKS = 8, /* blocks of a cluster */
    ROWS = 8,  /* of a cluster */
    WARPS = 16,
    TEAMS = WARPS / TEAM_WARPS,
    UNIT = 64,                         /* outputs of a team; columns of a tile */
    GATE_ROWS = TEAMS * UNIT,          /* at most */
    SHARE_ROWS = GATE_ROWS / RANKS,    /* of gate's outputs, that a block adds up */
    TILES = 5,                         /* of 64 columns of a block, at most */
    UP_TILES = GATE_ROWS / TILE_COLS,  /* of up's columns, at most */
    UP_SHARES = TILES * UP_TILES * 8,  /* of a block */
    UNIT_BYTES = UNIT * TILE_COLS * 2, /* a tile as a team's operand */
    STEP_BYTES = 16 * TILE_ROWS * 2,   /* eight rows of 16 columns as an operand */
    Y_STEP = TILES * UNIT + 4,         /* floats from row to row of up's sums */
    HALVES = WARPS / ROWS,             /* warps of a row, each with as many columns */
    QUADS = (TILES * UNIT / 4 / HALVES + WARP - 1) / WARP, /* of a lane, at most */
    X_AT = 0,                                              /* the operand of gate */
    HIDDEN_AT = TILES * EIGHT_BYTES,                       /* the same of up */
    PARTS_AT = HIDDEN_AT + UP_TILES * EIGHT_BYTES,         /* sums, [slice][row][SHARE_ROWS] */
    GATED_AT = PARTS_AT + RANKS * ROWS * SHARE_ROWS * 4,   /* [row][GATE_ROWS] */
    Y_AT = PARTS_AT,                                       /* when these are not needed any more */
    UP_AT = GATED_AT + ROWS * GATE_ROWS * 4,
    BYTES = UP_AT + TILES * UP_TILES * UNIT_BYTES
};

/* What blocks tell each other of their columns of a row: sums of squares, and a largest |value|. */
struct row_parts {
    float of[ROWS][RANKS][HALVES];
};

struct inputs_shared {
    struct row_parts squares[3], most;
    float x_scale[ROWS], hidden_scale[ROWS];
    uint32_t x_most[WARPS];
};

/* A lane's share of a tile; zeros instead of tiles from `end` on. */
template <enum form F>
__device__ __forceinline__ void read_tile_of(tile_share<F> &share, const struct cuda_weight &w,
                                             int group, int tile, int end)
{
    int lane = threadIdx.x % WARP;
    share = {};
    if (group >= w.n_groups || tile >= end) return;
    read_share<F>(share, share_place_at<F>(w, (int64_t)group * w.n_ktiles + tile, lane), 0);
}

/* The block's outputs of up as A operands in shared memory. `tiles`: 64 of them each. */
template <enum form F>
__device__ __forceinline__ void make_up(const struct cuda_weight &up, uint8_t *memory, int rank,
                                        int tiles)
{
    enum { OF_WARP = UP_SHARES / WARPS, FEW = OF_WARP / 2 };
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int first = rank * tiles * (UNIT / TILE_ROWS);
#pragma unroll
    for (int from = 0; from < OF_WARP; from += FEW) {
        tile_share<F> share[FEW];
#pragma unroll
        for (int i = 0; i < FEW; i++) {
            int at = warp + (from + i) * WARPS;
            read_tile_of<F>(share[i], up, first + at / UP_TILES, at % UP_TILES, up.n_ktiles);
        }
#pragma unroll
        for (int i = 0; i < FEW; i++) {
            int at = warp + (from + i) * WARPS, group = at / UP_TILES, tile = at % UP_TILES;
            uint32_t halves[8];
            dequantise<F>(share[i], halves);
            uint32_t *to = reinterpret_cast<uint32_t *>(memory + UP_AT +
                                                        (group / 8 * UP_TILES + tile) * UNIT_BYTES +
                                                        group % 8 * EIGHT_BYTES);
#pragma unroll
            for (int k = 0; k < 8; k++) to[k * (CORE_BYTES / 4) + lane] = halves[k];
        }
    }
}

/* The warp's outputs of the block's columns of gate as A operands. */
template <enum form F>
__device__ __forceinline__ void make_gate(const struct cuda_weight &gate, int rank, int tiles,
                                          uint32_t (&a)[TILES][16])
{
    int warp = threadIdx.x / WARP, begin = rank * tiles;
    tile_share<F> share[TILES][2];
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            read_tile_of<F>(share[t][i], gate, 2 * warp + i, begin + t, begin + tiles);
#pragma unroll
    for (int t = 0; t < TILES; t++) make_operands<F>(share[t], a[t]);
}

/* A quad of a row as a part of a B operand of eight rows. */
__device__ __forceinline__ void put_operand(uint8_t *operand, int row, int quad, float4 x,
                                            float inverse)
{
    uint32_t *to = reinterpret_cast<uint32_t *>(operand) + quad / 16 * (EIGHT_BYTES / 4) +
                   quad % 16 / 4 * 2 * CORE_WORDS + row * 4 + quad % 4;
    to[0] = pack_halves(x.x * inverse, x.z * inverse);
    to[CORE_WORDS] = pack_halves(x.y * inverse, x.w * inverse);
}

/* What threads wrote to shared memory becomes operands. */
__device__ __forceinline__ void operands_ready()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

} // namespace

#endif
