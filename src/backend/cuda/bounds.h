/* How large gelu(gate) * up can be: so that it can leave a product as fp16, with a scale that is
 * known before the first row is.
 *
 * Where the rows h were normed, h = x * w with |x| <= sqrt(cols), w the norm's weights. So gate's
 * result i is at most sqrt(cols) |Wg_i * w|, up's the same, and neuron i at most
 *     b_i = cols |Wg_i * w| |Wu_i * w|,
 * result j of down at most the sum over i of |Wd_ji| b_i. The scale is a power of two, and all
 * these are at most 2^15 times as large. So neither the activations of down nor its results
 * overflow in fp16. The bound is loose, by 2^8 for normally distributed numbers. That costs
 * nothing: fp16 has all its bits down to 2^-14 and steps of 2^-24 below, and what counts is a
 * value's error against the largest of its row. */
#ifndef CUDA_BOUNDS_H
#define CUDA_BOUNDS_H

#include "backend/cuda/device.h"

/* Whether the scale will be known once weights are there; only the plan is looked at. ops: gate,
 * up, gelu and down of a dense window. */
bool bounds_know(const struct plan *plan, const struct op *ops);

/* The scale; 0 before weights are there. */
float bounds_scale(const struct op *ops);

size_t bounds_scratch_bytes(const struct plan *plan);

/* Finds the scales of the plan's windows, on Hopper: other chips have no reader. After weights were
 * loaded; waits for the device. */
int bounds_make(struct device *d, const struct plan *plan, void *scratch, struct carat_error *err);

#endif
