/* Attention of many rows: y[r, h] = sum_s softmax_s(q[r, h] . k[s, g(h)]) v[s, g(h)], s over the
 * keys of the row's sequence at max(0, p - window + 1) .. p.
 *
 * A block takes one key head and a tile of rows of one run (types.h: struct step_view): tokens x
 * the query heads that share the key head. It goes over the keys in tiles of 32 with a running
 * softmax: no matrix of scores leaves it. Tiles begin at multiples of 32, so each lies in one page.
 * Tiles before every row's window and after every row's position are never read; masks are applied
 * to tiles at these edges only.
 *
 * A group of W warps owns 32 rows (two m-tiles). Warp w owns COLS = head / W of the columns: its
 * part of the queries stays in registers as operands, and its part of the outputs too. So every
 * fragment of keys and values that a warp reads from shared memory serves two products, and a head
 * of 512 needs no more registers than one of 256. For one tile a group does
 *     1. each warp: scores of 32 rows x 32 keys over its own columns, a part of the sum; the parts
 *        that belong to keys of other warps go to them through shared memory, in the lanes' order;
 *     2. each warp: outputs += shares (of the tile before) x its columns of the values;
 *     3. each warp: adds up the parts for its own 32 / W keys, p = 2^(s log2 e - top), as fp16 to
 *        shared memory for the whole group.
 * Keys have one buffer and values another: the next keys travel under steps 2 and 3, the values
 * under 3 and the next 1. `top` of a row lags behind its largest score: it moves only when some p
 * would exceed 2^14, which is rare after the first tile, so that outputs are hardly ever rescaled;
 * p of the largest score is between 2^4 and 2^14, the upper half of fp16's range.
 *
 * On Hopper, fp16 caches with heads of 256 and 512 go to sm90/attention_prompts.cu.
 *
 * Rounding: q, k, v, p to fp16, sums in fp32. A row's bits depend on its position and its keys
 * alone, not on its place in the tile of rows: tiles of keys that it does not see add zeros, and
 * its `top` follows from its own scores.
 *
 * Expected bound: 4 x head x visible pairs flops at the rate of mma.sync; per tile and warp 128
 * products (214 clocks of an SM at 641 TFLOP/s on 132 SMs) against 24 to 28 KB through shared
 * memory (190 to 220 clocks). A warp's 192 registers of queries and outputs leave room for one
 * fragment ahead and 8 warps an SM, so that half of the product rate is what to expect. */
#include "backend/cuda/kernels/attention_prefill_rows.cuh"
#include "backend/cuda/kernels/attention_prefill_steps.cuh"

