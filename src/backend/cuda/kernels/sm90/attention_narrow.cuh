/* Attention of prompts with heads of 256 values on Hopper's wgmma, with a window or without.
 *
 * A tile of work is one key head and 128 packed rows. Two warpgroups have 64 of them each: sums are
 * 128 registers a thread, shares stay in registers. Both multiply by the same pages.
 *
 * A block computes many tiles, so that the beginning and the end of one overlap with the products
 * of others. One warp copies keys and values into a ring, for the next tile too. Three warps bring
 * the next tile's queries, rounded to halves, to the place that the tile before this one had; those
 * of the first tile the warpgroups bring themselves. The results of a warpgroup go out through the
 * place of its queries. */
#ifndef CUDA_SM90_ATTENTION_NARROW_CUH
#define CUDA_SM90_ATTENTION_NARROW_CUH

#include "backend/cuda/kernels/sm90/attention_block.cuh"

namespace {

struct narrow {
    static constexpr int HEAD = 256, RING = 6, GROUPS = 2, USERS = 4 * GROUPS;
    static constexpr int ROWS = GROUPS * BLOCK_ROWS, THREADS = (GROUPS + 1) * 128;
    static constexpr int TILES = 2, LOADERS = 3; /* tiles that have queries here; warps for them */
    static constexpr int UNITS_PAGE = HEAD / 64 / UNIT_KEYS + PAGE / UNIT_VALUES;
    static constexpr int GROUP_BYTES = BLOCK_ROWS * HEAD * 2;
    static constexpr int UNITS = TILES * GROUPS * GROUP_BYTES;
};

/* What the warpgroups must know of a tile. */
struct narrow_tile {
    struct block_rows rows; /* n = 0: there are no more */
    int32_t position[narrow::ROWS];
};

struct narrow_shared {
    char queries[narrow::TILES][narrow::GROUPS][narrow::GROUP_BYTES];
    char units[narrow::RING][UNIT_BYTES];
    uint64_t barriers[2 * narrow::RING];
    uint64_t full[narrow::TILES], empty[narrow::TILES]; /* of tiles */
    struct narrow_tile tile[narrow::TILES];
};

/* Which of the two places a tile has, and the parity of its passes. */
struct narrow_place {
    int at;
    uint32_t parity;
};
__device__ __forceinline__ void place_next(struct narrow_place &place)
{
    place.at ^= 1;
    if (place.at == 0) place.parity ^= 1;
}

/* What rows see: pages first .. last, positions begin .. end - 1. */
struct narrow_keys {
    int first, last, begin, end;
};

__device__ __forceinline__ struct narrow_keys narrow_keys_of(int lowest, int highest, int window)
{
    int begin = window > 0 ? max(0, lowest - window + 1) : 0;
    return {begin / PAGE, highest / PAGE, begin, highest + 1};
}

__device__ __forceinline__ struct block_rows narrow_rows(const struct attention_args &a, int item)
{
    int n_heads = a.cache.n_heads;
    return rows_of_block(a, narrow::ROWS, item / n_heads, item % n_heads);
}

/* ---- Keys and values: a warp ----------------------------------------------------------------- */

__device__ __forceinline__ void narrow_copy(const struct attention_args &a, struct ring ring,
                                            const CUtensorMap *k, const CUtensorMap *v)
{
    int item = (int)blockIdx.x;
    struct block_rows rows = narrow_rows(a, item);
    while (rows.n > 0) {
        struct narrow_keys keys = narrow_keys_of(rows.lowest, rows.highest, a.window);
        struct boxes from = boxes_at(a, rows, k, v);
        int number = page_in(from, keys.first);
        for (int page = keys.first; page <= keys.last; page++) {
            int after = page_in(from, page + 1);
            if (threadIdx.x % 32 == 0) {
                copy_keys<narrow>(ring, from, number);
                copy_values<narrow>(ring, from, 0, number);
            }
            __syncwarp();
            if (page == keys.first) rows = narrow_rows(a, item += (int)gridDim.x);
            number = after;
        }
    }
}

/* ---- Queries: three warps -------------------------------------------------------------------- */

/* Rows first .. first + N - 1 of a tile: lanes have quads of columns, `lane` and `lane` + 32. */
template <int N>
__device__ __forceinline__ void narrow_load_rows(struct narrow_shared &s, int at, int first,
                                                 const struct attention_args &a,
                                                 const struct block_rows &rows)
{
    int lane = (int)threadIdx.x % 32;
    float4 x[N][2];
#pragma unroll
    for (int i = 0; i < N; i++) {
        int r = first + i;
        size_t row = (size_t)(rows.first + token_of(rows, r));
        const float *q = a.q + (row * (size_t)a.n_heads + (size_t)head_of(rows, r)) * narrow::HEAD;
#pragma unroll
        for (int h = 0; h < 2; h++)
            x[i][h] =
                load_volatile4_if(q + kv_key_column(&a.cache, (lane + h * 32) * 4), r < rows.n);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        int r = (first + i) % BLOCK_ROWS;
        uint32_t to = shared_address(s.queries[at][(first + i) / BLOCK_ROWS]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int chunk = lane / 2 + h * 16;
            uint32_t place = (uint32_t)(chunk / 8 * 8192 + r * 128 + (((chunk ^ r) & 7) << 4));
            store_shared2(to + place + (uint32_t)(lane % 2 * 8),
                          pack_halves_saturated(x[i][h].x, x[i][h].y),
                          pack_halves_saturated(x[i][h].z, x[i][h].w));
        }
    }
}

__device__ __forceinline__ void narrow_load(struct narrow_shared &s, int warp,
                                            const struct attention_args &a)
{
    int lane = (int)threadIdx.x % 32, item = (int)blockIdx.x;
    struct narrow_place place = {0, 0};
    for (;; item += (int)gridDim.x) {
        struct block_rows rows = narrow_rows(a, item);
        struct narrow_tile &tile = s.tile[place.at];
        bool is_first = item == (int)blockIdx.x; /* narrow_load_first */
        barrier_wait(shared_address(&s.empty[place.at]), place.parity ^ 1);
        if (warp == 0 && lane == 0) tile.rows = rows;
        for (int r = warp * 32 + lane; r < narrow::ROWS; r += narrow::LOADERS * 32)
            tile.position[r] = position_of(a, rows, r);
#pragma unroll 1
        for (int r = warp * 4; r < rows.n && !is_first; r += narrow::LOADERS * 4)
            narrow_load_rows<4>(s, place.at, r, a, rows);
        show_to_async();
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.full[place.at]));
        if (rows.n == 0) return;
        place_next(place);
    }
}

