/* Products of up to eight rows with weights of two forms in one launch, as files of a mixture have
 * queries and keys in one format and values in another: some blocks multiply with the first, the
 * others with the rest. A launch less that waits for the one before it; the bits are the same. */
#include "backend/cuda/kernels/any_form.cuh"

namespace {

enum { PARTS = 2 };

struct mixed_product {
    matvec_product part[PARTS];
    unsigned n_first; /* blocks of the first part */
};

template <int LANE_ROWS>
__global__ void __launch_bounds__(32 * MATVEC_WARPS, LANE_ROWS == 2 ? 2 : RESIDENT_MAX)
    matvec_mixed(const __grid_constant__ mixed_product a)
{
    unsigned block = blockIdx.x;
    bool is_second = block >= a.n_first;
    part_of_grid at = {0, block, a.n_first};
    if (is_second) at = {0, block - a.n_first, gridDim.x - a.n_first};
    few_units_of_any<FINE, LANE_ROWS>(a.part[is_second], at);
}

/* Units of both parts take about as long, apart from their bytes, so each part gets blocks in
 * proportion to its units. */
template <int LANE_ROWS> void launch_parts(const struct queue *q, mixed_product m, size_t bytes)
{
    int units = m.part[0].n_units + m.part[1].n_units;
    struct residence r = residence_of(q, matvec_mixed<LANE_ROWS>, bytes, wanted_blocks(q, units));
    int most = r.blocks * q->n_sm, blocks = units < most ? units : most;
    m.n_first = (unsigned)(m.part[0].n_units * blocks / units);
    if (m.n_first < 1) m.n_first = 1;
    launch(q, matvec_mixed<LANE_ROWS>, dim3((unsigned)blocks), 32 * MATVEC_WARPS, r.bytes, m);
}

} // namespace

bool launch_mixed(const struct queue *q, const struct matvec_args *args)
{
    bool is_taken =
        args->epilogue == MATVEC_STORE && args->x.kind == ACT_FINE && args->rows.max <= FEW_LARGE;
    int n = is_taken ? count_of_form(args->w, args->n_w) : 0;
    if (n == 0 || n == args->n_w) return false;
    if (!are_of_form(args->w + n, args->n_w - n, args->w[n])) return false;
    mixed_product m = {{part_of(args, 0, n), part_of(args, n, args->n_w - n)}, 0};
    size_t bytes =
        bytes_larger(deal_few_of_any<FINE>(q, &m.part[0]), deal_few_of_any<FINE>(q, &m.part[1]));
    if (bytes > shared_most(q)) return false;
    if (args->rows.max > FEW)
        launch_parts<2>(q, m, bytes);
    else
        launch_parts<1>(q, m, bytes);
    return true;
}
