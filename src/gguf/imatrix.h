/* Importance matrices: how large the inputs of each product are, column by column, as a run of the
 * model over some text has measured them. Two forms of files, both of llama.cpp:
 *
 *   GGUF      general.type = "imatrix"; for each tensor NAME two of F32: NAME.in_sum2, sums of
 *             squares, and NAME.counts, how many there were. Those of experts have a row for each.
 *             imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size.
 *   .dat      i32 n; n times: i32 length and name, i32 calls, i32 n_values and as many f32; then,
 *             unless the file ends here, i32 chunks, i32 length and name of the text.
 *
 * Rules
 * 1. Files are hostile. After imatrix_open succeeds, everything is inside the file, and all values
 *    are finite and not negative.
 * 2. All pointers handed out are borrowed and live until imatrix_close.
 * 3. Read-only after open. Errors name the file; code CARAT_EFORMAT. */
#ifndef GGUF_IMATRIX_H
#define GGUF_IMATRIX_H

#include "gguf/gguf.h"

/* Of one tensor. */
struct imatrix_entry {
    const char *name;      /* of the tensor: "blk.0.attn_q.weight" */
    int64_t n_values;      /* columns, times the experts that have their own */
    int64_t n_counts;      /* 1, or one for each expert */
    const uint8_t *values; /* floats, unaligned */
    const uint8_t *counts; /* the same; NULL in a .dat file */
};

struct imatrix;

int imatrix_open(struct imatrix **out, const char *path, struct carat_error *err);
void imatrix_close(struct imatrix *m); /* NULL is fine */

size_t imatrix_count(const struct imatrix *m);
const struct imatrix_entry *imatrix_at(const struct imatrix *m, size_t i);
const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name); /* or NULL */

uint32_t imatrix_chunks(const struct imatrix *m);            /* 0: unknown */
struct gguf_string imatrix_dataset(const struct imatrix *m); /* of length 0: unknown */

/* Importance for encoding (quant/format.h) of row `index` of `n_rows` rows that divide the values:
 * about 1 on average, never 0. 1 everywhere in a row of which nothing was measured. */
void imatrix_read(const struct imatrix_entry *e, int64_t index, int64_t n_rows, float *out);

#endif
