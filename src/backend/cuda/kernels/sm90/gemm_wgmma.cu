/* Matrix products in fp16 on Hopper: y[t] = W x[t] for any number of rows t, fp32 accumulation by
 * wgmma. The data and the results are those of gemm_f16.cu. Columns are cut into slices, as many as
 * the shape of W says, so that few rows find work for all multiprocessors. Sums of a slice run over
 * columns in order, and slices are added in order: so a row has the same bits whatever the tile and
 * however many rows there are, and with one slice those of gemm_f16.cu.
 *
 * With few rows the blocks of a cluster take a slice of the same tile each, and add up through
 * shared memory. With many a block does all slices, which takes a second set of sums.
 *
 * A block makes one tile of rows of x by rows of W after the other. Two groups of four warps
 * multiply, each half of the first operand's rows, and a thread of a third one keeps a ring of
 * STAGES steps of 64 columns filled by TMA. The groups are not kept in step. While one stores its
 * part of a tile the other one multiplies, at most STAGES steps behind.
 *
 * Launch: a block on each multiprocessor. Tiles come in many shapes; the one is taken that leaves
 * the fewest multiprocessors idle at the end: 2048 x 2560 results are 128 tiles of 256 x 160, but
 * 160 of 128 x 256, which take two rounds. Bound: wgmma, and the chip's power. Pairs of blocks
 * that fetch half of an operand each for both are 1 to 20 % slower than blocks on their own, at
 * full clock and at the power limit: L2 gives 8.8 TB/s, and pairs wait for each other. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/act.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/sm90/gemm_turned.cuh"
#include "backend/cuda/kernels/sm90/tensor.cuh"
#include "backend/cuda/kernels/sm90/tensor_map.cuh"

namespace {

/* ---- Where a block works --------------------------------------------------------------------- */

struct place {
    int row, col; /* first of its tile */
};

/* Tile `i`, of all that blocks take in turns; false: there is none. */
template <class V> __device__ __forceinline__ bool take_place(const product &p, int i, place *at)
{
    if (i >= p.n_high * p.n_wide) return false;
    constexpr int HEIGHT = BAND / V::ROWS;
    int band = i / (HEIGHT * p.n_wide), in_band = i - band * HEIGHT * p.n_wide;
    int height = min(HEIGHT, p.n_high - band * HEIGHT);
    at->row = (band * HEIGHT + in_band % height) * V::ROWS;
    at->col = in_band / height * V::COLS;
    return true;
}

/* What a block does: tiles first, first + step ..., steps begin .. end - 1 of their columns. */
struct share {
    int first, step, rank, begin, end;
};

__device__ __forceinline__ int slice_begin(const product &p, int i)
{
    return p.n_steps * i / p.n_slices;
}

template <class V> __device__ __forceinline__ share share_of(const product &p)
{
    if (!V::IS_JOINED || p.ranks == 1) return {(int)blockIdx.x, (int)gridDim.x, 0, 0, p.n_steps};
    int rank = (int)cluster_rank();
    return {(int)blockIdx.x / p.ranks, (int)gridDim.x / p.ranks, rank, slice_begin(p, rank),
            slice_begin(p, rank + 1)};
}

/* Stages of the ring, taken in turns. */
template <class V> struct turn {
    int stage, parity;
    __device__ __forceinline__ void next()
    {
        if (++stage < V::STAGES) return;
        stage = 0;
        parity ^= 1;
    }
};

/* Addresses in shared memory. A stage is `full` when its bytes are there, and `empty` when both
 * groups have multiplied what is in it. */
struct ring {
    uint32_t stages, full, empty;
};

