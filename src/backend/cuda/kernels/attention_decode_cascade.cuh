/* Split attention of rows whose sequences begin with the same pages (types.h: struct pack): the
 * tiles of these pages are read once for all rows of a pack.
 *
 * The work is that of attention_decode_mma.cuh, cut in the same way: a block takes a chunk of query
 * heads, a segment and a pack, runs the segment's shared tiles for all rows together, then the
 * tiles that are a row's own for that row alone. Sums, m and l of all rows stay in registers, and
 * every head meets the same operations in the same order as without a pack: the same bits.
 *
 * A block computes CASCADE_SLOTS times eight query heads. A slot is one operand of mma and holds as
 * many rows as fit with their query heads of the key head. What a tile of one row does to the other
 * heads of its slot is dropped, NaN included.
 *
 * Few blocks, one on each multiprocessor: a block keeps a chunk and a pack, whose queries it
 * prepares once, and takes segments in turn. Neighbours have the same chunk of different packs, so
 * that what one of them reads is in L2 for the others. Where nothing is shared the launch ends at
 * once.
 *
 * Keys and values wait in shared memory, where each thread reads only what it has copied itself:
 * registers are full of sums, and with too few of them nothing overlaps. */
#ifndef CUDA_ATTENTION_DECODE_CASCADE_CUH
#define CUDA_ATTENTION_DECODE_CASCADE_CUH

#include "backend/cuda/kernels/attention_decode_mma.cuh"
#include "plan/share.h"

