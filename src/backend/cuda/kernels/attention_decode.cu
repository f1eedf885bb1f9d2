/* Attention of rows that are independent of each other: decode steps, and what attention_prefill.cu
 * does not take.
 *
 *     y[r, h] = sum_s softmax_s(q[r, h] . k[s, g(h)]) v[s, g(h)]
 *
 * over the visible keys s of row r, cut into tiles of 32 keys at multiples of 32 and these dealt
 * out to segments in turn: segment i of S has tiles i, i + S, ... from the row's first one on, so
 * that all of them together read memory in order. S depends on the number of tiles and constants of
 * the shape only, hence a row's bits on nothing but the row. Launches:
 *
 *   cascade: only rows that share pages (attention_decode_cascade.cuh), instead of split.
 *   split:   block (key head and up to 8 of its query heads, segment, row) leaves for each query
 *            head its largest score m, l = sum exp(s - m) and the d sums of exp(s - m) v, so keys
 *            and values are read once for 8 heads. Blocks without keys end at once. Blocks
 *            with keys get the lowest indices, so they are scheduled before empty ones.
 *   own:     instead of split for one row with a window on Hopper (attention_decode_own.cuh): the
 *            launch of its heads, too.
 *   walk:    instead of split for several rows on Hopper (attention_decode_walk.cuh): few blocks,
 *            each with a stretch of segments.
 *   window:  instead of split and combine for several rows with a window on Hopper
 *            (sm90/attention_window.cu): a block takes a row, or a cluster does.
 *   combine: block (128 columns of a head, row) joins the segments in a fixed order, divides by the
 *            sum and rounds to what the next product reads; with many rows a warp does it.
 *
 * Memory: cells as plan/kv.h says. Scratch: sums [row][head][segment][d], then pairs (m, l)
 * [row][head][segment], all fp32. Rows that do not fit the scratch together go in passes: of as
 * many rows as fit with the longest context that there is room for, or, after a walk, with the
 * longest one of the step (find_pass).
 *
 * Bound: a long context by the bytes of keys and values (4.67 TB/s on an H200), a short one by
 * latency: two launches and two reads that wait for each other.
 *
 * The arrays of the step and the tables of pages are read before grid_wait: no kernel of a plan
 * writes them. Before it the cache is only prefetched into L2, which is harmless where it is not
 * yet written. */
#include "backend/cuda/kernels/attention_decode_any.cuh"
#include "backend/cuda/kernels/attention_decode_cascade.cuh"
#include "backend/cuda/kernels/attention_decode_combine.cuh"
#include "backend/cuda/kernels/attention_decode_mma.cuh"
#include "backend/cuda/kernels/attention_decode_own.cuh"
#include "backend/cuda/kernels/attention_decode_q8.cuh"
#include "backend/cuda/kernels/attention_decode_walk.cuh"
#include "backend/cuda/kernels/attention_own.h"
#include "backend/cuda/kernels/sm90/attention_window.h"

