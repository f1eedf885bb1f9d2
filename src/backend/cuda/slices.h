/* Into how many slices launch_gemm_wgmma cuts the columns of a product. Its bits depend on it, so
 * the shape alone decides. C and CUDA common subset. */
#ifndef CUDA_SLICES_H
#define CUDA_SLICES_H

#include <stdint.h>

enum { SLICES_MAX = 8 };

/* Clusters of this many blocks, each a whole multiprocessor, that run at a time: on an H200 132,
 * 66, 30 and 15 of 1, 2, 4 and 8. At least 1. */
static inline int32_t clusters_at_once(int32_t n_sm, int32_t blocks)
{
    int32_t n = blocks > 2 ? n_sm * 10 / 11 / blocks : n_sm / blocks;
    return n > 0 ? n : 1;
}

/* n_cols: results of a row, of all weights of the launch; n_steps: columns of a weight / 64.
 * Returns 1, 2, 4 or 8: as many as give each multiprocessor of an H200 a tile of 64 results when
 * there are few rows, but slices of at least STEPS_LEAST steps. */
static inline int32_t gemm_slices(int32_t n_cols, int32_t n_steps)
{
    enum { CHIP = 132, TILE = 64, STEPS_LEAST = 4 };
    int32_t n = SLICES_MAX, tiles = (n_cols + TILE - 1) / TILE;
    while (n > 1 && (tiles > clusters_at_once(CHIP, n) || n_steps < n * STEPS_LEAST)) n /= 2;
    return n;
}

#endif
