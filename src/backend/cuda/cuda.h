/* NVIDIA GPUs: kernels for mma.sync chips (Ampere and later), steps of a few rows replayed as
 * captured graphs. absent.c stands in where there is no nvcc. */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include "backend/backend.h"

extern const struct backend cuda_backend;

#endif
