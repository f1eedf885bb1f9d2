/* What matvec_ring.cuh and experts_out.cuh do, for weights whose form is known only at run time:
 * one kernel for all forms, for launches that mix them. */
#ifndef CUDA_ANY_FORM_CUH
#define CUDA_ANY_FORM_CUH

#include "backend/cuda/kernels/experts_out.cuh"

template <enum product_kind KIND, int LANE_ROWS, typename Rows = given_rows>
__device__ __forceinline__ void few_units_of_any(const matvec_product &a, part_of_grid at,
                                                 Rows given = {})
{
    switch (form_of(a.w[0].format)) {
#define X(F)                                                                                       \
    case F: few_units<F, KIND, false, RING, 1, LANE_ROWS>(a, at, given); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

template <bool IS_LARGE>
__device__ __forceinline__ void out_few_of_any(const out_product &a, int block,
                                               const struct choice &late)
{
    switch (form_of(a.w.format)) {
#define X(F)                                                                                       \
    case F: out_few<F, true, IS_LARGE>(a, block, late); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

template <enum product_kind KIND>
static size_t deal_few_of_any(const struct queue *q, matvec_product *p)
{
    switch (form_of(p->w[0].format)) {
#define X(F)                                                                                       \
    case F: return deal_few<F, KIND>(q, p);
        FORM_LIST(X)
#undef X
    default: return 0;
    }
}

template <bool IS_LARGE> static size_t deal_out_of_any(out_product *p)
{
    switch (form_of(p->w.format)) {
#define X(F)                                                                                       \
    case F: return deal_out<F, IS_LARGE>(p);
        FORM_LIST(X)
#undef X
    default: return 0;
    }
}

#endif
