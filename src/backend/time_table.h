/* Where the time of steps goes: a row for each kind of work, and text for a person. */
#ifndef BACKEND_TIME_TABLE_H
#define BACKEND_TIME_TABLE_H

#include "backend/backend.h"

/* A piece of work: "matmul", "attention local" ... A product also has a weight (else NULL), whose
 * shape goes into the row's name, and the least bytes and operations that it needs, by the type of
 * its operands. No operations: fp32, which is far from any limit. */
struct time_work {
    const char *kind;
    const struct weight *weight;
    double bytes, int8_operations, fp16_operations;
    double code_operations; /* struct device_limits has a limit of its own for these */
};

struct time_row {
    char name[48];
    double seconds, bytes, int8_operations, fp16_operations, code_operations;
    int64_t count;
};

enum { TIME_ROWS_MAX = 64 };

struct time_table {
    struct time_row rows[TIME_ROWS_MAX]; /* the last row takes all that finds no room */
    int n_rows;
    int64_t steps;
    double seconds; /* wall */
};

struct time_tables {
    struct time_table prefill, decode;
};

void time_table_add(struct time_table *t, const struct time_work *work, double seconds);

/* Describes work on n_rows rows with n_w weights, named after the first weight. All experts that
 * the rows can choose are counted as read. Operations count as fp16 if is_fp16, else as int8 if
 * is_int8, else not at all. */
struct time_work time_work_for_weights(const char *kind, int32_t n_w, const struct weight *const *w,
                                       int32_t n_rows, bool is_int8, bool is_fp16);

/* Notes that a step has ended; `seconds`: its time as the host saw it. */
void time_table_end_step(struct time_table *t, double seconds);

/* The limits, then each table that has steps: the slowest work first, with its share of them. */
void time_tables_print(const struct time_tables *t, const struct device_limits *limits,
                       struct buf *out);

#endif
