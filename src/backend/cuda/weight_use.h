/* How the ops of a plan use a weight, and what follows for its form on the device. Changes nothing,
 * and needs no weight to be there. */
#ifndef CUDA_WEIGHT_USE_H
#define CUDA_WEIGHT_USE_H

#include "backend/cuda/device.h"
#include "backend/cuda/loaded.h"

/* If neither is set, the weight is used as a vector. */
struct weight_use {
    bool is_product, is_table;
};

struct weight_use weight_use_in_plan(const struct plan *plan, const struct weight *w);

/* The precision that all products of a plan with w want. The first decision about a weight is
 * final: a plan that was cut may not show all its uses. */
struct precision weight_precision(const struct plan *plan, const struct weight *w);

enum cuda_layout layout_for(const struct device *d, const struct weight *w, struct weight_use use);

/* Whether a table stays in host memory and is read from there. */
bool is_pinned_at(enum table_place tables, struct weight_use use);

/* How kernels see a weight whose first plane is `memory`. */
struct cuda_weight weight_view(const struct weight *w, enum cuda_layout layout, char *memory);

/* A weight of products, as kernels see it. Before it is on the device: as it is going to be there,
 * without memory and as if it got no mirror. */
struct cuda_loaded product_foreseen(const struct device *d, const struct plan *plan,
                                    const struct weight *w);

/* Whether a product stays in fp32 also for many rows: what decides between near-equal values. */
bool is_multiplied_exactly(const struct weight *w);

/* Whether products take the kernels of a few rows for any number of them: fine ones of rows whose
 * logits are wanted. More than MATVEC_ROWS_MAX of those are rare, and a head's mirror is large. */
bool is_always_few(struct precision precision, enum format format);

/* Whether products with a float weight read its mirror in steps of a few rows too. */
bool reads_mirrors_early(const struct device *d, const struct weight *w);

/* Whether the rows of a product are those whose logits are wanted. */
bool is_for_outs(const struct plan *plan, const struct op *op);

/* Whether a product's results are logits, before their cap. */
bool makes_logits(const struct plan *plan, const struct op *op);

/* The weight of op i, unless an op before it has it too. */
const struct weight *weight_first_met(const struct plan *plan, int32_t i);

#endif
