/* What the kernels of attention_decode.cu share: a launch's facts, and what a row sees. */
#ifndef CUDA_ATTENTION_DECODE_CUH
#define CUDA_ATTENTION_DECODE_CUH

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"
#include "backend/cuda/segments.h"

namespace {

enum { COMBINE_THREADS = 256, COMBINE_COLS = 128 };

struct job {
    struct attention_args a;
    int32_t d, group;        /* query heads of a key head */
    int32_t heads, n_chunks; /* most query heads of a block; blocks that share a key head */
    int32_t splits;
    int32_t first_row, n_rows; /* of this pass, or of all */
    int32_t n_segments;        /* of a row at most */
    int32_t pass, room;        /* attention_decode_walk.cuh: passes are found at run time */
    float *sums;
    float2 *state;
};

/* What a row sees: n keys from position `first` on. */
struct span {
    int32_t row, sequence, first, n, n_segments;
};

/* False: no live row. The arrays of a step have room for all rows of a launch, so that those of
 * tokens can be read before it is known whether the row is live. */
__device__ __forceinline__ bool find_span(const struct job &j, int r, struct span *s)
{
    const struct attention_args &a = j.a;
    int position = 0;
    s->row = j.first_row + r;
    if (!a.rows.is_out) {
        position = a.step.position[s->row];
        s->sequence = a.step.sequence[s->row];
    }
    if (s->row >= rows_live(a.rows, a.step)) return false;
    if (a.rows.is_out) {
        int token = a.step.out_row[s->row];
        position = a.step.position[token];
        s->sequence = a.step.sequence[token];
    }
    int n = position + 1, end_tile = (n + TILE_KEYS - 1) / TILE_KEYS;
    s->first = a.window > 0 ? max(n - a.window, 0) : 0;
    s->first = max(s->first, end_tile * TILE_KEYS - kv_capacity(&a.cache));
    s->n = n - s->first;
    s->n_segments = segments_of(end_tile - s->first / TILE_KEYS, j.splits);
    return true;
}

/* Tiles in which its keys lie. */
__device__ __forceinline__ int tiles_of(const struct span &s)
{
    return (s.first % TILE_KEYS + s.n + TILE_KEYS - 1) / TILE_KEYS;
}

/* Rows whose partial results are in the scratch together, from j.first_row + first on, and segments
 * that each has room for. */
struct pass {
    int32_t first, n, n_segments;
};

/* Where passes are found at run time, as many rows as fit with what the longest one needs. By all
 * lanes of a warp; up to 64 rows. */
__device__ __forceinline__ struct pass find_pass(const struct job &j)
{
    if (!j.room) return {0, j.n_rows, j.n_segments};
    int most = 1;
    for (int r = threadIdx.x % 32; r < j.n_rows; r += 32) {
        struct span s;
        if (find_span(j, r, &s)) most = max(most, s.n_segments);
    }
    most = __reduce_max_sync(~0u, most);
    int each = j.room / most, first = min(j.pass * each, j.n_rows);
    return {first, min(each, j.n_rows - first), most};
}

/* Does attention_decode_cascade.cuh do this row? */
__device__ __forceinline__ bool is_in_pack(const struct job &j, int r)
{
    const struct attention_args &a = j.a;
    return a.step.is_packed && a.step.is_packed[a.first_row + j.first_row + r];
}

/* The tiles of a segment, in the order in which it takes them. A tile begins at a multiple of
 * TILE_KEYS, so that it lies in one page and does not depend on where the row's window begins: keys
 * of its first tile that come before the window are masked. */
struct walk {
    const int32_t *table;  /* of the sequence */
    int32_t tile, step;    /* the first one's number among those of the row; to the next */
    int32_t slot, of_slot; /* the row's first tile is tile `of_slot` of this slot */
    int32_t before, n;     /* keys before the window in the row's first tile; keys of the row */
};

enum { PAGE_TILES = KV_PAGE / TILE_KEYS };

__device__ __forceinline__ struct walk walk_of(const struct job &j, const struct span &s,
                                               int segment)
{
    const struct kv_cache &cache = j.a.cache;
    struct walk w;
    w.table = cache.table + (int64_t)s.sequence * cache.slots;
    w.tile = segment;
    w.step = s.n_segments;
    w.slot = s.first / KV_PAGE % cache.slots;
    w.of_slot = s.first / TILE_KEYS % PAGE_TILES;
    w.before = s.first % TILE_KEYS;
    w.n = s.n;
    return w;
}

/* Place of the i-th tile's first key among those that the row sees: negative where the window
 * begins within the tile, n or more where the segment has no such tile. */
__device__ __forceinline__ int walk_begin(const struct walk &w, int i)
{
    return (w.tile + i * w.step) * TILE_KEYS - w.before;
}

/* The page of the i-th tile; tables are written by no kernel, so this may be read early. */
__device__ __forceinline__ int walk_page(const struct job &j, const struct walk &w, int i)
{
    if (walk_begin(w, i) >= w.n) return 0;
    int slot = w.slot + (w.of_slot + w.tile + i * w.step) / PAGE_TILES;
    if (slot >= j.a.cache.slots) slot -= j.a.cache.slots;
    return __ldg(w.table + slot);
}

/* Bytes from `k` to the keys of the i-th tile, which is in this page. */
__device__ __forceinline__ size_t walk_offset(const struct job &j, const struct walk &w, int i,
                                              int page)
{
    const struct kv_cache &cache = j.a.cache;
    int of_page = (w.of_slot + w.tile + i * w.step) % PAGE_TILES;
    return (size_t)page * cache.page_bytes +
           (uint32_t)(of_page * TILE_KEYS * kv_cell_bytes(&cache));
}

/* Place of a partial result in the scratch, of row r of a pass. */
__device__ __forceinline__ int64_t partial_of(const struct job &j, int r, int head, int segment,
                                              int n_segments)
{
    return ((int64_t)r * j.a.n_heads + head) * n_segments + segment;
}
__device__ __forceinline__ int64_t partial_of(const struct job &j, int r, int head, int segment)
{
    return partial_of(j, r, head, segment, j.n_segments);
}

/* The running softmax of one query head: its largest score m and l = sum exp(s - m). */
struct running {
    float m, l;
};

/* Query heads of chunk i; chunks are numbered key head by key head. */
__device__ __forceinline__ void find_heads(const struct job &j, int i, int *first, int *n)
{
    int chunk = i % j.n_chunks * j.heads;
    *first = i / j.n_chunks * j.group + chunk;
    *n = min(j.heads, j.group - chunk);
}

__device__ __forceinline__ float most_of_warp(float x)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

} // namespace

#endif
