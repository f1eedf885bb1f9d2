/* The TOP_K largest logits of each row, falling, equal ones by rising id.
 *
 * A value's rank is a 64-bit number: the logit's bits made to order as an integer (NaN above all),
 * then ~id; no two are equal, so that "the 128 largest" is one set whatever order it is found in.
 *
 * 1. group_kernel: the row's quads are dealt to 4096 threads in turns; a thread's are a group. The
 *    rank of each group's largest goes to scratch, 32 KB a row.
 * 2. select_kernel, one block a row: the 128 largest values lie in the 128 groups whose largest
 *    rank highest, and are not below the 128th of these. So: a threshold rank that some 128 groups
 *    reach (pick), the values of these groups that reach it (for logits about 150 of 8192), their
 *    places among each other by counting.
 * Adversarial rows (thousands of equal logits) reach the threshold with more values than are sorted
 * at once; then the threshold is raised over the values themselves, read again.
 *
 * With masks only the ids that are marked are there. Both kernels read the bits next to the logits.
 * Groups without any have rank 0; where few have some, all of these are taken.
 *
 * Bound: 1 MB read a row; one row is latency of two launches and four dependent reads of L2. */
#include <cfloat>

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace {

enum {
    GROUPS = 4096,      /* a row; the threshold is taken from their largest */
    GROUP_THREADS = 32, /* of a block of group_kernel: one row is spread over 128 blocks */
    THREADS = 1024,     /* of select_kernel */
    HELD = GROUPS / THREADS,
    BUCKETS = 1024,
    PICKED_MAX = 256,    /* groups at or above the threshold; values as well, once raised */
    CANDIDATES_MAX = 512 /* values to sort */
};

static_assert(THREADS / 8 == TOP_K && THREADS == BUCKETS,
              "pick: sets of values; a bucket a thread");

typedef unsigned long long rank_t;

/* The addition makes -0 a 0 and any NaN the canonical one, which is positive: above infinity. */
__device__ __forceinline__ uint32_t key_of(float x)
{
    uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
}

__device__ __forceinline__ float value_of(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* 0 is below the rank of any value. */
__device__ __forceinline__ rank_t rank_of(float x, int id)
{
    return (rank_t)key_of(x) << 32 | (uint32_t)~id;
}

/* Ids of a group rise with k and within a quad. */
__device__ __forceinline__ int quad_of(int group, int k)
{
    return group + k * GROUPS;
}

struct topk_args {
    struct step_view step;
    const float *logits;
    int32_t n_vocab;
    rank_t *groups; /* [rows][GROUPS] */
    struct logit_pair *out;
    const uint32_t *masks; /* [rows][mask_words], of struct masked_rows */
    int32_t mask_words;
    struct masked_rows which;
};

/* The row of logits and of pairs that blocks with row number `i` work on. */
template <bool IS_MASKED>
__device__ __forceinline__ int64_t row_at(const struct topk_args &p, int i)
{
    return IS_MASKED ? p.which.row[i] : i;
}

template <bool IS_MASKED>
__device__ __forceinline__ bool row_lives(const struct topk_args &p, int i)
{
    return IS_MASKED || i < p.step.counts[2];
}

/* The mask bits of the four ids from `quad * 4` on, for block row `i`: bits 0 to 3. */
template <bool IS_MASKED>
__device__ __forceinline__ uint32_t marks_at(const struct topk_args &p, int i, int quad)
{
    if (!IS_MASKED) return 15;
    return quad * 4 < p.n_vocab ? p.masks[(int64_t)i * p.mask_words + quad / 8] >> quad % 8 * 4 : 0;
}

/* NaN and +infinity are no logits: no mask hides them. */
template <bool IS_MASKED> __device__ __forceinline__ bool is_marked(uint32_t marks, int k, float x)
{
    return !IS_MASKED || (marks >> k & 1) || !(x <= FLT_MAX);
}

/* The largest of a group in one column of its quads: four of them keep the chain of comparisons
 * short. Of equal ones the first stays. */
struct column_most {
    uint32_t key;
    int32_t quad;
};

__device__ __forceinline__ void take(struct column_most *most, float x, int quad, bool is_there)
{
    uint32_t key = key_of(x);
    if (key > most->key && is_there) most->key = key, most->quad = quad;
}

__device__ __forceinline__ rank_t rank_of_most(const struct column_most &most, int column)
{
    return most.key ? (rank_t)most.key << 32 | (uint32_t) ~(most.quad * 4 + column) : 0;
}

template <bool IS_MASKED>
__global__ void __launch_bounds__(GROUP_THREADS)
    group_kernel(const __grid_constant__ struct topk_args p)
{
    enum { AT_ONCE = 16 };
    grid_wait();
    grid_release();
    const int row = blockIdx.x;
    if (row > 0 && !row_lives<IS_MASKED>(p, row)) return; /* row 0 does not wait for that */
    const int group = blockIdx.y * GROUP_THREADS + threadIdx.x, n = p.n_vocab,
              n_quads = (n + 3) / 4;
    const float *logits = p.logits + row_at<IS_MASKED>(p, row) * n;
    struct column_most a = {}, b = {}, c = {}, d = {};
    for (int first = 0; quad_of(group, first) < n_quads; first += AT_ONCE) {
        float4 x[AT_ONCE];
        uint32_t marks[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            x[k] = load_quad(logits, quad_of(group, first + k) * 4, n);
            marks[k] = marks_at<IS_MASKED>(p, row, quad_of(group, first + k));
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            int quad = quad_of(group, first + k);
            const int id = quad * 4;
            const uint32_t m = marks[k];
            take(&a, x[k].x, quad, id < n && is_marked<IS_MASKED>(m, 0, x[k].x));
            take(&b, x[k].y, quad, id + 1 < n && is_marked<IS_MASKED>(m, 1, x[k].y));
            take(&c, x[k].z, quad, id + 2 < n && is_marked<IS_MASKED>(m, 2, x[k].z));
            take(&d, x[k].w, quad, id + 3 < n && is_marked<IS_MASKED>(m, 3, x[k].w));
        }
    }
    rank_t most = max(max(rank_of_most(a, 0), rank_of_most(b, 1)),
                      max(rank_of_most(c, 2), rank_of_most(d, 3)));
    if (row_lives<IS_MASKED>(p, row)) p.groups[(int64_t)row * GROUPS + group] = most;
}

/* ---- The threshold ------------------------------------------------------------------------- */

struct pick_state {
    uint32_t low[WARP], high[WARP]; /* keys: a warp's bounds */
    int32_t count[BUCKETS];
    int32_t warp_count[WARP];
    int32_t bucket, above, held; /* number above the bucket, number in it */
};

/* Bounds of the TOP_K-th largest: the largest of each of 128 sets of values, one an octet of lanes,
 * are 128 values, so that the least of them is not above it. */
__device__ __forceinline__ void bounds(rank_t largest, struct pick_state *s, rank_t *low,
                                       rank_t *high)
{
    const int lane = threadIdx.x % WARP;
    uint32_t most = octet_max((uint32_t)(largest >> 32));
    uint32_t least = __reduce_min_sync(~0u, most);
    most = __reduce_max_sync(~0u, most);
    if (lane == 0) s->low[threadIdx.x / WARP] = least, s->high[threadIdx.x / WARP] = most;
    __syncthreads();
    *low = (rank_t)__reduce_min_sync(~0u, s->low[lane]) << 32;
    *high = (rank_t)__reduce_max_sync(~0u, s->high[lane]) << 32 | ~0u;
}

/* The bucket that holds the wanted-th largest of what is counted, and the number above it. Thread t
 * has bucket t. */
__device__ __forceinline__ void find_bucket(struct pick_state *s, int wanted)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n = s->count[threadIdx.x];
    int from_here = n; /* in this lane's bucket and those of higher lanes */
    for (int d = 1; d < WARP; d *= 2) {
        int other = __shfl_down_sync(~0u, from_here, d);
        if (lane + d < WARP) from_here += other;
    }
    if (lane == 0) s->warp_count[warp] = from_here;
    __syncthreads();
    int higher = lane > warp ? s->warp_count[lane] : 0;
    int above = __reduce_add_sync(~0u, higher) + from_here - n;
    if (above < wanted && above + n >= wanted)
        s->bucket = threadIdx.x, s->above = above, s->held = n;
    __syncthreads();
}

/* A threshold that at least TOP_K and at most `limit` values reach (or that all reach, where there
 * are fewer). for_each(visit) calls visit(rank) for each of the thread's values; `largest` is the
 * largest of them. Each turn cuts the range of the TOP_K-th into 1024 buckets. */
template <class ForEach>
__device__ rank_t pick(ForEach for_each, rank_t largest, int limit, struct pick_state *s)
{
    rank_t low, high;
    s->count[threadIdx.x] = 0;
    bounds(largest, s, &low, &high);
    int wanted = TOP_K; /* the wanted-th largest within [low, high] */
    for (;;) {
        const int bits = 64 - __clzll((long long)(high - low));
        const int shift = bits > 10 ? bits - 10 : 0;
        for_each([&](rank_t rank) {
            if (rank >= low && rank <= high) atomicAdd(&s->count[(rank - low) >> shift], 1);
        });
        __syncthreads();
        find_bucket(s, wanted);
        const int reached = TOP_K - wanted + s->above + s->held;
        wanted -= s->above;
        low += (rank_t)s->bucket << shift;
        high = min(high, low + (((rank_t)1 << shift) - 1));
        if (reached <= limit || shift == 0) return low;
        s->count[threadIdx.x] = 0;
        __syncthreads();
    }
}

/* ---- The choice ---------------------------------------------------------------------------- */

struct select_state {
    struct pick_state pick;
    int32_t n_groups, n_values;
    int32_t group[PICKED_MAX];
    rank_t value[CANDIDATES_MAX];
};

/* visit(rank) for the values of the listed groups that are not below `least`. 16 lanes share a
 * group, as many as it has quads in a row of 262144. */
template <bool IS_MASKED, class Visit>
__device__ __forceinline__ void visit_groups(const struct topk_args &p, const float *logits,
                                             const struct select_state &s, float least, Visit visit)
{
    enum { AT_ONCE = 4, LANES = 16, STEP = THREADS / LANES };
    const int n = p.n_vocab, n_quads = (n + 3) / 4;
    for (int first = threadIdx.x / LANES; first < s.n_groups; first += STEP * AT_ONCE)
        for (int k = threadIdx.x % LANES; k * GROUPS < n_quads; k += LANES) {
            float4 x[AT_ONCE];
            int quad[AT_ONCE];
            uint32_t marks[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                int at = first + i * STEP;
                quad[i] = at < s.n_groups ? quad_of(s.group[at], k) : n_quads;
                x[i] = load_quad(logits, quad[i] * 4, n);
                marks[i] = marks_at<IS_MASKED>(p, blockIdx.x, quad[i]);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int id = quad[i] * 4;
                auto offer = [&](float value, int k) { /* NaN is not below */
                                                       if (!(value < least) && id + k < n &&
                                                           is_marked<IS_MASKED>(marks[i], k, value))
                                                           visit(rank_of(value, id + k));
                };
                offer(x[i].x, 0);
                offer(x[i].y, 1);
                offer(x[i].z, 2);
                offer(x[i].w, 3);
            }
        }
}

/* Lists the values that reach the threshold; n_values, 0 before, counts also those that found no
 * room. */
template <bool IS_MASKED>
__device__ __forceinline__ void list_values(const struct topk_args &p, const float *logits,
                                            rank_t threshold, struct select_state *s)
{
    const float least = value_of((uint32_t)(threshold >> 32));
    visit_groups<IS_MASKED>(p, logits, *s, least, [&](rank_t rank) {
        if (rank < threshold) return;
        int at = atomicAdd(&s->n_values, 1);
        if (at < CANDIDATES_MAX) s->value[at] = rank;
    });
    __syncthreads();
}

/* A value's place is the number of values above it. Parts of a warp share a value, so that all
 * threads count. */
__device__ __forceinline__ void write_sorted(const struct select_state &s, struct logit_pair *out)
{
    enum { PARTS = 4 };
    const int n = s.n_values, part = threadIdx.x % PARTS;
    for (int i = threadIdx.x / PARTS; i < CANDIDATES_MAX; i += THREADS / PARTS) {
        if (i - threadIdx.x % WARP / PARTS >= n) break; /* the whole warp */
        rank_t own = i < n ? s.value[i] : 0;
        int place = 0;
        for (int j = part; j < n; j += PARTS) place += s.value[j] > own;
        place += __shfl_xor_sync(~0u, place, 1);
        place += __shfl_xor_sync(~0u, place, 2);
        if (i < n && part == 0 && place < TOP_K)
            out[place] = {(int32_t) ~(uint32_t)own, value_of((uint32_t)(own >> 32))};
    }
    for (int i = n + threadIdx.x; i < TOP_K; i += THREADS) out[i] = {-1, -INFINITY};
}

/* Groups of the row that hold anything. */
__device__ __forceinline__ int count_groups(const rank_t held[HELD])
{
    int n = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) n += __syncthreads_count(held[i] != 0);
    return n;
}