template <class V> __device__ __forceinline__ ring ring_at(const char *shared)
{
    ring r;
    r.stages = ((uint32_t)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    r.full = r.stages + V::STAGES * V::STAGE_BYTES;
    r.empty = r.full + V::STAGES * 8;
    return r;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* Copies a step of the first operand's rows and of the other one's to a stage. */
template <class V>
__device__ __forceinline__ void copy_step(const product &p, uint32_t to, const place &at, int step,
                                          int x_rows, uint32_t barrier)
{
#pragma unroll
    for (int row = 0; row < V::M; row += BOX)
        if (row < x_rows) copy_box(to + row * ROW_BYTES, &p.first, step, at.row + row, barrier);
    to += V::FIRST_BYTES;
    int col = p.n_hidden ? at.col / 2 : at.col;
    copy_box(to, &p.other, step, col, barrier);
    if (p.n_hidden) copy_box(to + V::N / 2 * ROW_BYTES, &p.other, step, p.n_hidden + col, barrier);
}

template <class V>
__device__ __forceinline__ void copy_turned_step(const product &p, uint32_t to, const place &at,
                                                 int step, uint32_t barrier)
{
#pragma unroll
    for (int i = 0; i < V::SLABS; i++) {
        int row = p.n_hidden ? i * p.n_hidden + at.col / 2 : at.col + i * BOX;
        copy_box(to + i * BOX * ROW_BYTES, &p.first, step, row, barrier);
    }
    copy_box(to + V::FIRST_BYTES, &p.other, step, at.row, barrier);
}

/* By one thread. */
template <class V>
__device__ __forceinline__ void fill_ring(const product &p, const ring &r, const share &mine)
{
    turn<V> turn = {0, 1}; /* all stages are empty */
    place at;
    const int rows = p.is_few ? FEW_ROWS : V::M; /* sums of others are not stored */
    for (int i = mine.first; take_place<V>(p, i, &at); i += mine.step)
        for (int step = mine.begin; step < mine.end; step++, turn.next()) {
            uint32_t barrier = r.full + turn.stage * 8, to = r.stages + turn.stage * V::STAGE_BYTES;
            barrier_wait(r.empty + turn.stage * 8, turn.parity);
            barrier_expect(barrier, (rows + V::N) * ROW_BYTES);
            if constexpr (V::IS_TURNED)
                copy_turned_step<V>(p, to, at, step * STEP, barrier);
            else
                copy_step<V>(p, to, at, step * STEP, rows, barrier);
        }
}

/* ---- The product of a tile ------------------------------------------------------------------- */

/* One stage: four wgmma of 16 columns for each slab. */
template <class V>
__device__ __forceinline__ void multiply_stage(float (&sums)[V::SLABS][V::N / 2], uint32_t stage,
                                               int group, bool is_first)
{
    uint64_t a = operand_at(stage + group * V::GROUP_STEP * ROW_BYTES);
    uint64_t b = operand_at(stage + V::FIRST_BYTES);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < STEP / 16; s++)
#pragma unroll
        for (int i = 0; i < V::SLABS; i++)
            wgmma_shared<V::N>::add(sums[i],
                                    a + i * (V::SLAB_STEP * ROW_BYTES >> 4) + s * OPERAND_STEP,
                                    b + s * OPERAND_STEP, s > 0 || !is_first);
    wgmma_commit();
}

/* A group is done with a stage. */
__device__ __forceinline__ void give_back(uint32_t barrier)
{
    if (threadIdx.x % GROUP == 0) barrier_arrive(barrier);
}

/* Steps of a tile, `n` of them, from zero. */
template <class V>
__device__ __forceinline__ void multiply_slice(float (&sums)[V::SLABS][V::N / 2], const ring &r,
                                               turn<V> &turn, int n, int group)
{
    int before = 0; /* the stage that is still being multiplied */
    for (int step = 0; step < n; step++, turn.next()) {
        barrier_wait(r.full + turn.stage * 8, turn.parity);
        multiply_stage<V>(sums, r.stages + turn.stage * V::STAGE_BYTES, group, step == 0);
        wgmma_wait<1>();
        if (step > 0) give_back(r.empty + before * 8);
        before = turn.stage;
    }
    wgmma_wait<0>();
    give_back(r.empty + before * 8);
}

/* Adds the other slices, in rising order. */
template <class V>
__device__ __forceinline__ void add_slices(const product &p, float (&sums)[V::SLABS][V::N / 2],
                                           const ring &r, turn<V> &turn, int group)
{
    for (int s = 1; s < p.n_slices; s++) {
        float slice[V::SLABS][V::N / 2];
        multiply_slice<V>(slice, r, turn, slice_begin(p, s + 1) - slice_begin(p, s), group);
#pragma unroll
        for (int i = 0; i < V::SLABS; i++)
#pragma unroll
            for (int j = 0; j < V::N / 2; j++) sums[i][j] += slice[i][j];
    }
}

template <class V>
__device__ __forceinline__ void store_tile(const product &p,
                                           const float (&sums)[V::SLABS][V::N / 2], int row,
                                           int col)
{
#pragma unroll
    for (int slab = 0; slab < V::SLABS; slab++)
        if (p.n_hidden)
            store_hidden<V::N>(p, sums[slab], row + slab * SLAB, col);
        else if (p.half)
            store_halves<V::N>(p, sums[slab], row + slab * SLAB, col);
        else
            store_floats<V::N>(p, sums[slab], row + slab * SLAB, col);
}

template <class V>
__device__ __forceinline__ void multiply_tiles(const product &p, const ring &r, const share &mine,
                                               int group)
{
    const int row = group * V::SLABS * SLAB + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
    turn<V> turn = {0, 0};
    place at;
    for (int i = mine.first; take_place<V>(p, i, &at); i += mine.step) {
        float sums[V::SLABS][V::N / 2];
        int end = V::IS_SLICED ? slice_begin(p, 1) : mine.end;
        multiply_slice<V>(sums, r, turn, end - mine.begin, group);
        if constexpr (V::IS_SLICED) add_slices<V>(p, sums, r, turn, group);
        if constexpr (V::IS_TURNED)
            store_turned<V>(p, sums, at.row, at.col, group);
        else if (!V::IS_JOINED || p.ranks == 1)
            store_tile<V>(p, sums, at.row + row, at.col);
        else /* the block's only tile */
            join_tile<V>(p, sums, r.stages, {at.row, at.col, row, mine.rank});
    }
}

template <class V>
__global__ void __launch_bounds__(THREADS, 1) gemm_wgmma(const __grid_constant__ product p)
{
    extern __shared__ char shared[];
    const ring r = ring_at<V>(shared);
    const share mine = share_of<V>(p);
    const int group = threadIdx.x / GROUP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < V::STAGES; i++) {
            barrier_init(r.full + i * 8, 1);
            barrier_init(r.empty + i * 8, GROUPS);
        }
        barriers_show();
    }
    __syncthreads();
    grid_wait(); /* before weights too: a mirror may have been made just now */
    grid_release();
    if (group == GROUPS) {
        registers_down<V::REGISTERS_FEW>();
        if (threadIdx.x % GROUP == 0) fill_ring<V>(p, r, mine);
        if (V::IS_JOINED && p.ranks > 1) { /* as join_tile does */
            cluster_meet();
            cluster_meet();
        }
    } else {
        registers_up<V::REGISTERS_MANY>();
        multiply_tiles<V>(p, r, mine, group);
    }
}

