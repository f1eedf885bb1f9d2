/* Products of 1 to CROWD_ROWS_MAX rows straight from quantised tiles, for Hopper.
 *
 * Weights are dequantised in registers to fp16 and are the A operand of wgmma; activations are the
 * B operand, in shared memory. So a weight crosses memory and L2 once for all rows of a pass, and
 * there are no scales to apply to sums. The bits are those of mirrors, but for two things: what is
 * beyond 65504 is infinite, and forms with a minimum are rounded once instead of twice.
 *
 * A unit is all columns of 64 outputs for each team of four warps. Its columns are cut into as many
 * slices as a cluster has blocks. Each block adds up its slice in rising order from zero, then
 * slices are added in rising order. How many slices there are follows from the shapes of the call's
 * weights alone, and the bits of wgmma depend neither on N nor on which team multiplies: so a row
 * has the same bits whatever the other rows are and however many.
 *
 * Passes are of up to 64 rows, or of up to 128 (is_wide) by three or four teams: one product of
 * wgmma a step for all of them. Four teams have no registers to dequantise a tile while the one
 * before is multiplied, but then the other three multiply. Bound of 128 rows: L2, which gives 16 KB
 * of activations for 7 to 17 KB of weights.
 *
 * Three more warps fetch weights (before grid_wait: they are constant) and one fetches
 * activations. */
#include <limits.h>

#include "backend/cuda/crowd.h"
#include "backend/cuda/kernels/sm90/half.cuh"
#include "backend/cuda/kernels/sm90/half_fetch.cuh"
#include "backend/cuda/kernels/sm90/half_results.cuh"
#include "backend/cuda/kernels/sm90/wgmma.cuh"

