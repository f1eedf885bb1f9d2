/* A plan bound to a device: what cuda.c puts into the backend's table, and what stages share. */
#ifndef CUDA_PROGRAM_H
#define CUDA_PROGRAM_H

#include "backend/cuda/device.h"
#include "backend/cuda/windows.h"

enum { ACT_SLOTS = 4 };

/* Where things lie in a program's scratch memory; sizes for the plan's most rows. While weights are
 * loaded nothing runs, and their staging lies over all of it. */
struct scratch_layout {
    size_t step, slot, slot_bytes, inner, wide, mirror, experts, attention, topk, cublas;
    size_t cublas_bytes; /* 0: no product goes there */
    size_t total;
};

struct program {
    struct device *device;
    const struct plan *plan;
    char *memory, *scratch;
    struct scratch_layout at;
    struct window *windows;
    int32_t n_windows;
    uint8_t *needs; /* by buffer: NEEDS_* */
    struct step_view step;
    struct row_table *rows;     /* a table in the mapped file, or NULL */
    int32_t *row_slots;         /* where the step's rows of it are: in the place of their ids */
    int32_t rows_max;           /* of both classes: the stride of the step's arrays */
    int32_t n[ROW_CLASS_COUNT]; /* rows of the launches being made */
    int32_t n_decode;           /* of the token rows, those that are single new tokens */
    struct {
        buf_id id;
        struct act act;
    } slots[ACT_SLOTS];
    int next_slot;
    buf_id half_id; /* the buffer whose rows are fp16 at the moment, times half_scale */
    const float *half_scale;
    cudaGraphExec_t recorded[PLAN_USUAL_MAX]; /* of the plan's usual steps; NULL: launched */
};

enum { NEEDS_FLOATS = 1, NEEDS_ACT = 2 };

struct scratch_layout scratch_layout_of(const struct device *d, const struct plan *plan);

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
