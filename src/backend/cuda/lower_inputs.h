/* WINDOW_INPUTS: per-layer inputs and the norms before and after them. */
#ifndef CUDA_LOWER_INPUTS_H
#define CUDA_LOWER_INPUTS_H

#include "backend/cuda/lowering.h"

void lower_inputs(struct lowering *l);

#endif
