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

/* Bytes of one matrix; and from the first row of the stack to the end of its last matrix. Matrices
 * of a stack may lie apart, as the halves of a fused one do. */
static inline size_t weight_matrix_bytes(const struct weight *w)
{
    return (size_t)w->rows * w->row_bytes;
}

static inline size_t weight_span(const struct weight *w)
{
    return (size_t)(w->n_expert - 1) * w->expert_bytes + weight_matrix_bytes(w);
}

#endif