namespace {

/* ---- All tiles of a run ---------------------------------------------------------------------- */

struct keys_of_run {
    struct key_source k, v;
    const int32_t *table; /* the sequence's */
    int32_t slots;
    enum format format;
    int32_t begin, last; /* positions that some row sees, both included */
    int32_t first;       /* of the tile that `begin` is in */
    int32_t window;      /* INT_MAX: none */
    int32_t low, high;   /* positions of the group's rows; low -1 when one is not there */
};

__device__ __forceinline__ bool is_seen(const struct keys_of_run &run, int first)
{
    return first <= run.high && first + TILE_KEYS - 1 > run.low - run.window;
}

__device__ __forceinline__ bool is_edge(const struct keys_of_run &run, int first)
{
    return first + TILE_KEYS - 1 > run.low || first <= run.high - run.window;
}

/* Starts copying the tile that begins at position `first`, in page `page`, with zeros for positions
 * that no row sees. */
template <class S>
__device__ __forceinline__ void fetch(const struct keys_of_run &run, const struct key_source &from,
                                      int first, int page, uint32_t to)
{
    fetch_tile<S::HEAD, S::THREADS, S::IS_HALF>(to, row_in<S::HEAD>(from, page, first),
                                                from.cell_bytes, run.format, first - run.begin,
                                                (uint32_t)(run.last - run.begin + 1));
}

/* Entries of the table for following pages, one a lane: a register for all of a window, or for
 * 2048 positions of a prompt. */
struct page_numbers {
    int32_t of_lane;
    int32_t base; /* position that the first lane's page begins with */
};

__device__ __forceinline__ struct page_numbers pages_from(const struct keys_of_run &run,
                                                          int position)
{
    int page = position / KV_PAGE;
    return {__ldg(run.table + (page + (int)threadIdx.x % 32) % run.slots), page * KV_PAGE};
}

__device__ __forceinline__ int page_at(const struct page_numbers &pages, int position)
{
    return __shfl_sync(0xffffffffu, pages.of_lane, (position - pages.base) / KV_PAGE);
}

/* All tiles of the run; copying the keys of the first has begun. */
template <class S>
__device__ __forceinline__ void attend_run(struct state<S> &mine, const struct place &at,
                                           const struct keys_of_run &run, struct page_numbers pages,
                                           const int32_t *position)
{
    bool has_shares = false;
    copies_wait<0>();
    __syncthreads();
    for (int first = run.first; first <= run.last; first += TILE_KEYS) {
        bool is_here = is_seen(run, first);
        float s[2][S::OWN][4], part[4];
        bool is_large = false;
        if (is_here) prefill_score<S>(mine, at, s);
        copies_wait<0>();
        __syncthreads(); /* keys are used up; values and shares of the tile before are there */
        fetch<S>(run, run.k, first + TILE_KEYS, page_at(pages, first + TILE_KEYS), at.keys);
        if (has_shares) gather<S>(mine, at);
        __syncthreads(); /* values and shares are used up; parts are there */
        fetch<S>(run, run.v, first, page_at(pages, first), at.keys + S::TILE_BYTES);
        if (first + 2 * TILE_KEYS - pages.base >= 32 * KV_PAGE)
            pages = pages_from(run, first + TILE_KEYS);
        if (is_here)
            is_large = prefill_weigh<S>(mine, at, s, part, position, first, run.window,
                                        is_edge(run, first)) > P_LIMIT;
        copies_wait<1>();
        if (__syncthreads_or(is_large)) { /* the next keys are there */
            if (is_here) tell_largest<S>(at, s);
            __syncthreads();
            if (is_here) raise_tops<S>(mine, at);
            if (is_here) share_out<S>(mine, at, s, part);
        }
#pragma unroll
        for (int r = 0; r < 4; r++)
            if (is_here) mine.sum[r] += part[r];
        has_shares = is_here;
    }
    copies_wait<0>();
    __syncthreads();
    if (has_shares) gather<S>(mine, at);
}

/* What the block's rows see: all but `low` and `high`. */
__device__ __forceinline__ struct keys_of_run keys_of(const struct attention_args &a,
                                                      const struct block_rows &rows)
{
    struct keys_of_run keys;
    keys.k = source_of(a.cache, a.cache.k);
    keys.v = source_of(a.cache, a.cache.v);
    keys.slots = a.cache.slots;
    keys.table = a.cache.table + (int64_t)rows.sequence * keys.slots;
    keys.format = a.cache.format;
    keys.window = a.window > 0 ? a.window : INT_MAX;
    keys.begin = max(0, rows.lowest - keys.window + 1);
    keys.first = keys.begin / TILE_KEYS * TILE_KEYS;
    keys.last = rows.highest;
    return keys;
}

/* Grid: key heads x tiles of rows. */
template <class S>
__global__ void __launch_bounds__(S::THREADS, 256 / S::THREADS)
    attend(const struct attention_args a)
{
    extern __shared__ __align__(1024) char shared[];
    auto *position = reinterpret_cast<int32_t *>(shared + S::POSITIONS);
    struct block_rows rows = block_rows_of<S>(a);
    struct keys_of_run keys = keys_of(a, rows);
    struct page_numbers pages = pages_from(keys, keys.first);
    grid_wait(); /* no kernel writes what was read so far: the step's arrays and the table */
    grid_release();
    if (rows.n == 0) return;
    struct place at = place_of<S>(shared);
    fetch<S>(keys, keys.k, keys.first, page_at(pages, keys.first), at.keys);
    if (threadIdx.x < S::ROWS) position[threadIdx.x] = position_of(a, rows, (int)threadIdx.x);
    struct state<S> mine;
    load_queries<S>(mine, at, a, rows);
    state_clear(mine);
    int own = position_of(a, rows, at.group * 32 + at.lane);
    keys.low = __reduce_min_sync(0xffffffffu, own);
    keys.high = __reduce_max_sync(0xffffffffu, own);
    attend_run<S>(mine, at, keys, pages, position);
    store_outputs<S>(mine, at, a, rows);
}

} // namespace

