/* Products of 1 to 256 rows straight from quantised tiles, for Hopper.
 *
 * Weights are dequantised in registers to fp16 and are the A operand of wgmma; activations are the
 * B operand, in shared memory. So a weight crosses memory and L2 once for up to 128 rows, and there
 * are no scales to apply to sums. The bits are those of mirrors, but for two things: what is beyond
 * 65504 is infinite, and forms with a minimum are rounded once instead of twice.
 *
 * A unit is 128 outputs and all columns. Its columns are cut into as many slices as a cluster has
 * blocks. Each block adds up its slice in rising order from zero, then slices are added in rising
 * order. How many slices there are follows from the shapes of the call's weights alone, and the
 * bits of wgmma do not depend on N: so a row has the same bits whatever the other rows are and
 * however many.
 *
 * A block has eight warps that multiply, three that fetch weights (before grid_wait: they are
 * constant) and one that fetches activations, both into rings. */
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/policy.cuh"
#include "backend/cuda/kernels/round.cuh"
#include "backend/cuda/kernels/sm90/async.cuh"
#include "backend/cuda/kernels/sm90/dequantise.cuh"
#include "backend/cuda/kernels/sm90/wgmma.cuh"

namespace {

enum {
    UNIT_ROWS = 128, /* weight rows of a unit */
    UNIT_GROUPS = UNIT_ROWS / TILE_ROWS,
    MULTIPLIERS = UNIT_ROWS / 16 * WARP,
    FETCHERS = 96, /* of weights */
    THREADS = MULTIPLIERS + FETCHERS + WARP,
    WEIGHT_WARP = MULTIPLIERS / WARP,
    ACT_WARP = WEIGHT_WARP + FETCHERS / WARP,
    PASS_ROWS = 128, /* most rows of a pass over the weights */
    STAGE_TILES = 2, /* tiles of columns in a stage */
    STAGES_MAX = 16,
    SHARED_MAX = 227 * 1024,
    SUM_STEP = UNIT_ROWS + 4, /* floats from row to row of sums: no bank twice */
    CLUSTER_MAX = 8
};

struct half_product {
    int32_t n_rows, n_w, n_ktiles, n_units, n_passes; /* passes: of up to PASS_ROWS rows */
    struct cuda_weight w[3];
    int32_t first_unit[3]; /* of each weight */
    int32_t first_col[3];  /* of each weight in `half` */
    struct act x;
    float *y[3];
    bool is_unscaled;
    float cap;
    uint16_t *half;
    int32_t half_cols;
};

/* A stage of weights: STAGE_TILES tiles of columns of UNIT_GROUPS groups of rows, a plane after the
 * other. */
template <enum form F> struct weight_stage {
    enum {
        GROUP_QUANTS = STAGE_TILES * form_quant_bytes(F),
        GROUP_SCALE = STAGE_TILES * form_scale_bytes(F),
        GROUP_HIGH = STAGE_TILES * form_high_bytes(F),
        GROUP_MINUS = STAGE_TILES * form_minus_bytes(F),
        SCALE_AT = UNIT_GROUPS * GROUP_QUANTS,
        HIGH_AT = SCALE_AT + UNIT_GROUPS * GROUP_SCALE,
        MINUS_AT = HIGH_AT + UNIT_GROUPS * GROUP_HIGH,
        BYTES = MINUS_AT + UNIT_GROUPS * GROUP_MINUS
    };
};

/* What shared memory holds. All blocks read the same activations at the same time, so that these
 * come late; a ring of 96 KB hides it. */
template <enum form F, int N> struct half_room {
    enum {
        SUM_ROWS = N < 64 ? N : 64, /* whose sums are exchanged at a time */
        SUMS = SUM_ROWS * SUM_STEP * 4,
        EIGHT = TILE_ROWS * TILE_COLS * 2, /* 8 rows of a tile of columns */
        ACT_BYTES = STAGE_TILES * (N / 8) * EIGHT,
        ACT_FIT = 96 * 1024 / ACT_BYTES,
        ACT_STAGES = ACT_FIT < STAGES_MAX ? ACT_FIT : STAGES_MAX,
        SUMS_AT = 1024, /* after the barriers */
        ACT_AT = (SUMS_AT + SUMS + 127) / 128 * 128,
        WEIGHTS_AT = ACT_AT + ACT_STAGES * ACT_BYTES,
        FIT = (SHARED_MAX - WEIGHTS_AT) / weight_stage<F>::BYTES,
        WEIGHT_STAGES = FIT < STAGES_MAX ? FIT : STAGES_MAX,
        BYTES = WEIGHTS_AT + WEIGHT_STAGES * weight_stage<F>::BYTES
    };
};

/* Barriers: where each lies, in the order of the enum. */
enum half_barrier { WEIGHTS_FULL, WEIGHTS_EMPTY, ACT_FULL, ACT_EMPTY, SUMS_FULL, SUMS_EMPTY };
__device__ __forceinline__ uint32_t barrier_at(uint32_t shared, enum half_barrier which, int i)
{
    return shared + (which * STAGES_MAX + i) * 8;
}

/* What a block does of a unit. */
struct half_work {
    int which, group, row, end;    /* of the weight: first group of rows, first row, rows */
    int first_row;                 /* of activations */
    int begin, n_ktiles, n_stages; /* tiles of columns */
};

__device__ __forceinline__ half_work work_of(const half_product &p, int unit, int rank, int ranks)
{
    half_work work;
    int pass = unit % p.n_passes;
    unit /= p.n_passes;
    work.which = p.n_w > 2 && unit >= p.first_unit[2]   ? 2
                 : p.n_w > 1 && unit >= p.first_unit[1] ? 1
                                                        : 0;
    work.row = (unit - p.first_unit[work.which]) * UNIT_ROWS;
    work.group = work.row / TILE_ROWS;
    work.end = p.w[work.which].rows;
    work.first_row = pass * PASS_ROWS;
    work.begin = p.n_ktiles * rank / ranks;
    work.n_ktiles = p.n_ktiles * (rank + 1) / ranks - work.begin;
    work.n_stages = (work.n_ktiles + STAGE_TILES - 1) / STAGE_TILES;
    return work;
}

/* ---- Fetching -------------------------------------------------------------------------------- */

/* A lane's copies of 16 bytes of a plane, for each stage of a unit: where they come from, kept in
 * registers, because a stage has to be asked for in less time than it takes to multiply one. */
template <int TILE_BYTES> struct plane_copies {
    enum {
        PIECES = STAGE_TILES * TILE_BYTES / 16, /* of a group */
        ALL = UNIT_GROUPS * PIECES,
        N = (ALL + FETCHERS - 1) / FETCHERS
    };
    const uint8_t *from;
    uint32_t offset[N];
    uint32_t second; /* bit i: copy i is of the stage's second tile */

    /* Groups that are not there are read from the first one: nobody uses what they give. */
    __device__ __forceinline__ void aim(const void *plane, const half_work &work, int n_groups,
                                        int n_ktiles)
    {
        int me = (int)threadIdx.x - MULTIPLIERS;
        from = static_cast<const uint8_t *>(plane) +
               ((int64_t)work.group * n_ktiles + work.begin) * TILE_BYTES;
        second = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            int piece = i * FETCHERS + me, group = piece / PIECES, at = piece % PIECES * 16;
            offset[i] = (uint32_t)((group < n_groups ? group : 0) * n_ktiles * TILE_BYTES + at);
            second |= (uint32_t)(at >= TILE_BYTES) << i;
        }
    }
    template <bool IS_WHOLE>
    __device__ __forceinline__ void fetch(struct l2_policy policy, uint32_t shared)
    {
        int me = (int)threadIdx.x - MULTIPLIERS;
#pragma unroll
        for (int i = 0; i < N; i++)
            if ((i < N - 1 || i * FETCHERS + me < ALL) && (IS_WHOLE || !(second >> i & 1)))
                copy16_under(policy, shared + (i * FETCHERS + me) * 16, from + offset[i]);
        from += STAGE_TILES * TILE_BYTES;
    }
};

