/* Products with the experts that each row chose, for a few rows. The method is the same for any
 * number of rows, so that the bits of a row do not depend on the others.
 *
 * In: y[t, s] = w[id[t, s]] x[t], or gelu(gate) * up, by matvec_launch.cuh: a block is a unit of
 * outputs of one chosen expert. Out: y[t] = sum over s of share[t, s] * (w[id[t, s]] x[t, s]): a
 * block makes 16 outputs of all rows. Its warps take the chosen experts in turn, all columns of
 * them. Products of pairs go to shared memory and are summed at the end in the order of s. Both
 * kernels read an expert's weights once for up to eight rows and are bound by that. */
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
    int32_t stage_rows, stage_ktiles, stage_bytes; /* a warp's own two stages of activations */
    int32_t dots_at, lists_at;                     /* in shared memory */
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

/* A warp's list of the pairs that chose `expert`, rising. */
__device__ __forceinline__ int list_pairs(const int32_t *ids, int n_pairs, int expert, int *list)
{
    int lane = threadIdx.x % 32, n = 0;
    __syncwarp();
    for (int i = lane; i - lane < n_pairs; i += 32) {
        bool is_mine = i < n_pairs && ids[i] == expert;
        uint32_t mask = __ballot_sync(~0u, is_mine);
        if (is_mine) list[n + __popc(mask & ((1u << lane) - 1))] = i;
        n += __popc(mask);
    }
    __syncwarp();
    return n;
}

/* stage_ktiles tiles of columns from k on of the rows of n pairs. */
__device__ __forceinline__ void copy_pairs(const out_product &a, uint8_t *stage, const int *list,
                                           int n, int k)
{
    int lane = threadIdx.x % 32, n_k = min(a.w.n_ktiles - k, a.stage_ktiles);
    for (int row = 0; row < n; row++) {
        int64_t pair = list[row];
        const uint8_t *x = static_cast<const uint8_t *>(a.x.values) + pair * a.x.stride + k * 64;
        const uint8_t *d =
            reinterpret_cast<const uint8_t *>(a.x.scale) + pair * (a.x.stride / 4) + k * 16;
        uint8_t *values = stage + row * value_step(a.stage_ktiles);
        uint8_t *scales =
            stage + a.stage_rows * value_step(a.stage_ktiles) + row * scale_step(a.stage_ktiles);
        for (int j = lane; j < n_k * 4; j += 32) copy16_through_l1(values + j * 16, x + j * 16);
        for (int j = lane; j < n_k; j += 32) copy16_through_l1(scales + j * 16, d + j * 16);
    }
}

__device__ __forceinline__ void sum_pairs(const out_product &a, const float *dots, int live)
{
    for (int i = threadIdx.x; i < live * OUTS; i += OUT_THREADS) {
        int row = i / OUTS, out = blockIdx.x * OUTS + i % OUTS;
        if (out >= a.w.rows) continue;
        float y = 0;
        for (int s = 0; s < a.n_used; s++) {
            int pair = row * a.n_used + s;
            y = __fmaf_rn(a.shares[pair], dots[pair * OUTS + i % OUTS], y);
        }
        a.y[(int64_t)row * a.w.rows + out] = y;
    }
}

/* All columns of the block's groups of an expert's rows. */
template <enum form F>
__device__ __forceinline__ slice<F> all_columns(const struct cuda_weight &w, int expert)
{
    slice<F> all;
    all.length = w.n_ktiles;
    for (int g = 0; g < WARP_GROUPS; g++) {
        int group = min((int)blockIdx.x * WARP_GROUPS + g, w.n_groups - 1);
        all.at[g] = matvec_share_at<F>(w, ((int64_t)expert * w.n_groups + group) * w.n_ktiles);
    }
    return all;
}

