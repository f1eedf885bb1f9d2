/* Split attention of rows whose sequences begin with the same pages (types.h: struct pack): the
 * tiles of these pages are read once for all rows of a pack.
 *
 * The work is that of attention_decode_mma.cuh, cut in the same way: a block takes a chunk of query
 * heads, a segment and a pack, runs the segment's shared tiles for all rows together, then the
 * tiles that are a row's own for that row alone. Sums, m and l of all rows stay in registers, and
 * every head meets the same operations in the same order as without a pack: the same bits.
 *
 * CASCADE_SLOTS times eight query heads: a slot has one operand of mma, and as many rows as have
 * room in it with their query heads of the key head. What a tile of one row does to the other heads
 * of its slot is dropped, NaN included.
 *
 * Few blocks, one on each multiprocessor, which it fills with its registers: a block keeps a chunk
 * and a pack, whose queries it prepares once, and takes segments in turn. Neighbours have the same
 * chunk of different packs, so that what one of them reads is in L2 for the others. Where nothing
 * is shared the launch ends at once. */
#ifndef CUDA_ATTENTION_DECODE_CASCADE_CUH
#define CUDA_ATTENTION_DECODE_CASCADE_CUH

#include "backend/cuda/kernels/attention_decode_mma.cuh"

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

/* A tile of a segment, of a member, or (-1) of all. */
struct visit {
    int32_t segment, member, tile;
    int32_t slot, head; /* the member's; slot -1: all */
    int32_t n;          /* keys of the member, or any */
    size_t offset;      /* bytes to the tile's keys */
};

enum { VISITS = 4 };

/* All of a block's bookkeeping is here, because registers are full. Thread 0 finds the visits. */
struct cascade_shared {
    struct shared<CASCADE_DIM> slot[CASCADE_SLOTS];
    struct member member[CASCADE_MEMBERS];
    struct work work;
    struct visit visit[VISITS]; /* visit i is in place i % VISITS */
};

__device__ __forceinline__ bool is_visit(const struct cascade_shared &s, int i)
{
    return s.visit[i % VISITS].segment < s.work.n_segments;
}

/* Visit i from the one before it, without its offset; gives its page. Shared tiles come first, then
 * the members' own. */
__device__ __forceinline__ int find_visit(struct cascade_shared &s, int i)
{
    const struct work &w = s.work;
    struct visit v = s.visit[(i + VISITS - 1) % VISITS];
    int page = 0;
    v.tile += w.n_segments;
    while (v.segment < w.n_segments) {
        if (v.tile < (v.member < 0 ? w.n_tiles : s.member[v.member].n_tiles)) {
            page = __ldg(s.member[max(v.member, 0)].table + v.tile / PAGE_TILES);
            break;
        }
        if (++v.member < w.n_members) {
            int behind = (v.segment - w.n_tiles) % w.n_segments;
            v.tile = w.n_tiles + behind + (behind < 0 ? w.n_segments : 0);
        } else {
            v.segment += w.step;
            v.member = -1;
            v.tile = v.segment;
        }
    }
    v.slot = v.member < 0 ? -1 : s.member[v.member].slot;
    v.head = v.member < 0 ? 0 : s.member[v.member].head;
    v.n = v.member < 0 ? INT32_MAX : s.member[v.member].n;
    s.visit[i % VISITS] = v;
    return page;
}

/* Rows see all positions from 0 on, so no table has come round. */
__device__ __forceinline__ void place_visit(const struct job &j, struct cascade_shared &s, int i,
                                            int page)
{
    const struct kv_cache &cache = j.a.cache;
    struct visit &v = s.visit[i % VISITS];
    v.offset = (size_t)page * cache.page_bytes +
               (uint32_t)(v.tile % PAGE_TILES * (TILE_KEYS * kv_cell_bytes(&cache)));
}

/* False: none of the pack's rows is in this pass. */
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
        m.r = m.row - j.first_row;
        m.slot = i / rows_each;
        m.head = i % rows_each * j.group;
        is_here = m.r >= 0 && m.r < j.n_rows && row < rows_live(a.rows, a.step);
        int token = is_here ? row_token(a.rows, a.step, m.row) : 0;
        m.n = is_here ? a.step.position[token] + 1 : 0;
        m.n_tiles = (m.n + TILE_KEYS - 1) / TILE_KEYS;
        m.table = a.cache.table + (int64_t)(is_here ? a.step.sequence[token] : 0) * a.cache.slots;
        s.member[i] = m;
    }
    return __syncthreads_or(is_here);
}

/* The work of this block with chunk `chunk`, and its first two visits. */
__device__ __forceinline__ void find_work(const struct job &j, const struct pack &pack, int chunk,
                                          int first_segment, int step, struct cascade_shared &s)
{
    if (threadIdx.x == 0) {
        struct work w;
        int leader = 0; /* of those in this pass; all of them have as many segments */
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
        s.visit[VISITS - 1].segment = first_segment;
        s.visit[VISITS - 1].member = -1;
        s.visit[VISITS - 1].tile = first_segment - w.n_segments;
        for (int i = 0; i < 2; i++) place_visit(j, s, i, find_visit(s, i));
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
        load_queries<CASCADE_DIM>(m ? q : NULL, s.slot[slot]);
    }
    __syncthreads();
}

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