template <enum form F> struct weight_copies {
    typedef weight_stage<F> S;
    plane_copies<form_quant_bytes(F)> quants;
    plane_copies<form_scale_bytes(F)> scale;
    plane_copies<form_high_bits(F) ? form_high_bytes(F) : 16> high;
    plane_copies<32> minus;

    __device__ __forceinline__ void aim(const struct cuda_weight &w, const half_work &work)
    {
        int n = min(w.n_groups - work.group, (int)UNIT_GROUPS);
        quants.aim(w.quants, work, n, w.n_ktiles);
        scale.aim(w.scale, work, n, w.n_ktiles);
        if constexpr (form_high_bits(F) != 0) high.aim(w.high, work, n, w.n_ktiles);
        if constexpr (form_has_minus(F)) minus.aim(w.minus, work, n, w.n_ktiles);
    }
    template <bool IS_WHOLE>
    __device__ __forceinline__ void fetch(struct l2_policy policy, uint32_t stage)
    {
        quants.template fetch<IS_WHOLE>(policy, stage);
        scale.template fetch<IS_WHOLE>(policy, stage + S::SCALE_AT);
        if constexpr (form_high_bits(F) != 0)
            high.template fetch<IS_WHOLE>(policy, stage + S::HIGH_AT);
        if constexpr (form_has_minus(F))
            minus.template fetch<IS_WHOLE>(policy, stage + S::MINUS_AT);
    }
};

