/* What a program does in a step: a list of records, made when the program is bound. A record is a
 * function that starts kernels, and its arguments. Launching a step and capturing it as a CUDA
 * graph walk through the same list (launch.h).
 *
 * Each window of ops has records for each size of steps (step_size.h), of which a step starts those
 * for its rows of the class. */
#ifndef CUDA_RECORD_H
#define CUDA_RECORD_H

#include "backend/cuda/kernels.h"
#include "backend/cuda/step_size.h"
#include "base/status.h"

/* What is known of the rows of a launch only when a step is there. */
struct launch_rows {
    int32_t n;        /* of the record's row class, at least 1 */
    int32_t n_decode; /* the first of them: single new tokens of their sequences */
    int32_t n_runs;   /* the others are at most this many runs (types.h: struct step_view) */
};

/* Starts kernels on the queue. `args`: the record's. */
typedef void start_fn(const struct queue *q, const void *args, struct launch_rows rows);

/* For the profile: what was done by the records since the last mark. */
struct record_mark {
    const char *kind; /* NULL: a later record's mark includes this one */
    int32_t n_w;      /* of products: the weights, ... */
    const struct weight *w[3];
    int32_t n_used;         /* ... the experts of a row (else 1), ... */
    enum act_kind operands; /* ... and what is multiplied */
};

struct record {
    start_fn *start;
    const void *args;
    const struct op *op; /* the window's first, for messages */
    enum row_class rows_class;
    enum step_size size;
    struct record_mark mark;
};

struct records {
    struct record *all; /* NULL: only counted */
    int32_t n;
    char *args; /* of all records, one after the other */
    size_t args_bytes;
};

/* Appends a record with a copy of its arguments, or counts it. */
void records_add(struct records *r, struct record record, const void *args, size_t args_bytes);

/* The mark of the record that was added last. */
void records_mark(struct records *r, struct record_mark mark);

/* Memory for as many records and arguments as were counted; none of them is there yet. */
int records_init(struct records *r, const struct records *counted, struct carat_error *err);
void records_deinit(struct records *r);

#endif