template <bool IS_MASKED>
__global__ void __launch_bounds__(THREADS) select_kernel(const __grid_constant__ struct topk_args p)
{
    __shared__ struct select_state s;
    grid_wait();
    grid_release();
    const bool is_live = row_lives<IS_MASKED>(p, blockIdx.x);
    const int64_t row = row_at<IS_MASKED>(p, blockIdx.x);
    const float *logits = p.logits + row * p.n_vocab;
    rank_t held[HELD], largest = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        held[i] = p.groups[(int64_t)blockIdx.x * GROUPS + i * THREADS + threadIdx.x];
        largest = max(largest, held[i]);
    }
    if (!is_live) return;
    if (threadIdx.x == 0) s.n_groups = s.n_values = 0;
    rank_t threshold = 1;
    if (!IS_MASKED || count_groups(held) > PICKED_MAX)
        threshold = pick(
            [&](auto visit) {
#pragma unroll
                for (int i = 0; i < HELD; i++)
                    if (!IS_MASKED || held[i]) visit(held[i]);
            },
            largest, PICKED_MAX, &s.pick);
    if (threshold == 0) threshold = 1; /* fewer groups than wanted: take all */
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        if (held[i] < threshold) continue;
        s.group[atomicAdd(&s.n_groups, 1)] = i * THREADS + (int)threadIdx.x;
    }
    __syncthreads();
    list_values<IS_MASKED>(p, logits, threshold, &s);
    if (s.n_values > CANDIDATES_MAX) {
        const float least = value_of((uint32_t)(threshold >> 32));
        largest = 0;
        visit_groups<IS_MASKED>(p, logits, s, least,
                                [&](rank_t rank) { largest = max(largest, rank); });
        threshold = pick([&](auto visit) { visit_groups<IS_MASKED>(p, logits, s, least, visit); },
                         largest, CANDIDATES_MAX, &s.pick);
        if (threadIdx.x == 0) s.n_values = 0;
        __syncthreads();
        list_values<IS_MASKED>(p, logits, threshold, &s);
    }
    write_sorted(s, p.out + row * TOP_K);
}

} // namespace

