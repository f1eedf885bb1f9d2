/* The weights of a model: every tensor of tensor_list.h bound to its place in the mapped file, its
 * shape compared with what the configuration implies, and the few vectors that are computed once at
 * load (rotation frequencies, router scale, norms of heads where there is no V).
 *
 * Owner: the arena given to weights_bind. The struct gguf must outlive it. Read-only after bind
 * except `device_data`, which the backend fills in. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "base/arena.h"
#include "base/buf.h"
#include "model/config.h"
#include "model/tensor_list.h"
#include "plan/weight.h"

struct layer_weights {
#define X(field, name, rows, cols, n_expert, need) struct weight *field; /* NULL: absent */
    LAYER_TENSOR_LIST(X)
#undef X
    struct weight *router_input_scale; /* router_scale / sqrt(n_embd) */
    float out_scale;                   /* layer_scale, 1 when absent */
};

struct weights {
#define X(field, name, rows, cols, n_expert, need) struct weight *field;
    MODEL_TENSOR_LIST(X)
#undef X
    struct weight *rope_local, *rope_global;       /* radians per position, for each pair */
    struct weight *ple_proj_trunk, *ple_proj_tail; /* rows of ple_proj; see forward.c */
    /* How many columns of a global head have keys that differ from the values, in layers without a
     * V, as kv_share wants it; 0: all. */
    int32_t turned;
    struct layer_weights *layer;
    struct weight *all; /* every weight a backend has to see, in one array */
    int32_t n_all;
    int64_t n_params;      /* of the bound tensors */
    uint64_t bytes_mapped; /* of the bound tensors */
};

/* CARAT_EFORMAT names the tensor, the shape or type expected and found. `note` gets one sentence
 * that counts what is skipped (unknown extra tensors, K/V of layers that share), or stays empty. */
int weights_bind(struct weights *w, const struct gemma_config *c, const struct gguf *g,
                 struct arena *arena, struct buf *note, struct carat_error *err);

/* A file with its facts, and views of its weights. */
struct weights_file {
    const struct gemma_config *config;
    const struct gguf *gguf;
    const struct weights *weights;
};

/* The same for a drafter of `model`, whose config is of config_read_drafter. */
int weights_bind_drafter(struct weights *w, const struct gemma_config *c, const struct gguf *g,
                         const struct weights_file *model, struct arena *arena, struct buf *note,
                         struct carat_error *err);

#endif
