/* A block of 64 packed rows of a prompt on Hopper: which rows, their queries on the way in, scores
 * and shares, results on the way out. A warp has 16 of the rows; a thread has parts of rows `row`
 * and `row` + 8. */
#ifndef CUDA_SM90_ATTENTION_BLOCK_CUH
#define CUDA_SM90_ATTENTION_BLOCK_CUH

#include "backend/cuda/kernels/attention_prefill_rows.cuh"
#include "backend/cuda/kernels/sm90/attention_ring.cuh"

namespace {

enum { BLOCK_ROWS = 64 };

/* Tile `tile` of up to n_rows packed rows. */
__device__ __forceinline__ struct block_rows rows_of_block(const struct attention_args &a,
                                                           int n_rows, int tile_number,
                                                           int key_head)
{
    struct block_rows rows = {};
    rows.n_group = a.n_heads / a.cache.n_heads;
    rows.inverse = (65535u + (uint32_t)rows.n_group) / (uint32_t)rows.n_group;
    struct row_range tile =
        rows_of_tile(a.rows.is_out ? a.step.run[ROWS_OUT] : a.step.run[ROWS_TOKEN],
                     a.step.counts[a.rows.is_out ? 4 : 3], n_rows / rows.n_group, tile_number);
    rows.key_head = key_head;
    rows.first = tile.first;
    rows.n = tile.n * rows.n_group;
    if (rows.n == 0) return rows;
    int first = row_token(a.rows, a.step, rows.first);
    int last = row_token(a.rows, a.step, rows.first + tile.n - 1);
    rows.sequence = uniform(a.step.sequence[first]);
    rows.lowest = uniform(a.step.position[first]);
    rows.highest = uniform(a.step.position[last]);
    return rows;
}

/* Tiles of rows that a launch may need: each run may end in a part. */
static inline unsigned tiles_most(const struct attention_args *args, int32_t n_runs, int n_rows)
{
    int tokens = n_rows / (args->n_heads / args->cache.n_heads);
    return (unsigned)((args->rows.max - n_runs) / tokens + n_runs);
}

__device__ __forceinline__ struct boxes boxes_at(const struct attention_args &a,
                                                 const struct block_rows &rows,
                                                 const CUtensorMap *k, const CUtensorMap *v)
{
    return {k, v, a.cache.table + (int64_t)rows.sequence * a.cache.slots, a.cache.slots,
            rows.key_head};
}

/* By the first THREADS threads: queries as halves, in blocks of 64 columns whose rows are 128
 * bytes, swizzled; zeros for rows that are not there. */
template <int HEAD, int THREADS>
__device__ __forceinline__ void load_block_queries(uint32_t shared, const struct attention_args &a,
                                                   const struct block_rows &rows)
{
    constexpr int QUADS = HEAD / 4;
    int quad = (int)threadIdx.x % QUADS, chunk = quad / 2;
    uint32_t column = shared + (uint32_t)(chunk / 8 * 8192 + quad % 2 * 8);
    int from = kv_key_column(&a.cache, quad * 4);
#pragma unroll 16
    for (int r = (int)threadIdx.x / QUADS; r < BLOCK_ROWS; r += THREADS / QUADS) {
        float4 x = make_float4(0, 0, 0, 0);
        if (r < rows.n) {
            size_t row = (size_t)(rows.first + token_of(rows, r));
            x = *reinterpret_cast<const float4 *>(
                a.q + (row * (size_t)a.n_heads + (size_t)head_of(rows, r)) * HEAD + from);
        }
        store_shared2(column + (uint32_t)(r * 128 + (((chunk ^ r) & 7) << 4)),
                      pack_halves_saturated(x.x, x.y), pack_halves_saturated(x.z, x.w));
    }
    show_to_async();
    meet<THREADS>(1);
}

/* s = the scores of a page, whose keys come next in the ring. */
template <class S>
__device__ __forceinline__ void score_page(float (&s)[32], uint32_t queries, struct ring &ring,
                                           int lane)
{
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] = 0;
    uint64_t q = operand(queries, 0);
#pragma unroll
    for (int block = 0; block < S::HEAD / 64; block += UNIT_KEYS) {
        uint64_t k = operand(ring_unit<S>(ring), 0);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < UNIT_KEYS * 4; i++) /* 8192 bytes a block, 32 a step of 16 columns */
            product_64(s, q + (uint64_t)((block + i / 4) * 512 + i % 4 * 2),
                       k + (uint64_t)(i / 4 * 512 + i % 4 * 2));
        wgmma_commit();
        if (block > 0) {
            wgmma_wait<1>();
            ring_release<S>(ring, lane);
        }
        ring_next<S>(ring);
    }
    wgmma_wait<0>();
    ring_release<S>(ring, lane);
}