template <enum form F, int N>
__device__ __forceinline__ void fetch_weights(const half_product &p, uint32_t shared, int rank,
                                              int ranks)
{
    typedef half_room<F, N> R;
    struct l2_policy policy = policy_of(p.n_passes == 1);
    ring_place<R::WEIGHT_STAGES> place = {0, 1};
    for (int unit = blockIdx.x / ranks; unit < p.n_units; unit += gridDim.x / ranks) {
        half_work work = work_of(p, unit, rank, ranks);
        weight_copies<F> copies;
        copies.aim(p.w[work.which], work);
        for (int t = 0; t < work.n_ktiles; t += STAGE_TILES, place.next()) {
            uint32_t stage = shared + R::WEIGHTS_AT + place.at * weight_stage<F>::BYTES;
            barrier_wait(barrier_at(shared, WEIGHTS_EMPTY, place.at), place.parity);
            if (t + 1 < work.n_ktiles)
                copies.template fetch<true>(policy, stage);
            else
                copies.template fetch<false>(policy, stage);
            barrier_arrive_after_copies(barrier_at(shared, WEIGHTS_FULL, place.at));
        }
    }
    copies_wait_all();
}

/* A lane copies a tile of columns of up to 64 rows. */
template <enum form F, int N>
__device__ __forceinline__ void fetch_rows(const half_product &p, uint32_t shared, int rank,
                                           int ranks)
{
    typedef half_room<F, N> R;
    constexpr int BLOCKS = (N + 63) / 64, EIGHT = R::EIGHT;
    ring_place<R::ACT_STAGES> place = {0, 1};
    int lane = threadIdx.x % WARP, block = lane % BLOCKS, k = lane / BLOCKS;
    for (int unit = blockIdx.x / ranks; unit < p.n_units; unit += gridDim.x / ranks) {
        half_work work = work_of(p, unit, rank, ranks);
        int all = (min(p.n_rows - work.first_row, N) + 7) / 8, mine = min(all - block * 8, 8);
        int64_t tile =
            (int64_t)(work.first_row / 64 + block) * (p.x.stride / TILE_COLS) + work.begin + k;
        const uint8_t *x = static_cast<const uint8_t *>(p.x.values) + tile * 8 * EIGHT;
        for (int s = 0; s < work.n_stages; s++, place.next(), x += STAGE_TILES * 8 * EIGHT) {
            uint32_t full = barrier_at(shared, ACT_FULL, place.at);
            int n = min(work.n_ktiles - s * STAGE_TILES, (int)STAGE_TILES);
            barrier_wait(barrier_at(shared, ACT_EMPTY, place.at), place.parity);
            if (lane == 0) barrier_expect(full, (uint32_t)(n * all * EIGHT));
            __syncwarp();
            if (k < n && mine > 0)
                copy_bulk(shared + R::ACT_AT + place.at * R::ACT_BYTES +
                              (k * (N / 8) + block * 8) * EIGHT,
                          x, (uint32_t)(mine * EIGHT), full);
        }
    }
}

