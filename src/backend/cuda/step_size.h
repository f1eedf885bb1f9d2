/* Steps by how many rows of a class they have. A window has records for each size: products, and
 * what goes with them, differ. */
#ifndef CUDA_STEP_SIZE_H
#define CUDA_STEP_SIZE_H

#include "backend/cuda/device.h"

/* Up to MATVEC_ROWS_MAX rows are a few, or up to as many as are to be computed alike. If tiles are
 * multiplied in fp16, the fewest rows may yet take 8 bits. */
enum step_size { STEP_FEWEST, STEP_FEW, STEP_MANY, STEP_SIZES };

/* The most rows of a size; no more than of the size before it: there is no such one. */
static inline int32_t step_size_rows(const struct device *d, enum step_size size)
{
    if (size == STEP_FEWEST) return d->half_most > 0 ? d->half_least - 1 : 0;
    if (size == STEP_MANY) return STEP_ROWS_MAX;
    return d->half_most > MATVEC_ROWS_MAX ? d->half_most : MATVEC_ROWS_MAX;
}

static inline enum step_size step_size_for(const struct device *d, int32_t n_rows)
{
    enum step_size size = STEP_FEWEST;
    while (size < STEP_MANY && n_rows > step_size_rows(d, size)) size++;
    return size;
}

#endif
