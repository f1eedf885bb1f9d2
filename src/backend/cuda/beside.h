/* Two products that do not depend on each other, in one launch: in a layer with experts, what the
 * dense branch and the routed one have to do at the same time. A launch reads weights while its
 * neighbour waits for rows or adds up sums; results have the bits of the launches alone. */
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
    const float *z, *scale; /* of the choice, as in router_args; z NULL: it is there. Else these
                             * launches make it where choice_is_late */
};

/* Both are gate and up (MATVEC_GELU_MUL). The launch before makes the choice of experts, and rows
 * of `dense` are older than that; where choice_is_late it makes logits, and perhaps these rows. */
void launch_gate_up_beside(const struct queue *q, const struct beside_args *args);

/* Both are down (MATVEC_STORE, one weight). The choice, or what it is made of, is older than the
 * launch before. */
void launch_down_beside(const struct queue *q, const struct beside_args *args);

#ifdef __cplusplus
}
#endif

#endif