/* ---- Multiplying ----------------------------------------------------------------------------- */

/* The shares of a warp's two groups of rows of a stage's tile `k`. */
template <enum form F>
__device__ __forceinline__ void read_weights(tile_share<F> (&share)[2], const uint8_t *stage, int k)
{
    typedef weight_stage<F> S;
    int group = threadIdx.x / WARP * 2, pair = threadIdx.x % WARP / 8;
#pragma unroll
    for (int i = 0; i < 2; i++, group++)
        read_tile<F>(share[i], stage + group * S::GROUP_QUANTS + k * form_quant_bytes(F),
                     stage + S::SCALE_AT + group * S::GROUP_SCALE + k * form_scale_bytes(F),
                     stage + S::HIGH_AT + group * S::GROUP_HIGH + k * form_high_bytes(F),
                     stage + S::MINUS_AT + group * S::GROUP_MINUS + k * form_minus_bytes(F), pair);
}

/* The same as A operands of the tile's four steps. */
template <enum form F>
__device__ __forceinline__ void make_operands(const tile_share<F> (&share)[2], uint32_t own,
                                              uint32_t (&a)[16])
{
    uint32_t halves[2][8];
    for (int i = 0; i < 2; i++) dequantise<F>(share[i], own, halves[i]);
#pragma unroll
    for (int i = 0; i < 16; i++) a[i] = halves[i % 2][i / 4 * 2 + i % 4 / 2];
}

__device__ __forceinline__ void multipliers_meet()
{
    asm volatile("bar.sync 1, %0;" ::"r"((int)MULTIPLIERS) : "memory");
}

__device__ __forceinline__ float4 add4(float4 a, float4 b)
{
    return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z),
                       __fadd_rn(a.w, b.w));
}

