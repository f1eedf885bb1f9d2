/* Ops on their own: what no other file lowers, and everything in exact arithmetic. */
#ifndef CUDA_LOWER_SINGLE_H
#define CUDA_LOWER_SINGLE_H

#include "backend/cuda/lowering.h"

void lower_single(struct lowering *l);

/* Projection, norm and sum of per-layer embeddings. */
void lower_ple(struct lowering *l);

/* Head and softcap. */
void lower_logits(struct lowering *l);

#endif
