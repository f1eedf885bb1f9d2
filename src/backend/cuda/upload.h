/* Rows of the mapped file on their way to the device: read by several threads into pinned buffers,
 * copied while the next are read, repacked by the device while the next are copied. */
#ifndef CUDA_UPLOAD_H
#define CUDA_UPLOAD_H

#include "backend/cuda/device.h"
#include "backend/cuda/loaded.h"

struct upload;

/* Device memory that is needed while the plan's weights are loaded. */
size_t upload_staging_bytes(const struct plan *plan);

/* `staging`: as many bytes of it; borrowed. Up to 64 MB of page-locked memory are taken too, and
 * given back by upload_close. */
int upload_open(struct upload **out, struct device *d, const struct plan *plan, char *staging,
                struct carat_error *err);
void upload_close(struct upload *u); /* waits for what is under way; NULL is fine */

/* All rows of `w` into its view's planes, rows or floats, which are allocated. */
int upload_weight(struct upload *u, const struct cuda_loaded *w, struct carat_error *err);

#endif
