/* The reference kernels and their arguments. */
#ifndef BACKEND_REF_OPS_H
#define BACKEND_REF_OPS_H

#include "plan/plan.h"

/* One op of a running program. x0..x2 are its inputs, y0 and y1 its outputs: rows contiguous,
 * `rows` of them, columns as in the plan. */
struct ref_call {
    const struct op *op;
    const struct plan *plan;
    const struct step *step;
    int32_t rows;
    enum row_class rows_class; /* of the output */
    int32_t x_cols, x1_cols, y_cols;
    const float *x0, *x1, *x2;
    float *y0, *y1;
    float *scratch;   /* ref_scratch_floats of them */
    int32_t *scatter; /* EXPERT_*: rows * n_used integers */
};

#define X(NAME, params, meaning, budget) void ref_##NAME(const struct ref_call *call);
OP_LIST(X)
#undef X

/* Scratch floats that an op of this plan needs. */
size_t ref_scratch_floats(const struct plan *plan, const struct op *op);

/* sum_i a[i] b[i] in 16 partial sums: a fixed order, so that a row's result does not depend on
 * how many rows there are. */
float ref_dot(const float *a, const float *b, int64_t n);

#endif
