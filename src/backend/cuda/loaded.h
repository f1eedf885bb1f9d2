/* What the device remembers of a weight. */
#ifndef CUDA_LOADED_H
#define CUDA_LOADED_H

#include "backend/cuda/types.h"

struct row_table; /* row_table.h */

/* What products with a weight want of their rows. */
struct precision {
    bool is_fine;     /* more than 8 bits (plan/op.h) */
    bool is_half;     /* of many rows: fp16 at least, also where others take 8 bits */
    bool is_for_outs; /* all of them are rows whose logits are wanted */
    bool is_head;     /* results are logits */
};

/* weight->device_data. */
struct cuda_loaded {
    struct cuda_weight view; /* quants NULL: not on the device yet */
    const struct weight *source;
    struct precision precision;
    bool is_pinned;         /* a table in page-locked host memory */
    struct row_table *rows; /* a table in the mapped file: quants is its cache; else NULL */
    float hidden_scale;     /* of a gate matrix: bounds.h; 0: not known */
};

/* NULL before weight_load. */
static inline struct cuda_loaded *loaded_weight(const struct weight *w)
{
    return w->device_data;
}

static inline bool weight_is_there(const struct weight *w)
{
    return w->device_data && loaded_weight(w)->view.quants;
}

#endif
