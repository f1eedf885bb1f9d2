/* How launch_half divides its work (half.cu): units, sides, turns, and the room of a block. */
#ifndef CUDA_SM90_HALF_CUH
#define CUDA_SM90_HALF_CUH

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/sm90/async.cuh"
#include "backend/cuda/kernels/sm90/dequantise.cuh"

enum {
    TEAM_WARPS = 4, /* that multiply together */
    FETCHERS = 96,  /* of weights */
    CLUSTER_MAX = 8,
    PIECE_ROWS = 64,                         /* of activations that lie together */
    WIDE_ROWS = 2 * PIECE_ROWS,              /* of a pass, at most */
    EIGHT_BYTES = TILE_ROWS * TILE_COLS * 2, /* eight rows of a tile of columns */
    STAGES_MAX = 16,
    SHARED_MAX = 227 * 1024
};

struct half_product {
    int32_t n_rows, n_w, n_ktiles, n_units;
    int32_t n_passes, pass_rows; /* passes of this many rows each, except the last */
    struct cuda_weight w[3];
    int32_t first_unit[3]; /* of each weight */
    int32_t first_col[3];  /* of each weight in `half` */
    struct act x;
    float *y[3];
    bool is_unscaled;
    float cap;
    uint16_t *half;
    int32_t half_cols;
    /* Instead: gelu of a weight's results times those of the other, or times `by`. */
    struct act hidden;
    float hidden_scale, hidden_inverse;
    const float *by;
    int32_t by_cols;
};

/* A tile of columns of a side's groups of rows, a plane after the other. */
template <enum form F, int GROUPS> struct weight_stage {
    enum {
        GROUP_QUANTS = form_quant_bytes(F),
        GROUP_SCALE = form_scale_bytes(F),
        GROUP_HIGH = form_high_bytes(F),
        GROUP_MINUS = form_minus_bytes(F),
        SCALE_AT = GROUPS * GROUP_QUANTS,
        HIGH_AT = SCALE_AT + GROUPS * GROUP_SCALE,
        MINUS_AT = HIGH_AT + GROUPS * GROUP_HIGH,
        BYTES = MINUS_AT + GROUPS * GROUP_MINUS
    };
};

/* What a kernel is compiled for: the weights' form, the rows of activations of a pass, and how
 * many teams multiply. And what its shared memory holds: barriers, sums of as many rows as leave
 * at a time, and a ring of stages, each a tile of columns of activations and of the weights of both
 * sides. */
template <enum form F, int ROWS, int COUNT> struct half_room {
    static constexpr enum form FORM = F;
    enum {
        N = ROWS,
        SUM_ROWS = N < PIECE_ROWS ? N : PIECE_ROWS,
        TEAMS = COUNT,
        /* A tile is dequantised while the team's one before is multiplied, for which there must be
         * registers. Without them the other teams multiply meanwhile. */
        IS_AHEAD = N < WIDE_ROWS || TEAMS < 4,
        HAS_BY = TEAMS == 4, /* may make gelu of results times `by` */
        WARPS = TEAMS * TEAM_WARPS,
        MULTIPLIERS = WARPS * WARP,
        THREADS = MULTIPLIERS + FETCHERS + WARP,
        SIDE_GROUPS = WARPS, /* a warp has a group of rows of each side */
        SIDE_ROWS = SIDE_GROUPS * TILE_ROWS,
        UNIT_ROWS = 2 * SIDE_ROWS,
        SUM_STEP = UNIT_ROWS + 4, /* floats from row to row of sums: no bank twice */
        ACT_BYTES = N / TILE_ROWS * EIGHT_BYTES,
        SIDE_BYTES = weight_stage<F, SIDE_GROUPS>::BYTES,
        STAGE_BYTES = ACT_BYTES + (2 * SIDE_BYTES + 127) / 128 * 128,
        SUMS_AT = 1024,
        RING_AT = SUMS_AT + (SUM_ROWS * SUM_STEP * 4 + 127) / 128 * 128,
        FIT = (SHARED_MAX - RING_AT) / STAGE_BYTES,
        STAGES = FIT < STAGES_MAX ? FIT : STAGES_MAX,
        BYTES = RING_AT + STAGES * STAGE_BYTES
    };
};

/* Barriers: where each lies, in the order of the enum. */
enum half_barrier { WEIGHTS_FULL, ACT_FULL, STAGE_EMPTY, SUMS_FULL, SUMS_EMPTY };
__device__ __forceinline__ uint32_t barrier_at(uint32_t shared, enum half_barrier which, int i)
{
    return shared + (which * STAGES_MAX + i) * 8;
}

/* Rows of a weight. */
struct half_side {
    int which, row, end; /* weight, first row, the weight's rows */
};

/* Hides x from the compiler, so that what follows from it is computed again, not kept in
 * registers. */
__device__ __forceinline__ int anew(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* The turns of a block's cluster, each a unit and a pass, and the block's slice. */
struct half_turns {
    int at, n, step;
    int rank, ranks;
    int begin, end; /* tiles of columns */
    bool is_pair;   /* a unit's sides are of two weights */

    __device__ __forceinline__ half_turns(const half_product &p, int ranks, int at)
        : at(at), n(p.n_units * p.n_passes), step(gridDim.x / ranks),
          rank(ranks > 1 ? (int)cluster_rank() : 0), ranks(ranks), begin(p.n_ktiles * rank / ranks),
          end(p.n_ktiles * (rank + 1) / ranks), is_pair(p.hidden.kind == ACT_CORES && !p.by)
    {
    }
    __device__ __forceinline__ int first_row(const half_product &p) const
    {
        return at % p.n_passes * p.pass_rows;
    }
    /* Rows of the pass. */
    __device__ __forceinline__ int rows(const half_product &p) const
    {
        return min(p.n_rows - first_row(p), p.pass_rows);
    }
    __device__ __forceinline__ half_side side(const half_product &p, int i, int side_rows) const
    {
        int unit = at / p.n_passes, which = i;
        if (is_pair) return {which, unit * side_rows, p.w[which].rows};
        which = p.n_w > 2 && unit >= p.first_unit[2] ? 2 : p.n_w > 1 && unit >= p.first_unit[1];
        return {which, ((unit - p.first_unit[which]) * 2 + i) * side_rows, p.w[which].rows};
    }
};

#endif