/* ---- Variants -------------------------------------------------------------------------------- */

/* X(name, columns a warp, warps a group, warps, fp16 cache). All of them fit 99 KB and fill an SM's
 * registers: a block of 8 warps or, where a group has two warps or one, two blocks of 4, which fill
 * each other's waits: on an H200 6 % faster than one of 8 for a window of 1024, and a prompt of 512
 * tokens gets twice the blocks. Other formats convert as they load, once for all rows of a block,
 * so their blocks have more rows. */
#define VARIANT_LIST(X)                                                                            \
    X(half_64, 64, 1, 4, true)                                                                     \
    X(half_128, 64, 2, 4, true)                                                                    \
    X(half_256, 128, 2, 4, true)                                                                   \
    X(half_512, 128, 4, 8, true)                                                                   \
    X(other_64, 64, 1, 8, false)                                                                   \
    X(other_128, 64, 2, 8, false)                                                                  \
    X(other_256, 128, 2, 8, false)                                                                 \
    X(other_512, 128, 4, 8, false)

#define X(name, ...) using name = shape<__VA_ARGS__>;
VARIANT_LIST(X)
#undef X

bool attention_prefill_takes(const struct attention_args *args)
{
    const struct kv_cache *cache = &args->cache;
    int32_t d = cache->head_dim;
    bool is_format = cache->format == FORMAT_F16 || cache->format == FORMAT_BF16 ||
                     cache->format == FORMAT_F32 || cache->format == FORMAT_Q8_0;
    return !args->is_exact && is_format && cache->page_bytes <= UINT32_MAX &&
           (d == 64 || d == 128 || d == 256 || d == 512) && args->n_heads % cache->n_heads == 0 &&
           args->n_heads / cache->n_heads <= 32;
}

template <class S>
static void prefill_launch(const struct queue *q, const struct attention_args *args, int32_t n_runs)
{
    static_assert(shared_bytes<S>() <= 99 * 1024, "what a block may have on every chip");
    int rows = S::ROWS / (args->n_heads / args->cache.n_heads);
    int most = (args->rows.max - n_runs) / rows + n_runs; /* tiles, if each run ends in a part */
    dim3 grid((unsigned)args->cache.n_heads, (unsigned)most);
    launch(q, attend<S>, grid, S::THREADS, shared_bytes<S>(), *args);
}

void launch_attention_prefill(const struct queue *q, const struct attention_args *args,
                              int32_t n_runs)
{
    if (args->rows.max <= 0 || n_runs <= 0) return;
    if (n_runs > args->rows.max) n_runs = args->rows.max;
    if (launch_attention_prompts(q, args, n_runs)) return;
    bool is_half = args->cache.format == FORMAT_F16;
    switch (args->cache.head_dim) {
    case 64:
        is_half ? prefill_launch<half_64>(q, args, n_runs)
                : prefill_launch<other_64>(q, args, n_runs);
        break;
    case 128:
        is_half ? prefill_launch<half_128>(q, args, n_runs)
                : prefill_launch<other_128>(q, args, n_runs);
        break;
    case 256:
        is_half ? prefill_launch<half_256>(q, args, n_runs)
                : prefill_launch<other_256>(q, args, n_runs);
        break;
    case 512:
        is_half ? prefill_launch<half_512>(q, args, n_runs)
                : prefill_launch<other_512>(q, args, n_runs);
        break;
    }
}
