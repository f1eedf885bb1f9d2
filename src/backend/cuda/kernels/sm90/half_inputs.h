/* Per-layer inputs with the norms around them on Hopper, in one launch. */
#ifndef CUDA_SM90_HALF_INPUTS_H
#define CUDA_SM90_HALF_INPUTS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes x as launch_norm does for `before`; h = gelu(gate x) * by; and what launch_norm makes of
 * `after`, whose `a` is up h and whose residual is that x. Neither x nor up h is written.
 *
 * `before` has its rows in fp16, normed, and one out: x itself as ACT_CORES, which is not written
 * either. `after` has one out too, normed, as ACT_CORES and perhaps fp32. */
struct half_inputs_args {
    int32_t n_rows;
    struct norm_args before, after;
    struct cuda_weight gate, up; /* in tiles of one form */
    const float *by;             /* [n_rows][by_cols] */
    int32_t by_cols;
};

/* Whether the device and the shapes fit: rows of a multiple of 512 columns up to 2560, gate of up
 * to 256 outputs. Looks at no pointer. */
bool half_inputs_takes(const struct queue *q, const struct half_inputs_args *args);

/* A row's bits do not depend on the others. Sums over a row have another order than those of
 * launch_norm. */
void launch_half_inputs(const struct queue *q, const struct half_inputs_args *args);

#ifdef __cplusplus
}
#endif

#endif