namespace {

enum { CASCADE_MEMBERS = CASCADE_SLOTS * HEADS };

/* A row of the pack. */
struct member {
    const int32_t *table; /* of its sequence */
    int32_t n, n_tiles;   /* keys; 0: a row of another pass */
    int32_t row, r;       /* of the launch, of the pass */
    int32_t slot, head;   /* its slot, and the place of its first query head there */
};

/* What a block does with a pack. */
struct work {
    int32_t n_members, n_slots, n_tiles; /* shared tiles */
    int32_t n_segments, step;            /* it takes segments `step` apart */
    int32_t first_head, n_heads;         /* of its chunk */
    int32_t rows_each;                   /* of a slot */
};

struct cascade_shared {
    struct shared<CASCADE_DIM> slot[CASCADE_SLOTS];
    uint4 k[8][CASCADE_DIM / 2], v[8][CASCADE_DIM / 2]; /* what a thread reads of the next tile */
    struct member member[CASCADE_MEMBERS];
    struct pass pass;
    struct work work;
    int32_t n_packs;               /* those with rows of this pass */
    uint16_t pack[SHARE_ROWS_MAX]; /* and which they are */
};

/* A tile of a segment, of a member, or (-1) of all. The same in all threads. */
struct visit {
    int32_t segment, member, tile;
};

/* From a tile to the next: shared ones come first, then the members' own. False: there is none. */
__device__ __forceinline__ bool next_visit(const struct cascade_shared &s, struct visit *v)
{
    int n_segments = s.work.n_segments, shared = s.work.n_tiles;
    v->tile += n_segments;
    while (v->segment < n_segments) {
        if (v->tile < (v->member < 0 ? shared : s.member[v->member].n_tiles)) return true;
        if (++v->member < s.work.n_members) {
            int skipped = (v->segment - shared) % n_segments; /* to the segment's first tile */
            v->tile = shared + skipped + (skipped < 0 ? n_segments : 0);
        } else {
            v->segment += s.work.step;
            v->member = -1;
            v->tile = v->segment;
        }
    }
    return false;
}

/* Rows see all positions from 0 on, so the page table has not wrapped around. */
__device__ __forceinline__ int visit_page(const struct cascade_shared &s, const struct visit &v)
{
    return __ldg(s.member[max(v.member, 0)].table + v.tile / PAGE_TILES);
}

__device__ __forceinline__ size_t visit_offset(const struct job &j, const struct visit &v, int page)
{
    const struct kv_cache &cache = j.a.cache;
    return (size_t)page * cache.page_bytes +
           (uint32_t)(v.tile % PAGE_TILES * (TILE_KEYS * kv_cell_bytes(&cache)));
}

/* Keys that are seen, counted from the tile's first one; of a shared tile all. */
__device__ __forceinline__ int visit_keys(const struct cascade_shared &s, const struct visit &v)
{
    return v.member < 0 ? TILE_KEYS : s.member[v.member].n - v.tile * TILE_KEYS;
}

/* Packs with rows of this pass, in their order. */
__device__ __forceinline__ void find_packs(const struct job &j, int n_packs,
                                           struct cascade_shared &s)
{
    int lane = threadIdx.x, n = 0;
    const struct pass pass = find_pass(j);
    int before = j.a.first_row + j.first_row + pass.first;
    for (int first = 0; first < n_packs && lane < 32; first += 32) {
        bool is_here = false;
        if (first + lane < n_packs) {
            struct pack pack = j.a.step.pack[first + lane];
            for (int i = 0; i < pack.n_rows; i++) {
                int r = j.a.step.member[pack.first + i] - before;
                is_here |= r >= 0 && r < pass.n;
            }
        }
        uint32_t here = __ballot_sync(~0u, is_here);
        if (is_here) s.pack[n + __popc(here & ((1u << lane) - 1))] = (uint16_t)(first + lane);
        n += __popc(here);
    }
    if (lane == 0) s.n_packs = n, s.pass = pass;
    __syncthreads();
}

/* False: none of the pack's rows is live. */
__device__ __forceinline__ bool find_members(const struct job &j, const struct pack &pack,
                                             struct cascade_shared &s)
{
    int rows_each = slot_rows_of(j.group), i = threadIdx.x;
    bool is_here = false;
    if (i < pack.n_rows) {
        const struct attention_args &a = j.a;
        struct member m = {};
        int row = a.step.member[pack.first + i];
        m.row = row - a.first_row;
        m.r = m.row - j.first_row - s.pass.first;
        m.slot = i / rows_each;
        m.head = i % rows_each * j.group;
        is_here = m.r >= 0 && m.r < s.pass.n && row < rows_live(a.rows, a.step);
        int token = is_here ? row_token(a.rows, a.step, m.row) : 0;
        m.n = is_here ? a.step.position[token] + 1 : 0;
        m.n_tiles = (m.n + TILE_KEYS - 1) / TILE_KEYS;
        m.table = a.cache.table + (int64_t)(is_here ? a.step.sequence[token] : 0) * a.cache.slots;
        s.member[i] = m;
    }
    return __syncthreads_or(is_here);
}

/* The work of this block with chunk `chunk`, `step` segments apart. */
__device__ __forceinline__ void find_work(const struct job &j, const struct pack &pack, int chunk,
                                          int step, struct cascade_shared &s)
{
    if (threadIdx.x == 0) {
        struct work w;
        int leader = 0; /* first of those in this pass; all have equally many segments */
        while (s.member[leader].n == 0) leader++;
        w.n_members = pack.n_rows;
        w.rows_each = slot_rows_of(j.group);
        w.n_slots = (pack.n_rows + w.rows_each - 1) / w.rows_each;
        w.n_tiles = pack.n_tiles;
        w.n_segments = segments_of(s.member[leader].n_tiles, j.splits);
        w.step = step;
        find_heads(j, chunk, &w.first_head, &w.n_heads);
        s.work = w;
        s.member[0].table = s.member[leader].table;
    }
    __syncthreads();
}

/* The member whose head is head g of a slot; NULL: none. */
__device__ __forceinline__ const struct member *member_of(const struct job &j,
                                                          const struct cascade_shared &s, int slot,
                                                          int g, int *head)
{
    const struct work &w = s.work;
    int place = w.rows_each > 1 ? g / j.group : 0, i = slot * w.rows_each + place;
    *head = g - place * j.group;
    if (place >= w.rows_each || i >= w.n_members || *head >= w.n_heads) return NULL;
    return s.member[i].n > 0 ? &s.member[i] : NULL;
}

__device__ __forceinline__ void load_members(const struct job &j, struct cascade_shared &s)
{
#pragma unroll
    for (int slot = 0; slot < CASCADE_SLOTS; slot++) {
        int head;
        const struct member *m = member_of(j, s, slot, threadIdx.x % 32 / 4, &head);
        const float *q = j.a.q;
        if (m) q += ((int64_t)m->row * j.a.n_heads + s.work.first_head + head) * CASCADE_DIM;
        load_queries<CASCADE_DIM>(j.a.cache, m ? q : NULL, s.slot[slot]);
    }
    __syncthreads();
}

/* ---- Tiles on their way: each thread's own 16 bytes ------------------------------------------ */

/* As a group of copies, like the values. */
__device__ __forceinline__ void copy_keys(const struct reader &r, size_t offset, int n,
                                          struct cascade_shared &s)
{
    int bytes = r.key < n ? 16 : 0;
#pragma unroll
    for (int c = 0; c < 8; c++)
        copy16_or_zeros(shared_address(&s.k[c][threadIdx.x]), r.k + offset + 64 * c, bytes);
}

__device__ __forceinline__ void copy_values(const struct reader &r, int cell_bytes, size_t offset,
                                            int n, struct cascade_shared &s)
{
#pragma unroll
    for (int e = 0; e < 8; e++) {
        int i = 16 * (e / 4) + e % 4;
        copy16_or_zeros(shared_address(&s.v[e][threadIdx.x]),
                        r.v + offset + (uint32_t)(i * cell_bytes), r.four + i < n ? 16 : 0);
    }
}

/* ---- A tile ---------------------------------------------------------------------------------- */

/* Values as operands of mma: in place, as all slots take the same. Columns 8g + i of 16 keys are
 * words 2 (i % 2) and 2 (i % 2) + 1 of the four that words i / 2 of the keys made. */
__device__ __forceinline__ void turn_values(uint4 (&v)[4])
{
    uint32_t *a = &v[0].x, *b = &v[1].x, *c = &v[2].x, *d = &v[3].x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t low = __byte_perm(a[i], b[i], 0x5410), high = __byte_perm(a[i], b[i], 0x7632);
        uint32_t low_2 = __byte_perm(c[i], d[i], 0x5410), high_2 = __byte_perm(c[i], d[i], 0x7632);
        a[i] = low, b[i] = low_2, c[i] = high, d[i] = high_2;
    }
}

