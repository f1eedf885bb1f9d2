/* Products of one row together with the norm that makes the row (matvec_normed.cuh). */
#include "backend/cuda/kernels/matvec_launch.cuh"
#include "backend/cuda/kernels/sm90/matvec_normed.cuh"

namespace {

template <enum form F, enum product_kind KIND>
__global__ void __launch_bounds__(32 * MATVEC_WARPS, 2)
    matvec_normed(const __grid_constant__ matvec_product a, const __grid_constant__ norm_args norm)
{
    few_units<F, KIND>(a, own_grid(), normed_row{norm});
}

/* Each block reads two rows and the norms' vectors from L2. That is worth a launch where a
 * multiprocessor has one block at most (H200: the per-layer gate of E4B 5.7 us instead of 6.5, its
 * q alone 5.6 instead of 5.9, gate and up 21.4 instead of 18.9; 12B's q 9.6 instead of 7.1). */
template <enum form F, enum product_kind KIND>
bool launch_as(const struct queue *q, matvec_product p, const struct norm_args &norm)
{
    size_t bytes = deal_few<F, KIND>(q, &p);
    if (bytes > shared_most(q) || p.n_units > q->n_sm) return false;
    launch(q, matvec_normed<F, KIND>, dim3(1, (unsigned)p.n_units), 32 * MATVEC_WARPS, bytes, p,
           norm);
    return true;
}

template <enum form F>
bool launch_form_normed(const struct queue *q, const matvec_product &p,
                        const struct norm_args &norm)
{
    return p.x.kind == ACT_FINE ? launch_as<F, FINE>(q, p, norm) : launch_as<F, PLAIN>(q, p, norm);
}

bool is_the_row_of(const struct norm_args &n, const struct act &x)
{
    const struct norm_args::norm_out &out = n.out[0];
    return n.n_outs == 1 && n.is_for_next && !out.y && is_in_blocks(out.act) &&
           out.act.values == x.values && out.act.kind == x.kind;
}

bool is_apart_from(const void *row, size_t bytes, const struct matvec_args &m)
{
    size_t stride = (size_t)m.act.stride;
    bool is_right = are_apart(row, bytes, m.out, (size_t)m.w[0].rows * sizeof(float));
    for (int k = 0; k < m.n_w && m.epilogue == MATVEC_STORE; k++)
        is_right = is_right && are_apart(row, bytes, m.y[k], (size_t)m.w[k].rows * sizeof(float));
    if (!is_in_blocks(m.act)) return is_right;
    return is_right && are_apart(row, bytes, m.act.values, stride) &&
           are_apart(row, bytes, m.act.low, stride) &&
           are_apart(row, bytes, m.act.scale, stride / 32 * 2 * sizeof(float));
}

/* All blocks read the norm's rows, some of them while others write. */
bool is_safe(const struct norm_args &n, const struct matvec_args &m)
{
    size_t bytes = (size_t)n.cols * sizeof(float);
    return are_apart(n.a, bytes, n.x_out, bytes) && are_apart(n.residual, bytes, n.x_out, bytes) &&
           is_apart_from(n.a, bytes, m) && is_apart_from(n.residual, bytes, m);
}

bool takes(const struct queue *q, const struct norm_args &n, const struct matvec_args &m)
{
    bool is_plain = !n.a_half && !n.b && !n.w_s && n.cols <= normed_row::COLS_MAX;
    bool is_one = n.rows.max == 1 && m.rows.max == 1 && is_safe(n, m);
    if (q->capability != 90 || !is_plain || !is_one || !is_the_row_of(n, m.x)) return false;
    return are_of_form(m.w, m.n_w, m.w[0]);
}

} // namespace

bool launch_matvec_normed(const struct queue *q, const struct norm_args *norm,
                          const struct matvec_args *args)
{
    if (!takes(q, *norm, *args)) return false;
    matvec_product p = product_of(args);
    switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: return launch_form_normed<F>(q, p, *norm);
        FORM_LIST(X)
#undef X
    default: return false;
    }
}
