/* A matrix (or a stack of expert matrices, or a vector) of the model: a view that owns nothing.
 * C and CUDA common subset. */
#ifndef PLAN_WEIGHT_H
#define PLAN_WEIGHT_H

#include <stddef.h>
#include <stdint.h>

#include "quant/format.h"

struct weight {
    const char *name;
    enum format format;
    int32_t n_expert;    /* matrices in the stack; 1 for an ordinary one */
    int64_t rows, cols;  /* y = W x: `rows` values from `cols` values, a row is contiguous */
    size_t row_bytes;    /* from one row to the next */
    size_t expert_bytes; /* from one matrix of the stack to the next */
    const void *data;    /* host memory: the mapped file or the model's arena */
    void *device_data;   /* what the backend made of it (weight_load); NULL before */
};

#endif