/* ---- Launching ------------------------------------------------------------------------------- */

/* Slabs, N, stages, whether slices are added up in registers, whether W is the first operand (of
 * products without slices), and the share of the tensor cores' rate that is reached, in percent. */
#define TILE_LIST(X)                                                                               \
    X(1, 256, 4, false, false, 100)                                                                \
    X(1, 240, 4, false, false, 99)                                                                 \
    X(1, 224, 5, false, false, 98)                                                                 \
    X(1, 208, 5, false, false, 95)                                                                 \
    X(1, 192, 5, false, false, 97)                                                                 \
    X(1, 160, 6, false, false, 92)                                                                 \
    X(1, 128, 7, false, false, 95)                                                                 \
    X(1, 96, 7, false, false, 90)                                                                  \
    X(1, 64, 9, false, false, 75)                                                                  \
    X(2, 192, 4, false, false, 100)                                                                \
    X(2, 176, 4, false, false, 97)                                                                 \
    X(2, 160, 4, false, false, 94)                                                                 \
    X(2, 128, 4, false, false, 96)                                                                 \
    X(2, 96, 5, false, false, 94)                                                                  \
    X(1, 192, 5, true, false, 96)                                                                  \
    X(1, 176, 5, true, false, 96)                                                                  \
    X(1, 160, 6, true, false, 96)                                                                  \
    X(1, 128, 7, true, false, 95)                                                                  \
    X(1, 96, 7, true, false, 86)                                                                   \
    X(2, 96, 5, true, false, 93)                                                                   \
    X(2, 192, 4, false, true, 98)                                                                  \
    X(2, 176, 4, false, true, 97)                                                                  \
    X(2, 160, 4, false, true, 96)                                                                  \
    X(2, 144, 4, false, true, 96)                                                                  \
    X(2, 128, 4, false, true, 96)                                                                  \
    X(2, 112, 4, false, true, 89)                                                                  \
    X(2, 96, 5, false, true, 93)                                                                   \
    X(2, 80, 5, false, true, 89)                                                                   \
    X(1, 192, 5, false, true, 97)                                                                  \
    X(1, 160, 6, false, true, 97)                                                                  \
    X(1, 128, 7, false, true, 96)                                                                  \
    X(1, 112, 7, false, true, 91)                                                                  \
    X(1, 96, 7, false, true, 87)                                                                   \
    X(1, 80, 8, false, true, 75)                                                                   \
    X(1, 64, 9, false, true, 75)

