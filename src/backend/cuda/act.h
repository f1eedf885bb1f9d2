/* Where the activations of rows lie in a piece of memory (types.h says what they are). */
#ifndef CUDA_ACT_H
#define CUDA_ACT_H

#include <stddef.h>

#include "backend/cuda/types.h"

/* Columns of activations and mirrors: whole tiles. */
static inline size_t padded_cols(int64_t cols)
{
    return (size_t)(cols + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
}

/* Bytes of this many rows in any form. */
size_t act_bytes(size_t rows, int64_t cols);

/* `rows` rows cut from this many bytes at `base`; NULL: only the form is told. */
struct act act_at(void *base, enum act_kind kind, int32_t rows, int64_t cols);

#endif
