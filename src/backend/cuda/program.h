/* A plan bound to a device: what cuda.c puts into the backend's table, and what stages share. */
#ifndef CUDA_PROGRAM_H
#define CUDA_PROGRAM_H

#include "backend/cuda/device.h"

int cuda_bind(struct device *d, const struct plan *plan, const struct placement *placement,
              void *memory, void *scratch, struct program **out, struct carat_error *err);
void cuda_unbind(struct program *p);
void cuda_run(struct program *p, const struct step *step);
int cuda_best(struct program *p, int32_t row, const struct logit_pair **out);

/* Launches of a step of so many rows of both classes; the step's arrays are in d->step_host. */
void program_launch(struct program *p, const int32_t rows_of[ROW_CLASS_COUNT]);

/* Rows of a buffer in device memory; NULL for BUF_NONE. */
static inline float *program_floats(const struct program *p, buf_id id)
{
    if (id == BUF_NONE) return NULL;
    return (float *)(void *)(p->memory + plan_buf_at(p->plan, id)->offset);
}

#endif
