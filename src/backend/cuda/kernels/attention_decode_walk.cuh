/* Split attention of several rows on Hopper, heads of 512 values: few blocks, each of which walks
 * over segments of rows.
 *
 * The work is that of attention_decode_mma.cuh, cut in the same way, with the same bits. There a
 * launch has a block for every segment that a row could have, and with room for long contexts most
 * of them have nothing to do. Here as many blocks as fit at a time share out the tiles of all live
 * rows, each a stretch of segments, and rows go in as few passes as their present lengths allow.
 *
 * Rows of one sequence that follow each other and whose keys lie in the same tiles are a squad, as
 * many as have room with their query heads in one operand of mma: their keys and values are read
 * once.
 *
 * Two warps fetch: 64 rows of a tile, each with a bulk copy of its own, so that rows lie in shared
 * memory where reading them has no bank conflicts. (One warp is too slow: lanes take turns, some 70
 * clocks each.) The others compute. Shared memory has room for one tile a block; the other block of
 * the multiprocessor computes meanwhile. Where a key head has 9 to 16 query heads, one block has
 * two groups instead, and two tiles, so that the groups read the same tile and memory is read
 * once. */
#ifndef CUDA_ATTENTION_DECODE_WALK_CUH
#define CUDA_ATTENTION_DECODE_WALK_CUH

#include "backend/cuda/kernels/attention_decode_mma.cuh"
#include "backend/cuda/kernels/bulk.cuh"

namespace {

enum {
    WALK_DIM = 512,
    WALK_ROWS_LEAST = 4,
    WALK_ROWS = MATVEC_ROWS_MAX,
    WALK_STOPS = 128,
    WALK_GROUP = WALK_DIM / 2,           /* threads that compute for up to 8 query heads */
    WALK_FETCH = 64,                     /* threads */
    WALK_ROW = WALK_DIM * 2,             /* bytes of a key */
    WALK_KEY_STRIDE = WALK_ROW + 64,     /* two rows next to each other in different banks */
    WALK_FOUR_STRIDE = 4 * WALK_ROW + 32 /* of four rows of values */
};

/* GROUPS of threads, each for up to 8 query heads of a tile. A multiprocessor has two groups and
 * two tiles in any case. */
template <int GROUPS_> struct walk_shape {
    static constexpr int GROUPS = GROUPS_, STAGES = GROUPS, BLOCKS = 2 / GROUPS;
    static constexpr int COMPUTE = GROUPS * WALK_GROUP, THREADS = COMPUTE + WALK_FETCH;
};

enum { STOP_FIRST = 1, STOP_LAST = 2, STOP_SQUAD = 4 }; /* tile of its segment; a new squad */

/* A tile on the way of a block. */
struct stop {
    size_t offset;    /* from the cache's `k` to its keys of the key head */
    int32_t begin, n; /* as of one row that sees what any row of the squad sees */
    int32_t segment, marks;
    int32_t leader, chunk; /* the squad's first row; the first group's chunk of query heads */
};

/* What a query head of a squad sees. */
struct view {
    int32_t shift, n; /* its walk_begin is the stop's and this; keys */
    int32_t q, at;    /* its number among all rows, negative: none; its partial of segment 0 */
};

template <class W> struct walk_shared {
    struct shared<WALK_DIM> tile[W::GROUPS];
    int32_t before[WALK_ROWS + 1]; /* tiles of squads before a row, for all chunks of heads */
    uint32_t starts[2];            /* rows that are a squad's first, or not live */
    struct span span[WALK_ROWS];   /* n = 0: not live, or not of this pass */
    struct pass pass;
    struct view view[W::GROUPS][HEADS];
    struct stop stop[WALK_STOPS];
    uint64_t full[2][W::STAGES], empty[2][W::STAGES]; /* barriers of keys and of values */
    alignas(16) char k[W::STAGES][TILE_KEYS * WALK_KEY_STRIDE];
    alignas(16) char v[W::STAGES][TILE_KEYS / 4 * WALK_FOUR_STRIDE];
};

/* Can row b, after row a, be in its squad? All that the two see is seen by one of them: other cells
 * may hold NaN. */
__device__ __forceinline__ bool is_near(const struct span &a, const struct span &b)
{
    bool is_live = a.n > 0 && b.n > 0, is_next = a.first + a.n + 1 == b.first + b.n;
    return is_live && is_next && a.sequence == b.sequence &&
           a.first / TILE_KEYS == b.first / TILE_KEYS && tiles_of(a) == tiles_of(b);
}

/* The last of the rows up to r that begins something. */
__device__ __forceinline__ int last_start(uint64_t starts, int r)
{
    return 63 - __clzll((long long)(starts & (~0ull >> (63 - r))));
}

/* Finds squads. Gives the number of all tiles. */
template <class W>
__device__ __forceinline__ int find_squads(const struct job &j, struct walk_shared<W> &s)
{
    int r = threadIdx.x, lane = r % 32, n = 0;
    const struct pass pass = find_pass(j);
    if (r == 0) s.pass = pass;
    if (r < WALK_ROWS) {
        struct span span;
        bool is_mine = r >= pass.first && r < pass.first + pass.n;
        bool is_free = is_mine && !is_in_pack(j, r);
        if (!is_free || !find_span(j, r, &span)) span = {};
        s.span[r] = span;
    }
    __syncthreads();
    if (r < WALK_ROWS) {
        uint32_t starts = __ballot_sync(~0u, r == 0 || !is_near(s.span[r - 1], s.span[r]));
        if (lane == 0) s.starts[r / 32] = starts;
    }
    __syncthreads();
    uint64_t starts = s.starts[0] | (uint64_t)s.starts[1] << 32;
    __syncthreads();
    if (r < WALK_ROWS) {
        int each = j.n_chunks == 1 ? slot_rows_of(j.group) : 1;
        bool is_first = (r - last_start(starts, r)) % each == 0;
        if (is_first && s.span[r].n > 0)
            n = tiles_of(s.span[r]) * j.a.cache.n_heads * j.n_chunks / W::GROUPS;
        uint32_t firsts = __ballot_sync(~0u, is_first);
        if (lane == 0) s.starts[r / 32] = firsts;
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
            int more = __shfl_up_sync(~0u, n, i);
            if (lane >= i) n += more;
        }
        s.before[r + 1] = n;
        if (r == 0) s.before[0] = 0;
    }
    __syncthreads();
    int first_half = s.before[32];
    __syncthreads();
    if (r >= 32 && r < WALK_ROWS) s.before[r + 1] = n + first_half;
    __syncthreads();
    return s.before[WALK_ROWS];
}

