/* A table that stays in the mapped file. Rows that steps ask for are copied to the device and stay
 * there in a cache, until others need their slots; a step has slots in place of ids. Rows that the
 * next step is known to need are copied on a stream of their own while this one computes. */
#ifndef CUDA_ROW_TABLE_H
#define CUDA_ROW_TABLE_H

#include <cuda_runtime_api.h>

#include "backend/cuda/gather.h"
#include "base/buf.h"

struct row_table {
    struct gather gather;
    char *rows;            /* [gather.cache.n_slots] on the device, each as in the file */
    cudaStream_t stream;   /* of copies for the next step */
    cudaEvent_t copied[2]; /* by half of the host's memory: its copies have ended */
    bool is_ahead;         /* the last copies were for the step to come */
};

/* `device_memory`: of n_slots rows; `pinned`: gather_bytes. Both outlive the table. */
int row_table_open(struct row_table **out, const struct weight *table, int32_t rows_max,
                   int32_t n_slots, void *device_memory, void *pinned, struct carat_error *err);
void row_table_close(struct row_table *t); /* NULL is fine */

/* Fills in the slots of the step's rows, which are there for all later work on `stream`. */
cudaError_t row_table_step(struct row_table *t, cudaStream_t stream, const struct step *step,
                           int32_t *slot);

/* Brings the known rows of the next step. Comes after row_table_step. */
cudaError_t row_table_ahead(struct row_table *t, const struct step *step);

/* Rows asked for and copied so far, for a person. */
void row_table_print(const struct row_table *t, struct buf *out);

#endif
