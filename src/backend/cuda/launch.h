/* A step's launches: the walk through a program's records. */
#ifndef CUDA_LAUNCH_H
#define CUDA_LAUNCH_H

#include "backend/cuda/device.h"
#include "backend/cuda/record.h"
#include "backend/cuda/step_arrays.h"

/* Starts every record that is for this many rows. The first failure is kept in d->failure. */
void records_launch(struct device *d, const struct records *r, const struct step_rows *rows);

#endif
