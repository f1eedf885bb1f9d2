/* Two products in one launch (beside.h): some blocks do one of them, the others the other. For up
 * to four rows and weights in tiles of one form. Everything else is launched one after the other.
 */
#include "backend/cuda/beside.h"

#include "backend/cuda/kernels/experts_out.cuh"

namespace {

enum { THREADS = 32 * MATVEC_WARPS };

/* ---- Gate and up ----------------------------------------------------------------------------- */

/* One row has so few blocks that two of them on a multiprocessor are enough: with rings of more
 * places all of an expert's weights are asked for as soon as it is known. */
enum { DEEP = 5 };

/* The dense branch goes first: it is ready before the choice is. */
template <enum form F, int PLACES>
__global__ void __launch_bounds__(THREADS, PLACES == DEEP ? 2 : 3)
    gate_up_beside(const __grid_constant__ matvec_product dense,
                   const __grid_constant__ matvec_product experts, unsigned n_chosen)
{
    unsigned n_dense = (unsigned)dense.n_units, block = blockIdx.x;
    if (block < n_dense) {
        few_units<F, PLAIN, true, PLACES>(dense, part_of_grid{0, block, n_dense});
    } else {
        block -= n_dense;
        few_units<F, EXPERTS, false, PLACES>(experts,
                                             part_of_grid{block % n_chosen, block / n_chosen, 1});
    }
}

template <enum form F, int PLACES>
bool start_gate_up(const struct queue *q, const struct beside_args *args)
{
    matvec_product experts = product_of(&args->experts), dense = product_of(&args->dense);
    size_t bytes = deal_few<F, EXPERTS, PLACES>(q, &experts);
    size_t other = deal_few<F, PLAIN, PLACES>(q, &dense);
    if (bytes < other) bytes = other;
    if (bytes > shared_most(q)) return false;
    unsigned n = (unsigned)experts_most(experts);
    unsigned blocks = (unsigned)dense.n_units + n * (unsigned)experts.n_units;
    launch(q, gate_up_beside<F, PLACES>, dim3(blocks), THREADS, bytes, dense, experts, n);
    return true;
}

/* ---- Down ------------------------------------------------------------------------------------ */

/* Resident blocks a multiprocessor. */
enum { DOWN_RESIDENT = 2 };

template <enum form F>
__global__ void __launch_bounds__(THREADS, DOWN_RESIDENT)
    down_beside(const __grid_constant__ out_product experts,
                const __grid_constant__ matvec_product dense, unsigned n_experts)
{
    unsigned block = blockIdx.x;
    if (block < n_experts)
        out_few<F>(experts, (int)block);
    else
        few_units<F, PLAIN>(dense, part_of_grid{0, block - n_experts, gridDim.x - n_experts});
}

/* The dense branch's blocks are as many as are resident beside the others, so that no weight waits
 * for a block to end. */
template <enum form F> bool start_down(const struct queue *q, const struct beside_args *args)
{
    out_product experts = out_product_of(&args->experts);
    matvec_product dense = product_of(&args->dense);
    size_t bytes = deal_out<F>(&experts), other = deal_few<F, PLAIN>(q, &dense);
    if (bytes < other) bytes = other;
    if (bytes > shared_most(q)) return false;
    int n = (int)blocks_of(experts), n_dense = DOWN_RESIDENT * q->n_sm - n;
    if (n_dense < dense.n_units / 4) n_dense = dense.n_units / 4;
    if (n_dense > dense.n_units || n_dense < 1) n_dense = dense.n_units;
    launch(q, down_beside<F>, dim3((unsigned)(n + n_dense)), THREADS, bytes, experts, dense,
           (unsigned)n);
    return true;
}

/* ---- Dispatch ------------------------------------------------------------------------------- */

/* Whether all weights lie in tiles of one form, and there are few rows. */
bool are_alike(const struct beside_args *args)
{
    const struct matvec_args *d = &args->dense;
    const struct expert_args *e = &args->experts;
    return args->rows.max <= FEW && are_of_form(d->w, d->n_w, d->w[0]) &&
           are_of_form(e->w, e->n_w, d->w[0]);
}

struct beside_args with_rows(const struct beside_args *args)
{
    struct beside_args a = *args;
    a.dense.rows = a.experts.rows = a.rows;
    return a;
}

/* False: nothing was launched. */
bool launch_both(const struct queue *q, const struct beside_args *args, bool is_down)
{
    bool is_deep = args->rows.max == 1 && q->capability == 90;
    if (!are_alike(args)) return false;
    switch (form_of(args->dense.w[0].format)) {
#define X(F)                                                                                       \
    case F:                                                                                        \
        return is_down ? start_down<F>(q, args)                                                    \
                       : (is_deep && start_gate_up<F, DEEP>(q, args)) ||                           \
                             start_gate_up<F, RING>(q, args);
        FORM_LIST(X)
#undef X
    default: return false;
    }
}

} // namespace

void launch_gate_up_beside(const struct queue *q, const struct beside_args *args)
{
    struct beside_args a = with_rows(args);
    if (launch_both(q, &a, false)) return;
    launch_matvec(q, &a.dense);
    launch_experts_in(q, &a.experts);
}

void launch_down_beside(const struct queue *q, const struct beside_args *args)
{
    struct beside_args a = with_rows(args);
    if (launch_both(q, &a, true)) return;
    launch_matvec(q, &a.dense);
    launch_experts_out(q, &a.experts);
}

int beside_prepare(void)
{
    cudaError_t error = cudaSuccess;
#define X(F)                                                                                       \
    if (!error) error = allow_all_shared(gate_up_beside<F, DEEP>);                                 \
    if (!error) error = allow_all_shared(gate_up_beside<F, RING>);                                 \
    if (!error) error = allow_all_shared(down_beside<F>);
    FORM_LIST(X)
#undef X
    return error;
}
