/* Products of many rows with the experts that they chose, straight from quantised tiles, for
 * Hopper: weights are dequantised in registers to fp16 as the A operand of wgmma, the rows that
 * chose an expert are the B operand. No mirrors are needed. The bits are those of
 * launch_grouped_f16 on mirrors, but for what half.cu says; sums run over columns in order, so that
 * a row's bits depend on nothing but the row.
 *
 * An item is a tile of up to HALF_TILE rows of one expert (struct expert_plan) times a unit of 256
 * of its outputs: UNIT_SLOTS groups of eight weight rows. Of gate and up a unit has every group of
 * one next to the same group of the other, so that a thread holds both results of an output.
 *
 * Two groups of four warps multiply, each two slabs of 64 weight rows: while one slab is
 * dequantised the other is multiplied. Tiles of up to 16 rows, which are most of them when few
 * users decode, are multiplied by mma.sync (few_rows.cuh): the same bits, sooner. A third group
 * fills a ring of stages of 64 columns, by copies of 16 bytes: rows are gathered by the list of
 * pairs, straight into the order of the swizzle of 128 bytes. A block takes one item after the
 * other, with the ring running ahead.
 *
 * Launch: a block on each multiprocessor. Bound: wgmma and the chip's power where experts have many
 * rows; where they have few, dequantising, and then memory (docs/benchmarks.md). */
#include "backend/cuda/kernels/sm90/few_rows.cuh"
#include "backend/cuda/kernels/sm90/half_experts.cuh"
#include "backend/cuda/kernels/sm90/half_experts_fetch.cuh"
#include "backend/cuda/kernels/sm90/half_experts_store.cuh"
#include "backend/cuda/kernels/sm90/tensor.cuh"
#include "backend/cuda/kernels/sm90/wgmma.cuh"

namespace {

/* ---- Multiplying ----------------------------------------------------------------------------- */

/* The shares of a warp's two slots of a slab. */
template <enum form F>
__device__ __forceinline__ void read_slots(tile_share<F> (&share)[2], const uint8_t *stage,
                                           int slab)
{
    typedef stage_of<F> S;
    int slot = slot_of(threadIdx.x / GROUP, threadIdx.x % GROUP / WARP, slab);
#pragma unroll
    for (int i = 0; i < 2; i++, slot++)
        read_tile<F>(share[i], stage + S::QUANTS_AT + slot * form_quant_bytes(F),
                     stage + S::SCALE_AT + slot * form_scale_bytes(F),
                     stage + S::HIGH_AT + slot * form_high_bytes(F),
                     stage + S::MINUS_AT + slot * form_minus_bytes(F));
}

template <enum form F> struct reader {
    typedef stage_of<F> S;
    uint8_t *memory;
    uint32_t base;
    ring_place<S::STAGES> place, done;

    __device__ __forceinline__ void take()
    {
        barrier_wait(full_at(base + S::BARRIERS_AT, place.at), place.parity);
    }
    /* The oldest stage was read. */
    __device__ __forceinline__ void release()
    {
        __syncwarp();
        if (threadIdx.x % WARP == 0) barrier_arrive(empty_at(base + S::BARRIERS_AT, done.at));
        done.next();
    }
};

/* ---- By wgmma -------------------------------------------------------------------------------- */

/* Sums of a slab are those of its rows for all columns. */
template <enum form F, int N>
__device__ __forceinline__ void multiply_wide(const grouped_product &p, reader<F> &ring,
                                              float (&sums)[SLABS][N / 2])
{
    typedef stage_of<F> S;
    uint32_t a[SLABS][16];
    for (int k = 0; k < p.n_ktiles; k++, ring.place.next()) {
        uint32_t at = S::RING_AT + ring.place.at * S::BYTES;
        ring.take();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        uint64_t b = operand_at(uniform(ring.base + at));
#pragma unroll
        for (int s = 0; s < SLABS; s++) {
            tile_share<F> share[2];
            read_slots<F>(share, ring.memory + at, s);
            make_operands<F>(share, a[s]);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; i++) wgmma<N>::add(sums[s], a[s] + 4 * i, b + i * OPERAND_STEP);
            wgmma_commit();
            wgmma_wait<1>();
            if (s == 0 && k > 0) ring.release(); /* the stage before is done */
        }
    }
    wgmma_wait<0>();
    ring.release();
}

