/* Steps by how many rows of a class they have. A window has records for each size: products, and
 * what goes with them, differ. */
#ifndef CUDA_STEP_SIZE_H
#define CUDA_STEP_SIZE_H

#include "backend/cuda/device.h"

/* Up to MATVEC_ROWS_MAX rows are a few. If tiles are multiplied in fp16, the fewest rows may yet
 * take 8 bits. */
enum step_size { STEP_FEWEST, STEP_FEW, STEP_MANY, STEP_SIZES };

/* The most rows of a size; no more than of the size before it: there is no such one. */
static inline int32_t step_size_rows(const struct device *d, enum step_size size)
{
    if (size == STEP_FEWEST) return d->half_least > 0 ? d->half_least - 1 : 0;
    return size == STEP_FEW ? MATVEC_ROWS_MAX : STEP_ROWS_MAX;
}

/* Where prompts are computed alike, a step that has rows of them is one of many, however few there
 * are. Rows whose logits are wanted are a few even so, as steps that decode are. */
static inline enum step_size step_size_for(const struct device *d, enum row_class c, int32_t n_rows,
                                           bool has_prompts)
{
    enum step_size size = STEP_FEWEST;
    if (has_prompts && d->has_alike_prompts && c == ROWS_TOKEN) return STEP_MANY;
    while (size < STEP_MANY && n_rows > step_size_rows(d, size)) size++;
    return size;
}

#endif
