/* Two products in one launch (beside.h): some blocks do one of them, the others the other. For up
 * to four rows, on Hopper eight, and weights in tiles of one form. Everything else is launched one
 * after the other. */
#include "backend/cuda/kernels/beside.cuh"

namespace {

/* ---- Gate and up ----------------------------------------------------------------------------- */

/* One row has so few blocks that two of them on a multiprocessor are enough: with rings of more
 * places all of an expert's weights are asked for as soon as it is known. */
enum { DEEP = 5 };

/* The dense branch goes first: it is ready before the choice is. Where the choice is made late, its
 * rows may come with the logits (launch_router_normed). LANE_ROWS: of the dense branch. */
template <enum form F, int PLACES, bool IS_LATE, int LANE_ROWS = 1>
__global__ void __launch_bounds__(THREADS, PLACES == DEEP || LANE_ROWS == 2 ? 2 : 3)
    gate_up_beside(const __grid_constant__ matvec_product dense,
                   const __grid_constant__ matvec_product experts, unsigned n_chosen,
                   const __grid_constant__ struct choice late)
{
    unsigned n_dense = (unsigned)dense.n_units, block = blockIdx.x;
    if (block < n_dense) {
        few_units<F, PLAIN, !IS_LATE, PLACES, 1, LANE_ROWS>(dense, part_of_grid{0, block, n_dense});
        return;
    }
    block -= n_dense;
    part_of_grid at = {block % n_chosen, block / n_chosen, 1};
    if constexpr (IS_LATE)
        few_units<F, EXPERTS, false, PLACES>(experts, at, late_choice(late));
    else
        few_units<F, EXPERTS, false, PLACES>(experts, at);
}

template <enum form F, int PLACES>
bool start_gate_up(const struct queue *q, const struct beside_args *args)
{
    gate_up_pair p = gate_up_of(
        args, [q](matvec_product *dense) { return deal_few<F, PLAIN, PLACES>(q, dense); },
        [q](matvec_product *experts) { return deal_few<F, EXPERTS, PLACES>(q, experts); });
    if (p.bytes > shared_most(q)) return false;
    auto start = [&](auto *kernel) {
        launch(q, kernel, dim3(p.blocks), THREADS, p.bytes, p.dense, p.experts, p.n_chosen,
               choice_of(args));
    };
    if (args->rows.max > FEW)
        start(gate_up_beside<F, RING, true, 2>);
    else if (is_late(q, args))
        start(gate_up_beside<F, PLACES, true>);
    else
        start(gate_up_beside<F, PLACES, false>);
    return true;
}

/* ---- Down ------------------------------------------------------------------------------------ */

template <enum form F, bool IS_LATE, int LANE_ROWS = 1>
__global__ void __launch_bounds__(THREADS, DOWN_RESIDENT)
    down_beside(const __grid_constant__ out_product experts,
                const __grid_constant__ matvec_product dense, unsigned n_experts,
                const __grid_constant__ struct choice late)
{
    unsigned block = blockIdx.x;
    if (block < n_experts)
        out_few<F, IS_LATE, LANE_ROWS == 2>(experts, (int)block, late);
    else
        few_units<F, PLAIN, false, RING, 1, LANE_ROWS>(
            dense, part_of_grid{0, block - n_experts, gridDim.x - n_experts});
}

template <enum form F> bool start_down(const struct queue *q, const struct beside_args *args)
{
    bool is_large = args->rows.max > FEW;
    down_pair p = down_of(
        q, args, [q](matvec_product *dense) { return deal_few<F, PLAIN>(q, dense); },
        [=](out_product *experts) {
            return is_large ? deal_out<F, true>(experts) : deal_out<F>(experts);
        });
    if (p.bytes > shared_most(q)) return false;
    auto start = [&](auto *kernel) {
        launch(q, kernel, dim3(p.blocks), THREADS, p.bytes, p.experts, p.dense, p.n_experts,
               choice_of(args));
    };
    if (is_large)
        start(down_beside<F, true, 2>);
    else if (is_late(q, args))
        start(down_beside<F, true>);
    else
        start(down_beside<F, false>);
    return true;
}

/* ---- Dispatch ------------------------------------------------------------------------------- */

/* Whether all weights lie in tiles of one form, and there are few rows: of more than four the
 * choice has to be late. */
bool are_alike(const struct queue *q, const struct beside_args *args)
{
    const struct matvec_args *d = &args->dense;
    const struct expert_args *e = &args->experts;
    return args->rows.max <= (is_late(q, args) ? few_rows(q) : FEW) &&
           are_of_form(d->w, d->n_w, d->w[0]) && are_of_form(e->w, e->n_w, d->w[0]);
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
    if (!are_alike(q, args)) return q->capability == 90 && launch_beside_mixed(q, args, is_down);
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

/* The choice, for launches that find it in memory. */
void make_choice(const struct queue *q, const struct beside_args *args)
{
    const struct expert_args *e = &args->experts;
    if (is_late(q, args))
        launch_route(q, e->step, args->rows, args->z, 1, args->scale, const_cast<int32_t *>(e->ids),
                     const_cast<float *>(e->shares), e->w[0].n_expert, e->n_used);
}

} // namespace

void launch_gate_up_beside(const struct queue *q, const struct beside_args *args)
{
    struct beside_args a = with_rows(args);
    if (launch_both(q, &a, false)) return;
    make_choice(q, &a);
    launch_matvec(q, &a.dense);
    launch_experts_in(q, &a.experts);
}

void launch_down_beside(const struct queue *q, const struct beside_args *args)
{
    struct beside_args a = with_rows(args);
    if (launch_both(q, &a, true)) return;
    make_choice(q, &a);
    launch_matvec(q, &a.dense);
    launch_experts_out(q, &a.experts);
}