/* Writes four neighbouring results of a row. */
__device__ __forceinline__ void put_results(const half_product &p, const half_work &work, int row,
                                            int at, float4 sum)
{
    int col = work.row + at;
    if (col >= work.end) return;
    float v[4] = {sum.x, sum.y, sum.z, sum.w};
    int n = min(work.end - col, 4);
    if (p.half) {
        uint16_t *out = p.half + (int64_t)row * p.half_cols + p.first_col[work.which] + col;
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
    float *out = p.y[work.which] + (int64_t)row * work.end + col;
    if (n == 4 && (reinterpret_cast<uintptr_t>(out) & 15) == 0) {
        *reinterpret_cast<float4 *>(out) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
    for (int i = 0; i < n; i++) out[i] = v[i];
}

/* Adds up SUM_ROWS rows of a unit over the slices, in rising order, and writes the results.
 * `round`: counts the calls. */
template <enum form F, int N>
__device__ __forceinline__ void finish_rows(const half_product &p, const half_work &work,
                                            const float *acc, uint8_t *memory, uint32_t shared,
                                            int first, uint32_t round, int rank, int ranks)
{
    typedef half_room<F, N> R;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float *mine = reinterpret_cast<float *>(memory + R::SUMS_AT) + lane % 4 * 2 * SUM_STEP +
                  warp * 16 + lane / 4;
    uint32_t full = barrier_at(shared, SUMS_FULL, 0), empty = barrier_at(shared, SUMS_EMPTY, 0);
    if (ranks > 1) {
        if (round > 0) barrier_wait_cluster(empty, (round - 1) & 1);
    } else {
        multipliers_meet();
    }
#pragma unroll
    for (int i = 0; i < R::SUM_ROWS / 2; i++)
        mine[(i / 4 * 8 + i % 2) * SUM_STEP + i % 4 / 2 * 8] = acc[i];
    multipliers_meet();
    if (ranks > 1) {
        if (threadIdx.x < ranks) barrier_arrive_cluster(cluster_address(full, threadIdx.x));
        barrier_wait_cluster(full, round & 1);
    }
    int n = min(p.n_rows - first, (int)R::SUM_ROWS);
    for (int row = rank + warp * ranks; row < n; row += MULTIPLIERS / WARP * ranks) {
        uint32_t at = shared + R::SUMS_AT + (row * SUM_STEP + lane * 4) * 4;
        float4 sum = cluster_load4(cluster_address(at, 0));
        for (int i = 1; i < ranks; i++) sum = add4(sum, cluster_load4(cluster_address(at, i)));
        put_results(p, work, first + row, lane * 4, sum);
    }
    if (ranks > 1) {
        multipliers_meet();
        if (threadIdx.x < ranks) barrier_arrive_cluster(cluster_address(empty, threadIdx.x));
    }
}

/* What a multiplying warp takes from, and gives back to, the two rings. */
template <enum form F, int N> struct half_rings {
    typedef half_room<F, N> R;
    uint32_t shared;
    ring_place<R::WEIGHT_STAGES> weights;
    ring_place<R::ACT_STAGES> act, act_done;

    /* The next stage of weights. */
    __device__ __forceinline__ void take_weights(const uint8_t *memory,
                                                 tile_share<F> (&share)[STAGE_TILES][2])
    {
        barrier_wait(barrier_at(shared, WEIGHTS_FULL, weights.at), weights.parity);
#pragma unroll
        for (int k = 0; k < STAGE_TILES; k++)
            read_weights<F>(share[k], memory + R::WEIGHTS_AT + weights.at * weight_stage<F>::BYTES,
                            k);
        __syncwarp();
        if (threadIdx.x % WARP == 0) barrier_arrive(barrier_at(shared, WEIGHTS_EMPTY, weights.at));
        weights.next();
    }
    __device__ __forceinline__ void wait_act()
    {
        barrier_wait(barrier_at(shared, ACT_FULL, act.at), act.parity);
    }
    /* The oldest stage of activations was read. */
    __device__ __forceinline__ void release_act()
    {
        if (threadIdx.x % WARP == 0) barrier_arrive(barrier_at(shared, ACT_EMPTY, act_done.at));
        act_done.next();
    }
};

/* Starts the product with tile k of the stage of activations. */
template <enum form F, int N>
__device__ __forceinline__ void multiply_tile(float (&acc)[N / 2], const uint32_t (&a)[16],
                                              const half_rings<F, N> &rings, int k)
{
    typedef half_room<F, N> R;
    uint32_t b = rings.shared + R::ACT_AT + rings.act.at * R::ACT_BYTES + k * (N / 8) * R::EIGHT;
    uint64_t descriptor = core_descriptor(b, CORE_BYTES, R::EIGHT);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma<N>::add(acc, a + 4 * i, descriptor + i * (2 * CORE_BYTES >> 4));
    wgmma_commit();
}

/* A tile is dequantised while the one before is multiplied. */
template <enum form F, int N>
__device__ __forceinline__ void multiply_units(const half_product &p, uint8_t *memory,
                                               uint32_t shared, int rank, int ranks)
{
    typedef half_room<F, N> R;
    uint32_t own = threadIdx.x & 4 ? 0x3232 : 0x1010, round = 0;
    half_rings<F, N> rings = {shared, {0, 0}, {0, 0}, {0, 0}};
    for (int unit = blockIdx.x / ranks; unit < p.n_units; unit += gridDim.x / ranks) {
        half_work work = work_of(p, unit, rank, ranks);
        float acc[N / 2];
        uint32_t first[16], second[16];
        tile_share<F> share[STAGE_TILES][2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) acc[i] = 0.0f;
        int t = 0;
        auto multiply_first = [&]() {
            rings.take_weights(memory, share);
            make_operands<F>(share[0], own, first);
            rings.wait_act();
            multiply_tile<F, N>(acc, first, rings, 0);
            wgmma_wait<1>();
            if (t > 0) rings.release_act(); /* the stage before is done */
        };
        for (; t + 1 < work.n_ktiles; t += STAGE_TILES) {
            multiply_first();
            make_operands<F>(share[1], own, second);
            multiply_tile<F, N>(acc, second, rings, 1);
            wgmma_wait<1>();
            rings.act.next();
        }
        if (t < work.n_ktiles) {
            multiply_first();
            rings.act.next();
        }
        wgmma_wait<0>();
        if (work.n_ktiles > 0) rings.release_act();
#pragma unroll
        for (int i = 0; i < N / R::SUM_ROWS; i++)
            finish_rows<F, N>(p, work, acc + i * (R::SUM_ROWS / 2), memory, shared,
                              work.first_row + i * R::SUM_ROWS, round++, rank, ranks);
    }
}

template <enum form F, int N>
__global__ void __launch_bounds__(THREADS, 1)
    half_kernel(const __grid_constant__ half_product p, int ranks)
{
    typedef half_room<F, N> R;
    extern __shared__ __align__(128) uint8_t memory[];
    uint32_t shared = shared_address(memory);
    int warp = threadIdx.x / WARP, rank = ranks > 1 ? (int)cluster_rank() : 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < R::WEIGHT_STAGES; i++) {
            barrier_init(barrier_at(shared, WEIGHTS_FULL, i), FETCHERS);
            barrier_init(barrier_at(shared, WEIGHTS_EMPTY, i), MULTIPLIERS / WARP);
        }
        for (int i = 0; i < R::ACT_STAGES; i++) {
            barrier_init(barrier_at(shared, ACT_FULL, i), 1);
            barrier_init(barrier_at(shared, ACT_EMPTY, i), MULTIPLIERS / WARP);
        }
        barrier_init(barrier_at(shared, SUMS_FULL, 0), ranks);
        barrier_init(barrier_at(shared, SUMS_EMPTY, 0), ranks);
        barriers_ready();
    }
    __syncthreads();
    if (ranks > 1) cluster_arrive(); /* barriers of all blocks are there after the wait below */
    if (warp >= WEIGHT_WARP && warp < ACT_WARP) {
        fetch_weights<F, N>(p, shared, rank, ranks);
        __syncwarp();
        grid_wait();
        if (ranks > 1) cluster_wait();
    } else {
        if (ranks > 1) cluster_wait();
        grid_wait();
        grid_release();
        if (warp == ACT_WARP)
            fetch_rows<F, N>(p, shared, rank, ranks);
        else
            multiply_units<F, N>(p, memory, shared, rank, ranks);
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
    return ranks == 1 ? 132 : ranks == 2 ? 66 : ranks == 4 ? 30 : 15;
}

/* Over how many blocks the columns are cut: by waves of units, each with the time of about three
 * tiles for its sums. */
int ranks_of(int n_units, int n_ktiles)
{
    int best = 1, least = 0;
    for (int ranks = 1; ranks <= CLUSTER_MAX; ranks *= 2) {
        int waves = (n_units + clusters_at_once(ranks) - 1) / clusters_at_once(ranks);
        int time = waves * ((n_ktiles + ranks - 1) / ranks + (ranks > 1 ? 4 : 2));
        if (ranks > n_ktiles || (ranks > 1 && time >= least)) continue;
        best = ranks, least = time;
    }
    return best;
}

template <enum form F, int N> void half_launch(const struct queue *q, half_product &p, int ranks)
{
    int clusters = min(p.n_units, min(clusters_at_once(ranks), max(q->n_sm / ranks, 1)));
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};
    config.gridDim = dim3((unsigned)(clusters * ranks));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = half_room<F, N>::BYTES;
    config.stream = q->stream;
    config.attrs = attributes;
    if (ranks > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = (unsigned)ranks;
        attributes[config.numAttrs].val.clusterDim.y = 1;
        attributes[config.numAttrs++].val.clusterDim.z = 1;
    }
    if (q->has_dependent_launch) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchKernelEx(&config, half_kernel<F, N>, p, ranks);
}

