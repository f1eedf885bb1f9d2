/* Tiny Gemma 4 models with random weights: every kind of layer, small, from a seed. */
#ifndef SUPPORT_TINY_MODEL_H
#define SUPPORT_TINY_MODEL_H

#include "carat_status.h"
#include "support/gemma_file.h"

struct tiny_options { /* zero: E2B in F32, seed 0 */
    enum gemma_size size;
    enum format format; /* of all matrices, where rows allow it: see gemma_layout_plain */
    uint64_t seed;
    bool keep_shared_kv, separate_experts, no_layer_scale, no_expert_scale;
    bool is_simple; /* a target and a drafter that agree: see struct gemma_layout */
    int agreement;  /* of a simple drafter, in percent */
};

/* Puts all keys and tensors into an empty writer; change what a test needs, then save. */
void tiny_model_put(struct gguf_writer *w, const struct tiny_options *options);

/* The drafter of the model that the same options give. */
void tiny_drafter_put(struct gguf_writer *w, const struct tiny_options *options);

/* A model or drafter of any shape and layout. */
void tiny_model_put_shape(struct gguf_writer *w, const struct gemma_shape *shape,
                          const struct gemma_layout *layout, uint64_t seed);

int tiny_model_save(const char *path, const struct tiny_options *options, struct carat_error *err);
int tiny_drafter_save(const char *path, const struct tiny_options *options,
                      struct carat_error *err);

#endif
