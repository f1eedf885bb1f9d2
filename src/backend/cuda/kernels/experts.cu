/* Products with the experts that each row chose, for a few rows. The method is the same for any
 * number of rows, so that the bits of a row do not depend on the others.
 *
 * In: y[t, s] = w[id[t, s]] x[t], or gelu(gate) * up, by matvec_launch.cuh: a block is a unit of
 * outputs of one chosen expert. Out: y[t] = sum over s of share[t, s] * (w[id[t, s]] x[t, s]): a
 * block makes 16 outputs of all rows. Its warps take the chosen experts in turn, all columns of
 * them. Products of pairs go to shared memory and are summed at the end in the order of s. Both
 * kernels read an expert's weights once for every four or eight pairs and are bound by that. */
#include "backend/cuda/kernels/experts_out.cuh"

__device__ __forceinline__ void copy_pairs(const out_product &a, uint8_t *stage, const int *list,
                                           int n, int k)
{
    for (int row = 0; row < n; row++) copy_pair(a, stage, row, list[row], k);
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

/* ---- Out ------------------------------------------------------------------------------------- */

template <enum form F, bool IS_LARGE>
__global__ void __launch_bounds__(OUT_THREADS, 2)
    experts_out_few(const __grid_constant__ out_product a)
{
    out_few<F, false, IS_LARGE>(a, blockIdx.x);
}

template <enum form F>
__global__ void __launch_bounds__(OUT_THREADS, 2)
    experts_out_many(const __grid_constant__ out_product a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint32_t used[EXPERTS_MAX / 32];
    float *dots = reinterpret_cast<float *>(shared + a.dots_at);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_words = (a.w.n_expert + 31) / 32;
    grid_wait();
    grid_release();
    int live = rows_live(a.rows, a.step), n_pairs = live * a.n_used;
    int *ids = reinterpret_cast<int *>(shared + a.lists_at), most = a.rows.max * a.n_used;
    int *list = ids + (warp + 1) * most;
    mark_used<false>(a, n_pairs, used, ids, dots);

    uint8_t *stages = shared + warp * 2 * a.stage_bytes;
    int values_at = lane / 4 * value_step(a.stage_ktiles) + lane % 4 * 8;
    int scales_at =
        a.stage_rows * value_step(a.stage_ktiles) + lane % 4 * 2 * scale_step(a.stage_ktiles);
    tile_share<F> share[DEPTH][WARP_GROUPS];
    for (int nth = warp;; nth += OUT_WARPS) {
        int expert = nth_used(used, n_words, nth);
        if (expert < 0) break;
        slice<F> all = all_columns<F>(a.w, expert);
        start_slice<F>(share, all);
        int n_list = list_pairs(ids, n_pairs, expert, list);
        for (int first = 0; first < n_list; first += a.stage_rows) {
            int n = min(n_list - first, a.stage_rows), stage = 0;
            float acc[1][WARP_GROUPS * 2] = {};
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
                matvec_multiply_stage<F, 1, 2, false>(acc, share, now, a.stage_ktiles, x,
                                                      locate_next);
            }
            for (int i = 0; i < WARP_GROUPS * 2; i++) {
                int row = lane % 4 * 2 + i % 2;
                if (row < n)
                    dots[list[first + row] * OUTS + i / 2 * 8 + lane / 4] =
                        acc[0][i] * form_unit(F);
            }
        }
    }
    __syncthreads();
    sum_pairs(a, a.shares, dots, live, blockIdx.x);
}

/* ---- Launch ---------------------------------------------------------------------------------- */

template <enum form F> static void launch_in_form(const struct queue *q, const matvec_product &p)
{
    if (p.rows.max <= few_rows(q) && launch_few<F, EXPERTS>(q, p)) return;
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

/* False: rows of this many columns do not fit. */
template <enum form F, bool IS_LARGE>
static bool launch_out_few(const struct queue *q, out_product p)
{
    size_t bytes = deal_out<F, IS_LARGE>(&p);
    if (p.rows.max > few_rows(q) || bytes > shared_most(q)) return false;
    launch(q, experts_out_few<F, IS_LARGE>, dim3(blocks_of(p)), OUT_THREADS, bytes, p);
    return true;
}

template <enum form F> static void launch_out_form(const struct queue *q, out_product p)
{
    if (p.rows.max > FEW ? launch_out_few<F, true>(q, p) : launch_out_few<F, false>(q, p)) return;
    p.stage_rows = 8;
    p.stage_ktiles = STAGE_KTILES;
    p.stage_bytes = slice_bytes_of(p.stage_rows, p.stage_ktiles);
    size_t bytes = place_pairs(&p, (size_t)(OUT_WARPS * 2 * p.stage_bytes));
    launch(q, experts_out_many<F>, dim3(blocks_of(p)), OUT_THREADS, bytes, p);
}

void launch_experts_out(const struct queue *q, const struct expert_args *args)
{
    if (args->w[0].layout != LAYOUT_TILES) {
        struct exact_args exact = {args->step, args->rows,   args->w[0], args->x_floats,
                                   args->out,  args->n_used, args->ids,  args->shares};
        launch_matmul_exact(q, &exact);
        return;
    }
    out_product p = out_product_of(args);
    switch (form_of(p.w.format)) {
#define X(F)                                                                                       \
    case F: launch_out_form<F>(q, p); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}