template <enum form F> void half_launch_form(const struct queue *q, half_product &p, int ranks)
{
    if (p.n_rows <= 8)
        half_launch<F, 8>(q, p, ranks);
    else if (p.n_rows <= 16)
        half_launch<F, 16>(q, p, ranks);
    else if (p.n_rows <= 32)
        half_launch<F, 32>(q, p, ranks);
    else if (p.n_rows <= 64)
        half_launch<F, 64>(q, p, ranks);
    else
        half_launch<F, 128>(q, p, ranks);
}

template <enum form F> cudaError_t half_prepare_form()
{
    cudaError_t error = allow_shared(half_kernel<F, 8>, half_room<F, 8>::BYTES);
    if (!error) error = allow_shared(half_kernel<F, 16>, half_room<F, 16>::BYTES);
    if (!error) error = allow_shared(half_kernel<F, 32>, half_room<F, 32>::BYTES);
    if (!error) error = allow_shared(half_kernel<F, 64>, half_room<F, 64>::BYTES);
    if (!error) error = allow_shared(half_kernel<F, 128>, half_room<F, 128>::BYTES);
    return error;
}

/* Weights first .. first + n - 1 of the call, which have the same form. */
void half_launch_alike(const struct queue *q, const struct gemm_args *args, int first, int n,
                       int first_col)
{
    half_product p = {};
    p.n_rows = args->n_rows, p.n_w = n, p.x = args->x, p.half = args->half;
    p.half_cols = args->half_cols, p.is_unscaled = args->is_unscaled, p.cap = args->cap;
    p.n_ktiles = args->w[first].n_ktiles;
    int n_units = 0;
    for (int k = 0; k < n; k++) {
        p.w[k] = args->w[first + k], p.y[k] = args->y[first + k];
        p.first_unit[k] = n_units, p.first_col[k] = first_col;
        n_units += (p.w[k].n_groups + UNIT_GROUPS - 1) / UNIT_GROUPS;
        first_col += p.w[k].rows;
    }
    int ranks = ranks_of(n_units, p.n_ktiles);
    p.n_passes = (p.n_rows + PASS_ROWS - 1) / PASS_ROWS;
    p.n_units = n_units * p.n_passes;
    switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: half_launch_form<F>(q, p, ranks); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

} // namespace

int half_prepare(void)
{
    cudaError_t error = cudaSuccess;
#define X(F)                                                                                       \
    if (!error) error = half_prepare_form<F>();
    FORM_LIST(X)
#undef X
    return error;
}

bool half_takes(const struct queue *q, const struct gemm_args *args)
{
    bool takes = q->capability == 90 && args->x.kind == ACT_CORES && args->n_rows > 0 &&
                 args->n_rows <= HALF_ROWS_MAX;
    for (int k = 0; k < args->n_w; k++)
        takes = takes && args->w[k].layout == LAYOUT_TILES && args->w[k].n_expert == 1;
    return takes;
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
