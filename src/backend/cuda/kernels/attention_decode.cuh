/* What the kernels of attention_decode.cu share: a launch's facts, and what a row sees. */
#ifndef CUDA_ATTENTION_DECODE_CUH
#define CUDA_ATTENTION_DECODE_CUH

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

namespace {

enum {
    TILE_KEYS = 32,
    HEADS = 8,        /* query heads of a block */
    SPLITS_MIN = 8,   /* segments of a row, for each block's heads */
    SPLITS_MAX = 128, /* with LONG times as many for a long context */
    LONG = 2,         /* pays from LONG_TILES tiles a segment on */
    LONG_TILES = 8,
    BLOCKS_WANTED = 128, /* of one row: about one for each multiprocessor, two of short heads */
    COMBINE_THREADS = 256,
    COMBINE_COLS = 128,
    SCRATCH_WANTED = 64 << 20
};

struct job {
    struct attention_args a;
    int32_t d, group, n_chunks; /* query heads of a key head; blocks that share a key head */
    int32_t splits;
    int32_t first_row, n_segments; /* of this pass; of the grid */
    float *sums;
    float2 *state;
};

/* A segment has two tiles at least: what it leaves is as many bytes as one tile of eight heads. One
 * tile is 1.3 % of a step faster for one row of E4B and 0.8 to 3 % slower for 32 rows of E4B or
 * 12B (H200). */
__host__ __device__ inline int segments_of(int n_keys, int splits)
{
    int n_tiles = (n_keys + TILE_KEYS - 1) / TILE_KEYS, n_pairs = (n_tiles + 1) / 2;
    int most = n_tiles >= LONG_TILES * splits ? LONG * splits : splits;
    return n_pairs < most ? n_pairs : most;
}

/* What a row sees: n keys. */
struct span {
    int32_t row, n, n_segments;
    struct kv_run keys; /* and values */
};

/* False: no live row. */
__device__ __forceinline__ bool find_span(const struct job &j, int r, struct span *s)
{
    const struct attention_args &a = j.a;
    int n_live = rows_live(a.rows, a.step);
    s->row = j.first_row + r;
    if (!a.rows.is_out && a.part != attention_args::ATTEND_ALL) {
        int n_decode = a.step.counts[1];
        if (a.part == attention_args::ATTEND_CHUNK)
            s->row += n_decode;
        else
            n_live = n_decode;
    }
    if (s->row >= n_live) return false;
    int token = row_token(a.rows, a.step, s->row);
    int last = a.step.position[token], sequence = a.step.sequence[token];
    int n = last + 1;
    if (a.window > 0) n = min(n, a.window);
    n = min(n, a.cache.capacity);
    s->n = n;
    s->keys = kv_run_from(&a.cache, sequence, last + 1 - n);
    s->n_segments = segments_of(n, j.splits);
    return true;
}

/* Place of a partial result in the scratch. */
__device__ __forceinline__ int64_t partial_of(const struct job &j, int r, int head, int segment)
{
    return ((int64_t)r * j.a.n_heads + head) * j.n_segments + segment;
}

/* The running softmax of one query head: its largest score m and l = sum exp(s - m). */
struct running {
    float m, l;
};

/* Query heads of a block. */
__device__ __forceinline__ void find_heads(const struct job &j, int *first, int *n)
{
    int chunk = blockIdx.x % j.n_chunks * HEADS;
    *first = blockIdx.x / j.n_chunks * j.group + chunk;
    *n = min((int)HEADS, j.group - chunk);
}

__device__ __forceinline__ float sum_of_warp(float x)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(~0u, x, i);
    return x;
}

__device__ __forceinline__ float most_of_warp(float x)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

} // namespace

#endif
