#include "cli/distribution.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_numbers(double *values, size_t n)
{
    if (n > 1) qsort(values, n, sizeof *values, compare);
}

/* The value that a share p of the values does not exceed, interpolated between two values. */
static double quantile(const double *sorted, size_t n, double p)
{
    double place = p * (double)(n - 1);
    size_t below = (size_t)place;
    if (below + 1 >= n) return sorted[n - 1];
    return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}

struct distribution distribution_of(double *values, size_t n)
{
    struct distribution s = {.n = n};
    if (n == 0) return s;
    double squares = 0;
    sort_numbers(values, n);
    for (size_t i = 0; i < n; i++) s.mean += values[i] / (double)n;
    for (size_t i = 0; i < n; i++) squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.deviation = sqrt(squares / (double)n);
    s.p50 = quantile(values, n, 0.5);
    s.p90 = quantile(values, n, 0.9);
    s.p99 = quantile(values, n, 0.99);
    s.most = values[n - 1];
    return s;
}
