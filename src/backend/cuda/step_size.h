/* Steps by how many rows of a class they have. A window has records for each size: products, and
 * what goes with them, differ. */
#ifndef CUDA_STEP_SIZE_H
#define CUDA_STEP_SIZE_H

#include "backend/cuda/crowd.h"
#include "backend/cuda/device.h"

/* Up to MATVEC_ROWS_MAX rows are a few. If tiles are multiplied in fp16, the fewest rows may still
 * take 8 bits, and there are crowds: more rows than a few that all decode, or whose logits are
 * wanted. Their products read tiles as those of a few do, or mirrors as those of many, whichever is
 * faster (lowering.c). */
enum step_size { STEP_FEWEST, STEP_FEW, STEP_CROWD, STEP_LARGE_CROWD, STEP_MANY, STEP_SIZES };

static inline bool is_crowd(enum step_size size)
{
    return size == STEP_CROWD || size == STEP_LARGE_CROWD;
}

/* The most rows of a size. If they are not more than those of the size before, there are no steps
 * of this size. */
static inline int32_t step_size_rows(const struct device *d, enum step_size size)
{
    if (size == STEP_FEWEST) return d->half_least > 0 ? d->half_least - 1 : 0;
    if (size == STEP_CROWD && d->half_least > 0) return CROWD_PASS;
    if (size == STEP_LARGE_CROWD && d->half_least > 0) return CROWD_ROWS_MAX;
    return size == STEP_MANY ? STEP_ROWS_MAX : MATVEC_ROWS_MAX;
}

/* Where prompts are computed alike, a step with prompt rows counts as many rows, however few they
 * are. Rows whose logits are wanted still count as a few or a crowd, as in decode steps. */
static inline enum step_size step_size_for(const struct device *d, enum row_class c, int32_t n_rows,
                                           bool has_prompts)
{
    enum step_size size = STEP_FEWEST;
    bool is_prompt = has_prompts && c == ROWS_TOKEN;
    if (is_prompt && d->has_alike_prompts) return STEP_MANY;
    while (size < STEP_MANY && n_rows > step_size_rows(d, size)) size++;
    return is_prompt && is_crowd(size) ? STEP_MANY : size;
}

#endif
