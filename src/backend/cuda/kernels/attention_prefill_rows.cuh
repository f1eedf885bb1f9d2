/* The rows of a block of attention_prefill.cu: which they are, their queries on the way in, their
 * results on the way out. */
#ifndef CUDA_ATTENTION_PREFILL_ROWS_CUH
#define CUDA_ATTENTION_PREFILL_ROWS_CUH

#include "backend/cuda/kernels/attention_prefill_steps.cuh"
#include "backend/cuda/kernels/block.cuh"

namespace {

/* The block's rows, all of one run. Row r of it is query head r % n_group of the key head, row
 * r / n_group of the launch counted from `first`. */
struct block_rows {
    int32_t first, n, n_group;
    uint32_t inverse; /* ceil(2^16 / n_group) */
    int32_t sequence;
    int32_t lowest, highest; /* positions */
    int32_t key_head;
};

/* r / n_group, exact for r < 2^8 and n_group < 2^8. */
__device__ __forceinline__ int token_of(const struct block_rows &rows, int r)
{
    return (int)((uint32_t)r * rows.inverse >> 16);
}

struct row_range {
    int32_t first, n;
};

/* Tile `tile` of all runs, each of which is cut into tiles of this many rows; none beyond the last.
 * Tiles are counted from the end: the last rows of a prompt see the most keys, so they go first.
 * Every warp looks for itself, at 32 runs at a time. */
__device__ __forceinline__ struct row_range rows_of_tile(const int32_t *edge, int n_runs,
                                                         int rows_max, int tile)
{
    int lane = (int)threadIdx.x % 32;
    for (int first = 0; first < n_runs; first += 32) {
        int run = first + lane, begin = 0, end = 0;
        if (run < n_runs) begin = edge[run + 1], end = edge[run];
        int tiles = (end - begin + rows_max - 1) / rows_max, sum = tiles;
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
            int before = __shfl_up_sync(0xffffffffu, sum, i);
            if (lane >= i) sum += before;
        }
        unsigned after = __ballot_sync(0xffffffffu, tile < sum);
        if (after) {
            int left = sum - 1 - tile, row = begin + left * rows_max, at = __ffs((int)after) - 1;
            int n = min(rows_max, end - row);
            return {uniform(__shfl_sync(0xffffffffu, row, at)),
                    uniform(__shfl_sync(0xffffffffu, n, at))};
        }
        tile -= __shfl_sync(0xffffffffu, sum, 31);
    }
    return {0, 0};
}

template <class S>
__device__ __forceinline__ struct block_rows block_rows_of(const struct attention_args &a)
{
    struct block_rows rows = {};
    rows.n_group = a.n_heads / a.cache.n_heads;
    rows.inverse = (65535u + (uint32_t)rows.n_group) / (uint32_t)rows.n_group;
    struct row_range tile =
        rows_of_tile(a.rows.is_out ? a.step.run[ROWS_OUT] : a.step.run[ROWS_TOKEN],
                     a.step.counts[a.rows.is_out ? 4 : 3], S::ROWS / rows.n_group, (int)blockIdx.y);
    rows.first = tile.first;
    rows.n = tile.n * rows.n_group;
    rows.key_head = (int)blockIdx.x;
    if (rows.n == 0) return rows;
    int first = row_token(a.rows, a.step, rows.first);
    int last = row_token(a.rows, a.step, rows.first + tile.n - 1);
    rows.sequence = uniform(a.step.sequence[first]);
    rows.lowest = uniform(a.step.position[first]);
    rows.highest = uniform(a.step.position[last]);
    return rows;
}

/* Position of the block's row r, -1 when it is not there. */
__device__ __forceinline__ int position_of(const struct attention_args &a,
                                           const struct block_rows &rows, int r)
{
    if (r >= rows.n) return -1;
    return a.step.position[row_token(a.rows, a.step, rows.first + token_of(rows, r))];
}

/* The query head of the block's row r. */
__device__ __forceinline__ int head_of(const struct block_rows &rows, int r)
{
    return rows.key_head * rows.n_group + r - token_of(rows, r) * rows.n_group;
}

/* Queries as the operands of this warp's products. Rows that are not there take the first one's:
 * they see no key, and are not stored. */
template <class S>
__device__ __forceinline__ void load_queries(struct state<S> &mine, const struct place &at,
                                             const struct attention_args &a,
                                             const struct block_rows &rows)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int in_block = at.group * 32 + r * 8 + (at.lane >> 2);
        int of = in_block < rows.n ? in_block : 0;
        size_t row = (size_t)(rows.first + token_of(rows, of));
        const float *q = a.q + (row * (size_t)a.n_heads + (size_t)head_of(rows, of)) * S::HEAD +
                         (at.lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < S::K_STEPS * 2; i++) {
            int column = kv_key_column(&a.cache, at.w * S::COLS + i / 4 * 32) + i % 4 * 8;
            float2 two = *reinterpret_cast<const float2 *>(q + column);
            mine.q[i / 2][r / 2][i % 2 * 2 + r % 2] = pack_halves_saturated(two.x, two.y);
        }
    }
}

