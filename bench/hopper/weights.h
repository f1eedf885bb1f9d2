/* Products with weights that L2 holds and with weights in memory. */
#ifndef BENCH_HOPPER_WEIGHTS_H
#define BENCH_HOPPER_WEIGHTS_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prints a table; rows to `csv` unless it is NULL. `stream`: a cudaStream_t. `is_rows`: more
 * numbers of rows up to 64, none beyond. */
void weights_run(void *stream, int n_sm, bool is_rows, FILE *csv);

#ifdef __cplusplus
}
#endif

#endif
