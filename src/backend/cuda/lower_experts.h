/* Routers and routed products. A few rows: a router and its choice are one launch, each chosen
 * expert's weights are read for the rows that chose it. Many rows: pairs of row and expert are
 * sorted by expert and multiplied in groups. */
#ifndef CUDA_LOWER_EXPERTS_H
#define CUDA_LOWER_EXPERTS_H

#include "backend/cuda/lowering.h"

/* A router's product and its choice. */
void lower_route(struct lowering *l);

/* Whether launch_router takes w; and that launch for the ops of ROUTE, product and choice. Returns
 * the logits; is_late: their reader makes the choice. */
bool lower_is_router(const struct weight *w);
float *lower_router(struct lowering *l, const struct op *ops, bool is_late);

/* One ROUTE: the choice by logits z, the sums of this many parts (kernels.h: launch_route). */
void lower_choice(struct lowering *l, const struct op *op, const float *z, int32_t n_parts);

/* Gate, up, gelu, down. */
void lower_experts(struct lowering *l);

/* For the ops of EXPERTS: whether pairs are sorted and multiplied in groups, as with many rows and
 * where tiles are read in fp16. */
bool lower_are_grouped(struct lowering *l, const struct op *ops);
/* Whether gate and up go in one launch, and all three have a form that the kernels of this many
 * rows take. */
bool lower_are_together(struct lowering *l, const struct op *ops);
/* The arguments of gate and up for a few rows, and of down after them. */
struct expert_args lower_experts_in(struct lowering *l, const struct op *ops);
struct expert_args lower_experts_out(struct lowering *l, const struct op *ops,
                                     const struct expert_args *in);

/* One EXPERT_IN or EXPERT_OUT. */
void lower_expert(struct lowering *l, const struct op *op);

#endif
