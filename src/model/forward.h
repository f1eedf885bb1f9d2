/* The forward pass of Gemma 4, recorded as a plan: the one place where its math is spelled. */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "model/weights.h"
#include "plan/plan.h"

/* Cells a sequence needs in the cache of layer l for steps of at most `rows` rows of it. */
int32_t gemma_kv_capacity(const struct gemma_config *c, int32_t l, int32_t n_ctx, int32_t rows);

/* A pass is divided between two sites at most, which for all that is known here are plans: some
 * first or last layers are near, the others far; routed experts of the first layers may be far
 * wherever their layer is. What is in front of layer 0 (embeddings, the table of per-layer ones) is
 * where that is, the head where the last layer is. */
enum site { SITE_NEAR, SITE_FAR, SITE_COUNT };

struct split {
    int32_t near_begin, near_end; /* layers [near_begin, near_end) */
    int32_t far_experts;          /* experts of layers [0, far_experts) are far */
};

/* At most n near layers, so that every layer is on the site of the keys that it reads: the last n,
 * with the head; where that would part layers of the tail from a donor, as many as there are before
 * the first donor. */
struct split gemma_split(const struct gemma_config *c, int32_t n, int32_t far_experts);

static inline int32_t split_n_near(const struct split *s)
{
    return s->near_end - s->near_begin;
}

enum site gemma_site(const struct split *split, int32_t l);
/* Whether anything runs on the site. */
bool gemma_uses(const struct gemma_config *c, const struct split *split, enum site site);

/* Records the whole pass, from token ids to softcapped logits (`logits` of the last layer's plan,
 * of the output rows), into plans[site] with weights w[site] of each site that is used. Caches are
 * one for each layer that owns keys, in layer order. */
void gemma_forward(struct plan *plans, const struct gemma_config *c, const struct weights *const *w,
                   const struct split *split);

#endif
