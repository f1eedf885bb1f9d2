/* Attention of prompts with heads of 256 values on Hopper's wgmma, with a window or without.
 *
 * A block takes one key head and 64 packed rows: a warpgroup, whose sums are 128 registers a
 * thread. Shares stay in registers. Its first thread copies keys and values into a ring: a unit
 * that was released is filled again when the next one is released, so that the thread hardly ever
 * waits for the other warps. Two blocks share a multiprocessor: while one weighs its scores, begins
 * or ends, the other multiplies. */
#ifndef CUDA_SM90_ATTENTION_NARROW_CUH
#define CUDA_SM90_ATTENTION_NARROW_CUH

#include "backend/cuda/kernels/sm90/attention_block.cuh"

namespace {

struct narrow {
    static constexpr int HEAD = 256, RING = 5, USERS = 4, THREADS = 128;
    /* Units of a page: of keys, and all. */
    static constexpr int UNITS_KEYS = HEAD / 64 / UNIT_KEYS;
    static constexpr int UNITS_PAGE = UNITS_KEYS + PAGE / UNIT_VALUES;
    /* Shared memory: queries, the ring, its barriers. */
    static constexpr int UNITS = BLOCK_ROWS * HEAD * 2;
    static constexpr int BARRIERS = UNITS + RING * UNIT_BYTES;
    static constexpr int BYTES = BARRIERS + 2 * RING * 8;
};
static_assert(2 * (narrow::BYTES + 1024) <= 228 * 1024, "two blocks a multiprocessor");

/* What the rows of a block see: pages first .. last, positions begin .. end - 1. */
struct narrow_keys {
    int first, last, begin, end, window;
};

__device__ __forceinline__ struct narrow_keys narrow_keys_of(const struct attention_args &a,
                                                             const struct block_rows &rows)
{
    struct narrow_keys keys;
    keys.window = a.window > 0 ? a.window : INT_MAX;
    keys.begin = max(0, rows.lowest - keys.window + 1);
    keys.end = rows.highest + 1;
    keys.first = keys.begin / PAGE;
    keys.last = rows.highest / PAGE;
    return keys;
}

/* Units that are still to be copied; the same in all threads. */
struct narrow_feed {
    struct ring ring;
    struct boxes from;
    int page, number; /* of the next unit; its number is asked for one unit ahead */
    int unit, n_units;
};

/* Copies the next unit, when there is one and its place is free: by the first thread. */
__device__ __forceinline__ void narrow_copy(struct narrow_feed &feed)
{
    if (feed.unit == feed.n_units) return;
    int part = feed.unit % narrow::UNITS_PAGE;
    if (threadIdx.x == 0) {
        struct ring ring = feed.ring;
        uint32_t barrier, to = ring_take<narrow>(ring, &barrier);
        int after = part - narrow::UNITS_KEYS;
        if (after < 0)
            copy_box(to, feed.from.k, barrier, 0, part * UNIT_KEYS, feed.from.head, feed.number);
        else
            copy_box(to, feed.from.v, barrier, after * UNIT_VALUES, 0, feed.from.head, feed.number);
    }
    __syncwarp();
    ring_next<narrow>(feed.ring);
    if (part == narrow::UNITS_PAGE - 1) feed.number = page_in(feed.from, ++feed.page);
    feed.unit++;
}

struct narrow_state {
    float o[128];
    float top[2], sum[2];
    int position[2];
    int lane, row;
};

/* New tops, and all that was summed under the old ones brought to the new. */
__device__ __forceinline__ void narrow_raise(struct narrow_state &mine, const float (&s)[32])
{
    float top[2] = {mine.top[0], mine.top[1]};
    raise_block_tops(top, s);
    if (!__any_sync(0xffffffffu, top[0] != mine.top[0] || top[1] != mine.top[1])) return;
    float factor[2] = {exp2_fast(mine.top[0] - top[0]), exp2_fast(mine.top[1] - top[1])};
#pragma unroll
    for (int i = 0; i < 128; i++) mine.o[i] *= factor[i / 2 % 2];
#pragma unroll
    for (int r = 0; r < 2; r++) mine.sum[r] *= factor[r], mine.top[r] = top[r];
}

/* o += shares of a page x its values. */
__device__ __forceinline__ void narrow_gather(struct narrow_state &mine, struct ring &ring,
                                              struct narrow_feed &feed, const uint32_t (&p)[4][4],
                                              int page, const struct narrow_keys &keys)
{
    bool is_edge = (page + 1) * PAGE > keys.end || page * PAGE < keys.begin;
#pragma unroll
    for (int i = 0; i < PAGE / UNIT_VALUES; i++) {
        uint32_t unit = ring_unit<narrow>(ring);
        if (is_edge) clear_values(unit, page * PAGE + i * UNIT_VALUES, keys.begin, keys.end, 1);
        products_begin();
#pragma unroll
        for (int j = 0; j < UNIT_VALUES / 16; j++)
            product_256(mine.o, p[i * (UNIT_VALUES / 16) + j],
                        operand(unit, UNIT_VALUES * 128) + (uint64_t)(j * 128));
        products_commit();
        if (i > 0) {
            products_wait<1>();
            ring_release<narrow>(ring, mine.lane);
            narrow_copy(feed);
        }
        ring_next<narrow>(ring);
    }
    products_wait<0>();
    ring_release<narrow>(ring, mine.lane);
    narrow_copy(feed);
}

__device__ __forceinline__ void narrow_attend(struct narrow_feed &feed, uint32_t shared,
                                              const struct attention_args &a,
                                              const struct block_rows &rows,
                                              const struct narrow_keys &keys)
{
    struct narrow_state mine;
    mine.lane = (int)threadIdx.x % 32;
    mine.row = (int)threadIdx.x / 32 * 16 + mine.lane / 4;
    struct ring ring = feed.ring;
    for (int i = 1; i < narrow::RING; i++) narrow_copy(feed);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        mine.top[r] = TOP_NONE;
        mine.sum[r] = 0;
        mine.position[r] = position_of(a, rows, mine.row + r * 8);
    }
    load_block_queries<narrow::HEAD, 128>(shared, a, rows);
#pragma unroll
    for (int i = 0; i < 128; i++) mine.o[i] = 0;
    for (int page = keys.first; page <= keys.last; page++) {
        float s[32], part[2] = {0, 0};
        uint32_t p[4][4];
        score_page<narrow>(s, shared, ring, mine.lane, [&] { narrow_copy(feed); });
        if ((page + 1) * PAGE > rows.lowest || page * PAGE <= rows.highest - keys.window)
            mask_page(s, mine.position, page * PAGE, keys.window, mine.lane);
        narrow_raise(mine, s);
#pragma unroll
        for (int i = 0; i < 4; i++) shares_of(p[i], part, s, i * 8, mine.top);
        mine.sum[0] += part[0], mine.sum[1] += part[1];
        narrow_gather(mine, ring, feed, p, page, keys);
    }
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = mine.sum[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        inverse[r] = 1.0f / sum;
    }
    meet<128>(1); /* nobody reads queries any more */
    store_block<narrow::HEAD>(mine.o, inverse, a, rows, {shared, mine.row / 16, mine.lane, 0});
}

/* Grid: key heads x tiles of rows. */
__global__ void __launch_bounds__(narrow::THREADS, 2)
    attend_narrow(const struct attention_args a, const __grid_constant__ CUtensorMap k,
                  const __grid_constant__ CUtensorMap v)
{
    extern __shared__ __align__(1024) char shared[];
    struct block_rows rows = rows_of_block(a);
    uint32_t base = shared_address(shared);
    struct ring ring = ring_at<narrow>(base + narrow::UNITS, base + narrow::BARRIERS);
    if (threadIdx.x == 0) {
        ring_init<narrow>(ring);
        barriers_show();
    }
    struct narrow_keys keys = narrow_keys_of(a, rows);
    grid_wait(); /* no kernel writes what was read so far: the step's arrays and the table */
    grid_release();
    if (rows.n == 0) return;
    __syncthreads();
    struct boxes from = boxes_at(a, rows, &k, &v);
    struct narrow_feed feed = {ring,       from,
                               keys.first, page_in(from, keys.first),
                               0,          (keys.last - keys.first + 1) * narrow::UNITS_PAGE};
    narrow_attend(feed, base, a, rows, keys);
}

} // namespace

#endif
