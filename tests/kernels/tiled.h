/* Random weights of a format in the CPU backend's tiles, for checks of its kernels. */
#ifndef KERNELS_TILED_H
#define KERNELS_TILED_H

#include "backend/cpu/kernels.h"

struct tiled {
    struct weight source;
    struct cpu_weight weight;
    float *decoded; /* rows x cols */
};

/* Normal values. Extreme: all codes are the largest or smallest of the format. Ends the program if
 * there is no memory. */
void tiled_open(struct tiled *t, const struct cpu_kernels *k, enum format format, int64_t rows,
                int64_t cols, bool is_extreme);
void tiled_close(struct tiled *t);

/* n normal values times `spread`. */
float *random_floats(int64_t n, float spread, uint64_t seed);

/* Whether column c of row r has the high one of two signs. Rows follow a few patterns: constant,
 * alternating every 1, 2, 4, 16 or 32 columns, or random. */
bool is_high(int64_t r, int64_t c);

#endif
