/* Two products that do not depend on each other, in one launch: in a layer with experts, what the
 * dense branch and the routed one have to do at the same time. A launch reads weights while its
 * neighbour waits for rows or adds up sums; results have the bits of the launches alone. */
#ifndef CUDA_BESIDE_H
#define CUDA_BESIDE_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dense gate and up (MATVEC_GELU_MUL), and the router with its choice. */
struct router_beside_args {
    struct rows rows; /* of both */
    struct matvec_args dense;
    struct router_args router;
};
void launch_router_beside(const struct queue *q, const struct router_beside_args *args);

/* Dense down (MATVEC_STORE, one weight), and gate and up of the chosen experts. */
struct experts_beside_args {
    struct rows rows; /* of both */
    struct matvec_args dense;
    struct expert_args experts;
};
void launch_experts_beside(const struct queue *q, const struct experts_beside_args *args);

int beside_prepare(void); /* cudaError_t */

#ifdef __cplusplus
}
#endif

#endif
