/* What changes from step to step, as one piece of memory: it is filled in page-locked memory of the
 * host and copied to the device, where the kernels read it (types.h: struct step_view). */
#ifndef CUDA_STEP_ARRAYS_H
#define CUDA_STEP_ARRAYS_H

#include <stddef.h>

#include "backend/cuda/types.h"

struct step_arrays {
    int32_t *counts; /* n_token, n_decode, n_out, nothing */
    int32_t *id, *position, *sequence, *out_row;
    int32_t *slot; /* of each token's row of a table in the mapped file, in the cache of its rows */
};

enum { STEP_COUNTS = 4, STEP_ARRAYS = 5 };

/* Rows that the arrays have room for. */
static inline int32_t step_rows_max(const int32_t rows_max[ROW_CLASS_COUNT])
{
    return rows_max[ROWS_TOKEN] > rows_max[ROWS_OUT] ? rows_max[ROWS_TOKEN] : rows_max[ROWS_OUT];
}

/* Bytes of steps of at most so many rows. */
static inline size_t step_bytes(int32_t rows_max)
{
    return (STEP_COUNTS + STEP_ARRAYS * (size_t)rows_max) * sizeof(int32_t);
}

/* The arrays in so many bytes; NULL gives NULL. */
static inline struct step_arrays step_arrays_at(int32_t *memory, int32_t rows_max)
{
    struct step_arrays a = {NULL, NULL, NULL, NULL, NULL, NULL};
    if (!memory) return a;
    a.counts = memory;
    a.id = memory + STEP_COUNTS;
    a.position = a.id + rows_max;
    a.sequence = a.position + rows_max;
    a.out_row = a.sequence + rows_max;
    a.slot = a.out_row + rows_max;
    return a;
}

#endif