/* One tile for the eight heads of a slot. */
template <int D>
__device__ __forceinline__ void add_tile(const struct shared<D> &s, int step, int begin, int n,
                                         const uint4 (&v)[2][4], struct slot_sums &to)
{
    float4 p[2];
    read_scores<D>(s, step, begin, n, p);
    float keep = soften(&to.run, p);
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) to.sum[i][e] *= keep;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint4 operand = make_operand(p[h]);
#pragma unroll
        for (int i = 0; i < 8; i++) add_turned(to.sum[i], operand, v[h], i);
    }
}

/* The same, but only heads that are `mine` change. */
template <int D>
__device__ __forceinline__ void add_tile_if(bool is_mine, const struct shared<D> &s, int step,
                                            int begin, int n, const uint4 (&v)[2][4],
                                            struct slot_sums &to)
{
    float4 p[2];
    struct running own = to.run;
    read_scores<D>(s, step, begin, n, p);
    float keep = soften(&own, p);
    if (is_mine) to.run = own;
    const uint4 operand[2] = {make_operand(p[0]), make_operand(p[1])};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float x[4];
#pragma unroll
        for (int e = 0; e < 4; e++) x[e] = to.sum[i][e] * keep;
        add_turned(x, operand[0], v[0], i);
        add_turned(x, operand[1], v[1], i);
#pragma unroll
        for (int e = 0; e < 4; e++) to.sum[i][e] = is_mine ? x[e] : to.sum[i][e];
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
        int64_t at = partial_of(j, m->r, s.work.first_head + head, segment);
        store_segment(j, at, slots[slot].sum, run);
    }
}

__device__ __forceinline__ void score_slots(struct cascade_shared &s, const struct visit &now,
                                            int i, const uint4 (&k)[8])
{
#pragma unroll
    for (int slot = 0; slot < CASCADE_SLOTS; slot++)
        if (now.slot < 0 ? slot < s.work.n_slots : slot == now.slot)
            decode_score<CASCADE_DIM>(s.slot[slot], k,
                                      s.slot[slot].score[i % 2][threadIdx.x / 128]);
}

__device__ __forceinline__ void add_slots(const struct cascade_shared &s, const struct visit &now,
                                          int i, const uint4 (&v)[2][4],
                                          struct slot_sums (&slots)[CASCADE_SLOTS])
{
    int begin = now.tile * TILE_KEYS;
    if (now.slot < 0) {
#pragma unroll
        for (int slot = 0; slot < CASCADE_SLOTS; slot++)
            if (slot < s.work.n_slots)
                add_tile<CASCADE_DIM>(s.slot[slot], i, begin, now.n, v, slots[slot]);
        return;
    }
    int head = threadIdx.x % 32 / 4 - now.head;
    bool is_mine = head >= 0 && head < s.work.n_heads;
#pragma unroll
    for (int slot = 0; slot < CASCADE_SLOTS; slot++)
        if (slot == now.slot)
            add_tile_if<CASCADE_DIM>(is_mine, s.slot[slot], i, begin, now.n, v, slots[slot]);
}

/* This block's segments of a pack, for a chunk of query heads. */
__device__ __forceinline__ void attend_pack(const struct job &j, const struct reader &reader,
                                            struct cascade_shared &s)
{
    int cell_bytes = kv_cell_bytes(&j.a.cache);
    uint4 k[8], v[2][4];
    struct slot_sums slots[CASCADE_SLOTS];
    clear_slots(slots);
    const struct visit &first = s.visit[0];
    read_keys(reader, first.offset, first.tile * TILE_KEYS, first.n, k);
    read_values(reader, cell_bytes, first.offset, first.tile * TILE_KEYS, first.n, v);
    for (int i = 0; is_visit(s, i); i++) {
        const struct visit &now = s.visit[i % VISITS], &after = s.visit[(i + 1) % VISITS];
        bool is_more = is_visit(s, i + 1);
        int page = threadIdx.x == 0 ? find_visit(s, i + 2) : 0;
        score_slots(s, now, i, k);
        if (is_more) read_keys(reader, after.offset, after.tile * TILE_KEYS, after.n, k);
        if (threadIdx.x == 0) place_visit(j, s, i + 2, page);
        __syncthreads();
        turn_values(v[0]), turn_values(v[1]);
        add_slots(s, now, i, v, slots);
        if (is_more)
            read_values(reader, cell_bytes, after.offset, after.tile * TILE_KEYS, after.n, v);
        if (after.segment == now.segment) continue;
        store_slots(j, s, now.segment, slots);
        clear_slots(slots);
    }
}

/* Grid: as many blocks as there are multiprocessors. */
__global__ void __launch_bounds__(CASCADE_DIM / 2, 1)
    attend_cascade(const __grid_constant__ struct job j)
{
    extern __shared__ float4 dynamic[];
    struct cascade_shared &s = *(struct cascade_shared *)dynamic;
    int n_packs = j.a.step.counts[STEP_PACKS];
    int n_chunks = j.a.cache.n_heads * j.n_chunks, n = n_packs * n_chunks;
    if (n == 0) grid_release(); /* the next kernel starts as if this one were not there */
    grid_wait();
    if (n == 0) return;
    grid_release();
    int n_each = max((int)gridDim.x / n, 1), first = blockIdx.x / n;
    if (first >= n_each) return;
    for (int i = blockIdx.x % n; i < n; i += gridDim.x) {
        int chunk = i / n_packs;
        const struct pack pack = j.a.step.pack[i % n_packs];
        __syncthreads();
        if (!find_members(j, pack, s)) continue;
        find_work(j, pack, chunk, first, n_each, s);
        load_members(j, s);
        attend_pack(j, reader_of<CASCADE_DIM>(j, chunk / j.n_chunks), s);
    }
}

} // namespace

#endif
