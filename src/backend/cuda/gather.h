/* Rows of a table that stays in the mapped file: which of them a cache lacks, and where the host
 * puts them to be copied from. Needs neither GPU nor toolkit.
 *
 * Two halves of host memory take turns: while one is copied from, the other is filled. Memory is
 * the caller's, and so are the copies. */
#ifndef CUDA_GATHER_H
#define CUDA_GATHER_H

#include "backend/cuda/row_cache.h"
#include "plan/op.h"

struct gather {
    const struct weight *table;
    struct row_cache cache;
    char *halves[2];      /* of rows_max rows each */
    int32_t half, n_read; /* what is filled, and the rows in it */
    int32_t rows_max;
    int64_t n_asked, n_brought; /* rows so far: of steps; read from the file */
};

/* Rows to be copied from the host to as many slots side by side. */
struct gathered {
    const char *from;
    int32_t slot, n;
};

enum { GATHER_ROWS = 256 }; /* per call: their copies begin while the next are read */

/* Slots that `bytes` have room for: at least twice a step's rows, at most those of the table. */
int32_t gather_slots(const struct weight *table, int32_t rows_max, size_t bytes);

/* Host memory for steps of at most rows_max rows. */
size_t gather_bytes(const struct weight *table, int32_t rows_max);

int gather_init(struct gather *g, const struct weight *table, int32_t rows_max, int32_t n_slots,
                void *memory, struct carat_error *err);
void gather_deinit(struct gather *g);

/* The other half is filled from now on, with at most rows_max rows. The copies of what it had must
 * have ended. Returns its number. */
int32_t gather_begin(struct gather *g);

/* Reads those of n ids, at most GATHER_ROWS, that are not in the cache. `slot` gets the slot of
 * each row (NULL: they are for the step after this one), `out` what has to be copied there first;
 * returns how many of these there are. A step and the ids of the next do not evict each other's
 * rows. */
int32_t gather_rows(struct gather *g, const int32_t *id, int32_t n, int32_t *slot,
                    struct gathered out[GATHER_ROWS]);

#endif
