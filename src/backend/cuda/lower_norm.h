/* Norms around a residual sum, with all norms that read it. */
#ifndef CUDA_LOWER_NORM_H
#define CUDA_LOWER_NORM_H

#include "backend/cuda/lowering.h"

void lower_norms(struct lowering *l);

/* What lower_norms would start, for a launch that does more. The forms of its outputs are noted as
 * if it had been started. */
struct norm_args lower_norm_args(struct lowering *l);

#endif
