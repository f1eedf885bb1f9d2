/* Where the activations of rows lie in a piece of memory (types.h says what they are). */
#ifndef CUDA_ACT_H
#define CUDA_ACT_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/cuda/types.h"

/* Columns of activations and mirrors: whole tiles. */
static inline size_t padded_cols(int64_t cols)
{
    return (size_t)(cols + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
}

/* Whether they are fp16 with a scale for each row. */
static inline bool act_is_half(enum act_kind kind)
{
    return kind == ACT_HALF || kind == ACT_CORES || kind == ACT_STEPS;
}

/* Rows of a piece of ACT_CORES (types.h), and of the boxes that launch_gemm_wgmma copies. */
enum { CORE_ROWS = 64, BOX_ROWS = 128 };

/* How many rows memory for `rows` rows has room for: whole boxes. */
static inline size_t act_rows(size_t rows)
{
    return (rows + BOX_ROWS - 1) / BOX_ROWS * BOX_ROWS;
}

/* Bytes of this many rows in any form. */
size_t act_bytes(size_t rows, int64_t cols);

/* Activations of `rows` rows in act_bytes(rows, cols) bytes at `base`; NULL: only kind and stride
 * are set. */
struct act act_at(void *base, enum act_kind kind, int32_t rows, int64_t cols);

#endif
