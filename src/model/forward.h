/* The forward pass of Gemma 4 and that of its drafters, recorded as plans: the one place where
 * their math is spelled. */
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

/* A drafter, whose layers have queries only: each reads the keys and values of the model's last
 * layer of its kind that owns any. So it needs no prompt.
 *
 *     x = W_pre (sqrt(n_embd) E[id], h)     E: the model's table
 *     ... layers as in the model ...
 *     y = norm(x);  logits = E_drafter y;  h' = W_post y
 *
 * h is the model's `hidden` of the row that gave the newest token, or h' of the guess before. That
 * token, `id`, is at position p + 1 if p is the position in the step: the last one whose keys and
 * values are cached. p is the same for all guesses that follow each other (as in Hugging Face's
 * gemma4_assistant). */
struct drafter_parts {
    const struct gemma_config *config;
    const struct weights *const *weights, *const *model_weights; /* by site */
    const struct split *split;                                   /* of the model */
};

/* Records a pass of a drafter. Its rows h (and, without `model_weights`, those of the embedding)
 * are handed in (INPUTs from outside); results are `logits` and h', `hidden`. The plan is one that
 * wants all rows. Each layer is on the site of the keys that it reads. */
void gemma_draft(struct plan *p, const struct drafter_parts *d);

#endif
