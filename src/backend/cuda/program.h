/* A plan bound to a device: its records (lower.h) are launched one by one, or captured once for
 * usual steps as CUDA graphs and replayed. Everything that changes from step to step is in the
 * step's arrays, which are copied to the device first; in a graph that copy is the first node. */
#ifndef CUDA_PROGRAM_H
#define CUDA_PROGRAM_H

#include "backend/cuda/device.h"
#include "backend/cuda/lower.h"

struct program {
    struct device *device;
    const struct plan *plan;
    struct lowered lowered;
    int32_t rows_max;                         /* of both classes: the stride of the step's arrays */
    struct row_table *rows;                   /* a table in the mapped file, or NULL */
    cudaGraphExec_t recorded[PLAN_USUAL_MAX]; /* of the plan's usual steps; NULL: launched */
};

/* See backend.h. */
size_t cuda_scratch_bytes(const struct device *d, const struct plan *plan);
int cuda_bind(struct device *d, const struct plan *plan, const struct placement *placement,
              void *memory, void *scratch, struct program **out, struct carat_error *err);
void cuda_unbind(struct program *p);
void cuda_run(struct program *p, const struct step *step);
int cuda_best(struct program *p, int32_t row, const struct logit_pair **out);
void cuda_best_allowed(struct program *p, int32_t n, const int32_t *rows, const uint64_t *masks);

#endif
