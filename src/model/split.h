/* Which site computes which layer, and which layers may be on different sites at all. For the model
 * a site is only a number; the engine knows which device it is. */
#ifndef MODEL_SPLIT_H
#define MODEL_SPLIT_H

#include "model/config.h"
#include "plan/plan.h"

struct split {
    /* The site of each layer, with its keys and values. What comes before layer 0 (embeddings, also
     * per-layer ones) is on layer 0's site; the head is on the last layer's. */
    uint8_t layer[LAYERS_MAX];
    uint8_t experts[LAYERS_MAX]; /* the site of each layer's routed experts */
};

/* The first n_layers[0] layers on site 0, the next n_layers[1] on site 1 and so on; the last site
 * takes what is left over. Experts are with their layers. */
struct split split_in_order(const struct gemma_config *c, const int32_t *n_layers, int32_t n_sites);

/* Site 0 and one more, which takes what is left over. At most n layers are on site 0: the last n,
 * with the head. If that would part layers of the tail from the donor of their keys, site 0 has the
 * first layers instead, at most those before the first donor. So every layer is on the site of the
 * keys that it reads. The experts of the first `n_experts` layers are on site 1, wherever their
 * layer is. */
struct split split_with_rest(const struct gemma_config *c, int32_t n, int32_t n_experts);

/* Whether every layer is on the site of the keys that it reads. */
bool split_is_sound(const struct gemma_config *c, const struct split *s);

int32_t split_count_layers(const struct gemma_config *c, const struct split *s, int32_t site);

/* Whether a site computes anything. */
bool split_uses(const struct gemma_config *c, const struct split *s, int32_t site);

#endif
