/* Products of five to eight rows: the kernel for up to four (matvec_ring.cuh), where a lane has the
 * sums of two rows. Weights come through its ring, and activations of all columns are in shared
 * memory, where the kernel for more rows (matvec_stream.cuh) has weights in registers. The bits are
 * the same. Bound: reading the weights. */
#include "backend/cuda/kernels/matvec_launch.cuh"

namespace {

template <enum form F, enum product_kind KIND>
__global__ void __launch_bounds__(32 * MATVEC_WARPS, 2)
    matvec_eight(const __grid_constant__ matvec_product a)
{
    few_units<F, KIND, false, RING, 1, 2>(a, own_grid());
}

template <enum form F, enum product_kind KIND>
bool launch_as(const struct queue *q, matvec_product p)
{
    size_t bytes = deal_few<F, KIND>(q, &p);
    if (bytes > shared_most(q)) return false;
    launch_units<false>(q, matvec_eight<F, KIND>, p, 1, bytes);
    return true;
}

template <enum form F> bool launch_in_form(const struct queue *q, const matvec_product &p)
{
    return p.x.kind == ACT_FINE ? launch_as<F, FINE>(q, p) : launch_as<F, PLAIN>(q, p);
}

} // namespace

bool launch_eight(const struct queue *q, const matvec_product &p)
{
    if (p.rows.max <= FEW || p.rows.max > FEW_LARGE) return false;
    switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: return launch_in_form<F>(q, p);
        FORM_LIST(X)
#undef X
    default: return false;
    }
}