/* Marks the experts that any pair chose; the dots of pairs with a wrong id become NaN. */
__device__ __forceinline__ void mark_used(const out_product &a, int n_pairs, bool is_single,
                                          uint32_t *used, float *dots)
{
    for (int i = threadIdx.x; i < n_pairs; i += OUT_THREADS) {
        uint32_t id = (uint32_t)a.ids[i];
        if (id < (uint32_t)a.w.n_expert) {
            if (!is_single) atomicOr(&used[id / 32], 1u << id % 32);
        } else
            for (int j = 0; j < OUTS; j++) dots[i * OUTS + j] = not_a_number();
    }
}

template <enum form F, int LANE_ROWS>
__global__ void __launch_bounds__(OUT_THREADS, 2) experts_out(const __grid_constant__ out_product a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint32_t used[EXPERTS_MAX / 32];
    float *dots = reinterpret_cast<float *>(shared + a.dots_at);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_words = (a.w.n_expert + 31) / 32;
    if ((int)threadIdx.x < n_words) used[threadIdx.x] = 0;
    grid_wait();
    grid_release();
    int live = rows_live(a.rows, a.step), n_pairs = live * a.n_used;
    bool is_single = a.rows.max == 1; /* each pair by itself: nothing to sort */
    int first_id = is_single && warp < a.n_used ? a.ids[warp] : 0;
    __syncthreads();
    mark_used(a, n_pairs, is_single, used, dots);
    if (!is_single) __syncthreads();

    int *list = reinterpret_cast<int *>(shared + a.lists_at) + warp * a.rows.max * a.n_used;
    uint8_t *stages = shared + warp * 2 * a.stage_bytes;
    int row_b = LANE_ROWS == 1 ? min(lane / 8, a.stage_rows - 1) : lane / 4;
    int row_c = LANE_ROWS == 1 ? min(lane % 4, a.stage_rows - 1) : lane % 4 * 2;
    int values_at = row_b * value_step(a.stage_ktiles) + lane % 4 * 8;
    int scales_at = a.stage_rows * value_step(a.stage_ktiles) + row_c * scale_step(a.stage_ktiles);
    tile_share<F> share[DEPTH][WARP_GROUPS];
    for (int nth = warp;; nth += OUT_WARPS) {
        if (is_single && nth >= n_pairs) break;
        int expert = !is_single    ? nth_used(used, n_words, nth)
                     : nth == warp ? first_id
                                   : a.ids[nth];
        if (is_single && (uint32_t)expert >= (uint32_t)a.w.n_expert) continue;
        if (expert < 0) break;
        slice<F> all = all_columns<F>(a.w, expert);
        start_slice<F>(share, all);
        int n_list = 1;
        if (is_single)
            list[0] = nth; /* by all lanes alike */
        else
            n_list = list_pairs(a.ids, n_pairs, expert, list);
        for (int first = 0; first < n_list; first += a.stage_rows) {
            int n = min(n_list - first, a.stage_rows), stage = 0;
            float acc[1][WARP_GROUPS * LANE_ROWS] = {};
            slice<F> now = all;
            auto locate_next = [&](slice<F> *next) {
                *next = all;
                if (first + n >= n_list) next->length = 0;
            };
            __syncwarp();
            copy_pairs(a, stages, list + first, n, 0);
            for (int k = 0; k < a.w.n_ktiles; k += a.stage_ktiles, stage ^= 1) {
                copies_wait_all();
                __syncwarp();
                if (k + a.stage_ktiles < a.w.n_ktiles)
                    copy_pairs(a, stages + (stage ^ 1) * a.stage_bytes, list + first, n,
                               k + a.stage_ktiles);
                const uint8_t *at = stages + stage * a.stage_bytes;
                operands x = {at + values_at, at + scales_at, scale_step(a.stage_ktiles), 0};
                matvec_multiply_stage<F, 1, LANE_ROWS, false>(acc, share, now, a.stage_ktiles, x,
                                                              locate_next);
            }
            for (int i = 0; i < WARP_GROUPS * LANE_ROWS; i++) {
                int row = LANE_ROWS == 1 ? lane % 4 : lane % 4 * 2 + i % LANE_ROWS;
                if (row < n)
                    dots[list[first + row] * OUTS + i / LANE_ROWS * 8 + lane / 4] =
                        acc[0][i] * form_unit(F);
            }
        }
    }
    __syncthreads();
    sum_pairs(a, dots, live);
}