/* ---- By mma.sync ----------------------------------------------------------------------------- */

/* The place in a stage that this lane gives to load_matrices: a row of the first 16, at columns 16
 * step .., where the swizzle of 128 bytes has moved it. */
__device__ __forceinline__ uint32_t row_place(int step)
{
    int lane = threadIdx.x % WARP, row = lane / 16 * 8 + lane % 8, half = lane / 8 % 2;
    return row * ROW_BYTES + ((2 * step + half) ^ row % 8) * 16;
}

/* What a warp reads of a stage. */
template <enum form F> struct stage_values {
    tile_share<F> share[SLABS][2];
    few_operands rows;
};

template <enum form F>
__device__ __forceinline__ void read_stage(reader<F> &ring, stage_values<F> &v)
{
    typedef stage_of<F> S;
    const uint32_t at = S::RING_AT + ring.place.at * S::BYTES;
    ring.take();
#pragma unroll
    for (int s = 0; s < SLABS; s++) read_slots<F>(v.share[s], ring.memory + at, s);
#pragma unroll
    for (int i = 0; i < TILE_STEPS; i++) load_matrices(v.rows.b[i], ring.base + at + row_place(i));
    ring.place.next();
    ring.release();
}

template <enum form F, int ROWS>
__device__ __forceinline__ void add_stage(const stage_values<F> &v,
                                          float (&sums)[SLABS][MMA_ROWS / 2])
{
#pragma unroll
    for (int s = 0; s < SLABS; s++) add_few<F, ROWS>(sums[s], v.share[s], v.rows);
}

/* Up to ROWS rows. A stage is read while the one before is multiplied. */
template <enum form F, int ROWS>
__device__ __forceinline__ void multiply_few(const grouped_product &p, reader<F> &ring,
                                             float (&sums)[SLABS][MMA_ROWS / 2])
{
    stage_values<F> first, second;
    read_stage(ring, first);
    int left = p.n_ktiles;
#pragma unroll 1
    for (; left > 2; left -= 2) {
        read_stage(ring, second);
        add_stage<F, ROWS>(first, sums);
        read_stage(ring, first);
        add_stage<F, ROWS>(second, sums);
    }
    if (left > 1) read_stage(ring, second);
    add_stage<F, ROWS>(first, sums);
    if (left > 1) add_stage<F, ROWS>(second, sums);
}

/* ---- Items ----------------------------------------------------------------------------------- */

template <enum form F, int N>
__device__ __forceinline__ void multiply_columns(const grouped_product &p, reader<F> &ring,
                                                 int n_rows, float (&sums)[SLABS][N / 2])
{
#pragma unroll
    for (int s = 0; s < SLABS; s++)
#pragma unroll
        for (int i = 0; i < N / 2; i++) sums[s][i] = 0.0f;
    if constexpr (N > MMA_ROWS)
        multiply_wide<F, N>(p, ring, sums);
    else if (n_rows > MMA_ROWS / 2)
        multiply_few<F, MMA_ROWS>(p, ring, sums);
    else
        multiply_few<F, MMA_ROWS / 2>(p, ring, sums);
}

/* A group's part of an item. What only its end needs is read early. */
template <enum form F, int N>
__device__ __forceinline__ item multiply_item(const grouped_product &p, const item &it, int next,
                                              int n_tiles, reader<F> &ring, uint8_t *out,
                                              int32_t *table)
{
    enum { PAIRS = (N + GROUP - 1) / GROUP };
    const int i = threadIdx.x % GROUP;
    float sums[SLABS][N / 2];
    int32_t pair[PAIRS];
#pragma unroll
    for (int k = 0; k < PAIRS; k++)
        pair[k] = p.plan.pair[it.tile.first + min(i + k * GROUP, it.tile.n - 1)];
    item after = take_item(p, next, n_tiles);
    multiply_columns<F, N>(p, ring, it.tile.n, sums);
#pragma unroll
    for (int k = 0; k < PAIRS; k++)
        if (i + k * GROUP < N) table[i + k * GROUP] = pair[k];
    group_meets(threadIdx.x / GROUP);
    store_sums<N>(p, it, sums, out, table);
    group_meets(threadIdx.x / GROUP); /* before the table and the buffers change */
    return after;
}