/* Rows of the squad that begins with row r. */
template <class W>
__device__ __forceinline__ int squad_rows(const struct job &j, const struct walk_shared<W> &s,
                                          int r)
{
    uint64_t starts = s.starts[0] | (uint64_t)s.starts[1] << 32;
    uint64_t later = r < 63 ? starts >> (r + 1) : 0;
    int n = later ? __ffsll((long long)later) : WALK_ROWS - r;
    return min(n, j.n_rows - r);
}

/* Where tile x of all is. */
struct stage {
    int32_t r, chunk, segment, i, n; /* tile i of n of the segment */
};

template <class W>
__device__ __forceinline__ struct stage find_stage(const struct walk_shared<W> &s, int x)
{
    struct stage p;
    p.r = 0;
#pragma unroll
    for (int step = WALK_ROWS / 2; step > 0; step /= 2)
        if (s.before[p.r + step] <= x) p.r += step;
    const struct span &span = s.span[p.r];
    int n_tiles = tiles_of(span), each = n_tiles / span.n_segments;
    int n_longer = n_tiles % span.n_segments, of_row = x - s.before[p.r];
    p.chunk = of_row / n_tiles * W::GROUPS;
    int t = of_row % n_tiles, of_shorter = t - n_longer * (each + 1);
    p.n = of_shorter < 0 ? each + 1 : each;
    p.segment = of_shorter < 0 ? t / p.n : n_longer + of_shorter / p.n;
    p.i = of_shorter < 0 ? t % p.n : of_shorter % p.n;
    return p;
}

