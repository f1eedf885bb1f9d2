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

/* Pairs from one tile of an expert with n pairs to the next. */
__host__ __device__ static inline int32_t tile_step(const struct expert_plan &plan, int32_t n)
{
    if (!plan.is_even) return EXPERT_TILE;
    int32_t n_tiles = (n + HALF_TILE - 1) / HALF_TILE;
    return n_tiles ? ((n + n_tiles - 1) / n_tiles + 7) / 8 * 8 : HALF_TILE;
}

/* Even tiles are computed in whole multiples of HALF_WIDTH, and ordered by that width. */
enum { HALF_WIDTHS = HALF_TILE / HALF_WIDTH };

#endif