/* What is needed of TILE_LIST at run time. */
const struct tile {
    int32_t slabs, n;
    bool is_sliced, is_turned;
} tiles[] = {
#define X(slabs, n, stages, is_sliced, is_turned, percent) {slabs, n, is_sliced, is_turned},
    TILE_LIST(X)
#undef X
};
static_assert(sizeof tiles / sizeof *tiles == GEMM_TILES, "kernels.h counts them");

int32_t up(int32_t n, int32_t step)
{
    return (n + step - 1) / step;
}

/* Steps of more rows last so long that power is the limit, and the clock goes down. */
enum { COOL_MOST = 1024 };

/* How much longer such a step takes, in hundredths of a cycle: for the energy of sums, and of what
 * comes from L2, of which large tiles need less. Tiles whose blocks add up take a little more.
 * Fitted to times of 56 products at the limit (`check-cuda-kernels --perf --hot gemm_tiles`, H200):
 * the tile that is taken is within 0.3 % of the fastest in the mean, weighted by time, and 8 % at
 * worst. Without it these are 1.3 and 9 %. */
template <class V>
int64_t energy_of(const struct queue *q, const product &p, int64_t tiles, int64_t ranks)
{
    enum { SUMS = 40 /* a cycle of them */, BYTES = 65 /* a row of an operand */, JOINED = 105 };
    int64_t step = V::M * V::N / 32 * SUMS + (V::M + V::N) * BYTES;
    return tiles * p.n_steps * step / q->n_sm * (ranks > 1 ? JOINED : 100) / 100;
}

/* Time of a product with these tiles, in hundredths of a cycle: rounds of tiles, each as long as
 * its wgmma take, or, with few rows, its weights from memory, what a cluster's blocks need for
 * their sums, and what is stored at the end. The numbers, and those of TILE_LIST, are fitted to the
 * times of all tiles for 132 products (`check-cuda-kernels --perf gemm_tiles`, H200): the tile that
 * is taken is within 1 % of the fastest in the mean, and 13 % at worst. */
