/* Routers and routed products. A few rows: a router and its choice are one launch, each chosen
 * expert's weights are read for the rows that chose it. Many rows: pairs of row and expert are
 * sorted by expert and multiplied in groups. */
#ifndef CUDA_LOWER_EXPERTS_H
#define CUDA_LOWER_EXPERTS_H

#include "backend/cuda/lowering.h"

/* A router's product and its choice. */
void lower_route(struct lowering *l);

/* One ROUTE: the choice by logits z, the sums of this many parts (kernels.h: launch_route). */
void lower_choice(struct lowering *l, const struct op *op, const float *z, int32_t n_parts);

/* Gate, up, gelu, down. */
void lower_experts(struct lowering *l);

/* One EXPERT_IN or EXPERT_OUT. */
void lower_expert(struct lowering *l, const struct op *op);

#endif
