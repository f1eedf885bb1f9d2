/* The choice of experts: ids, shares = the n_used largest of softmax(z[t]), c / sum(c) * scale[id];
 * alone, or after the product that makes the logits, z[t] = w x[t].
 *
 * A warp a row, V experts a lane: expert lane + 32 v. Exponentials are those of double precision,
 * rounded: nearly always the reference's bits, so that ties are the same ties.
 *
 * Product and choice: blocks make four logits of up to 8 rows each (matvec_rows.cuh: the bits of
 * launch_matvec) and write them; of the blocks of a tile of rows the one that arrives last reads
 * them all and chooses, a warp a row. Every tile has a counter: atomicInc brings it back to 0 with
 * the last arrival, so that the next launch, or the same one replayed, finds it as this one did.
 * Launches share the counters and may overlap, but only up to grid_wait, which returns when all
 * earlier kernels have ended; they are touched only after it.
 *
 * Bound: latency; one row of 128 logits is a dependent read of L2 for each of product and choice
 * and a chain of n_used reductions of a warp. */
#include "backend/cuda/beside.h"
#include "backend/cuda/kernels/choose.cuh"
#include "backend/cuda/kernels/matvec_rows.cuh"

namespace {

enum { THREADS = 256 };

/* ---- Alone --------------------------------------------------------------------------------- */

struct route_args {
    struct step_view step;
    struct rows rows;
    struct choice choice;
};

/* Rows that are not live are read too, so that nothing waits for their number. */
template <int V, bool IS_IN_PARTS>
__global__ void __launch_bounds__(THREADS) route_kernel(const __grid_constant__ struct route_args p)
{
    grid_wait();
    grid_release();
    const int64_t row = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (row >= p.rows.max) return;
    choose<V, IS_IN_PARTS>(p.choice, row, row < rows_live(p.rows, p.step));
}

/* ---- After its product -------------------------------------------------------------------- */

struct router {
    struct rows_product product;
    struct choice choice;
    uint32_t *arrived;
};

static_assert(ROWS_THREADS_MAX / WARP >= ROWS_TILE, "a warp a row");
static_assert(ROUTER_COUNTERS * ROWS_TILE >= MATVEC_ROWS_MAX, "a counter a tile");

/* Whether this block is the last of the tile's; then it sees what all of them wrote. */
__device__ __forceinline__ bool arrives_last(uint32_t *arrived)
{
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicInc(arrived, gridDim.y - 1) == gridDim.y - 1;
    __syncthreads();
    if (is_last) __threadfence();
    return is_last;
}

/* CHOOSES: else who reads the logits makes the choice. */
template <int BLOCK_ROWS, bool CHOOSES>
__global__ void __launch_bounds__(ROWS_THREADS_MAX)
    router_kernel(const __grid_constant__ struct router p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    partial_sums sums = sums_at<BLOCK_ROWS>(shared, p.product);
    int first_out = blockIdx.y * outs_of_block(p.product), warp = threadIdx.x / WARP;
    row_range rows = sum_rows<float, BLOCK_ROWS>(p.product, sums, first_out);
    if (rows.n == 0) return; /* all blocks of the tile: none arrives */
    store_sums(p.product, sums, first_out, rows, 0.0f);
    if (!CHOOSES || !arrives_last(p.arrived + blockIdx.x) || warp >= rows.n) return;
    choose<ROUTER_EXPERTS_MAX / WARP, false>(p.choice, rows.first + warp, true);
}

} // namespace

extern "C" void launch_route(const struct queue *q, struct step_view step, struct rows rows,
                             const float *z, int32_t n_parts, const float *scale, int32_t *ids,
                             float *shares, int32_t n_expert, int32_t n_used)
{
    if (rows.max <= 0) return;
    int64_t part = (int64_t)rows.max * n_expert;
    struct route_args args = {step, rows, {z, scale, ids, shares, n_expert, n_used, n_parts, part}};
    dim3 grid((unsigned)(round_up(rows.max, THREADS / WARP) / (THREADS / WARP)));
    if (n_expert > 4 * WARP)
        launch(q, route_kernel<32, true>, grid, THREADS, 0, args);
    else if (n_parts > 1)
        launch(q, route_kernel<4, true>, grid, THREADS, 0, args);
    else
        launch(q, route_kernel<4, false>, grid, THREADS, 0, args);
}

extern "C" bool choice_is_late(const struct queue *q, int32_t rows, int32_t n_used)
{
    return q->capability == 90 && rows <= LATE_ROWS && n_used <= LATE_USED;
}

void launch_router(const struct queue *q, const struct router_args *args)
{
    if (args->rows.max <= 0) return;
    struct router p = {};
    p.product.step = args->step, p.product.rows = args->rows, p.product.w[0] = args->w;
    p.product.x = args->x, p.product.y = args->z, p.product.n_used = 1;
    p.product.gelu.kind = MATVEC_STORE;
    p.choice = {args->z, args->scale, args->ids, args->shares, args->w.rows, args->n_used};
    p.arrived = args->arrived;
    rows_shape s = shape_rows(&p.product);
    bool is_late = args->is_late && choice_is_late(q, args->rows.max, args->n_used);
    if (s.is_single && is_late)
        launch(q, router_kernel<1, false>, s.grid, s.threads, s.shared_bytes, p);
    else if (s.is_single)
        launch(q, router_kernel<1, true>, s.grid, s.threads, s.shared_bytes, p);
    else if (is_late)
        launch(q, router_kernel<ROWS_TILE, false>, s.grid, s.threads, s.shared_bytes, p);
    else
        launch(q, router_kernel<ROWS_TILE, true>, s.grid, s.threads, s.shared_bytes, p);
}
