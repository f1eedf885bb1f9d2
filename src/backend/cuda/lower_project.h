/* Queries, keys and values: products, then norms of heads, rotation and the write to the cache. */
#ifndef CUDA_LOWER_PROJECT_H
#define CUDA_LOWER_PROJECT_H

#include "backend/cuda/lowering.h"

void lower_project(struct lowering *l);

#endif