template <class V> int64_t time_of(const struct queue *q, const product &p, int32_t percent)
{
    enum { MEMORY = 4000 /* bytes a cycle */, JOIN = 5600 /* cycles */ };
    enum { STORE = V::IS_TURNED ? 320 : 200 };
    bool has_kernel = p.n_slices > 1 ? V::IS_SLICED || V::IS_JOINED : !V::IS_SLICED;
    if (V::IS_TURNED) /* gate and up of a result are in two slabs of one group */
        has_kernel = has_kernel && !p.is_few && (p.n_hidden == 0 || V::SLABS == 2);
    if (!has_kernel) return INT64_MAX;
    int64_t ranks = V::IS_SLICED ? 1 : p.n_slices, high = up(p.n_rows, V::ROWS);
    int64_t tiles = high * up(p.n_cols, V::COLS);
    int64_t at_once = clusters_at_once(q->n_sm, (int32_t)ranks),
            rounds = (tiles + at_once - 1) / at_once;
    int64_t cycles = V::M * V::N / 32, active = (tiles < at_once ? tiles : at_once) * ranks;
    int64_t reading = active * V::COLS * ROW_BYTES / (MEMORY * high);
    int64_t step = cycles * 10000 / percent;
    if (step < reading * 100) step = reading * 100;
    int64_t join = ranks > 1 ? (JOIN + (int64_t)V::M * V::N / 4) * 100 : 0;
    int64_t time = rounds * (step * p.n_steps / ranks + join) + cycles * STORE;
    return p.n_rows > COOL_MOST ? time + energy_of<V>(q, p, tiles, ranks) : time;
}

/* Clusters: one for each tile. Single blocks: each takes tiles until none are left. */
template <class V> void start(const struct queue *q, product *p)
{
    p->n_high = up(p->n_rows, V::ROWS);
    p->n_wide = up(p->n_cols, V::COLS);
    p->ranks = V::IS_JOINED ? p->n_slices : 1;
    int32_t n = p->n_high * p->n_wide;
    int32_t blocks = p->ranks > 1 ? n * p->ranks : n < q->n_sm ? n : q->n_sm;
    launch_shape shape = {dim3((unsigned)blocks), THREADS, V::SHARED, (unsigned)p->ranks};
    launch(q, gemm_wgmma<V>, shape, *p);
}

/* The times of all tiles, by their place in TILE_LIST. */
void times_of(const struct queue *q, const product &p, int64_t times[GEMM_TILES])
{
    int64_t *at = times;
#define X(slabs, n, stages, is_sliced, is_turned, percent)                                         \
    *at++ = time_of<variant<slabs, n, stages, is_sliced, is_turned>>(q, p, percent);
    TILE_LIST(X)
#undef X
}

int best_tile(const struct queue *q, const product &p)
{
    int64_t times[GEMM_TILES];
    int best = 0;
    times_of(q, p, times);
    for (int i = 1; i < GEMM_TILES; i++)
        if (times[i] < times[best]) best = i;
    return best;
}

typedef void start_fn(const struct queue *q, product *p);

void start_tile(const struct queue *q, product *p, int tile)
{
    static start_fn *const starts[] = {
#define X(slabs, n, stages, is_sliced, is_turned, percent)                                         \
    start<variant<slabs, n, stages, is_sliced, is_turned>>,
        TILE_LIST(X)
#undef X
    };
    starts[tile](q, p);
}

/* ---- Maps ------------------------------------------------------------------------------------ */

static_assert((int)BOX == (int)BOX_ROWS, "memory for rows of x is whole boxes");

/* Boxes of box_rows rows and STEP columns. */
bool make_map(const void *values, int32_t rows, int32_t stride, int32_t box_rows,
              struct tensor_map *out)
{
    CUtensorMap map;
    static_assert(sizeof map == sizeof *out, "a map");
    bool is_made = make_tensor_map(&map, {CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                          2,
                                          values,
                                          {(cuuint64_t)stride, (cuuint64_t)rows},
                                          {(cuuint64_t)stride * 2},
                                          {STEP, (cuuint32_t)box_rows},
                                          CU_TENSOR_MAP_SWIZZLE_128B});
    memcpy(out, &map, sizeof map);
    return is_made;
}

bool is_pair(const struct gemm_args *args)
{
    return args->hidden.kind != ACT_NONE;
}

