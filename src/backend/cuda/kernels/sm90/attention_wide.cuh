/* Attention of prompts with heads of 512 values on Hopper's wgmma.
 *
 * A block takes one key head and 64 packed rows. Two warpgroups own the even and the odd pages: the
 * owner of a page computes its scores and its shares, for all 64 rows. Both gather the values of
 * every page, each for its half of the columns (64 x 256 sums: 128 registers). So shares go to both
 * through shared memory, and `top` (attention_prefill.cu) goes from page to page in order, as if
 * one warpgroup did them all: while one weighs its scores, the other multiplies.
 *
 * Queries stay in shared memory, 64 KB. Each warpgroup has a ring of units of its own, in the order
 * in which it uses them: keys of its page, values of the page before, values of its page. */
#ifndef CUDA_SM90_ATTENTION_WIDE_CUH
#define CUDA_SM90_ATTENTION_WIDE_CUH

#include "backend/cuda/kernels/sm90/attention_block.cuh"

namespace {

struct wide {
    static constexpr int HEAD = 512, RING = 4, USERS = 4, THREADS = 384;
    static constexpr int PARTS = 4; /* pages whose shares and tops are kept; 3 would do */
    /* Shared memory: queries, two rings, shares, tops, sums, barriers (rings, shares). */
    static constexpr int RINGS = BLOCK_ROWS * HEAD * 2;
    static constexpr int SHARES = RINGS + 2 * RING * UNIT_BYTES;
    static constexpr int TOPS = SHARES + PARTS * BLOCK_ROWS * PAGE * 2;
    static constexpr int SUMS = TOPS + PARTS * BLOCK_ROWS * 4;
    static constexpr int BARRIERS = SUMS + 2 * BLOCK_ROWS * 4;
    static constexpr int READY = BARRIERS + 2 * 2 * RING * 8;
    static constexpr int BYTES = READY + PARTS * 8;
};

__device__ __forceinline__ struct ring wide_ring(uint32_t shared, int w)
{
    return ring_at<wide>(shared + (uint32_t)(wide::RINGS + w * wide::RING * UNIT_BYTES),
                         shared + (uint32_t)(wide::BARRIERS + w * 2 * wide::RING * 8));
}

/* All units of warpgroup w. */
__device__ __forceinline__ void wide_copy(struct ring ring, const struct boxes &from, int w,
                                          int n_pages)
{
    int before = page_in(from, 0), own = page_in(from, w);
#pragma unroll 1
    for (int page = w; page < n_pages; page += 2) {
        int after = page_in(from, page + 1), next = page_in(from, page + 2);
        copy_keys<wide>(ring, from, own);
        if (page > 0) copy_values<wide>(ring, from, 4 * w, before);
        copy_values<wide>(ring, from, 4 * w, own);
        before = after;
        own = next;
    }
    if ((n_pages - 1) % 2 != w) copy_values<wide>(ring, from, 4 * w, page_in(from, n_pages - 1));
}

/* ---- A warpgroup ----------------------------------------------------------------------------- */

/* A thread's rows are `row` and `row` + 8. */
struct wide_state {
    float o[128];
    float o_top[2]; /* what o is relative to */
    float sum[2], sum_top[2];
    int position[2];
    uint32_t shared;
    float *tops; /* of row `row` and the first page */
    int w, lane, row;
};

__device__ __forceinline__ void wait_for_shares(const struct wide_state &mine, int page)
{
    barrier_wait(mine.shared + (uint32_t)(wide::READY + page % wide::PARTS * 8),
                 (uint32_t)(page / wide::PARTS & 1));
}

__device__ __forceinline__ uint32_t shares_at(const struct wide_state &mine, int page)
{
    return mine.shared + (uint32_t)(wide::SHARES + page % wide::PARTS * (BLOCK_ROWS * PAGE * 2));
}

/* Shares of a page from its scores, for both warpgroups. The buffers were last used for the page
 * four before: both are done with that when the page before this has its shares. */
__device__ __forceinline__ void wide_weigh(struct wide_state &mine, const float (&s)[32], int page)
{
    float top[2] = {TOP_NONE, TOP_NONE};
    if (page > 0) {
        wait_for_shares(mine, page - 1);
        const float *before = mine.tops + (page - 1) % wide::PARTS * BLOCK_ROWS;
        top[0] = before[0], top[1] = before[8];
    }
    raise_block_tops(top, s);
    float *tops = mine.tops + page % wide::PARTS * BLOCK_ROWS;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if ((mine.lane & 3) == 0) tops[r * 8] = top[r];
        mine.sum[r] *= exp2_fast(mine.sum_top[r] - top[r]);
        mine.sum_top[r] = top[r];
    }
    int row = mine.row / 16 * 16 + (mine.lane & 15);
    uint32_t to = shares_at(mine, page) + (uint32_t)(row * 128);
    float part[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t p[4];
        shares_of(p, part, s, j * 8, top);
        int chunk = j * 2 + (mine.lane >> 4);
        store_matrices(to + (uint32_t)((chunk ^ (row & 7)) << 4), p[0], p[1], p[2], p[3]);
    }
    mine.sum[0] += part[0], mine.sum[1] += part[1];
    show_to_async();
    __syncwarp();
    if (mine.lane == 0)
        barrier_arrive(mine.shared + (uint32_t)(wide::READY + page % wide::PARTS * 8));
}

