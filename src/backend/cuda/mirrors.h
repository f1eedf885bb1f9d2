/* fp16 copies of weights, for products of many rows: as many, in the order of the plan, as there is
 * room for. */
#ifndef CUDA_MIRRORS_H
#define CUDA_MIRRORS_H

#include "backend/cuda/device.h"

size_t weight_mirror_bytes(const struct weight *w);

/* Whether crowds (step_size.h) read mirrors where there are any. If all steps that decode are to
 * compute alike, they read tiles, as a few rows do. */
bool crowds_read_mirrors(const struct device *d);

/* Whether token rows are multiplied with a matrix so large that its mirror takes longer to read
 * than its tiles to unpack, in steps of 65 to 128 rows. */
bool mirrors_are_large(const struct plan *plan);

/* Bytes of those mirrors, of all that a plan wants and that are not there yet, that fit into
 * `limit`. */
size_t mirrors_bytes(const struct device *d, const struct plan *plan, size_t limit);

/* Makes those that were decided on. The weights are there. */
int mirrors_make(struct device *d, const struct plan *plan, const struct placement *placement,
                 struct carat_error *err);

#endif
