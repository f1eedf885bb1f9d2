/* How long the device itself takes. */
#ifndef CUDA_TIMING_H
#define CUDA_TIMING_H

#include "backend/cuda/device.h"

/* What the device itself needs for `launch`, in seconds; 0 when that failed. */
double cuda_seconds(struct device *d, void (*launch)(const struct queue *q, void *user),
                    void *user);

#endif
