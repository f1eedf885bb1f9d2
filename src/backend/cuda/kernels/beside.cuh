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

/* Gate and up of both branches, and how they are launched. */
struct gate_up_pair {
    matvec_product dense, experts;
    size_t bytes; /* of shared memory */
    unsigned n_chosen, blocks;
};

/* deal_dense and deal_experts deal out a product and return the bytes of shared memory that it
 * takes. */
template <typename DealDense, typename DealExperts>
static gate_up_pair gate_up_of(const struct beside_args *args, DealDense deal_dense,
                               DealExperts deal_experts)
{
    gate_up_pair p = {product_of(&args->dense), product_of(&args->experts), 0, 0, 0};
    p.bytes = bytes_larger(deal_dense(&p.dense), deal_experts(&p.experts));
    p.n_chosen = (unsigned)experts_most(p.experts);
    p.blocks = (unsigned)p.dense.n_units + p.n_chosen * (unsigned)p.experts.n_units;
    return p;
}

/* Down of both, the same. */
struct down_pair {
    out_product experts;
    matvec_product dense;
    size_t bytes;
    unsigned n_experts, blocks;
};

enum { DOWN_RESIDENT = 2 /* blocks a multiprocessor */ };

/* The dense branch's blocks are as many as are resident beside the others, so that no weight waits
 * for a block to end. */
template <typename DealDense, typename DealExperts>
static down_pair down_of(const struct queue *q, const struct beside_args *args,
                         DealDense deal_dense, DealExperts deal_experts)
{
    down_pair p = {out_product_of(&args->experts), product_of(&args->dense), 0, 0, 0};
    p.bytes = bytes_larger(deal_dense(&p.dense), deal_experts(&p.experts));
    p.n_experts = blocks_of(p.experts);
    int n = DOWN_RESIDENT * q->n_sm - (int)p.n_experts, units = p.dense.n_units;
    if (n < units / 4) n = units / 4;
    p.blocks = p.n_experts + (unsigned)(n > units || n < 1 ? units : n);
    return p;
}

/* sm90/beside_mixed.cu: the dense branch has weights of one form, the experts of another. False:
 * nothing was launched. */
bool launch_beside_mixed(const struct queue *q, const struct beside_args *args, bool is_down);

#endif
