/* What launches of two products side by side share (beside.cu, sm90/beside_mixed.cu). */
#ifndef CUDA_BESIDE_CUH
#define CUDA_BESIDE_CUH

#include "backend/cuda/beside.h"
#include "backend/cuda/kernels/experts_out.cuh"

enum { THREADS = 32 * MATVEC_WARPS };

static inline bool is_late(const struct queue *q, const struct beside_args *args)
{
    return args->z && choice_is_late(q, args->rows.max, args->experts.n_used);
}

static inline struct choice choice_of(const struct beside_args *args)
{
    return {
        args->z, args->scale, nullptr, nullptr, args->experts.w[0].n_expert, args->experts.n_used};
}

/* Down: resident blocks a multiprocessor. */
enum { DOWN_RESIDENT = 2 };

/* Of the dense branch's down beside n blocks of experts: as many as are resident beside them, so
 * that no weight waits for a block to end. */
static inline unsigned dense_blocks(const struct queue *q, unsigned n, int units)
{
    int blocks = DOWN_RESIDENT * q->n_sm - (int)n;
    if (blocks < units / 4) blocks = units / 4;
    return (unsigned)(blocks > units || blocks < 1 ? units : blocks);
}

/* sm90/beside_mixed.cu: the dense branch has weights of one form, the experts of another. False:
 * nothing was launched. */
bool launch_beside_mixed(const struct queue *q, const struct beside_args *args, bool is_down);

#endif