namespace {

/* Bytes of scratch of a launch: what 32 rows of E4B need for a long context. */
enum { SCRATCH_WANTED = 65 << 20 };

/* Tiles that a row's keys can lie in. */
int tiles_most(const struct kv_cache *cache, int window)
{
    int capacity = kv_capacity(cache) / TILE_KEYS;
    if (window <= 0) return capacity;
    int tiles = (window + 2 * (TILE_KEYS - 1)) / TILE_KEYS;
    return tiles < capacity ? tiles : capacity;
}

/* Do tensor cores take this cache, unless all is to be fp32? */
bool is_cache_mma(const struct kv_cache &cache)
{
    bool is_format = cache.format == FORMAT_F16 || cache.format == FORMAT_Q8_0;
    return is_format && (cache.head_dim == 256 || cache.head_dim == 512);
}

/* Query heads of a block: keys and values of 8 bits are unpacked once for all of a key head. */
int heads_of(const struct kv_cache &cache, int n_heads)
{
    bool is_wide = cache.format == FORMAT_Q8_0 && is_cache_mma(cache);
    return is_wide && n_heads / cache.n_heads > HEADS ? 2 * HEADS : HEADS;
}

size_t row_bytes_of(int n_heads, int head_dim, int n_segments)
{
    return (size_t)n_heads * n_segments * (head_dim * sizeof(float) + sizeof(float2));
}

void (*any_of(enum format format))(struct job)
{
    switch (format) {
    case FORMAT_F32: return attend_any<FORMAT_F32>;
    case FORMAT_BF16: return attend_any<FORMAT_BF16>;
    case FORMAT_Q8_0: return attend_any<FORMAT_Q8_0>;
    default: return attend_any<FORMAT_F16>;
    }
}

void (*q8_of(const struct job &j))(struct job)
{
    if (j.heads == HEADS) return j.d == 256 ? attend_q8<256, 1> : attend_q8<512, 1>;
    return j.d == 256 ? attend_q8<256, 2> : attend_q8<512, 2>;
}

size_t q8_bytes(const struct job &j)
{
    if (j.heads == HEADS)
        return j.d == 256 ? sizeof(struct q8_shared<256, 1>) : sizeof(struct q8_shared<512, 1>);
    return j.d == 256 ? sizeof(struct q8_shared<256, 2>) : sizeof(struct q8_shared<512, 2>);
}

/* Only data-centre chips have enough shared memory. */
bool has_cascade(const struct queue *q, const struct job &j)
{
    bool is_large = q->capability == 80 || (q->capability >= 90 && q->capability < 120);
    return is_large && j.a.step.is_packed && !j.a.is_exact && j.d == CASCADE_DIM &&
           j.a.cache.format == FORMAT_F16;
}

void launch_splits(const struct queue *q, const struct job &j)
{
    const struct kv_cache &cache = j.a.cache;
    dim3 grid(cache.n_heads * j.n_chunks, j.n_segments, j.n_rows);
    bool is_mma = !j.a.is_exact && is_cache_mma(cache);
    if (j.a.step.is_packed)
        launch(q, attend_cascade, dim3(q->n_sm), CASCADE_DIM / 2, sizeof(struct cascade_shared), j);
    if (is_mma && cache.format == FORMAT_Q8_0)
        launch(q, q8_of(j), grid, j.d / 2, q8_bytes(j), j);
    else if (j.room && j.n_chunks == walk_two::GROUPS)
        start_walk<walk_two>(q, j);
    else if (j.room)
        start_walk<walk_one>(q, j);
    else if (is_mma && j.d == 256)
        launch(q, attend_mma<256>, grid, 128, 0, j);
    else if (is_mma)
        launch(q, attend_mma<512>, grid, 256, 0, j);
    else
        launch(q, any_of(cache.format), grid, ANY_THREADS, any_shared_bytes(j.d), j);
}

void launch_combine(const struct queue *q, const struct job &j, int rows)
{
    int n_parts = (j.d + COMBINE_COLS - 1) / COMBINE_COLS * j.a.n_heads;
    if (q->capability == 90 && rows >= JOIN_ROWS_LEAST) /* measured nowhere else */
        launch(q, attend_join, dim3((n_parts + JOIN_WARPS - 1) / JOIN_WARPS, rows), JOIN_WARPS * 32,
               0, j);
    else
        launch(q, attend_combine, dim3(n_parts, rows), COMBINE_THREADS, 0, j);
}

} // namespace

size_t attention_decode_scratch_bytes(int32_t rows, int32_t n_heads, const struct kv_cache *cache)
{
    int d = cache->head_dim;
    int splits = splits_of(n_heads, d, cache->n_heads, heads_of(*cache, n_heads));
    size_t row_bytes = row_bytes_of(n_heads, d, LONG * splits);
    size_t n = SCRATCH_WANTED / row_bytes;
    if (n < 1) n = 1;
    return row_bytes * (n < (size_t)rows ? n : rows);
}

