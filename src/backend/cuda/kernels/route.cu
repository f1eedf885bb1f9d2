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
#include "backend/cuda/kernels/route.cuh"

namespace {

enum { THREADS = 256 };

/* ---- Alone --------------------------------------------------------------------------------- */

struct route_args {
    struct step_view step;
    struct rows rows;
    struct choice choice;
};

/* Rows that do not live are read too, rather than waiting for their number. */
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

static_assert(ROWS_THREADS_MAX / WARP >= ROWS_TILE, "a warp a row");
static_assert(ROUTER_COUNTERS * ROWS_TILE >= MATVEC_ROWS_MAX, "a counter a tile");

template <int BLOCK_ROWS>
__global__ void __launch_bounds__(ROWS_THREADS_MAX)
    router_kernel(const __grid_constant__ struct router p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    partial_sums sums = sums_at<BLOCK_ROWS>(shared, p.product);
    int first_out = blockIdx.y * outs_of_block(p.product), warp = threadIdx.x / WARP;
    row_range rows = sum_rows<float, BLOCK_ROWS>(p.product, sums, first_out, own_grid());
    if (rows.n == 0) return; /* all blocks of the tile: none arrives */
    store_sums(p.product, sums, first_out, rows, 0.0f);
    if (!arrives_last(p.arrived + blockIdx.x, gridDim.y) || warp >= rows.n) return;
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

extern "C" void launch_router(const struct queue *q, const struct router_args *args)
{
    if (args->rows.max <= 0) return;
    struct router p = router_of(args);
    rows_shape s = shape_rows(&p.product);
    if (s.is_single)
        launch(q, router_kernel<1>, s.grid, s.threads, s.shared_bytes, p);
    else
        launch(q, router_kernel<ROWS_TILE>, s.grid, s.threads, s.shared_bytes, p);
}