/* Whether results can be stored by 16 bytes (fp32: 8). */
bool suits(const struct gemm_args *args)
{
    bool is_right = is_at_16(args->half) && is_at_16(args->y[0]) && is_at_16(args->hidden.values);
    is_right =
        is_right && (args->half ? args->half_cols % 8 == 0 : is_pair(args) || args->n_w == 1);
    for (int32_t k = 0; k < args->n_w; k++) is_right = is_right && args->w[k].rows % 8 == 0;
    return is_right;
}

int32_t all_rows(const struct gemm_args *args)
{
    int32_t n = 0;
    for (int32_t k = 0; k < args->n_w; k++) n += args->w[k].rows;
    return n;
}

product product_of(const struct gemm_args *args)
{
    product p = {};
    p.n_rows = args->n_rows;
    p.n_cols = all_rows(args);
    p.n_steps = args->x.stride / STEP;
    if (is_pair(args)) {
        p.scale = args->x.scale;
        p.half = static_cast<uint16_t *>(args->hidden.values);
        p.half_cols = args->hidden.stride;
        p.n_hidden = args->w[0].rows;
        p.n_cols = 2 * p.half_cols;
        p.hidden_inverse = 1.0f / args->hidden_scale;
        p.hidden_scale = args->hidden.scale;
    } else {
        p.scale = args->half || args->is_unscaled ? nullptr : args->x.scale;
        p.y = args->y[0];
        p.half = args->half;
        p.half_cols = args->half_cols;
    }
    p.n_slices = gemm_slices(p.n_cols, p.n_steps);
    p.is_few = p.n_rows <= FEW_ROWS;
    return p;
}

void launch_tile(const struct queue *q, product p, const struct gemm_maps *maps, int tile)
{
    const struct tensor_map *x = p.is_few ? &maps->x_few : &maps->x;
    memcpy(&p.first, tiles[tile].is_turned ? &maps->w : x, sizeof p.first);
    memcpy(&p.other, &maps->other[tile], sizeof p.other);
    start_tile(q, &p, tile);
}

} // namespace

bool gemm_maps_make(const struct gemm_args *args, struct gemm_maps *out)
{
    int32_t stride = args->x.stride, rows = all_rows(args);
    if (!suits(args)) return false;
    const void *x = args->x.values, *w = args->w[0].mirror;
    bool is_made = make_map(x, args->n_rows, stride, BOX, &out->x);
    is_made = is_made && make_map(x, args->n_rows, stride, FEW_ROWS, &out->x_few);
    is_made = is_made && make_map(w, rows, stride, BOX, &out->w);
    for (int i = 0; i < GEMM_TILES && is_made; i++) {
        int32_t n = tiles[i].n;
        if (tiles[i].is_turned)
            is_made = make_map(x, args->n_rows, stride, n, &out->other[i]);
        else
            is_made = make_map(w, rows, stride, is_pair(args) ? n / 2 : n, &out->other[i]);
    }
    return is_made;
}

void launch_gemm_wgmma(const struct queue *q, const struct gemm_args *args,
                       const struct gemm_maps *maps)
{
    product p = product_of(args);
    launch_tile(q, p, maps, best_tile(q, p));
}

bool launch_gemm_tile(const struct queue *q, const struct gemm_args *args,
                      const struct gemm_maps *maps, int tile)
{
    product p = product_of(args);
    int64_t times[GEMM_TILES];
    times_of(q, p, times);
    if (times[tile] == INT64_MAX) return false;
    launch_tile(q, p, maps, tile);
    return true;
}

int gemm_tile_for(const struct queue *q, const struct gemm_args *args)
{
    return best_tile(q, product_of(args));
}

/* Rows of x by rows of W. */
const char *gemm_tile_name(int tile)
{
    static char name[48];
    const struct tile *t = &tiles[tile];
    int m = GROUPS * t->slabs * SLAB;
    snprintf(name, sizeof name, "%d x %d%s%s", t->is_turned ? t->n : m, t->is_turned ? m : t->n,
             t->is_sliced ? ", sliced" : "", t->is_turned ? ", turned" : "");
    return name;
}