namespace {

/* The shares of a warp's two groups of rows of a tile, one of each side. */
template <class R>
__device__ __forceinline__ void read_weights(tile_share<R::FORM> (&share)[2], const uint8_t *stage)
{
    typedef weight_stage<R::FORM, R::SIDE_GROUPS> S;
    int group = threadIdx.x / WARP;
#pragma unroll
    for (int i = 0; i < 2; i++, stage += R::SIDE_BYTES)
        read_tile<R::FORM>(share[i], stage + group * S::GROUP_QUANTS,
                           stage + S::SCALE_AT + group * S::GROUP_SCALE,
                           stage + S::HIGH_AT + group * S::GROUP_HIGH,
                           stage + S::MINUS_AT + group * S::GROUP_MINUS);
}

/* The stage before `place` may be filled again: its products are done. */
template <class R>
__device__ __forceinline__ void stage_release(uint32_t shared, const ring_place<R::STAGES> &place)
{
    int before = place.at > 0 ? place.at - 1 : R::STAGES - 1;
    if (threadIdx.x % WARP == 0) barrier_arrive(barrier_at(shared, STAGE_EMPTY, before));
}

/* Adds a tile to the sums. It is read, and with IS_AHEAD dequantised, while the one before is still
 * multiplied. a: room for its weights. */
template <class R>
__device__ __forceinline__ void add_tile(float (&acc)[R::N / 2], uint32_t (&a)[16],
                                         const uint8_t *memory, uint32_t shared,
                                         ring_place<R::STAGES> &place, bool is_first)
{
    int stage = R::RING_AT + place.at * R::STAGE_BYTES;
    uint64_t descriptor = core_descriptor(uniform(shared + stage), CORE_BYTES, EIGHT_BYTES);
    tile_share<R::FORM> share[2];
    barrier_wait(barrier_at(shared, WEIGHTS_FULL, place.at), place.parity);
    read_weights<R>(share, memory + stage + R::ACT_BYTES);
    if constexpr (!R::IS_AHEAD) {
        wgmma_wait<0>();
        if (!is_first) stage_release<R>(shared, place);
    }
    make_operands<R::FORM>(share, a);
    barrier_wait(barrier_at(shared, ACT_FULL, place.at), place.parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma<R::N>::add(acc, a + 4 * i, descriptor + i * (2 * CORE_BYTES >> 4));
    wgmma_commit();
    if constexpr (R::IS_AHEAD) {
        wgmma_wait<1>();
        if (!is_first) stage_release<R>(shared, place);
    }
    place.next();
}

/* The block's slice of a unit. */
template <class R>
__device__ __forceinline__ void add_slice(float (&acc)[R::N / 2], const uint8_t *memory,
                                          uint32_t shared, ring_place<R::STAGES> &place,
                                          int n_ktiles)
{
    uint32_t first[16];
    bool is_first = true;
#pragma unroll
    for (int i = 0; i < R::N / 2; i++) acc[i] = 0.0f;
    if constexpr (R::IS_AHEAD) {
        uint32_t second[16];
#pragma unroll 1
        for (; n_ktiles > 1; n_ktiles -= 2, is_first = false) {
            add_tile<R>(acc, first, memory, shared, place, is_first);
            add_tile<R>(acc, second, memory, shared, place, false);
        }
        if (n_ktiles > 0) add_tile<R>(acc, first, memory, shared, place, is_first);
    } else {
#pragma unroll 1
        for (; n_ktiles > 0; n_ktiles--, is_first = false)
            add_tile<R>(acc, first, memory, shared, place, is_first);
    }
    wgmma_wait<0>();
    stage_release<R>(shared, place);
}

template <class R>
__device__ __forceinline__ void multiply_units(const half_product &p, uint8_t *memory,
                                               uint32_t shared, int ranks)
{
    ring_place<R::STAGES> place = {0, 0};
    uint32_t round = 0;
    int at = blockIdx.x / ranks;
#pragma unroll 1
    while (at < p.n_units * p.n_passes) {
        float acc[R::N / 2];
        half_turns slice(p, anew(ranks), at);
        add_slice<R>(acc, memory, shared, place, slice.end - slice.begin);
        half_turns turns(p, anew(ranks), at);
        finish_unit<R>(p, acc, memory, shared, round, turns);
        at += turns.step;
    }
}

template <class R> __device__ __forceinline__ void barriers_make(uint32_t shared, int ranks)
{
    for (int i = 0; i < R::STAGES; i++) {
        barrier_init(barrier_at(shared, WEIGHTS_FULL, i), FETCHERS);
        barrier_init(barrier_at(shared, ACT_FULL, i), 1);
        barrier_init(barrier_at(shared, STAGE_EMPTY, i), R::WARPS);
    }
    barrier_init(barrier_at(shared, SUMS_FULL, 0), ranks);
    barrier_init(barrier_at(shared, SUMS_EMPTY, 0), ranks);
    barriers_ready();
}

/* Registers of a thread. Three teams have 128 by the launch, four have 96. Products of 64 rows that
 * are to run while the next tile is dequantised need 112, those of 128 rows 152; with 112 a tile is
 * dequantised when the team's one before is done. */
template <class R> struct half_registers {
    enum {
        MULTIPLIER = R::TEAMS == 3 ? 152
                     : R::N >= 64  ? 112
                                   : 104,
        FETCHER = R::TEAMS == 3 ? 56
                  : R::N >= 64  ? 32
                                : 40
    };
};

template <class R>
__global__ void __launch_bounds__(R::THREADS, 1)
    half_kernel(const __grid_constant__ half_product p, int ranks)
{
    extern __shared__ __align__(128) uint8_t memory[];
    uint32_t shared = shared_address(memory);
    int warp = threadIdx.x / WARP;
    if (threadIdx.x == 0) barriers_make<R>(shared, ranks);
    __syncthreads();
    if (ranks > 1) cluster_arrive(); /* barriers of all blocks are there after the wait below */
    if (warp < R::WARPS) {
        if constexpr (R::TEAMS > 2) registers_up<half_registers<R>::MULTIPLIER>();
        if (ranks > 1) cluster_wait();
        grid_wait();
        grid_release();
        multiply_units<R>(p, memory, shared, ranks);
    } else {
        if constexpr (R::TEAMS > 2) registers_down<half_registers<R>::FETCHER>();
        if (warp < R::WARPS + FETCHERS / WARP) {
            fetch_weights<R>(p, shared, half_turns(p, ranks, blockIdx.x / ranks));
            __syncwarp();
            grid_wait();
            if (ranks > 1) cluster_wait();
        } else {
            if (ranks > 1) cluster_wait();
            grid_wait();
            grid_release();
            fetch_rows<R>(p, shared, half_turns(p, ranks, blockIdx.x / ranks));
        }
    }
    if (ranks > 1) { /* nobody reads the sums of a block that has left */
        __syncwarp();
        cluster_arrive();
        cluster_wait();
    }
}

/* ---- Launching ------------------------------------------------------------------------------- */

/* Clusters of `ranks` blocks, each a whole multiprocessor, that run at a time on an H200. A
 * constant: the bits must not depend on the chip. */
int clusters_at_once(int ranks)
{
    static const int at_once[CLUSTER_MAX] = {132, 66, 39, 30, 22, 17, 15, 15};
    return at_once[ranks - 1];
}

/* Units of this many teams that the first n weights make up. */
int units_before(const half_product &p, int n, int teams)
{
    int groups = 2 * teams * TEAM_WARPS, units = 0;
    for (int k = 0; k < n; k++) units += (p.w[k].n_groups + groups - 1) / groups;
    return units;
}

/* All units; pairs go up to the padded end of the next product's rows. */
int units_of(const half_product &p, int teams)
{
    int pairs = teams * TEAM_WARPS * TILE_ROWS;
    bool is_pair = p.hidden.kind == ACT_CORES && !p.by;
    return is_pair ? (p.hidden.stride + pairs - 1) / pairs : units_before(p, p.n_w, teams);
}

/* Passes of up to n rows. */
int passes_of(const half_product &p, int n)
{
    return (p.n_rows + n - 1) / n;
}

/* How weights are cut: into units, and those into slices. */
struct half_cut {
    int teams, ranks;
};

/* How long this many passes take, in hundredths of the time that two teams take for a tile of 64
 * rows; `tile`: the time of a tile. A wave of units ends with the time of three tiles, or with more
 * where slices are added up. */
int time_of(const half_product &p, half_cut cut, int passes, int tile)
{
    int at_once = clusters_at_once(cut.ranks);
    int waves = (units_of(p, cut.teams) * passes + at_once - 1) / at_once;
    return waves * ((p.n_ktiles + cut.ranks - 1) / cut.ranks * tile +
                    (cut.ranks > 1 ? 500 + 125 * cut.ranks : 300));
}

/* The cut that takes the least time for 64 rows. */
half_cut cut_of(const half_product &p)
{
    static const int tile[] = {100, 130, 180};
    half_cut best = {2, 1};
    int least = INT_MAX;
    for (int teams = p.by ? 4 : 2; teams <= 4; teams++) /* `by`: a unit has all columns */
        for (int ranks = 1; ranks <= min((int)CLUSTER_MAX, p.n_ktiles); ranks++) {
            int time = time_of(p, {teams, ranks}, 1, tile[teams - 2]);
            if (time < least) best = {teams, ranks}, least = time;
        }
    return best;
}

template <class R> void half_launch(const struct queue *q, half_product &p, int ranks)
{
    static_assert(R::STAGES > 2, "a stage is filled while one is read and one is multiplied");
    p.n_units = units_of(p, R::TEAMS), p.n_passes = passes_of(p, R::N);
    int eights = (p.n_rows + TILE_ROWS - 1) / TILE_ROWS; /* shared out evenly */
    p.pass_rows = (eights + p.n_passes - 1) / p.n_passes * TILE_ROWS;
    for (int k = 0; k < p.n_w; k++) p.first_unit[k] = units_before(p, k, R::TEAMS);
    int clusters =
        min(p.n_units * p.n_passes, min(clusters_at_once(ranks), max(q->n_sm / ranks, 1)));
    launch_shape shape = {dim3((unsigned)(clusters * ranks)), R::THREADS, R::BYTES,
                          (unsigned)ranks};
    launch(q, half_kernel<R>, shape, p, ranks);
}

/* Whether all passes of up to n rows run at the same time. */
bool all_at_once(const half_product &p, half_cut cut, int n)
{
    return units_of(p, cut.teams) * passes_of(p, n) <= clusters_at_once(cut.ranks);
}

/* Rows of a pass, up to 64: all, or fewer while that gives idle blocks work. */
int rows_of_pass(const half_product &p, half_cut cut)
{
    int n = 16;
    while (n < PIECE_ROWS && n < p.n_rows) n *= 2;
    while (n > 16 && all_at_once(p, cut, n / 2)) n /= 2;
    return n;
}

/* Stages of a ring for passes of 64 rows. */
template <enum form F> int stages_of(int teams)
{
    return teams == 2   ? (int)half_room<F, PIECE_ROWS, 2>::STAGES
           : teams == 3 ? (int)half_room<F, PIECE_ROWS, 3>::STAGES
                        : (int)half_room<F, PIECE_ROWS, 4>::STAGES;
}

/* Whether 65 rows and more are multiplied in passes of up to WIDE_ROWS, so that weights are read
 * and dequantised once for all of them. Not where all passes of 64 run at a time, nor where slices
 * are so short that a ring has most of a pass's weights when the pass before ends. */
bool is_wide(const half_product &p, half_cut cut, int stages)
{
    return p.n_rows > PIECE_ROWS && !p.by && 4 * p.n_ktiles > 5 * stages * cut.ranks &&
           !all_at_once(p, cut, PIECE_ROWS);
}

/* The same slices by the teams that take the least time for wide passes: three or four. */
half_cut wide_cut(const half_product &p, half_cut cut)
{
    half_cut three = {3, cut.ranks}, four = {4, cut.ranks};
    int passes = passes_of(p, WIDE_ROWS);
    return time_of(p, three, passes, 175) <= time_of(p, four, passes, 225) ? three : four;
}

template <enum form F, int TEAMS>
void half_launch_teams(const struct queue *q, half_product &p, half_cut cut)
{
    switch (rows_of_pass(p, cut)) {
    case 16: half_launch<half_room<F, 16, TEAMS>>(q, p, cut.ranks); break;
    case 32: half_launch<half_room<F, 32, TEAMS>>(q, p, cut.ranks); break;
    default: half_launch<half_room<F, 64, TEAMS>>(q, p, cut.ranks); break;
    }
}

template <enum form F> void half_launch_wide(const struct queue *q, half_product &p, half_cut cut)
{
    if (cut.teams == 3)
        half_launch<half_room<F, WIDE_ROWS, 3>>(q, p, cut.ranks);
    else
        half_launch<half_room<F, WIDE_ROWS, 4>>(q, p, cut.ranks);
}

template <enum form F> void half_launch_form(const struct queue *q, half_product &p)
{
    half_cut cut = cut_of(p);
    if (is_wide(p, cut, stages_of<F>(cut.teams)))
        half_launch_wide<F>(q, p, wide_cut(p, cut));
    else if (cut.teams == 2)
        half_launch_teams<F, 2>(q, p, cut);
    else if (cut.teams == 3)
        half_launch_teams<F, 3>(q, p, cut);
    else
        half_launch_teams<F, 4>(q, p, cut);
}

/* Weights first .. first + n - 1 of the call, which have the same form. */
void half_launch_alike(const struct queue *q, const struct gemm_args *args, int first, int n,
                       int first_col)
{
    half_product p = {};
    p.n_rows = args->n_rows, p.n_w = n, p.x = args->x, p.half = args->half;
    p.half_cols = args->half_cols, p.is_unscaled = args->is_unscaled, p.cap = args->cap;
    p.n_ktiles = args->w[first].n_ktiles;
    p.hidden = args->hidden, p.by = args->by, p.by_cols = args->by_cols;
    p.hidden_scale = args->hidden_scale;
    if (args->hidden_scale > 0) p.hidden_inverse = 1.0f / args->hidden_scale;
    for (int k = 0; k < n; k++) {
        p.w[k] = args->w[first + k], p.y[k] = args->y[first + k];
        p.first_col[k] = first_col;
        first_col += p.w[k].rows;
    }
    switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: half_launch_form<F>(q, p); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

} // namespace

bool half_takes(const struct queue *q, const struct gemm_args *args)
{
    bool takes = q->capability == 90 && args->x.kind == ACT_CORES && args->n_rows > 0 &&
                 args->n_rows <= CROWD_ROWS_MAX;
    for (int k = 0; k < args->n_w; k++)
        takes = takes && args->w[k].layout == LAYOUT_TILES && args->w[k].n_expert == 1;
    return takes;
}

bool half_gates(const struct queue *q, const struct gemm_args *args)
{
    const struct cuda_weight *w = args->w;
    if (!half_takes(q, args)) return false;
    if (args->n_w == 1) return w[0].rows <= 4 * 64;
    return args->n_w == 2 && form_of(w[0].format) == form_of(w[1].format) && w[0].rows == w[1].rows;
}

void launch_half(const struct queue *q, const struct gemm_args *args)
{
    int first = 0, first_col = 0;
    while (first < args->n_w) {
        int n = 1, cols = args->w[first].rows;
        while (first + n < args->n_w &&
               form_of(args->w[first + n].format) == form_of(args->w[first].format))
            cols += args->w[first + n++].rows;
        half_launch_alike(q, args, first, n, first_col);
        first += n, first_col += cols;
    }
}
