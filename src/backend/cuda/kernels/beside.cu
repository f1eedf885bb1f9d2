/* Two products in one launch (beside.h): the first blocks do one of them, the others the other.
 * Weights have tiles, rows are one for the router and up to four for experts; everything else is
 * launched one after the other. */
#include "backend/cuda/beside.h"

#include "backend/cuda/kernels/matvec_launch.cuh"
#include "backend/cuda/kernels/route.cuh"

namespace {

/* ---- Router and dense gate, up -------------------------------------------------------------- */

enum { THREADS = 32 * MATVEC_WARPS, TURNS = ROWS_THREADS_MAX / THREADS };

/* The router's blocks have half of the warps that they have alone; each takes two slices. */
__device__ __forceinline__ void route_row(const router &p, uint8_t *shared, unsigned block,
                                          unsigned n_blocks)
{
    partial_sums sums = sums_at<1>(shared, p.product);
    int first_out = (int)block * outs_of_block(p.product);
    row_range rows =
        sum_rows<float, 1, TURNS>(p.product, sums, first_out, part_of_grid{0, 0, 1, 1});
    if (rows.n == 0) return;
    store_sums(p.product, sums, first_out, rows, 0.0f);
    if (!arrives_last(p.arrived, n_blocks) || threadIdx.x >= WARP) return;
    choose<ROUTER_EXPERTS_MAX / WARP, false>(p.choice, 0, true);
}

template <enum form F>
__global__ void __launch_bounds__(THREADS, 2)
    router_beside(const __grid_constant__ router p, const __grid_constant__ matvec_product dense,
                  unsigned n_router)
{
    extern __shared__ __align__(128) uint8_t shared[];
    unsigned block = blockIdx.x;
    if (block < n_router)
        route_row(p, shared, block, n_router);
    else
        few_units<F, PLAIN>(dense, part_of_grid{0, block - n_router, 1, gridDim.x - n_router});
}

template <enum form F>
bool start_router(const struct queue *q, const struct router_beside_args *args)
{
    router p = router_of(&args->router);
    rows_shape shape = shape_rows(&p.product);
    matvec_product dense = product_of(&args->dense);
    size_t bytes = deal_few<F, PLAIN>(q, &dense);
    if (bytes > shared_most(q) || shape.threads != ROWS_THREADS_MAX) return false;
    if (bytes < shape.shared_bytes) bytes = shape.shared_bytes;
    launch(q, router_beside<F>, dim3(shape.grid.y + (unsigned)dense.n_units), THREADS, bytes, p,
           dense, shape.grid.y);
    return true;
}

/* ---- Experts in and dense down -------------------------------------------------------------- */

template <enum form F>
__global__ void __launch_bounds__(THREADS, 3)
    experts_beside(const __grid_constant__ matvec_product experts,
                   const __grid_constant__ matvec_product dense, unsigned n_chosen)
{
    unsigned block = blockIdx.x, n = n_chosen * experts.n_units;
    if (block < n)
        few_units<F, EXPERTS>(experts,
                              part_of_grid{block % n_chosen, block / n_chosen, n_chosen, 1});
    else
        few_units<F, PLAIN>(dense, part_of_grid{0, block - n, 1, gridDim.x - n});
}

template <enum form F>
bool start_experts(const struct queue *q, const struct experts_beside_args *args)
{
    matvec_product experts = product_of(&args->experts), dense = product_of(&args->dense);
    size_t bytes = deal_few<F, EXPERTS>(q, &experts), other = deal_few<F, PLAIN>(q, &dense);
    if (bytes < other) bytes = other;
    if (bytes > shared_most(q)) return false;
    unsigned n = (unsigned)experts_most(experts);
    launch(q, experts_beside<F>, dim3(n * experts.n_units + dense.n_units), THREADS, bytes, experts,
           dense, n);
    return true;
}

/* ---- Dispatch ------------------------------------------------------------------------------- */

/* Whether all weights lie in tiles of one form. */
bool are_alike(const struct cuda_weight *w, int n, const struct cuda_weight &first)
{
    for (int i = 0; i < n; i++)
        if (w[i].layout != LAYOUT_TILES || form_of(w[i].format) != form_of(first.format))
            return false;
    return true;
}

/* False: nothing was launched. */
bool launch_both(const struct queue *q, const struct router_beside_args *args)
{
    const struct cuda_weight *w = args->dense.w;
    if (args->rows.max != 1 || !are_alike(w, 2, w[0])) return false;
    switch (form_of(w[0].format)) {
#define X(F)                                                                                       \
    case F: return start_router<F>(q, args);
        FORM_LIST(X)
#undef X
    default: return false;
    }
}

bool launch_both(const struct queue *q, const struct experts_beside_args *args)
{
    const struct cuda_weight *w = args->experts.w;
    if (args->rows.max > 4 || !are_alike(w, 2, w[0]) || !are_alike(args->dense.w, 1, w[0]))
        return false;
    switch (form_of(w[0].format)) {
#define X(F)                                                                                       \
    case F: return start_experts<F>(q, args);
        FORM_LIST(X)
#undef X
    default: return false;
    }
}

} // namespace

void launch_router_beside(const struct queue *q, const struct router_beside_args *args)
{
    struct router_beside_args a = *args;
    a.dense.rows = a.router.rows = a.rows;
    if (launch_both(q, &a)) return;
    launch_router(q, &a.router);
    launch_matvec(q, &a.dense);
}

void launch_experts_beside(const struct queue *q, const struct experts_beside_args *args)
{
    struct experts_beside_args a = *args;
    a.dense.rows = a.experts.rows = a.rows;
    if (launch_both(q, &a)) return;
    launch_matvec(q, &a.dense);
    launch_experts_in(q, &a.experts);
}

int beside_prepare(void)
{
    cudaError_t error = cudaSuccess;
#define X(F)                                                                                       \
    if (!error) error = allow_all_shared(router_beside<F>);                                        \
    if (!error) error = allow_all_shared(experts_beside<F>);
    FORM_LIST(X)
#undef X
    return error;
}
