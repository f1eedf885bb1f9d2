/* Norms around a residual sum, with all norms that read it. */
#ifndef CUDA_LOWER_NORM_H
#define CUDA_LOWER_NORM_H

#include "backend/cuda/lowering.h"

void lower_norms(struct lowering *l);

#endif