/* A warpgroup's rows of the first tile, by itself: it has nothing else to do yet. */
__device__ __forceinline__ void narrow_load_first(struct narrow_shared &s, int group,
                                                  const struct attention_args &a)
{
    struct block_rows rows = narrow_rows(a, (int)blockIdx.x);
    int first = group * BLOCK_ROWS + (int)threadIdx.x / 32 % 4 * 16;
    narrow_load_rows<16>(s, 0, first, a, rows);
    show_to_async();
    meet<128>(1 + group);
}

/* ---- A warpgroup ----------------------------------------------------------------------------- */

struct narrow_state {
    float o[128];
    float top[2], sum[2];
    int position[2];
    int lane, row, group;
};

/* New tops; all that was summed under the old ones is rescaled to them. */
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

/* o += shares of a page x its values; `keys`: of the tile. */
__device__ __forceinline__ void narrow_gather(struct narrow_state &mine, struct ring &ring,
                                              const uint32_t (&p)[4][4], int page,
                                              const struct narrow_keys &keys)
{
    bool is_edge = (page + 1) * PAGE > keys.end || page * PAGE < keys.begin;
#pragma unroll
    for (int i = 0; i < PAGE / UNIT_VALUES; i++) {
        uint32_t unit = ring_unit<narrow>(ring);
        if (is_edge)
            clear_values(unit, page * PAGE + i * UNIT_VALUES, keys.begin, keys.end, 1 + mine.group);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < UNIT_VALUES / 16; j++)
            product_256(mine.o, p[i * (UNIT_VALUES / 16) + j],
                        operand(unit, UNIT_VALUES * 128) + (uint64_t)(j * 128));
        wgmma_commit();
        if (i > 0) {
            wgmma_wait<1>();
            ring_release<narrow>(ring, mine.lane);
        }
        ring_next<narrow>(ring);
    }
    wgmma_wait<0>();
    ring_release<narrow>(ring, mine.lane);
}

/* A page that only the other warpgroup's rows see. */
__device__ __forceinline__ void narrow_skip(struct ring &ring, int lane)
{
#pragma unroll 1
    for (int i = 0; i < narrow::UNITS_PAGE; i++) {
        (void)ring_unit<narrow>(ring);
        __syncwarp();
        ring_next<narrow>(ring);
        ring_release<narrow>(ring, lane);
    }
}