/* o += shares of a page x its values. `end`: the position after the block's last. */
__device__ __forceinline__ void wide_gather(struct wide_state &mine, struct ring &ring, int page,
                                            int end)
{
    wait_for_shares(mine, page);
    const float *tops = mine.tops + page % wide::PARTS * BLOCK_ROWS;
    float top[2] = {tops[0], tops[8]};
    if (__any_sync(0xffffffffu, top[0] != mine.o_top[0] || top[1] != mine.o_top[1])) {
        float factor[2] = {exp2_fast(mine.o_top[0] - top[0]), exp2_fast(mine.o_top[1] - top[1])};
#pragma unroll
        for (int i = 0; i < 128; i++) mine.o[i] *= factor[i / 2 % 2];
        mine.o_top[0] = top[0], mine.o_top[1] = top[1];
    }
    uint64_t p = operand(shares_at(mine, page), 0);
    bool is_last = (page + 1) * PAGE > end;
#pragma unroll
    for (int i = 0; i < PAGE / UNIT_VALUES; i++) {
        uint32_t unit = ring_unit<wide>(ring);
        if (is_last) clear_values(unit, page * PAGE + i * UNIT_VALUES, 0, end, 2 + mine.w);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < UNIT_VALUES / 16; j++)
            product_256(mine.o, p + (uint64_t)((i * (UNIT_VALUES / 16) + j) * 2),
                        operand(unit, UNIT_VALUES * 128) + (uint64_t)(j * 128));
        wgmma_commit();
        if (i > 0) {
            wgmma_wait<1>();
            ring_release<wide>(ring, mine.lane);
        }
        ring_next<wide>(ring);
    }
    wgmma_wait<0>();
    ring_release<wide>(ring, mine.lane);
}

__device__ __forceinline__ void wide_store(const struct wide_state &mine, char *shared,
                                           const struct attention_args &a,
                                           const struct block_rows &rows)
{
    float *sums = reinterpret_cast<float *>(shared + wide::SUMS);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = mine.sum[r] * exp2_fast(mine.sum_top[r] - mine.o_top[r]);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if ((mine.lane & 3) == 0) sums[mine.w * BLOCK_ROWS + mine.row + r * 8] = sum;
    }
    meet<256>(1); /* and nobody reads queries any more */
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = mine.row + r * 8;
        inverse[r] = 1.0f / (sums[row] + sums[BLOCK_ROWS + row]);
    }
    store_block<wide::HEAD>(
        mine.o, inverse, a, rows,
        {mine.shared + (uint32_t)(mine.w * 32768), mine.row / 16, mine.lane, mine.w * 256, 0});
}

__device__ __forceinline__ void wide_attend(char *shared, const struct attention_args &a,
                                            const struct block_rows &rows, int w)
{
    struct wide_state mine;
    mine.shared = shared_address(shared);
    mine.w = w;
    mine.lane = (int)threadIdx.x % 32;
    mine.row = (int)threadIdx.x / 32 % 4 * 16 + mine.lane / 4;
    mine.tops = reinterpret_cast<float *>(shared + wide::TOPS) + mine.row;
    struct ring ring = wide_ring(mine.shared, w);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        mine.o_top[r] = mine.sum_top[r] = TOP_NONE;
        mine.sum[r] = 0;
        mine.position[r] = position_of(a, rows, mine.row + r * 8);
    }
    load_block_queries<wide::HEAD, 256>(mine.shared, a, rows);
#pragma unroll
    for (int i = 0; i < 128; i++) mine.o[i] = 0;
    int n_pages = rows.highest / PAGE + 1, end = rows.highest + 1;
    for (int page = w; page < n_pages; page += 2) {
        float s[32];
        score_page<wide>(s, mine.shared, ring, mine.lane);
        if ((page + 1) * PAGE > rows.lowest)
            mask_page(s, mine.position, page * PAGE, INT_MAX, mine.lane);
        wide_weigh(mine, s, page);
        if (page > 0) wide_gather(mine, ring, page - 1, end);
        wide_gather(mine, ring, page, end);
    }
    if ((n_pages - 1) % 2 != w) wide_gather(mine, ring, n_pages - 1, end);
    wide_store(mine, shared, a, rows);
}

/* Grid: key heads x tiles of rows. */
__global__ void __launch_bounds__(wide::THREADS, 1)
    attend_wide(const struct attention_args a, const __grid_constant__ CUtensorMap k,
                const __grid_constant__ CUtensorMap v)
{
    extern __shared__ __align__(1024) char shared[];
    struct block_rows rows = rows_of_block(a, BLOCK_ROWS, (int)blockIdx.y, (int)blockIdx.x);
    uint32_t base = shared_address(shared);
    if (threadIdx.x == 0) {
        for (int w = 0; w < 2; w++) ring_init<wide>(wide_ring(base, w));
        for (uint32_t i = 0; i < wide::PARTS; i++) barrier_init(base + wide::READY + i * 8, 4);
        barriers_show();
    }
    grid_wait(); /* no kernel writes what was read so far: the step's arrays */
    grid_release();
    if (rows.n == 0) return;
    __syncthreads();
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0); /* known to be uniform */
    if (group < 2) {
        registers_up<240>();
        wide_attend(shared, a, rows, group);
    } else {
        registers_down<24>();
        int w = (int)threadIdx.x / 32 - 8;
        if (w < 2 && threadIdx.x % 32 == 0)
            wide_copy(wide_ring(base, w), boxes_at(a, rows, &k, &v), w, rows.highest / PAGE + 1);
    }
}

} // namespace

#endif