/* The first tile of block b's share of n: where a segment begins. */
template <class W>
__device__ __forceinline__ int share_begin(const struct walk_shared<W> &s, int n, int b)
{
    int x = (int)((int64_t)n * b / gridDim.x);
    if (x >= n) return n;
    struct stage p = find_stage(s, x);
    return p.i == 0 ? x : x + p.n - p.i;
}

template <class W>
__device__ __forceinline__ struct stop find_stop(const struct job &j,
                                                 const struct walk_shared<W> &s, int x,
                                                 bool is_begin)
{
    struct stage p = find_stage(s, x);
    struct span span = s.span[p.r];
    const struct span &last = s.span[p.r + squad_rows(j, s, p.r) - 1];
    struct walk walk = walk_of(j, span, p.segment);
    walk.n = last.first + last.n - span.first;
    struct stop to;
    to.offset = walk_offset(j, walk, p.i, walk_page(j, walk, p.i)) +
                (uint32_t)(p.chunk / j.n_chunks * j.a.cache.head_bytes);
    to.begin = walk_begin(walk, p.i);
    to.n = walk.n;
    to.segment = p.segment;
    to.leader = p.r;
    to.chunk = p.chunk;
    to.marks = (p.i == 0 ? STOP_FIRST : 0) | (p.i == p.n - 1 ? STOP_LAST : 0) |
               (p.i == 0 && (is_begin || p.segment == 0) ? STOP_SQUAD : 0);
    return to;
}

template <class W>
__device__ __forceinline__ void find_stops(const struct job &j, struct walk_shared<W> &s, int begin,
                                           int end, bool is_begin)
{
    for (int i = threadIdx.x; i < WALK_STOPS && begin + i < end; i += W::THREADS)
        s.stop[i] = find_stop(j, s, begin + i, is_begin && i == 0);
    __syncthreads();
}

/* What head g of a chunk sees, for the squad of `stop`. */
template <class W>
__device__ __forceinline__ struct view find_view(const struct job &j,
                                                 const struct walk_shared<W> &s,
                                                 const struct stop &stop, int chunk, int g)
{
    int first_head, n_heads, of_squad = j.n_chunks == 1 ? g / j.group : 0;
    find_heads(j, chunk, &first_head, &n_heads);
    int n = squad_rows(j, s, stop.leader), head = g - of_squad * j.group;
    struct view v = {0, 0, -1, 0};
    if (of_squad >= n || head >= n_heads) return v;
    int r = stop.leader + of_squad;
    v.shift = s.span[stop.leader].first - s.span[r].first;
    v.n = s.span[r].n;
    v.q = s.span[r].row * j.a.n_heads + first_head + head;
    const struct pass &pass = s.pass;
    v.at = (int32_t)partial_of(j, r - pass.first, first_head + head, 0, pass.n_segments);
    return v;
}

/* The group of a thread that computes. */
__device__ __forceinline__ int walk_group()
{
    return threadIdx.x / WALK_GROUP;
}

/* A barrier of a group. */
__device__ __forceinline__ void group_sync()
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + walk_group()), "n"((int)WALK_GROUP) : "memory");
}

template <class W>
__device__ __forceinline__ void begin_squad(const struct job &j, const struct stop &stop,
                                            struct walk_shared<W> &s)
{
    int group = walk_group(), i = threadIdx.x % WALK_GROUP;
    group_sync(); /* the views of the squad before are not read any more */
    if (i < HEADS) s.view[group][i] = find_view(j, s, stop, stop.chunk + group, i);
    group_sync();
    int q = s.view[group][threadIdx.x % 32 / 4].q;
    load_queries<WALK_DIM>(j.a.cache, q < 0 ? NULL : j.a.q + (int64_t)q * WALK_DIM, s.tile[group]);
    group_sync();
}

/* Sums of a segment are complete. */
template <class W>
__device__ __forceinline__ void end_segment(const struct job &j, const struct stop &stop,
                                            const struct walk_shared<W> &s, struct running run,
                                            const float (&sum)[8][4])
{
    const struct view &v = s.view[walk_group()][threadIdx.x % 32 / 4];
    run.l = sum_of_quad(run.l);
    if (v.q >= 0) store_segment(j, v.at + stop.segment, sum, run);
}

