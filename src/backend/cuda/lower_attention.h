/* Attention, alone or with the product after it. */
#ifndef CUDA_LOWER_ATTENTION_H
#define CUDA_LOWER_ATTENTION_H

#include "backend/cuda/lowering.h"

/* Attention and its product. */
void lower_attend(struct lowering *l);

/* One ATTENTION, to y in fp32 or to `act`, whose kind is ACT_NONE otherwise. */
void lower_attention(struct lowering *l, const struct op *op, float *y, struct act act);

#endif
