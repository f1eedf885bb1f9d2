/* Products of rows with weights: which kernel, and what it reads. A few rows (decode) go through
 * the matrix-vector kernels, which read each weight once; many rows through matrix products in fp16
 * or 8 bits; exact ones through fp32. */
#ifndef CUDA_LOWER_PRODUCT_H
#define CUDA_LOWER_PRODUCT_H

#include "backend/cuda/lowering.h"

/* y[k] = w[k] x for up to three weights of the same input, whatever their layouts. */
void lower_multiply(struct lowering *l, int32_t n_w, const struct weight *const *w, struct input x,
                    float *const *y);

/* The same of one weight, with all values capped as SOFTCAP does it. */
void lower_multiply_capped(struct lowering *l, const struct weight *w, struct input x, float cap,
                           float *y);

/* The same of one weight. The reader of y multiplies its rows by the factors that are returned;
 * NULL: they are finished. */
const float *lower_multiply_unscaled(struct lowering *l, const struct weight *w, struct input x,
                                     float *y);

/* Whether lower_multiply_half takes these weights and rows. */
bool lower_takes_half(struct lowering *l, int32_t n_w, const struct weight *const *w, struct act x);

/* The same through fp16 into one fp16 matrix, side by side, without the row scale. */
void lower_multiply_half(struct lowering *l, int32_t n_w, const struct weight *const *w,
                         struct act x, uint16_t *half);

/* Whether lower_multiply_gated takes gate and up, or gate alone, in fp16 on tiles. */
bool lower_takes_gated(struct lowering *l, int32_t n_w, const struct weight *const *w, struct act x,
                       struct act hidden);

/* gelu(w[0] x) times w[1] x, or times `by` if n_w = 1, to `hidden`, in one launch. scale: of all
 * rows, if n_w = 2 (bounds.h). */
void lower_multiply_gated(struct lowering *l, int32_t n_w, const struct weight *const *w,
                          struct act x, struct act hidden, float scale, const float *by,
                          int32_t by_cols);

/* Gate w[0] and up w[1] through fp16, then `gelu`: in one launch where the kernel for it is there,
 * else by way of `half` (lower_half_outputs). scale: bounds.h. */
void lower_multiply_gelu(struct lowering *l, const struct weight *const *w, struct act x,
                         float scale, const struct gelu_mul_args *gelu, uint16_t *half);

/* The window's last product, into its plan buffer: in fp16 when the next window is a norm and the
 * only reader, which then multiplies by the rows' scales itself; else in fp32. */
void lower_multiply_last(struct lowering *l, const struct weight *w, struct input x);

/* fp32 rows of the outputs of n ops, in the window's scratch. */
void lower_outputs(struct lowering *l, const struct op *ops, int32_t n, float **y);

/* An fp16 matrix with the outputs of n ops side by side, the same. */
uint16_t *lower_half_outputs(struct lowering *l, const struct op *ops, int32_t n);

#endif