/* Scores of keys that a row does not see are -infinity. */
__device__ __forceinline__ void mask_page(float (&s)[32], const int (&position)[2], int first,
                                          int window, int lane)
{
    int key = first + (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int k = key + i / 4 * 8 + i % 2, p = position[i / 2 % 2];
        if (k > p || k <= p - window) s[i] = -INFINITY;
    }
}

/* Raises the rows' tops where the scores of a page need it. */
__device__ __forceinline__ void raise_block_tops(float (&top)[2], const float (&s)[32])
{
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 32; i++) most[i / 2 % 2] = fmaxf(most[i / 2 % 2], s[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
        if (fmaf(most[r], LOG2E, -top[r]) > P_LIMIT) top[r] = fmaf(most[r], LOG2E, -TOP_ROOM);
    }
}

/* Shares of 16 keys from scores s[at] .., as operand A; they are added to `sum`. */
__device__ __forceinline__ void shares_of(uint32_t (&p)[4], float (&sum)[2], const float (&s)[32],
                                          int at, const float (&top)[2])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = exp2_fast(fmaf(s[at + i * 2], LOG2E, -top[i % 2]));
        float y = exp2_fast(fmaf(s[at + i * 2 + 1], LOG2E, -top[i % 2]));
        sum[i % 2] += x + y;
        p[i] = pack_halves(x, y);
    }
}

/* Where the results of a warp's rows go: 256 columns from `column` of each row's head on. */
struct block_out {
    uint32_t stage; /* 32 KB of shared memory that nobody reads any more, laid out as queries are */
    int warp, lane, column;
    int first; /* row of the block's first */
};

/* As halves, 512 bytes of a row at a time. */
template <int HEAD>
__device__ __forceinline__ void store_block_halves(const float (&o)[128], const float (&inverse)[2],
                                                   const struct attention_args &a,
                                                   const struct block_rows &rows,
                                                   const struct block_out &out)
{
    const struct act &act = a.act;
    int to = kv_value_column(&a.cache, out.column + out.lane * 8);
    int lane = out.lane, own = out.warp * 16 + (lane & 15);
#pragma unroll
    for (int j = 0; j < 32; j += 2) {
        uint32_t pair[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = (j + i / 2) * 4 + i % 2 * 2;
            pair[i] = pack_halves(o[at] * inverse[i % 2], o[at + 1] * inverse[i % 2]);
        }
        int chunk = j + (lane >> 4);
        store_matrices(out.stage +
                           (uint32_t)(chunk / 8 * 8192 + own * 128 + (((chunk ^ own) & 7) << 4)),
                       pair[0], pair[1], pair[2], pair[3]);
    }
    __syncwarp();
#pragma unroll 4
    for (int r = out.warp * 16; r < out.warp * 16 + 16; r++) {
        if (out.first + r >= rows.n) break;
        uint4 x = load_shared4(out.stage +
                               (uint32_t)(lane / 8 * 8192 + r * 128 + (((lane ^ r) & 7) << 4)));
        size_t row = (size_t)(rows.first + token_of(rows, out.first + r));
        int column = head_of(rows, out.first + r) * HEAD + to;
        *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(act.values) + row * (size_t)act.stride +
                                   column) = x;
        if (column == 0) act.scale[row] = 1.0f;
    }
}

template <int HEAD>
__device__ __forceinline__ void store_block(const float (&o)[128], const float (&inverse)[2],
                                            const struct attention_args &a,
                                            const struct block_rows &rows,
                                            const struct block_out &out)
{
    if (a.act.kind == ACT_HALF) store_block_halves<HEAD>(o, inverse, a, rows, out);
    if (!a.y) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int in_block = out.first + out.warp * 16 + out.lane / 4 + r * 8;
        if (in_block >= rows.n) continue;
        size_t row = (size_t)(rows.first + token_of(rows, in_block));
        float *to = a.y + row * (size_t)(a.n_heads * HEAD) + head_of(rows, in_block) * HEAD +
                    (out.lane & 3) * 2;
#pragma unroll
        for (int n = 0; n < 32; n++)
            *reinterpret_cast<float2 *>(to + kv_value_column(&a.cache, out.column + n / 4 * 32) +
                                        n % 4 * 8) =
                make_float2(o[n * 4 + r * 2] * inverse[r], o[n * 4 + r * 2 + 1] * inverse[r]);
    }
}

} // namespace

#endif
