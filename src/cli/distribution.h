/* The distribution of some numbers. */
#ifndef CLI_DISTRIBUTION_H
#define CLI_DISTRIBUTION_H

#include <stddef.h>

struct distribution {       /* n = 0: all 0 */
    double mean, deviation; /* of the values themselves, not an estimate from a sample */
    double p50, p90, p99;   /* interpolated linearly between two values, as NumPy does */
    double most;
    size_t n;
};

/* Sorts the values. None may be NaN. */
struct distribution distribution_of(double *values, size_t n);
void sort_numbers(double *values, size_t n);

#endif