/* sum += p v for 16 keys and columns 8g + i of the warp's 64. */
__device__ __forceinline__ void add_turned(float (&sum)[4], const uint4 &p, const uint4 (&v)[4],
                                           int i)
{
    const uint32_t *low = i % 2 ? &v[2].x : &v[0].x, *high = i % 2 ? &v[3].x : &v[1].x;
    mma_f16(sum, &p.x, low[i / 2], high[i / 2]);
}

/* What a thread holds: this slot's sums, and its head's m and l. */
struct slot_sums {
    float sum[8][4];
    struct running run;
};

/* Shares of 32 keys for a slot's heads, as operands of mma, and the factor of earlier sums. */
struct softened {
    uint4 p[2];
    float keep;
};

__device__ __forceinline__ struct softened soften_slot(const struct shared<CASCADE_DIM> &s,
                                                       int step, int n, struct running *run)
{
    float4 p[2];
    struct softened x;
    read_scores<CASCADE_DIM>(s, step, 0, n, p);
    x.keep = soften(run, p);
    x.p[0] = make_operand(p[0]);
    x.p[1] = make_operand(p[1]);
    return x;
}

__device__ __forceinline__ void add_softened(const struct softened &x, const uint4 (&v)[2][4],
                                             float (&sum)[8][4])
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][e] *= x.keep;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int i = 0; i < 8; i++) add_turned(sum[i], x.p[h], v[h], i);
    }
}

