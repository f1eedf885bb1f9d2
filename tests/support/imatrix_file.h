/* Importance matrices as files: entries of random importance, in both forms (gguf/imatrix.h). */
#ifndef SUPPORT_IMATRIX_FILE_H
#define SUPPORT_IMATRIX_FILE_H

#include "support/gguf_writer.h"

/* An entry of a GGUF file: `experts` rows of `cols` sums of squares, and as many counts. */
void imatrix_put(struct gguf_writer *w, const char *name, int64_t cols, int64_t experts,
                 const float *sums, const float *counts);
void imatrix_put_keys(struct gguf_writer *w, uint32_t chunks, const char *dataset);

/* The parts of a .dat file. */
void imatrix_dat_count(struct buf *out, int32_t n_entries);
void imatrix_dat_add(struct buf *out, const char *name, int32_t calls, const float *values,
                     int32_t n);
void imatrix_dat_end(struct buf *out, int32_t chunks, const char *dataset);

/* Entries for all matrices of a model's layers. */
void imatrix_put_model(struct gguf_writer *w, const struct gguf *model, uint64_t seed);

#endif