/* All pages of a tile. */
__device__ __forceinline__ void narrow_pages(struct narrow_state &mine, uint32_t queries,
                                             struct ring &ring, const struct attention_args &a,
                                             const struct narrow_tile &tile)
{
    const struct block_rows &rows = tile.rows;
    struct narrow_keys keys = narrow_keys_of(rows.lowest, rows.highest, a.window), own = {0, -1};
    int first = mine.group * BLOCK_ROWS, lowest = 0, highest = -1;
    int window = a.window > 0 ? a.window : INT_MAX;
    if (first < rows.n) {
        lowest = tile.position[first];
        highest = tile.position[min(first + BLOCK_ROWS, rows.n) - 1];
        own = narrow_keys_of(lowest, highest, a.window);
    }
    for (int page = keys.first; page <= keys.last; page++) {
        if (page < own.first || page > own.last) {
            narrow_skip(ring, mine.lane);
            continue;
        }
        float s[32], part[2] = {0, 0};
        uint32_t p[4][4];
        score_page<narrow>(s, queries, ring, mine.lane);
        if ((page + 1) * PAGE > lowest || page * PAGE <= highest - window)
            mask_page(s, mine.position, page * PAGE, window, mine.lane);
        narrow_raise(mine, s);
#pragma unroll
        for (int i = 0; i < 4; i++) shares_of(p[i], part, s, i * 8, mine.top);
        mine.sum[0] += part[0], mine.sum[1] += part[1];
        narrow_gather(mine, ring, p, page, keys);
    }
}

__device__ __forceinline__ void narrow_store(const struct narrow_state &mine, uint32_t queries,
                                             const struct attention_args &a,
                                             const struct block_rows &rows)
{
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = mine.sum[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        inverse[r] = 1.0f / sum;
    }
    meet<128>(1 + mine.group); /* nobody reads these queries any more */
    store_block<narrow::HEAD>(mine.o, inverse, a, rows,
                              {queries, mine.row / 16, mine.lane, 0, mine.group * BLOCK_ROWS});
}

__device__ __forceinline__ void narrow_attend(struct narrow_shared &s, struct ring ring, int group,
                                              const struct attention_args &a)
{
    struct narrow_state mine;
    struct narrow_place place = {0, 0};
    mine.group = group;
    mine.lane = (int)threadIdx.x % 32;
    mine.row = (int)threadIdx.x / 32 % 4 * 16 + mine.lane / 4;
    narrow_load_first(s, group, a);
    for (;; place_next(place)) {
        const struct narrow_tile &tile = s.tile[place.at];
        barrier_wait(shared_address(&s.full[place.at]), place.parity);
        if (tile.rows.n == 0) return;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            mine.top[r] = TOP_NONE;
            mine.sum[r] = 0;
            mine.position[r] = tile.position[group * BLOCK_ROWS + mine.row + r * 8];
        }
#pragma unroll
        for (int i = 0; i < 128; i++) mine.o[i] = 0;
        uint32_t queries = shared_address(s.queries[place.at][group]);
        narrow_pages(mine, queries, ring, a, tile);
        narrow_store(mine, queries, a, tile.rows);
        __syncwarp();
        if (mine.lane == 0) barrier_arrive(shared_address(&s.empty[place.at]));
    }
}

/* ---- The kernel ------------------------------------------------------------------------------ */

/* Grid: as many blocks as run at a time; key heads x tiles of rows are dealt out to them. */
__global__ void __launch_bounds__(narrow::THREADS, 1)
    attend_narrow(const __grid_constant__ struct attention_args a,
                  const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v)
{
    extern __shared__ __align__(1024) char shared[];
    struct narrow_shared &s = *reinterpret_cast<struct narrow_shared *>(shared);
    struct ring ring = ring_at<narrow>(shared_address(s.units), shared_address(s.barriers));
    if (threadIdx.x == 0) {
        ring_init<narrow>(ring);
        for (int i = 0; i < narrow::TILES; i++) {
            barrier_init(shared_address(&s.full[i]), narrow::LOADERS);
            barrier_init(shared_address(&s.empty[i]), narrow::USERS);
        }
        barriers_show();
    }
    grid_wait();
    grid_release();
    __syncthreads();
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0); /* known to be uniform */
    if (group < narrow::GROUPS) {
        registers_up<216>();
        narrow_attend(s, ring, group, a);
    } else {
        registers_down<72>();
        int warp = (int)threadIdx.x / 32 % 4;
        if (warp == 0)
            narrow_copy(a, ring, &k, &v);
        else
            narrow_load(s, warp - 1, a);
    }
}

} // namespace

#endif
