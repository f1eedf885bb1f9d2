/* The device's own limits, with which times are compared. */
#ifndef CUDA_LIMITS_H
#define CUDA_LIMITS_H

#include "backend/cuda/device.h"

/* See backend.h. Takes up to 2.4 GB for a moment. */
void cuda_measure_limits(struct device *d, size_t room, struct device_limits *out);

#endif