/* The same, but only heads that are `mine` change. */
__device__ __forceinline__ void add_softened_if(bool is_mine, const struct softened &x,
                                                const uint4 (&v)[2][4], float (&sum)[8][4])
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float y[4];
#pragma unroll
        for (int e = 0; e < 4; e++) y[e] = sum[i][e] * x.keep;
        add_turned(y, x.p[0], v[0], i);
        add_turned(y, x.p[1], v[1], i);
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][e] = is_mine ? y[e] : sum[i][e];
    }
}

__device__ __forceinline__ void clear_slots(struct slot_sums (&slots)[CASCADE_SLOTS])
{
#pragma unroll
    for (int slot = 0; slot < CASCADE_SLOTS; slot++) {
        slots[slot].run = {-INFINITY, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) slots[slot].sum[i][e] = 0;
        }
    }
}

__device__ __forceinline__ void store_slots(const struct job &j, const struct cascade_shared &s,
                                            int segment, struct slot_sums (&slots)[CASCADE_SLOTS])
{
#pragma unroll
    for (int slot = 0; slot < CASCADE_SLOTS; slot++) {
        int head;
        const struct member *m = member_of(j, s, slot, threadIdx.x % 32 / 4, &head);
        struct running run = slots[slot].run;
        run.l = sum_of_quad(run.l);
        if (!m) continue;
        int64_t at = partial_of(j, m->r, s.work.first_head + head, segment, s.pass.n_segments);
        store_segment(j, at, slots[slot].sum, run);
    }
}

/* A shared tile for fewer slots than there may be, or a tile of one member for its slot. */
__device__ __forceinline__ void add_some(const struct job &j, const struct cascade_shared &s,
                                         const struct visit &now, int only, int step, int n,
                                         const uint4 (&v)[2][4],
                                         struct slot_sums (&slots)[CASCADE_SLOTS])
{
    int head = threadIdx.x % 32 / 4 - (only < 0 ? 0 : s.member[now.member].head);
    bool is_mine = head >= 0 && head < s.work.n_heads;
#pragma unroll
    for (int slot = 0; slot < CASCADE_SLOTS; slot++) {
        struct slot_sums &to = slots[slot];
        if (only < 0 ? slot >= s.work.n_slots : slot != only) continue;
        struct running run = to.run;
        struct softened x = soften_slot(s.slot[slot], step, n, &run);
        if (only < 0) {
            to.run = run;
            add_softened(x, v, to.sum);
        } else {
            if (is_mine) to.run = run;
            add_softened_if(is_mine, x, v, to.sum);
        }
    }
}

/* This thread's values of the tile, whose copies are done but for the last group; then the copies
 * of the tile after it, if any, to the same place. */
__device__ __forceinline__ void take_values(const struct reader &r, int cell_bytes, bool is_more,
                                            size_t offset, int n, struct cascade_shared &s,
                                            uint4 (&v)[2][4])
{
    copies_wait<1>();
#pragma unroll
    for (int e = 0; e < 8; e++) v[e / 4][e % 4] = s.v[e][threadIdx.x];
    if (is_more) copy_values(r, cell_bytes, offset, n, s);
    copies_commit();
    turn_values(v[0]), turn_values(v[1]);
}

__device__ __forceinline__ void take_keys(const struct reader &r, bool is_more, size_t offset,
                                          int n, struct cascade_shared &s, uint4 (&k)[8])
{
    copies_wait<1>();
#pragma unroll
    for (int c = 0; c < 8; c++) k[c] = s.k[c][threadIdx.x];
    if (is_more) copy_keys(r, offset, n, s);
    copies_commit();
}