extern "C" size_t topk_scratch_bytes(int32_t rows)
{
    return (size_t)rows * GROUPS * sizeof(rank_t);
}

extern "C" void launch_topk(const struct queue *q, struct step_view step, struct rows rows,
                            const float *logits, int32_t n_vocab, struct logit_pair *out,
                            void *scratch)
{
    if (rows.max <= 0) return;
    struct topk_args args = {step, logits, n_vocab, static_cast<rank_t *>(scratch), out};
    dim3 grid((unsigned)rows.max, GROUPS / GROUP_THREADS);
    launch(q, group_kernel<false>, grid, GROUP_THREADS, 0, args);
    launch(q, select_kernel<false>, dim3((unsigned)rows.max), THREADS, 0, args);
}

extern "C" void launch_topk_masked(const struct queue *q, const struct masked_rows *rows,
                                   const uint64_t *masks, const float *logits, int32_t n_vocab,
                                   struct logit_pair *out, void *scratch)
{
    if (rows->n <= 0) return;
    struct topk_args args = {{}, logits, n_vocab, static_cast<rank_t *>(scratch), out};
    args.masks = reinterpret_cast<const uint32_t *>(masks);
    args.mask_words = (n_vocab + 63) / 64 * 2;
    args.which = *rows;
    dim3 grid((unsigned)rows->n, GROUPS / GROUP_THREADS);
    launch(q, group_kernel<true>, grid, GROUP_THREADS, 0, args);
    launch(q, select_kernel<true>, dim3((unsigned)rows->n), THREADS, 0, args);
}
