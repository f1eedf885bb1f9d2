/* The rows of a block of attention_prefill.cu: which they are, their queries on the way in, their
 * results on the way out. */
#ifndef CUDA_ATTENTION_PREFILL_ROWS_CUH
#define CUDA_ATTENTION_PREFILL_ROWS_CUH

#include "backend/cuda/kernels/attention_prefill_steps.cuh"

namespace {

/* The block's rows. Row r of it is query head r % n_group of the key head, row r / n_group of the
 * launch counted from `first`. */
struct block_rows {
    int32_t first, n, n_group;
    uint32_t inverse; /* ceil(2^16 / n_group) */
};

/* r / n_group, exact for r < 2^8 and n_group < 2^8. */
__device__ __forceinline__ int token_of(const struct block_rows &rows, int r)
{
    return (int)((uint32_t)r * rows.inverse >> 16);
}

template <class S>
__device__ __forceinline__ struct block_rows block_rows_of(const struct attention_args &a)
{
    struct block_rows rows;
    rows.n_group = a.n_heads / a.cache.n_heads;
    rows.inverse = (65535u + (uint32_t)rows.n_group) / (uint32_t)rows.n_group;
    int begin = a.part == attention_args::ATTEND_CHUNK ? a.step.counts[1] : 0;
    int end =
        a.part == attention_args::ATTEND_DECODE ? a.step.counts[1] : rows_live(a.rows, a.step);
    int tokens = S::ROWS / rows.n_group;
    /* The last tokens see the most keys: they go first. */
    rows.first = begin + (int)(gridDim.y - 1 - blockIdx.y) * tokens;
    rows.n = min(tokens, end - rows.first) * rows.n_group;
    return rows;
}

/* The query head of the block's row r. */
__device__ __forceinline__ int head_of(const struct block_rows &rows, int r)
{
    return (int)blockIdx.x * rows.n_group + r - token_of(rows, r) * rows.n_group;
}

/* The run of rows that begins at row `begin`. */
template <class S>
__device__ __forceinline__ int take_run(run_rows<S::ROWS> *run, const struct attention_args &a,
                                        const struct block_rows &rows, int begin, int &sequence)
{
    int r = (int)threadIdx.x, of_r = 0, position = -1;
    __syncthreads();
    sequence = a.step.sequence[row_token(a.rows, a.step, rows.first + token_of(rows, begin))];
    if (r == 0) run->end = rows.n, run->lowest = INT_MAX, run->highest = -1;
    if (r < rows.n) {
        int token = row_token(a.rows, a.step, rows.first + token_of(rows, r));
        of_r = a.step.sequence[token];
        position = a.step.position[token];
    }
    __syncthreads();
    if (r >= begin && r < rows.n && of_r != sequence) atomicMin(&run->end, r);
    __syncthreads();
    bool is_in = r >= begin && r < run->end;
    if (is_in) {
        atomicMin(&run->lowest, position);
        atomicMax(&run->highest, position);
    }
    if (r < S::ROWS) run->position[r] = is_in ? position : -1;
    __syncthreads();
    return run->end;
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
                         at.w * S::COLS + (at.lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < S::K_STEPS * 2; i++) {
            float2 two = *reinterpret_cast<const float2 *>(q + i * 8);
            mine.q[i / 2][r / 2][i % 2 * 2 + r % 2] = pack_halves_saturated(two.x, two.y);
        }
    }
}

/* Eight rows of a warp's columns, rows first .. of the block, as activations in blocks. They come
 * through shared memory, where a block of 32 columns can be taken by eight neighbours. */
template <class S>
__device__ __forceinline__ void store_rows_blocks(const float2 *stage, const struct place &at,
                                                  const struct act &act,
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
        int column = head_of(rows, r) * S::HEAD + at.w * S::COLS + u * 4;
        act_store_blocks(act, (int64_t)row, column / 4, x, is_live);
    }
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
    int column = head_of(rows, in_block) * S::HEAD + at.w * S::COLS + (at.lane & 3) * 2;
    const float(&o)[S::N_TILES][4] = mine.o[r / 2];
    int e = r % 2 * 2;
    if (a.act.kind == ACT_HALF) {
        uint16_t *to = static_cast<uint16_t *>(a.act.values) + row * (size_t)a.act.stride + column;
#pragma unroll
        for (int n = 0; n < S::N_TILES; n++)
            *reinterpret_cast<uint32_t *>(to + n * 8) =
                pack_halves(o[n][e] * inverse, o[n][e + 1] * inverse);
        if (column == 0) a.act.scale[row] = 1.0f;
    }
    if (a.y) {
        float *to = a.y + row * (size_t)(a.n_heads * S::HEAD) + column;
#pragma unroll
        for (int n = 0; n < S::N_TILES; n++)
            *reinterpret_cast<float2 *>(to + n * 8) =
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
        store_rows_blocks<S>(stage, at, a.act, rows, at.group * 32 + r * 8);
        __syncwarp();
    }
}

} // namespace

#endif
