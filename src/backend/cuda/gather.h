/* Rows of a table that stays in the mapped file, read by the host into memory from which they are
 * copied to the device. Needs neither GPU nor toolkit.
 *
 * Two slots take turns: while the device copies from one and works on its step, the other is filled
 * with the rows of the next step's chunk. In front of a chunk stand single new tokens, which are
 * not known beforehand: their rows are read with the step, into what the chunk leaves of the slot.
 *
 * One table at a time. Memory is the caller's. */
#ifndef CUDA_GATHER_H
#define CUDA_GATHER_H

#include <stddef.h>

#include "plan/op.h"

struct gather_slot {
    char *rows;
    int32_t *id;     /* [n_ready] */
    int32_t n_ready; /* rows read beforehand */
};

struct gather {
    struct gather_slot slots[2];
    int32_t next; /* the slot of the next step */
    int32_t rows_max;
    size_t row_bytes; /* of the longest row that fits */
};

/* Memory for steps of at most rows_max rows, and its division. */
size_t gather_bytes(int32_t rows_max, size_t row_bytes);
void gather_init(struct gather *g, void *memory, int32_t rows_max, size_t row_bytes);

/* A step's rows: `n_first` at `first`, then `n_rest` at `rest`. */
struct gathered {
    const char *first, *rest;
    int32_t n_first, n_rest;
};

/* Reads those of the step's rows that are not there yet. What it returns stays until the second
 * call from now; the slot before it is free to be written, so that its copy must have ended. */
struct gathered gather_step(struct gather *g, const struct weight *table, const struct step *step);

/* Reads what is known of the step behind this one: `step->next_id`. After gather_step. */
void gather_ahead(struct gather *g, const struct weight *table, const struct step *step);

#endif
