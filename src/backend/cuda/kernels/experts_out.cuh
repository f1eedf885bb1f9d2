/* The down product of chosen experts for a few rows, and what its kernel for more rows shares. */
#ifndef CUDA_EXPERTS_OUT_CUH
#define CUDA_EXPERTS_OUT_CUH

#include "backend/cuda/kernels/matvec_launch.cuh"

enum { OUT_WARPS = 8, OUT_THREADS = 32 * OUT_WARPS, OUTS = WARP_GROUPS * 8 };

struct out_product {
    struct step_view step;
    struct rows rows;
    struct cuda_weight w;
    struct act x;
    const int32_t *ids;
    const float *shares;
    float *y;
    int32_t n_used;
    /* stages of activations: for a few rows one with all pairs, else two for each warp */
    int32_t stage_rows, stage_ktiles, stage_bytes;
    int32_t ring_at, dots_at, lists_at; /* in shared memory */
};

/* The nth expert in use, -1: there are fewer. */
__device__ __forceinline__ int nth_used(const uint32_t *used, int n_words, int nth)
{
    int word = 0;
    while (word < n_words && nth >= __popc(used[word])) nth -= __popc(used[word++]);
    if (word == n_words) return -1;
    uint32_t bits = used[word];
    for (; nth > 0; nth--) bits &= bits - 1;
    return word * 32 + __ffs((int)bits) - 1;
}

/* How many pairs chose `expert`, and a warp's list of them, rising. list NULL: not wanted. */
__device__ __forceinline__ int list_pairs(const int32_t *ids, int n_pairs, int expert, int *list)
{
    int lane = threadIdx.x % 32, n = 0;
    __syncwarp();
    for (int i = lane; i - lane < n_pairs; i += 32) {
        bool is_mine = i < n_pairs && ids[i] == expert;
        uint32_t mask = __ballot_sync(~0u, is_mine);
        if (is_mine && list) list[n + __popc(mask & ((1u << lane) - 1))] = i;
        n += __popc(mask);
    }
    __syncwarp();
    return n;
}

/* stage_ktiles tiles of columns from k on of a pair's row, to row `row` of a stage. */
__device__ __forceinline__ void copy_pair(const out_product &a, uint8_t *stage, int row,
                                          int64_t pair, int k)
{
    int lane = threadIdx.x % 32, n_k = min(a.w.n_ktiles - k, a.stage_ktiles);
    const uint8_t *x = static_cast<const uint8_t *>(a.x.values) + pair * a.x.stride + k * 64;
    const uint8_t *d =
        reinterpret_cast<const uint8_t *>(a.x.scale) + pair * (a.x.stride / 4) + k * 16;
    uint8_t *values = stage + row * value_step(a.stage_ktiles);
    uint8_t *scales =
        stage + a.stage_rows * value_step(a.stage_ktiles) + row * scale_step(a.stage_ktiles);
    for (int j = lane; j < n_k * 4; j += 32) copy16_through_l1(values + j * 16, x + j * 16);
    for (int j = lane; j < n_k; j += 32) copy16_through_l1(scales + j * 16, d + j * 16);
}

__device__ __forceinline__ void sum_pairs(const out_product &a, const float *shares,
                                          const float *dots, int live, int block)
{
    for (int i = threadIdx.x; i < live * OUTS; i += OUT_THREADS) {
        int row = i / OUTS, out = block * OUTS + i % OUTS;
        if (out >= a.w.rows) continue;
        float y = 0;
        for (int s = 0; s < a.n_used; s++) {
            int pair = row * a.n_used + s;
            y = __fmaf_rn(shares[pair], dots[pair * OUTS + i % OUTS], y);
        }
        a.y[(int64_t)row * a.w.rows + out] = y;
    }
}

/* Copies the ids of all pairs (if they are not there) and marks the experts among them; the dots of
 * pairs with a wrong id become NaN. Passes a barrier before and after. */
