/* Experts for many rows: the order in which a grouped product takes its pairs, and the sum over a
 * row's experts. A pair is (row, place among the row's chosen experts), numbered row * n_used +
 * place.
 *
 * Sort: pairs by expert, rising within an expert (a stable counting sort), cut in tiles of
 * neighbouring pairs of one expert. Ids outside [0, n_expert) are dropped. Up to 16 blocks, each
 * for a stretch of pairs. A block counts the experts of all pairs in shared memory: of those before
 * its stretch, of each of its warps' part of it, and of those after it (integer atomics: sums do
 * not depend on their order). From that it knows where its pairs go; lanes with equal ids find
 * their order by match_any. Bound by latency and by one multiprocessor's shared atomics.
 *
 * Sum: y[t] = sum over s of shares[t][s] * x[t][s]: bound by reading x. */
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/moe.cuh"

namespace {

/* Counts are [warps + 2][n_expert] and stay below 48 KB: fewer warps for many experts. */
enum { THREADS_FEW = 256, THREADS_MANY = 1024, EXPERTS_FEW = 320, EXPERTS_MAX = 1024 };
enum { SORT_BLOCKS_MAX = 16 };
static_assert((THREADS_MANY / 32 + 2) * EXPERTS_FEW * 4 <= 44 << 10, "shared memory");
static_assert((THREADS_FEW / 32 + 2) * EXPERTS_MAX * 4 <= 44 << 10, "shared memory");

/* Sums of both numbers of `value` over the threads before this one; all threads call it. */
__device__ int2 sums_before(int2 value, int2 *warp_sums)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int2 sum = value;
    for (int d = 1; d < 32; d *= 2) {
        int x = __shfl_up_sync(~0u, sum.x, d), y = __shfl_up_sync(~0u, sum.y, d);
        if (lane >= d) sum.x += x, sum.y += y;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int2 before = make_int2(sum.x - value.x, sum.y - value.y);
    for (int w = 0; w < warp; w++) before.x += warp_sums[w].x, before.y += warp_sums[w].y;
    return before;
}

/* The experts of pairs [begin, end) to `count`; thread `thread` of `n_threads`. */
__device__ void count_pairs(const int32_t *ids, int begin, int end, int n_expert, int *count,
                            int thread, int n_threads)
{
#pragma unroll 8
    for (int p = begin + thread; p < end; p += n_threads) {
        unsigned id = (unsigned)ids[p];
        if (id < (unsigned)n_expert) atomicAdd(&count[id], 1);
    }
}

/* Puts pairs [begin, end) where `place` says, which moves on; a warp. */
__device__ void put_pairs(const int32_t *ids, int begin, int end, int n_expert, int *place,
                          int32_t *out)
{
    int lane = threadIdx.x % 32;
    for (; begin < end; begin += 32) {
        int p = begin + lane, id = p < end ? ids[p] : -1;
        bool is_expert = (unsigned)id < (unsigned)n_expert;
        unsigned same = __match_any_sync(~0u, id), before = same & ((1u << lane) - 1);
        int at = is_expert ? place[id] + __popc(before) : 0;
        if (is_expert) out[at] = p;
        __syncwarp();
        if (is_expert && same >> lane == 1) place[id] = at + 1;
        __syncwarp();
    }
}

/* Even tiles by their width: how many there are, and how many have their place. */
struct tile_widths {
    int n[HALF_WIDTHS], taken[HALF_WIDTHS];
};

/* The number of an expert's first tile: after all that are wider. */
__device__ int take_tiles(tile_widths &widths, int width, int n)
{
    int at = atomicAdd(&widths.taken[width], n);
    for (int w = width + 1; w < HALF_WIDTHS; w++) at += widths.n[w];
    return at;
}

/* counts: rows of n_expert: pairs before this block's, after them, and those of each warp. Turns
 * the rows of warps into the place of the warp's first pair of that expert; block 0 writes `first`
 * and the tiles. A thread has `each` neighbouring experts. */
__device__ void place_experts(const expert_plan &plan, int *counts, int n_expert, int2 *warp_sums,
                              tile_widths &widths)
{
    int n_rows = blockDim.x / 32 + 2, each = (n_expert + blockDim.x - 1) / blockDim.x;
    int begin = threadIdx.x * each, end = min(begin + each, n_expert);
    int2 sum = make_int2(0, 0);
    for (int e = begin; e < end; e++) {
        int n = 0;
        for (int r = 0; r < n_rows; r++) n += counts[r * n_expert + e];
        int step = tile_step(plan, n), n_tiles = (n + step - 1) / step;
        sum.x += n;
        sum.y += n_tiles;
        if (plan.is_even) atomicAdd(&widths.n[(step - 1) / HALF_WIDTH], n_tiles);
    }
    int2 at = sums_before(sum, warp_sums);
    for (int e = begin; e < end; e++) {
        int first = at.x;
        at.x += counts[e];
        for (int r = 2; r < n_rows; r++) {
            int n = counts[r * n_expert + e];
            counts[r * n_expert + e] = at.x;
            at.x += n;
        }
        at.x += counts[n_expert + e];
        if (blockIdx.x != 0) continue;
        int n = at.x - first, step = tile_step(plan, n), n_tiles = (n + step - 1) / step;
        int tile = plan.is_even ? take_tiles(widths, (step - 1) / HALF_WIDTH, n_tiles) : at.y;
        at.y += n_tiles;
        plan.first[e] = first;
        for (; first < at.x; first += step, tile++)
            plan.tile[tile] = {e, first, min(step, at.x - first), step};
    }
    if (blockIdx.x == 0 && begin < end && end == n_expert) {
        plan.first[n_expert] = at.x;
        *plan.n_tile = at.y;
    }
}

__global__ void __launch_bounds__(THREADS_MANY)
    expert_sort(expert_plan plan, const int32_t *__restrict__ ids, int n_pairs, int n_expert)
{
    extern __shared__ int counts[]; /* [2 + warps][n_expert] */
    __shared__ int2 warp_sums[THREADS_MANY / 32];
    __shared__ tile_widths widths;
    grid_wait();
    grid_release();
    int i = threadIdx.x, n_threads = blockDim.x, n_warps = n_threads / 32, warp = i / 32;
    for (int k = i; k < (n_warps + 2) * n_expert; k += n_threads) counts[k] = 0;
    if (i < HALF_WIDTHS) widths.n[i] = widths.taken[i] = 0;
    __syncthreads();
    int of_warp = (n_pairs + gridDim.x * n_warps - 1) / (gridDim.x * n_warps);
    int block_begin = min(blockIdx.x * n_warps * of_warp, n_pairs);
    int block_end = min(block_begin + n_warps * of_warp, n_pairs);
    int begin = min(block_begin + warp * of_warp, n_pairs), end = min(begin + of_warp, n_pairs);
    int *of_this = counts + (2 + warp) * n_expert;
    count_pairs(ids, begin, end, n_expert, of_this, i % 32, 32);
    count_pairs(ids, 0, block_begin, n_expert, counts, i, n_threads);
    count_pairs(ids, block_end, n_pairs, n_expert, counts + n_expert, i, n_threads);
    __syncthreads();
    place_experts(plan, counts, n_expert, warp_sums, widths);
    __syncthreads();
    put_pairs(ids, begin, end, n_expert, of_this, plan.pair);
}

__device__ __forceinline__ float value_of(float v)
{
    return v;
}
__device__ __forceinline__ float value_of(__half v)
{
    return __half2float(v);
}

/* A thread makes WIDTH neighbouring values of one row. */
template <typename Value, int WIDTH>
__global__ void __launch_bounds__(256)
    expert_sum(const Value *x, const __grid_constant__ expert_sum_args a)
{
    struct alignas(WIDTH * sizeof(Value)) values {
        Value v[WIDTH];
    };
    struct alignas(WIDTH * sizeof(float) < 16 ? WIDTH * sizeof(float) : 16) floats {
        float v[WIDTH];
    };
    grid_wait();
    grid_release();
    int col = (blockIdx.x * 256 + threadIdx.x) * WIDTH;
    size_t row = blockIdx.y;
    if (col >= a.cols) return;
    floats sum = {};
    const Value *from = x + row * a.n_used * a.cols + col;
#pragma unroll 4
    for (int s = 0; s < a.n_used; s++) {
        size_t pair = row * a.n_used + s;
        values v = *reinterpret_cast<const values *>(from + (size_t)s * a.cols);
        float share = a.scale ? a.shares[pair] * a.scale[pair] : a.shares[pair];
#pragma unroll
        for (int i = 0; i < WIDTH; i++) sum.v[i] = fmaf(share, value_of(v.v[i]), sum.v[i]);
    }
    *reinterpret_cast<floats *>(a.y + row * a.cols + col) = sum;
}

template <typename Value, int WIDTH>
void expert_sum_launch(const struct queue *q, const Value *x, const expert_sum_args &a,
                       int32_t n_rows)
{
    unsigned span = 256 * WIDTH;
    dim3 grid(((unsigned)a.cols + span - 1) / span, (unsigned)n_rows);
    launch(q, expert_sum<Value, WIDTH>, grid, 256, 0, x, a);
}

/* Arrays begin at multiples of 64 bytes. */
size_t padded(size_t n_ints)
{
    return (n_ints * sizeof(int32_t) + 63) / 64 * 64;
}

size_t tiles_bytes(int32_t n_rows, int32_t n_used, int32_t n_expert)
{
    size_t ints = sizeof(struct expert_tile) / sizeof(int32_t);
    return padded(ints * (size_t)expert_tiles_max(n_rows, n_used, n_expert));
}

} // namespace