/* Without scratch and rows. */
static struct job job_of(const struct attention_args *args)
{
    const struct kv_cache &cache = args->cache;
    struct job j = {};
    j.a = *args;
    j.d = cache.head_dim;
    j.group = args->n_heads / cache.n_heads;
    j.heads = args->is_exact ? HEADS : heads_of(cache, args->n_heads);
    j.n_chunks = chunks_of(j.group, j.heads);
    j.splits = splits_of(args->n_heads, j.d, cache.n_heads, j.heads);
    j.n_segments = segments_of(tiles_most(&cache, args->window), j.splits);
    return j;
}

/* Places partial results in the scratch; returns how many segments of rows it has room for. */
static int take_scratch(struct job *j)
{
    const struct attention_args &a = j->a;
    size_t bytes = attention_decode_scratch_bytes(a.rows.max, a.n_heads, &a.cache);
    int room = (int)(bytes / row_bytes_of(a.n_heads, j->d, 1));
    j->sums = (float *)a.scratch;
    j->state = (float2 *)(j->sums + (size_t)room * a.n_heads * j->d);
    return room;
}

void launch_attention_decode(const struct queue *q, const struct attention_args *args)
{
    if (launch_attention_window(q, args)) return;
    struct job j = job_of(args);
    int room = take_scratch(&j), n_pass = room / j.n_segments;
    if (n_pass > args->rows.max) n_pass = args->rows.max;
    bool is_one = is_walked(q, j, args->rows.max); /* every launch gets all rows */
    if (is_one) j.room = room;
    if (!has_cascade(q, j)) j.a.step.is_packed = NULL;
    for (int first = 0; first < args->rows.max; first += n_pass, j.pass++) {
        int left = args->rows.max - first, n = left < n_pass ? left : n_pass;
        if (!is_one) j.first_row = first;
        j.n_rows = is_one ? args->rows.max : n;
        launch_splits(q, j);
        launch_combine(q, j, is_one ? left : n);
    }
}

/* ---- One row with its heads ------------------------------------------------------------------ */

/* Blocks read q, k and v while others write partial results. */
static bool is_outside_scratch(const struct attention_args &a, const float *x, int cols)
{
    size_t bytes = attention_decode_scratch_bytes(a.rows.max, a.n_heads, &a.cache);
    const char *from = (const char *)x, *scratch = (const char *)a.scratch;
    return !x || from + cols * sizeof(float) <= scratch || scratch + bytes <= from;
}

static bool takes_own(const struct queue *q, const struct heads_args &p,
                      const struct attention_args &a)
{
    const struct kv_cache &cache = a.cache;
    int cols = a.n_heads * cache.head_dim, kv_cols = cache.n_heads * cache.head_dim;
    bool is_one = a.rows.max == 1 && p.rows.max == 1 && a.rows.is_out == p.rows.is_out;
    bool is_shape = cache.format == FORMAT_F16 && cache.head_dim == OWN_DIM && !a.is_exact &&
                    a.n_heads / cache.n_heads <= HEADS;
    bool is_its = p.has_q && !p.half && p.q_out == a.q && p.n_heads == a.n_heads &&
                  (!p.has_k || (p.cache.k == cache.k && p.cache.table == cache.table));
    return q->capability == 90 && a.window > 0 && is_one && is_shape && is_its && !a.first_row &&
           is_outside_scratch(a, p.q, cols) && is_outside_scratch(a, p.k, kv_cols) &&
           is_outside_scratch(a, p.v, kv_cols);
}

bool launch_attention_own(const struct queue *q, const struct heads_args *heads,
                          const struct attention_args *args)
{
    if (!takes_own(q, *heads, *args)) return false;
    struct job j = job_of(args);
    take_scratch(&j);
    j.n_rows = 1;
    j.a.step.is_packed = NULL;
    dim3 grid((unsigned)args->cache.n_heads, (unsigned)j.n_segments);
    if (j.group <= 2)
        launch(q, attend_own<2>, grid, OWN_ATTEND + 32 * 2, 0, j, *heads);
    else
        launch(q, attend_own<4>, grid, OWN_ATTEND + 32 * 4, 0, j, *heads);
    launch_combine(q, j, 1);
    return true;
}