/* ---- Launch ---------------------------------------------------------------------------------- */

template <enum form F> static void launch_in_form(const struct queue *q, const matvec_product &p)
{
    if (p.rows.max <= 4 && launch_few<F, EXPERTS>(q, p)) return;
    launch_tiles<F, 1, EXPERTS>(q, p);
}

void launch_expert_rows(const struct queue *q, const struct expert_args *args); /* matvec.cu */

void launch_experts_in(const struct queue *q, const struct expert_args *args)
{
    if (args->w[0].layout != LAYOUT_TILES) {
        launch_expert_rows(q, args);
        return;
    }
    matvec_product p = product_of(args);
    bool is_alike = args->n_w == 1 || form_of(args->w[0].format) == form_of(args->w[1].format);
    for (int first = 0; first < args->n_w; first += p.n_w) {
        p.n_w = is_alike || args->is_gelu_mul ? args->n_w : 1;
        for (int k = 0; k < p.n_w; k++) p.w[k] = args->w[first + k], p.y[k] = args->y[first + k];
        switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: launch_in_form<F>(q, p); break;
            FORM_LIST(X)
#undef X
        default: break;
        }
    }
}

template <enum form F, int LANE_ROWS>
static void launch_out_form(const struct queue *q, out_product p)
{
    size_t pairs = (size_t)(p.rows.max * p.n_used);
    p.stage_rows = LANE_ROWS > 1 ? 8 : p.rows.max;
    p.stage_ktiles = STAGE_KTILES;
    p.stage_bytes = slice_bytes_of(p.stage_rows, p.stage_ktiles);
    size_t bytes = (size_t)(OUT_WARPS * 2 * p.stage_bytes);
    p.dots_at = (int32_t)bytes;
    bytes += pairs * OUTS * sizeof(float);
    p.lists_at = (int32_t)bytes;
    bytes += OUT_WARPS * pairs * sizeof(int);
    dim3 grid((unsigned)((p.w.n_groups + WARP_GROUPS - 1) / WARP_GROUPS));
    launch(q, experts_out<F, LANE_ROWS>, grid, OUT_THREADS, bytes, p);
}

void launch_experts_out(const struct queue *q, const struct expert_args *args)
{
    if (args->w[0].layout != LAYOUT_TILES) {
        struct exact_args exact = {args->step, args->rows,   args->w[0], args->x_floats,
                                   args->out,  args->n_used, args->ids,  args->shares};
        launch_matmul_exact(q, &exact);
        return;
    }
    out_product p = {};
    p.step = args->step, p.rows = args->rows, p.w = args->w[0], p.x = args->x;
    p.ids = args->ids, p.shares = args->shares, p.y = args->out, p.n_used = args->n_used;
    switch (form_of(p.w.format)) {
#define X(F)                                                                                       \
    case F:                                                                                        \
        if (p.rows.max <= 4)                                                                       \
            launch_out_form<F, 1>(q, p);                                                           \
        else                                                                                       \
            launch_out_form<F, 2>(q, p);                                                           \
        break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

template <enum form F> static cudaError_t prepare_experts()
{
    cudaError_t error = allow_all_shared(matvec_few<F, EXPERTS>);
    if (!error) error = allow_all_shared(matvec_tiles<F, 1, EXPERTS>);
    if (!error) error = allow_all_shared(experts_out<F, 1>);
    if (!error) error = allow_all_shared(experts_out<F, 2>);
    return error;
}

int experts_prepare(void);
int experts_prepare(void)
{
    cudaError_t error = cudaSuccess;
#define X(F)                                                                                       \
    if (!error) error = prepare_experts<F>();
    FORM_LIST(X)
#undef X
    return error;
}
