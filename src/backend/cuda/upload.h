/* Rows of the mapped file on their way to the device: read by several threads into pinned buffers,
 * copied while the next are read, repacked by the device while the next are copied. */
#ifndef CUDA_UPLOAD_H
#define CUDA_UPLOAD_H

#include "backend/cuda/device.h"

struct upload;

int upload_open(struct upload **out, struct device *d, struct carat_error *err);
void upload_close(struct upload *u); /* waits for what is under way; NULL is fine */

/* All rows of `w` into its view's planes, rows or floats, which are allocated. */
int upload_weight(struct upload *u, const struct cuda_loaded *w, struct carat_error *err);

#endif
