/* What grouped products share with the sort of their pairs. */
#ifndef CUDA_MOE_CUH
#define CUDA_MOE_CUH

#include "backend/cuda/kernels.h"

/* Tiles that n_rows * n_used pairs make at most, however they fall on the experts. */
static inline int32_t expert_tiles_max(int32_t n_rows, int32_t n_used, int32_t n_expert)
{
    int32_t n_pairs = n_rows * n_used;
    return n_pairs / EXPERT_TILE + (n_expert < n_pairs ? n_expert : n_pairs);
}

#endif
