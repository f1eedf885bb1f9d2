/* Gated products: gate, up, gelu, down; a product, gelu times rows that are there, a product. */
#ifndef CUDA_LOWER_FFN_H
#define CUDA_LOWER_FFN_H

#include "backend/cuda/lowering.h"

void lower_ffn(struct lowering *l);
void lower_gated(struct lowering *l);

#endif