template <bool ARE_THERE>
__device__ __forceinline__ void mark_used(const out_product &a, int n_pairs, uint32_t *used,
                                          int *ids, float *dots)
{
    if (threadIdx.x < EXPERTS_MAX / 32) used[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n_pairs; i += OUT_THREADS) {
        uint32_t id = (uint32_t)(ARE_THERE ? ids[i] : __ldcg(a.ids + i));
        if (!ARE_THERE) ids[i] = (int)id;
        if (id < (uint32_t)a.w.n_expert)
            atomicOr(&used[id / 32], 1u << id % 32);
        else
            for (int j = 0; j < OUTS; j++) dots[i * OUTS + j] = not_a_number();
    }
    __syncthreads();
}

/* ---- Out, up to eight rows ------------------------------------------------------------------- */

/* A warp's weights come by cp.async into a ring of its own, without a gap from expert to expert;
 * rows of all pairs are in shared memory. Four pairs are multiplied at a time. */
enum { PAIRS = 4, OUT_RING = 4 };

/* A stage of the ring. More than four rows leave room for two blocks on a multiprocessor only if
 * stages have half as many tiles. */
template <enum form F, bool IS_LARGE>
using out_stage = ring_stage<F, IS_LARGE && ring_stage<F>::TILES == 4 ? 2 : 1>;

/* All columns of the block's groups of an expert's rows. */
template <enum form F>
__device__ __forceinline__ ring_feed<F> feed_at(const struct cuda_weight &w, int expert, int block)
{
    ring_feed<F> f = feed_of<F>(0);
    int lane = threadIdx.x % 32, at = lane % 16 * 16;
    int64_t tile[WARP_GROUPS];
    for (int g = 0; g < WARP_GROUPS; g++) {
        int group = min(block * WARP_GROUPS + g, w.n_groups - 1);
        tile[g] = ((int64_t)expert * w.n_groups + group) * w.n_ktiles;
        f.quants[g] = w.quants + tile[g] * form_quant_bytes(F) + lane * 16;
    }
    int64_t t = lane < 16 ? tile[0] : tile[1];
    f.scale = reinterpret_cast<const uint8_t *>(w.scale) + t * form_scale_bytes(F) + at;
    if (form_high_bits(F)) f.high = w.high + t * form_high_bytes(F) + at;
    if (form_minus_bytes(F))
        f.minus = reinterpret_cast<const uint8_t *>(w.minus) + t * form_minus_bytes(F) + at;
    f.left = w.n_ktiles;
    return f;
}

/* What a warp's ring is being fed: the nth of the chosen experts, for n_more times more. */
template <enum form F> struct pair_feed {
    ring_feed<F> ring;
    int nth, n_more;
};

/* Starts the next stage; after an expert's last one the warp's next expert follows without a gap.
 * An expert comes once for every four of its n_pairs ids. */
template <enum form F, typename S>
__device__ __forceinline__ void feed_next(pair_feed<F> &f, const out_product &a, int n_pairs,
                                          const uint32_t *used, const int *ids, uint8_t *ring,
                                          int block)
{
    int place = f.ring.place, n_words = (a.w.n_expert + 31) / 32;
    if (f.ring.left == 0) {
        bool is_next = f.n_more-- == 0;
        if (is_next) f.nth += OUT_WARPS;
        int expert = nth_used(used, n_words, f.nth);
        if (is_next) f.n_more = max(list_pairs(ids, n_pairs, expert, nullptr) - 1, 0) / PAIRS;
        if (expert >= 0) f.ring = feed_at<F>(a.w, expert, block);
    }
    feed_stage<F, S>(f.ring, shared_address(ring) + place * S::BYTES);
    f.ring.place = place + 1 == OUT_RING ? 0 : place + 1;
}

/* Of a block. Not in a template, so that a kernel of several forms has them once. */
__device__ __forceinline__ uint32_t *used_words()
{
    __shared__ uint32_t used[EXPERTS_MAX / 32];
    return used;
}
__device__ __forceinline__ float *late_shares()
{
    __shared__ float shares[LATE_ROWS * LATE_USED];
    return shares;
}

/* Weights are asked for before the wait for the launch before, which brings rows. The choice, or
 * with IS_LATE the logits, come from an earlier launch: blocks begin only when all blocks of the
 * launch before have passed their own wait. */