size_t expert_plan_bytes(int32_t n_rows, int32_t n_used, int32_t n_expert)
{
    return padded((size_t)n_expert + 1) + padded((size_t)n_rows * (size_t)n_used) +
           tiles_bytes(n_rows, n_used, n_expert) + padded(1);
}

struct expert_plan expert_plan_at(void *memory, int32_t n_rows, int32_t n_used, int32_t n_expert)
{
    char *at = static_cast<char *>(memory);
    expert_plan plan = {};
    plan.first = reinterpret_cast<int32_t *>(at);
    at += padded((size_t)n_expert + 1);
    plan.pair = reinterpret_cast<int32_t *>(at);
    at += padded((size_t)n_rows * (size_t)n_used);
    plan.tile = reinterpret_cast<struct expert_tile *>(at);
    at += tiles_bytes(n_rows, n_used, n_expert);
    plan.n_tile = reinterpret_cast<int32_t *>(at);
    return plan;
}

void launch_expert_sort(const struct queue *q, const struct expert_plan *plan, const int32_t *ids,
                        int32_t n_rows, int32_t n_used, int32_t n_expert)
{
    unsigned threads = n_expert <= EXPERTS_FEW ? THREADS_MANY : THREADS_FEW;
    unsigned n_blocks = ((unsigned)(n_rows * n_used) + threads - 1) / threads;
    if (n_blocks > SORT_BLOCKS_MAX) n_blocks = SORT_BLOCKS_MAX;
    size_t shared_bytes = (threads / 32 + 2) * (size_t)n_expert * sizeof(int);
    launch(q, expert_sort, dim3(n_blocks), threads, shared_bytes, *plan, ids, n_rows * n_used,
           n_expert);
}

void launch_expert_sum(const struct queue *q, const struct expert_sum_args *args, int32_t n_rows)
{
    const void *x = args->x ? static_cast<const void *>(args->x) : args->half;
    const __half *half = reinterpret_cast<const __half *>(args->half);
    int width = args->x ? 4 : 8;
    bool is_wide = args->cols % width == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(args->y) % 16 == 0;
    if (args->x && is_wide)
        expert_sum_launch<float, 4>(q, args->x, *args, n_rows);
    else if (args->x)
        expert_sum_launch<float, 1>(q, args->x, *args, n_rows);
    else if (is_wide)
        expert_sum_launch<__half, 8>(q, half, *args, n_rows);
    else
        expert_sum_launch<__half, 1>(q, half, *args, n_rows);
}
