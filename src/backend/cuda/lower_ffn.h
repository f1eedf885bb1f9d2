/* Gated products: gate, up, gelu, down; a product, gelu times rows that are there, a product. */
#ifndef CUDA_LOWER_FFN_H
#define CUDA_LOWER_FFN_H

#include "backend/cuda/lowering.h"

void lower_ffn(struct lowering *l);

/* Gate, up and gelu, for the kernels of a few rows. */
struct matvec_args lower_gate_up(struct lowering *l, const struct weight *const *w, struct input x,
                                 struct input hidden);
void lower_gated(struct lowering *l);

#endif
