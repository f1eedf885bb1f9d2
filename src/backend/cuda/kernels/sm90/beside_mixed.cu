/* Two products in one launch, as in beside.cu, where the dense branch has weights of one form and
 * the experts of another: the usual mixtures have down in several formats. Up to eight rows, with a
 * late choice. */
#include "backend/cuda/kernels/any_form.cuh"
#include "backend/cuda/kernels/beside.cuh"

namespace {

template <int LANE_ROWS>
__global__ void __launch_bounds__(THREADS, LANE_ROWS == 2 ? 2 : 3)
    gate_up_mixed(const __grid_constant__ matvec_product dense,
                  const __grid_constant__ matvec_product experts, unsigned n_chosen,
                  const __grid_constant__ struct choice late)
{
    unsigned n_dense = (unsigned)dense.n_units, block = blockIdx.x;
    if (block < n_dense) {
        few_units_of_any<PLAIN, LANE_ROWS>(dense, part_of_grid{0, block, n_dense});
        return;
    }
    block -= n_dense;
    part_of_grid at = {block % n_chosen, block / n_chosen, 1};
    few_units_of_any<EXPERTS, 1>(experts, at, late_choice(late));
}

bool start_gate_up(const struct queue *q, const struct beside_args *args)
{
    gate_up_pair p = gate_up_of(
        args, [q](matvec_product *dense) { return deal_few_of_any<PLAIN>(q, dense); },
        [q](matvec_product *experts) { return deal_few_of_any<EXPERTS>(q, experts); });
    if (p.bytes > shared_most(q)) return false;
    launch(q, args->rows.max > FEW ? gate_up_mixed<2> : gate_up_mixed<1>, dim3(p.blocks), THREADS,
           p.bytes, p.dense, p.experts, p.n_chosen, choice_of(args));
    return true;
}

template <int LANE_ROWS>
__global__ void __launch_bounds__(THREADS, DOWN_RESIDENT)
    down_mixed(const __grid_constant__ out_product experts,
               const __grid_constant__ matvec_product dense, unsigned n_experts,
               const __grid_constant__ struct choice late)
{
    unsigned block = blockIdx.x;
    if (block < n_experts)
        out_few_of_any<LANE_ROWS == 2>(experts, (int)block, late);
    else
        few_units_of_any<PLAIN, LANE_ROWS>(
            dense, part_of_grid{0, block - n_experts, gridDim.x - n_experts});
}

bool start_down(const struct queue *q, const struct beside_args *args)
{
    bool is_large = args->rows.max > FEW;
    down_pair p = down_of(
        q, args, [q](matvec_product *dense) { return deal_few_of_any<PLAIN>(q, dense); },
        [=](out_product *experts) {
            return is_large ? deal_out_of_any<true>(experts) : deal_out_of_any<false>(experts);
        });
    if (p.bytes > shared_most(q)) return false;
    launch(q, is_large ? down_mixed<2> : down_mixed<1>, dim3(p.blocks), THREADS, p.bytes, p.experts,
           p.dense, p.n_experts, choice_of(args));
    return true;
}

} // namespace

bool launch_beside_mixed(const struct queue *q, const struct beside_args *args, bool is_down)
{
    const struct matvec_args *d = &args->dense;
    const struct expert_args *e = &args->experts;
    if (!is_late(q, args) || args->rows.max > FEW_LARGE || !are_of_form(d->w, d->n_w, d->w[0]) ||
        !are_of_form(e->w, e->n_w, e->w[0]))
        return false;
    return is_down ? start_down(q, args) : start_gate_up(q, args);
}