/* This block's segments of a pack, for a chunk of query heads, from segment `first` on. */
__device__ __forceinline__ void attend_pack(const struct job &j, const struct reader &r, int first,
                                            struct cascade_shared &s)
{
    int cell_bytes = kv_cell_bytes(&j.a.cache), n_slots = s.work.n_slots;
    struct slot_sums slots[CASCADE_SLOTS];
    struct visit now = {first, -1, first - s.work.n_segments}, after;
    if (!next_visit(s, &now)) return;
    size_t offset = visit_offset(j, now, visit_page(s, now));
    copy_keys(r, offset, visit_keys(s, now), s);
    copies_commit();
    copy_values(r, cell_bytes, offset, visit_keys(s, now), s);
    copies_commit();
    clear_slots(slots);
    after = now;
    bool is_more = next_visit(s, &after), is_last = false;
    int page = is_more ? visit_page(s, after) : 0;
    for (int step = 0; !is_last; step ^= 1) {
        uint4 k[8], v[2][4];
        int only = now.member < 0 ? -1 : s.member[now.member].slot, n = visit_keys(s, now);
        int n_after = is_more ? visit_keys(s, after) : 0;
        offset = visit_offset(j, after, page);
        take_keys(r, is_more, offset, n_after, s, k);
        struct visit later = after;
        bool is_later = is_more && next_visit(s, &later);
        if (is_later) page = visit_page(s, later);
        float(*out)[HEADS][SCORE_STRIDE];
#pragma unroll
        for (int slot = 0; slot < CASCADE_SLOTS; slot++) {
            out = s.slot[slot].score[step];
            if (only < 0 ? slot < n_slots : slot == only)
                decode_score<CASCADE_DIM>(s.slot[slot], k, out[threadIdx.x / 128]);
        }
        __syncthreads();
        if (only < 0 && n_slots == CASCADE_SLOTS) {
            struct softened x[CASCADE_SLOTS];
#pragma unroll
            for (int slot = 0; slot < CASCADE_SLOTS; slot++)
                x[slot] = soften_slot(s.slot[slot], step, n, &slots[slot].run);
            take_values(r, cell_bytes, is_more, offset, n_after, s, v);
#pragma unroll
            for (int slot = 0; slot < CASCADE_SLOTS; slot++)
                add_softened(x[slot], v, slots[slot].sum);
        } else {
            take_values(r, cell_bytes, is_more, offset, n_after, s, v);
            add_some(j, s, now, only, step, n, v, slots);
        }
        if (!is_more || after.segment != now.segment) {
            store_slots(j, s, now.segment, slots);
            clear_slots(slots);
        }
        is_last = !is_more;
        now = after, after = later, is_more = is_later;
    }
    copies_wait_all();
}

/* Grid: as many blocks as there are multiprocessors. */
__global__ void __launch_bounds__(CASCADE_DIM / 2, 1)
    attend_cascade(const __grid_constant__ struct job j)
{
    extern __shared__ float4 dynamic[];
    struct cascade_shared &s = *(struct cascade_shared *)dynamic;
    int n_packs = j.a.step.counts[STEP_PACKS], n_chunks = j.a.cache.n_heads * j.n_chunks;
    if (n_packs == 0)
        grid_release(); /* the next kernel starts as if this one were not there */
    else
        find_packs(j, n_packs, s);
    grid_wait();
    if (n_packs == 0) return;
    grid_release();
    int n = s.n_packs * n_chunks, n_each = n > 0 ? max((int)gridDim.x / n, 1) : 0;
    if ((int)blockIdx.x >= n_each * n) return;
    for (int i = blockIdx.x % n; i < n; i += gridDim.x) {
        int chunk = i / s.n_packs;
        const struct pack pack = j.a.step.pack[s.pack[i % s.n_packs]];
        __syncthreads();
        if (!find_members(j, pack, s)) continue;
        find_work(j, pack, chunk, n_each, s);
        load_members(j, s);
        attend_pack(j, reader_of<CASCADE_DIM>(j, chunk / j.n_chunks), blockIdx.x / n, s);
    }
}

} // namespace

#endif
