/* The forward pass of Gemma 4, recorded as a plan: the one place where its math is spelled. */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "model/split.h"
#include "model/weights.h"
#include "plan/plan.h"

static inline enum kv_kind gemma_kv_kind(const struct gemma_config *c, int32_t l)
{
    return c->layer[l].is_global ? KV_GLOBAL : KV_LOCAL;
}

/* Pages that a sequence's table needs room for, if a step has at most `rows` rows of it. */
int32_t gemma_kv_slots(const struct gemma_config *c, enum kv_kind kind, int32_t n_ctx,
                       int32_t rows);

/* Records the whole pass, from token ids to softcapped logits (`logits` of the plan, of the output
 * rows). Each op has the site that `split` says, and reads that site's weights, w[site]. There is
 * one cache for each layer that owns keys, in layer order. */
void gemma_forward(struct plan *p, const struct gemma_config *c, const struct weights *const *w,
                   const struct split *split);

#endif