template <enum form F, bool IS_LATE = false, bool IS_LARGE = false>
__device__ __forceinline__ void out_few(const out_product &a, int block,
                                        const struct choice &late = {})
{
    typedef out_stage<F, IS_LARGE> S;
    extern __shared__ __align__(128) uint8_t shared[];
    uint32_t *used = used_words();
    float *shares = IS_LATE ? late_shares() : nullptr;
    float *dots = reinterpret_cast<float *>(shared + a.dots_at);
    int *ids = reinterpret_cast<int *>(shared + a.lists_at);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_words = (a.w.n_expert + 31) / 32;
    int live = rows_live(a.rows, a.step), n_pairs = live * a.n_used, taken = 0;
    int *list = ids + (warp + 1) * a.stage_rows;
    uint8_t *ring = shared + a.ring_at + warp * OUT_RING * S::BYTES;
    if (IS_LATE && warp < live) {
        struct choice choice = late;
        choice.ids = ids, choice.shares = shares;
        choose<LATE_V, false>(choice, warp, true);
    }
    mark_used<IS_LATE>(a, n_pairs, used, ids, dots);
    pair_feed<F> feed = {feed_of<F>(0), warp - OUT_WARPS, 0};
    auto feed_more = [&]() { feed_next<F, S>(feed, a, n_pairs, used, ids, ring, block); };
    for (int i = 0; i < OUT_RING - 1; i++) feed_more();
    grid_wait();
    grid_release();
    for (int pair = warp; pair < n_pairs; pair += OUT_WARPS) copy_pair(a, shared, pair, pair, 0);
    copies_wait_all();
    __syncthreads();

    const uint8_t *scales = shared + a.stage_rows * value_step(a.stage_ktiles);
    for (int nth = warp, expert; (expert = nth_used(used, n_words, nth)) >= 0; nth += OUT_WARPS) {
        int n_list = list_pairs(ids, n_pairs, expert, list);
        for (int first = 0; first < n_list; first += PAIRS) {
            int last = n_list - 1, mine = list[min(first + lane % 4, last)];
            int row = list[min(first + lane / 8, last)];
            operands x = {shared + row * value_step(a.stage_ktiles) + lane % 4 * 8,
                          scales + mine * scale_step(a.stage_ktiles), 0, 0};
            float acc[1][WARP_GROUPS] = {};
            taken =
                multiply_ring<F, OUT_RING, false, S>(acc, ring, taken, x, a.w.n_ktiles, feed_more);
            if (first + lane % 4 <= last)
                for (int g = 0; g < WARP_GROUPS; g++)
                    dots[mine * OUTS + g * 8 + lane / 4] = acc[0][g] * form_unit(F);
        }
    }
    copies_wait_all();
    __syncthreads();
    sum_pairs(a, IS_LATE ? shares : a.shares, dots, live, block);
}

/* ---- Launch ---------------------------------------------------------------------------------- */

/* Places dots, ids and lists after the first `bytes` of shared memory; returns the total size. */
static inline size_t place_pairs(out_product *p, size_t bytes)
{
    size_t pairs = (size_t)(p->rows.max * p->n_used);
    p->dots_at = (int32_t)bytes;
    bytes += pairs * OUTS * sizeof(float);
    p->lists_at = (int32_t)bytes;
    return bytes + (OUT_WARPS + 1) * pairs * sizeof(int);
}

/* For up to eight rows, IS_LARGE if more than four; returns the bytes of shared memory. */
template <enum form F, bool IS_LARGE = false> static size_t deal_out(out_product *p)
{
    p->stage_rows = p->rows.max * p->n_used;
    p->stage_ktiles = p->w.n_ktiles;
    p->ring_at = round_up(slice_bytes_of(p->stage_rows, p->stage_ktiles), 128);
    size_t ring = OUT_WARPS * OUT_RING * out_stage<F, IS_LARGE>::BYTES;
    return place_pairs(p, (size_t)p->ring_at + ring);
}

static inline unsigned blocks_of(const out_product &p)
{
    return (unsigned)((p.w.n_groups + WARP_GROUPS - 1) / WARP_GROUPS);
}

static inline out_product out_product_of(const struct expert_args *args)
{
    out_product p = {};
    p.step = args->step, p.rows = args->rows, p.w = args->w[0], p.x = args->x;
    p.ids = args->ids, p.shares = args->shares, p.y = args->out, p.n_used = args->n_used;
    return p;
}

#endif
