/* What the stages share: products of rows, and rows prepared for them. */
#ifndef CUDA_STAGES_H
#define CUDA_STAGES_H

#include "backend/cuda/act.h"
#include "backend/cuda/loaded.h"
#include "backend/cuda/program.h"
#include "backend/cuda/weight_use.h"

/* Rows of the launch for the class of a buffer. */
enum row_class class_of(const struct program *p, buf_id id);
struct rows rows_of_class(const struct program *p, enum row_class c);

/* A table and the step to look it up with: for one in the mapped file, slots of its cache stand for
 * ids. */
struct cuda_weight table_of(const struct program *p, const struct weight *w,
                            struct step_view *step);

/* The view of a weight as kernels take it. */
struct cuda_weight view_of(const struct weight *w);
const float *floats_of(const struct weight *w); /* a vector; NULL for NULL */

/* What a product of `n` rows with w reads: ACT_NONE means fp32 rows. */
enum act_kind kind_for(const struct program *p, const struct weight *w, int32_t n);

/* A slot for the activations of a buffer, to be written by the caller's launch. */
struct act act_take(struct program *p, buf_id id, enum act_kind kind);

/* Activations of a buffer for products with w: those that are there, else made from its floats. */
struct act act_of(struct program *p, buf_id id, const struct weight *w);

/* Rows to multiply: fp32 and, where kind_for says so, activations; of a second kind too where the
 * weights are mixed. */
struct input {
    const float *floats;
    struct act act, other;
};

/* What a product reads of a buffer: activations where its weights want them, floats else. A product
 * of mixed weights may want several. */
struct input input_of(struct program *p, buf_id id, int32_t n_w, const struct weight *const *w);

/* y[k] = w[k] x for up to three weights of the same input, whatever their layouts. */
void multiply(struct program *p, enum row_class c, int32_t n_w, const struct weight *const *w,
              struct input x, float *const *y);

/* The same through fp16 into one fp16 matrix, side by side, without the row scale. False when the
 * weights are not all for this way: nothing was done. */
bool multiply_half(struct program *p, enum row_class c, int32_t n_w, const struct weight *const *w,
                   struct act x, uint16_t *half);

/* For the profile: what was launched since the last mark; of products what they read. */
void mark(struct program *p, const char *kind);
void mark_product(struct program *p, const char *kind, int32_t n_w, const struct weight *const *w,
                  int32_t n_rows, enum act_kind operands);

/* Launches a window for p->n rows. */
void stage_run(struct program *p, const struct window *w);

void stage_attention(struct program *p, const struct op *op, float *y, struct act act);
void stage_route(struct program *p, const struct window *w);
void stage_choice(struct program *p, const struct op *op, const float *z); /* ROUTE of logits z */
void stage_experts(struct program *p, const struct window *w);
void stage_expert(struct program *p, const struct op *op); /* EXPERT_IN or EXPERT_OUT alone */
void stage_single(struct program *p, const struct op *op);

#endif