/* ---- Tiles on their way ---------------------------------------------------------------------- */

/* Where the n-th tile of a block goes, and the parity of its passes. */
template <class W> struct berth {
    int stage;
    uint32_t parity;
    __device__ __forceinline__ berth(int n) : stage(n % W::STAGES), parity(n / W::STAGES & 1) {}
};

/* Asks for the tiles of the list, the first of which is the block's `count`-th: all keys of a tile,
 * whoever sees them. */
template <class W>
__device__ __forceinline__ void fetch_stops(const struct job &j, int n, struct walk_shared<W> &s,
                                            int count)
{
    enum { EACH = TILE_KEYS / (WALK_FETCH / 32) }; /* rows of a warp */
    const struct kv_cache &cache = j.a.cache;
    int lane = threadIdx.x % 32, key = (threadIdx.x - W::COMPUTE) / 32 * EACH + lane;
    bool is_first = threadIdx.x == W::COMPUTE, is_mine = lane < EACH;
    int to_k = key * WALK_KEY_STRIDE, to_v = key / 4 * WALK_FOUR_STRIDE + key % 4 * WALK_ROW;
    for (int i = 0; i < n; i++) {
        berth<W> at(count + i);
        size_t offset = s.stop[i].offset + (uint32_t)(key * kv_cell_bytes(&cache));
        uint64_t *k = &s.full[0][at.stage], *v = &s.full[1][at.stage];
        barrier_wait(&s.empty[0][at.stage], at.parity ^ 1);
        if (is_first) barrier_expect(k, TILE_KEYS * WALK_ROW);
        __syncwarp();
        if (is_mine) copy_bulk(s.k[at.stage] + to_k, (const char *)cache.k + offset, WALK_ROW, k);
        barrier_wait(&s.empty[1][at.stage], at.parity ^ 1);
        if (is_first) barrier_expect(v, TILE_KEYS * WALK_ROW);
        __syncwarp();
        if (is_mine) copy_bulk(s.v[at.stage] + to_v, (const char *)cache.v + offset, WALK_ROW, v);
    }
}

/* Scores of the tile that is there, to buffer i % 2. */
template <class W>
__device__ __forceinline__ void score_stop(struct walk_shared<W> &s, int i, berth<W> at)
{
    int warp = threadIdx.x % WALK_GROUP / 32, lane = threadIdx.x % 32;
    const char *from = s.k[at.stage] + (8 * (warp % 4) + lane / 4) * WALK_KEY_STRIDE +
                       512 * (warp / 4) + 16 * (lane % 4);
    struct shared<WALK_DIM> &tile = s.tile[walk_group()];
    uint4 k[8];
    barrier_wait(&s.full[0][at.stage], at.parity);
#pragma unroll
    for (int c = 0; c < 8; c++) k[c] = *(const uint4 *)(from + 64 * c);
    decode_score<WALK_DIM>(tile, k, tile.score[i % 2][warp / 4]);
    /* mma has made the warp wait for all its lanes */
    if (lane == 0) barrier_arrive(&s.empty[0][at.stage]);
}

/* Values of the tile that is there, zeros where no row of the squad sees a key: 0 times NaN. */
template <class W>
__device__ __forceinline__ void take_stop_values(struct walk_shared<W> &s, const struct stop &stop,
                                                 berth<W> at, uint4 (&v)[2][4])
{
    int warp = threadIdx.x % WALK_GROUP / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const char *from = s.v[at.stage] + t * WALK_FOUR_STRIDE + 128 * warp + 16 * g;
    barrier_wait(&s.full[1][at.stage], at.parity);
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            v[h][e] = *(const uint4 *)(from + 4 * h * WALK_FOUR_STRIDE + e * WALK_ROW);
    }
    if (stop.begin >= 0 && stop.begin + TILE_KEYS <= stop.n) return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!is_seen(stop.begin, 16 * h + 4 * t + e, stop.n)) v[h][e] = make_uint4(0, 0, 0, 0);
    }
}

