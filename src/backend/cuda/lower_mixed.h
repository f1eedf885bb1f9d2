/* A dense branch and a routed one, which do not depend on each other. For a few rows they go side
 * by side, in three launches: the router, gate and up of both, down of both. */
#ifndef CUDA_LOWER_MIXED_H
#define CUDA_LOWER_MIXED_H

#include "backend/cuda/lowering.h"

void lower_mixed(struct lowering *l);

#endif