/* Skips a part of a unit that does not exist. */
template <enum form F>
__device__ __forceinline__ item skip_item(const grouped_product &p, int next, int n_tiles,
                                          reader<F> &ring)
{
    item after = take_item(p, next, n_tiles);
    for (int k = 0; k < p.n_ktiles; k++, ring.place.next()) {
        ring.take();
        ring.release();
    }
    return after;
}

/* Widths of tiles, falling as those of the plan do: with one loop around all of them, in place of a
 * loop each, ptxas runs out of registers. */
#define ROWS_LIST(X) X(160) X(144) X(128) X(112) X(96) X(80) X(64) X(48) X(32) X(16)

template <enum form F>
__device__ __forceinline__ void multiply_items(const grouped_product &p, uint8_t *memory,
                                               uint32_t base)
{
    typedef stage_of<F> S;
    const int group = threadIdx.x / GROUP;
    uint8_t *out = memory + S::OUT_AT + group * 2 * ROUND * OUT_BYTES;
    int32_t *table = reinterpret_cast<int32_t *>(memory + S::TABLE_AT + group * TABLE_BYTES);
    reader<F> ring = {memory, base, {0, 0}, {0, 0}};
    const int n_tiles = *p.plan.n_tile, of_group = UNIT_SLOTS / GROUPS;
    item it = take_item(p, blockIdx.x, n_tiles);
    int next = blockIdx.x;
#define X(N)                                                                                       \
    while (it.tile.step > N - 16) {                                                                \
        next += gridDim.x;                                                                         \
        if ((it.unit * UNIT_SLOTS + group * of_group) / p.n_w >= p.n_groups)                       \
            it = skip_item<F>(p, next, n_tiles, ring);                                             \
        else                                                                                       \
            it = multiply_item<F, N>(p, it, next, n_tiles, ring, out, table);                      \
    }
    ROWS_LIST(X)
#undef X
}

template <enum form F>
__global__ void __launch_bounds__(THREADS, 1)
    half_experts(const __grid_constant__ grouped_product p)
{
    typedef stage_of<F> S;
    extern __shared__ uint8_t shared[];
    uint32_t start = shared_address(shared), base = (start + 1023) & ~1023u;
    uint8_t *memory = shared + (base - start);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(full_at(base + S::BARRIERS_AT, i), GROUP);
            barrier_init(empty_at(base + S::BARRIERS_AT, i), GROUPS * GROUP / WARP);
        }
        barriers_ready();
    }
    __syncthreads();
    grid_wait();
    grid_release();
    if (threadIdx.x >= GROUPS * GROUP) {
        registers_down<REGISTERS_FEW>();
        fill_ring<F>(p, base);
    } else {
        registers_up<REGISTERS_MANY>();
        multiply_items<F>(p, memory, base);
    }
}

/* ---- Launching ------------------------------------------------------------------------------- */

/* Weights first .. first + n - 1 of the call: one, or gate and up in turns. */
void start(const struct queue *q, const struct grouped_args *args, int first, int n, int first_col)
{
    const struct cuda_weight &w = args->w[first];
    grouped_product p = {};
    p.n_w = n, p.rows = w.rows, p.n_groups = w.n_groups, p.n_ktiles = w.n_ktiles;
    p.n_units = (n * w.n_groups + UNIT_SLOTS - 1) / UNIT_SLOTS;
    for (int k = 0; k < n; k++) p.w[k] = args->w[first + k];
    p.x = static_cast<const uint8_t *>(args->x.values);
    p.x_step = args->x.stride / 8;
    p.row_div = args->is_row_a_pair ? 1 : args->n_used;
    p.plan = args->plan;
    p.half = args->half, p.half_cols = args->half_cols, p.first_col = first_col;
    p.is_wide = is_at_16(args->half + first_col) && args->half_cols % 8 == 0 && w.rows % 8 == 0;
    dim3 grid((unsigned)q->n_sm);
    switch (form_of(w.format)) {
#define X(F)                                                                                       \
    case F: launch(q, half_experts<F>, grid, THREADS, stage_of<F>::SHARED, p); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

} // namespace

void launch_grouped_half(const struct queue *q, const struct grouped_args *args)
{
    bool is_alike = args->n_w == 2 && args->w[0].rows == args->w[1].rows &&
                    form_of(args->w[0].format) == form_of(args->w[1].format);
    int n = is_alike ? 2 : 1;
    for (int k = 0, col = 0; k < args->n_w; col += args->w[k].rows, k += n)
        start(q, args, k, n, col);
}
