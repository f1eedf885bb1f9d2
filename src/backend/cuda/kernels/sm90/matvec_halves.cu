/* Products of up to four rows whose activations leave no room for a third block on an SM: a ring of
 * five half stages is a sixth smaller than one of three whole ones. That pays if it is what makes
 * all units resident at once (H200, one row of 31B's down, 336 units: 20.0 us instead of 23.2).
 * Else it costs: two tiles at a time instead of four were 7 % slower over the products of all
 * models. */
#include "backend/cuda/kernels/matvec_launch.cuh"

namespace {

enum { HALF_RING = 5 };

template <enum form F>
__global__ void __launch_bounds__(32 * MATVEC_WARPS, RESIDENT_MAX)
    matvec_few_halves(const __grid_constant__ matvec_product a)
{
    few_units<F, PLAIN, false, HALF_RING, 2>(a, own_grid());
}

/* Whether a multiprocessor holds fewer blocks than there is work for. */
template <enum form F> bool is_crowded(const struct queue *q, const matvec_product &p, size_t bytes)
{
    int wanted = wanted_blocks(q, p.n_units);
    return wanted == RESIDENT_MAX &&
           residence_of(q, matvec_few_halves<F>, bytes, wanted).blocks < wanted;
}

template <enum form F> bool launch_as(const struct queue *q, matvec_product p)
{
    if (!is_crowded<F>(q, p, deal_few<F, PLAIN>(q, &p))) return false;
    size_t bytes = deal_few<F, PLAIN, HALF_RING, 2>(q, &p);
    if (is_crowded<F>(q, p, bytes)) return false;
    launch_units<false>(q, matvec_few_halves<F>, p, 1, bytes);
    return true;
}

} // namespace

/* The forms whose stages have four tiles. */
#define HALVES_LIST(X)                                                                             \
    X(FORM_U2)                                                                                     \
    X(FORM_S3)                                                                                     \
    X(FORM_S4)                                                                                     \
    X(FORM_U4) X(FORM_N4) X(FORM_G4) X(FORM_O4) X(FORM_M4) X(FORM_S5) X(FORM_U5)

bool launch_halves(const struct queue *q, const matvec_product &p)
{
    if (p.x.kind == ACT_FINE || p.rows.max > FEW) return false;
    switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: return launch_as<F>(q, p);
        HALVES_LIST(X)
#undef X
    default: return false;
    }
}
