/* NVIDIA GPUs: kernels for Ampere and later (mma.sync), more of them for Hopper, and usual steps
 * replayed as captured graphs. absent.c stands in where there is no nvcc. */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include "backend/backend.h"

extern const struct backend cuda_backend;

#endif
