/* The facts of one Gemma 4 model, read from GGUF metadata. The five sizes differ in nothing but
 * these data. After config_read succeeds, the rest of the engine relies on every field.
 *
 * A drafter is a few layers without keys, trained to guess what its model will say
 * (forward.h). */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "gguf/gguf.h"

enum { LAYERS_MAX = 256 };

struct layer_spec {
    bool is_global; /* attends to everything before it; else to `window` positions */
    bool has_kv;    /* owns a cache; false in the KV-shared tail */
    bool k_eq_v;    /* no attn_v: V is the raw K projection */
    int32_t head_dim, n_heads, n_kv_heads, n_ff;
    int32_t window; /* 0 for global layers */
    int32_t
        kv_layer; /* whose cache it reads: its own index, or its donor's; a drafter's: a layer of
                         its model */
};

struct gemma_config {
    int32_t n_layer, n_embd, n_vocab, n_ctx_train;
    int32_t n_kv_layer;                           /* layers 0 .. n_kv_layer - 1 own a cache */
    int32_t n_backbone;                           /* a drafter's: width of its model; else 0 */
    int32_t n_ple;                                /* per-layer embedding width, 0: none */
    int32_t n_expert, n_expert_used, n_ff_expert; /* 0: a dense model */
    int32_t head_dim_global, head_dim_local, window;
    float rms_eps, rope_base_global, rope_base_local, softcap;
    struct layer_spec layer[LAYERS_MAX];
};

/* Reads and checks. CARAT_EFORMAT names the key, what was expected and what was found. */
int config_read(struct gemma_config *c, const struct gguf *g, struct carat_error *err);

/* The same for a drafter of `model`, which has to fit. */
int config_read_drafter(struct gemma_config *c, const struct gguf *g,
                        const struct gemma_config *model, struct carat_error *err);

/* Whether a file is a drafter for some model, in whichever form. */
bool config_is_drafter(const struct gguf *g);

/* "E2B", "E4B", "12B", "26B-A4B", "31B", or "other": by shape, never by file name. */
const char *config_variant(const struct gemma_config *c);

#endif
