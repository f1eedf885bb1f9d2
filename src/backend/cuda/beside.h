/* Two independent products in one launch: one of the dense branch of a layer with experts, one of
 * its routed branch. One reads weights while the other waits for rows or adds up sums. The results
 * have the same bits as those of separate launches. */
#ifndef CUDA_BESIDE_H
#define CUDA_BESIDE_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A product of the dense branch, and one of the chosen experts. */
struct beside_args {
    struct rows rows; /* of both */
    struct matvec_args dense;
    struct expert_args experts;
    const float *z, *scale; /* as in router_args: where choice_is_late, these launches make the
                             * choice of experts from them; z NULL: it is already made */
};

/* Both are gate and up (MATVEC_GELU_MUL). The launch before makes the choice of experts, and rows
 * of `dense` come from an earlier one. Where choice_is_late, the launch before makes only the
 * logits, and perhaps these rows. */
void launch_gate_up_beside(const struct queue *q, const struct beside_args *args);

/* Both are down (MATVEC_STORE, one weight). The choice, or the logits for it, come from an earlier
 * launch than the one before. */
void launch_down_beside(const struct queue *q, const struct beside_args *args);

#ifdef __cplusplus
}
#endif

#endif