/* Eight rows of a warp's columns, rows first .. of the block, as activations in blocks. They come
 * through shared memory, where a block of 32 columns can be taken by eight neighbours. */
template <class S>
__device__ __forceinline__ void store_rows_blocks(const float2 *stage, const struct place &at,
                                                  const struct attention_args &a,
                                                  const struct block_rows &rows, int first)
{
    constexpr int LANES = S::COLS / 4; /* of a row */
    int u = at.lane % LANES;
#pragma unroll 2
    for (int j = 0; j < 8 * LANES / 32; j++) {
        int i = j * 32 / LANES + at.lane / LANES;
        float4 x =
            *reinterpret_cast<const float4 *>(stage + i * S::COLS / 2 + ((2 * u) ^ ((i & 3) * 4)));
        bool is_live = first + i < rows.n;
        int r = is_live ? first + i : 0;
        size_t row = (size_t)(rows.first + token_of(rows, r));
        int column = head_of(rows, r) * S::HEAD + kv_value_column(&a.cache, at.w * S::COLS + u * 4);
        act_store_blocks(a.act, (int64_t)row, column / 4, x, is_live);
    }
}

/* The first column of the head that the warp's n-tile `n` has. */
template <class S>
__device__ __forceinline__ int tile_column(const struct attention_args &a, const struct place &at,
                                           int n)
{
    return kv_value_column(&a.cache, at.w * S::COLS + n / 4 * 32) + n % 4 * 8;
}

/* Row `r` (0 .. 3) of a thread's four. Half activations have the scale 1: a block does not see the
 * other heads of a row, and need not, since an output is a mean of values, and values are normed:
 * at most sqrt(512) each. */
template <class S>
__device__ __forceinline__ void store_row(const struct state<S> &mine, const struct place &at,
                                          const struct attention_args &a,
                                          const struct block_rows &rows, int r, float inverse)
{
    int in_block = at.group * 32 + r * 8 + (at.lane >> 2);
    if (in_block >= rows.n) return;
    size_t row = (size_t)(rows.first + token_of(rows, in_block));
    int head = head_of(rows, in_block) * S::HEAD, of_tile = (at.lane & 3) * 2;
    const float(&o)[S::N_TILES][4] = mine.o[r / 2];
    int e = r % 2 * 2;
    if (a.act.kind == ACT_HALF) {
        uint16_t *to = static_cast<uint16_t *>(a.act.values) + row * (size_t)a.act.stride + head;
#pragma unroll
        for (int n = 0; n < S::N_TILES; n++)
            *reinterpret_cast<uint32_t *>(to + tile_column<S>(a, at, n) + of_tile) =
                pack_halves(o[n][e] * inverse, o[n][e + 1] * inverse);
        if (head + at.w + of_tile == 0) a.act.scale[row] = 1.0f;
    }
    if (a.y) {
        float *to = a.y + row * (size_t)(a.n_heads * S::HEAD) + head;
#pragma unroll
        for (int n = 0; n < S::N_TILES; n++)
            *reinterpret_cast<float2 *>(to + tile_column<S>(a, at, n) + of_tile) =
                make_float2(o[n][e] * inverse, o[n][e + 1] * inverse);
    }
}

template <class S>
__device__ __forceinline__ void store_outputs(struct state<S> &mine, const struct place &at,
                                              const struct attention_args &a,
                                              const struct block_rows &rows)
{
    int g = at.lane >> 2, t = at.lane & 3;
    float2 *stage =
        reinterpret_cast<float2 *>(at.shared) + (at.group * S::W + at.w) * 8 * (S::COLS / 2);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        mine.sum[r] += __shfl_xor_sync(0xffffffffu, mine.sum[r], 1);
        mine.sum[r] += __shfl_xor_sync(0xffffffffu, mine.sum[r], 2);
        if (t == 0) at.stats[at.w * 32 + r * 8 + g] = mine.sum[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 4; r++) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < S::W; w++) sum += at.stats[w * 32 + r * 8 + g];
        float inverse = 1.0f / sum;
        store_row<S>(mine, at, a, rows, r, inverse);
        if (!is_in_blocks(a.act)) continue;
#pragma unroll
        for (int n = 0; n < S::N_TILES; n++)
            stage[g * (S::COLS / 2) + ((n * 4 + t) ^ ((g & 3) * 4))] = make_float2(
                mine.o[r / 2][n][r % 2 * 2] * inverse, mine.o[r / 2][n][r % 2 * 2 + 1] * inverse);
        __syncwarp();
        store_rows_blocks<S>(stage, at, a, rows, at.group * 32 + r * 8);
        __syncwarp();
    }
}

} // namespace

#endif
