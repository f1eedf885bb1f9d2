/* Split attention of many rows with a window, heads of 256 values: the bits of
 * attention_decode_mma.cuh and attention_decode_combine.cuh, in one launch.
 *
 * There a block takes a segment of a row, and the sums of all segments go through memory: they are
 * joined with weights that need the largest score of all. Here a block takes all of a row's keys
 * for a key head. First it multiplies all keys, whose scores have room in shared memory. So the
 * weights are known before the first value comes, and the sums of each segment are joined in
 * registers, in the order of attention_decode_combine.cuh: class by class, segments w, w + 8, ...
 * being class w.
 *
 * A warp copies tiles by TMA into a ring of units, keys of a row, then its values, then keys of
 * the next row. So tiles are under way whatever the others do. The others are four warps, which
 * meet only between keys and values: a warp has 8 keys of each tile, then 64 columns of the values.
 *
 * Fewer rows: PARTS blocks of a cluster share the classes of a row. They tell each other the
 * largest scores, and in the end the sums of their classes. */
#include "backend/cuda/kernels/sm90/attention_window.cuh"
#include "backend/cuda/kernels/sm90/attention_window.h"

namespace {

template <class S> __device__ __forceinline__ struct ring window_ring(struct window_shared<S> &s)
{
    return ring_at<S>(shared_address(s.ring), shared_address(s.barriers));
}

template <class S> __device__ __forceinline__ void start_barriers(struct window_shared<S> &s)
{
    if (threadIdx.x == 0) {
        ring_init<S>(window_ring(s));
        barrier_init(shared_address(&s.tops_there), S::PARTS * HEADS);
        barrier_init(shared_address(&s.sums_there), S::PARTS * (WINDOW_COMPUTE / 32));
        barriers_show();
    }
    if (S::PARTS > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
}

/* The units of a block: with one part it takes every gridDim.x-th unit, else just one. */
struct window_share {
    int next, step, n;
};
__device__ __forceinline__ bool next_unit(const struct job &j, struct window_share &share,
                                          struct window_unit *unit)
{
    int i = share.next;
    share.next += share.step;
    return i < share.n && find_unit(j, i, unit);
}

/* Grid: with one part as many blocks as run at a time; else a cluster for each unit. */
template <class S>
__global__ void __launch_bounds__(WINDOW_THREADS, 1)
    attend_window(const __grid_constant__ struct job j, const __grid_constant__ CUtensorMap k,
                  const __grid_constant__ CUtensorMap v)
{
    extern __shared__ __align__(1024) char dynamic[];
    struct window_shared<S> &s = *(struct window_shared<S> *)dynamic;
    struct window_share share = {(int)blockIdx.x / S::PARTS, (int)gridDim.x / S::PARTS,
                                 j.n_rows * j.a.cache.n_heads};
    struct window_unit unit;
    struct ring ring = window_ring(s);
    start_barriers(s);
    bool is_live = next_unit(j, share, &unit), is_copier = threadIdx.x >= WINDOW_COMPUTE;
    int pages = is_live && is_copier ? lane_page(j, unit) : 0;
    grid_wait();
    grid_release();
    if (is_copier) {
        while (is_live) {
            copy_tiles<S>(ring, &k, unit, pages);
            struct window_unit after;
            is_live = next_unit(j, share, &after);
            int pages_after = is_live ? lane_page(j, after) : 0;
            copy_tiles<S>(ring, &v, unit, pages);
            unit = after, pages = pages_after;
        }
        return;
    }
    for (; is_live; is_live = next_unit(j, share, &unit)) {
        score_tiles(j, unit, s, ring);
        weigh_segments(unit, s);
        sum_classes(j, unit, s, ring);
        meet_sums(s);
        store_unit(j, unit, s);
        if (S::PARTS == 1) window_sync(); /* sums and shares are free again */
    }
}

/* A kernel with PARTS blocks for a unit, and how it is launched. */
struct window_kernel {
    void (*start)(struct job, CUtensorMap, CUtensorMap);
    size_t shared_bytes; /* without scores */
    int parts;
};

template <class S> struct window_kernel kernel_of()
{
    return {attend_window<S>, sizeof(struct window_shared<S>), S::PARTS};
}

/* A block or two for a unit. */
const struct window_kernel window_kernels[] = {kernel_of<window<1, 10>>(),
                                               kernel_of<window<2, 8>>()};

/* Two blocks per unit if each then has a multiprocessor. */
const struct window_kernel &choose_kernel(const struct queue *q, int n_units)
{
    return window_kernels[2 * n_units <= q->n_sm];
}

/* A block has a multiprocessor for itself, for all the time of its unit: this pays only if nearly
 * all of them have work to the end. */
bool is_filled(const struct queue *q, int n_units)
{
    int n = n_units * choose_kernel(q, n_units).parts, rounds = (n + q->n_sm - 1) / q->n_sm;
    return 8 * n >= 7 * rounds * q->n_sm;
}

size_t window_bytes(const struct window_kernel &kernel, int window)
{
    int n_tiles = (window + 2 * (TILE_KEYS - 1)) / TILE_KEYS; /* in which it can lie */
    return kernel.shared_bytes + (size_t)n_tiles * HEADS * WINDOW_STRIDE * sizeof(float);
}

void start_window(const struct queue *q, const struct job &j, const CUtensorMap &k,
                  const CUtensorMap &v)
{
    int n_units = j.n_rows * j.a.cache.n_heads;
    const struct window_kernel &kernel = choose_kernel(q, n_units);
    int n = kernel.parts > 1 ? n_units * kernel.parts : q->n_sm;
    launch_shape shape = {dim3((unsigned)(kernel.parts == 1 && n_units < n ? n_units : n)),
                          WINDOW_THREADS, window_bytes(kernel, j.a.window), (unsigned)kernel.parts};
    launch(q, kernel.start, shape, j, k, v);
}

bool is_taken(const struct queue *q, const struct attention_args &a)
{
    const struct kv_cache &cache = a.cache;
    bool is_page = (int)KV_PAGE == (int)PAGE; /* as boxes_of says */
    bool is_shape = cache.format == FORMAT_F16 && cache.head_dim == WINDOW_DIM && !a.is_exact;
    bool is_window = a.window > 0 && a.window <= WINDOW_MOST;
    return q->capability == 90 && is_page && is_shape && is_window &&
           a.n_heads / cache.n_heads <= HEADS && is_filled(q, a.rows.max * cache.n_heads);
}

} // namespace

bool launch_attention_window(const struct queue *q, const struct attention_args *args)
{
    const struct kv_cache &cache = args->cache;
    CUtensorMap k, v;
    if (!is_taken(q, *args) || !boxes_of(&k, cache, cache.k, TILE_KEYS, WINDOW_DIM / 64) ||
        !boxes_of(&v, cache, cache.v, TILE_KEYS, WINDOW_DIM / 64))
        return false;
    struct job j = {};
    j.a = *args;
    j.d = WINDOW_DIM;
    j.group = args->n_heads / cache.n_heads;
    j.heads = HEADS;
    j.n_chunks = 1;
    j.splits = splits_of(args->n_heads, j.d, cache.n_heads, j.heads);
    j.n_rows = args->rows.max;
    start_window(q, j, k, v);
    return true;
}
