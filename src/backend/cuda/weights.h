/* Weights on the device. A weight is registered by weight_load and put there by bind, when it is
 * known what it is used for: a matrix that products read is cut into tiles, a table that is only
 * looked up keeps the file's rows, a vector becomes floats. */
#ifndef CUDA_WEIGHTS_H
#define CUDA_WEIGHTS_H

#include "backend/cuda/device.h"

/* See backend.h. */
int cuda_weight_load(struct device *d, struct weight *weight, struct carat_error *err);
void cuda_weight_unload(struct device *d, struct weight *weight);

/* The table whose rows are copied to the device as the plan's steps need them. NULL: none. */
struct row_table *row_table_in_plan(const struct plan *plan);

/* Reads, copies and repacks those that are not there yet. `placement`: as decided; NULL: the least.
 * `staging`: device memory, upload_staging_bytes (upload.h), free again when it returns. */
int weights_upload(struct device *d, const struct plan *plan, const struct placement *placement,
                   char *staging, struct carat_error *err);

#endif