/* The tiles of the list; the running softmax and the sums go on from list to list. */
template <class W>
__device__ __forceinline__ void walk_stops(const struct job &j, int n, struct walk_shared<W> &s,
                                           int count, struct running &run, float (&sum)[8][4])
{
    int group = walk_group(), g = threadIdx.x % 32 / 4;
    for (int i = 0; i < n; i++) {
        const struct stop &stop = s.stop[i];
        berth<W> at(count + i);
        if (stop.marks & STOP_SQUAD) begin_squad(j, stop, s);
        if (stop.marks & STOP_FIRST) {
            run = {-INFINITY, 0};
#pragma unroll
            for (int e = 0; e < 8; e++) sum[e][0] = sum[e][1] = sum[e][2] = sum[e][3] = 0;
        }
        score_stop(s, i, at);
        group_sync();
        float4 p[2];
        const struct view &view = s.view[group][g];
        read_scores<WALK_DIM>(s.tile[group], i, stop.begin + view.shift, view.n, p);
        float keep = soften(&run, p);
#pragma unroll
        for (int e = 0; e < 8; e++) {
#pragma unroll
            for (int h = 0; h < 4; h++) sum[e][h] *= keep;
        }
        uint4 v[2][4];
        take_stop_values(s, stop, at, v);
        add_values(sum, make_operand(p[0]), v[0]);
        add_values(sum, make_operand(p[1]), v[1]);
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(&s.empty[1][at.stage]);
        if (stop.marks & STOP_LAST) end_segment(j, stop, s, run, sum);
    }
}

/* ---- The kernel ------------------------------------------------------------------------------ */

template <class W> __device__ __forceinline__ void start_barriers(struct walk_shared<W> &s)
{
    if (threadIdx.x > 0) return;
    for (int i = 0; i < 2 * W::STAGES; i++) {
        barrier_init(&s.full[0][0] + i, 1);
        barrier_init(&s.empty[0][0] + i, W::COMPUTE / 32);
    }
    barriers_ready();
}

/* Grid: as many blocks as run at a time. */
template <class W>
__global__ void __launch_bounds__(W::THREADS, W::BLOCKS)
    attend_walk(const __grid_constant__ struct job j)
{
    extern __shared__ float4 dynamic[];
    struct walk_shared<W> &s = *(struct walk_shared<W> *)dynamic;
    start_barriers(s);
    int n = find_squads(j, s);
    int first = share_begin(s, n, blockIdx.x), end = share_begin(s, n, blockIdx.x + 1);
    struct running run = {-INFINITY, 0};
    float sum[8][4] = {};
    if (first >= end) grid_wait();
    for (int begin = first; begin < end; begin += WALK_STOPS) {
        int count = min(end - begin, (int)WALK_STOPS);
        find_stops(j, s, begin, end, begin == first);
        if (begin == first) {
            const struct stop &stop = s.stop[0];
            if (threadIdx.x < WALK_GROUP)
                fetch_tile<WALK_DIM>(reader_of<WALK_DIM>(j, 0), stop.offset, stop.begin, stop.n);
            grid_wait();
            grid_release();
        }
        if (threadIdx.x >= W::COMPUTE)
            fetch_stops(j, count, s, begin - first);
        else
            walk_stops(j, count, s, begin - first, run, sum);
        __syncthreads();
    }
}

/* Whether this kernel takes a launch of this many rows. Rows have the same bits either way. */
bool is_walked(const struct queue *q, const struct job &j, int rows)
{
    const struct kv_cache &cache = j.a.cache;
    bool is_shape = cache.format == FORMAT_F16 && j.d == WALK_DIM && !j.a.is_exact;
    return q->capability == 90 && is_shape && rows >= WALK_ROWS_LEAST && rows <= WALK_ROWS;
}

typedef walk_shape<1> walk_one;
typedef walk_shape<2> walk_two; /* where two groups share keys and values */

template <class W> void start_walk(const struct queue *q, const struct job &j)
{
    launch(q, attend_walk<W>, dim3(W::BLOCKS * q->n_sm), W::THREADS, sizeof(struct walk_shared<W>),
           j);
}

} // namespace

#endif
