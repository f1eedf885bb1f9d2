/* What changes from step to step, as one piece of memory: it is filled in page-locked memory of the
 * host and copied to the device, where the kernels read it (types.h: struct step_view). */
#ifndef CUDA_STEP_ARRAYS_H
#define CUDA_STEP_ARRAYS_H

#include <stddef.h>

#include "backend/cuda/types.h"

struct step_arrays {
    int32_t *counts; /* n_token, n_decode, n_out, runs of each class, packs, nothing */
    int32_t *id, *position, *sequence, *out_row;
    int32_t *slot; /* of each token's row in the cache of a table in the mapped file */
    int32_t *run[ROW_CLASS_COUNT]; /* edges of runs: one more than there are runs */
    struct pack *pack;
    int32_t *member, *is_packed;
};

enum { STEP_COUNTS = 8, STEP_ARRAYS = 9 + sizeof(struct pack) / sizeof(int32_t) };

/* How many rows a step is launched for. */
struct step_rows {
    int32_t n[ROW_CLASS_COUNT];
    int32_t n_decode[ROW_CLASS_COUNT]; /* the first ones: single new tokens of their sequences */
    int32_t n_runs[ROW_CLASS_COUNT];   /* at most this many among the others */
};

/* Rows that the arrays have room for. */
static inline int32_t step_rows_max(const int32_t rows_max[ROW_CLASS_COUNT])
{
    return rows_max[ROWS_TOKEN] > rows_max[ROWS_OUT] ? rows_max[ROWS_TOKEN] : rows_max[ROWS_OUT];
}

/* Bytes of steps of at most this many rows. */
static inline size_t step_bytes(int32_t rows_max)
{
    return (STEP_COUNTS + STEP_ARRAYS * (size_t)rows_max + ROW_CLASS_COUNT) * sizeof(int32_t);
}

/* The arrays in this many bytes; NULL gives NULL. */
struct step_arrays step_arrays_at(int32_t *memory, int32_t rows_max);

/* Fills all but `slot` and what packs.h fills, and says what is there. */
struct step_rows step_arrays_fill(const struct step_arrays *to, const struct step *step);

/* For launches of more rows than there are, n of each class: a padding row is the first token of a
 * sequence, which is cheap for kernels that compute it too. */
void step_arrays_pad(const struct step_arrays *to, const struct step_rows *rows, const int32_t *n);

#endif
