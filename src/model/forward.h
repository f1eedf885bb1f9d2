/* The forward pass of Gemma 4, recorded as a plan: the one place where its math is spelled. */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "model/split.h"
#include "model/weights.h"
#include "plan/plan.h"

/* Cells that a sequence needs in the cache of layer l, if a step has at most `rows` rows of it. */
int32_t gemma_kv_capacity(const struct gemma_config *c, int32_t l, int32_t n_ctx, int32_t rows);

/* Records the whole pass, from token ids to softcapped logits (`logits` of the plan, of the output
 * rows). Each op has the site that `split` says, and reads that site's weights, w[site]. There is
 * one cache for each layer that owns keys, in layer order. */
void gemma_forward(struct plan *p, const struct gemma_config *c, const struct weights *const *w,
                   const struct split *split);

#endif
