/* Gemma 4 files from a description: the shapes of the five models and their drafters, the keys
 * that describe a shape, and the list of its tensors. The tiny models of the tests and random-model
 * share it; they differ only in where the numbers come from. */
#ifndef SUPPORT_GEMMA_FILE_H
#define SUPPORT_GEMMA_FILE_H

#include "base/rng.h"
#include "support/gguf_writer.h"

enum gemma_size { GEMMA_E2B, GEMMA_E4B, GEMMA_12B, GEMMA_26B, GEMMA_31B, GEMMA_SIZES };

struct gemma_shape {
    const char *name;
    int n_layer;
    int period; /* layer l is global when (l + 1) % period == 0 */
    int n_embd, n_ff;
    int n_ff_tail; /* FFN width of the layers that share K/V; 0: as the others */
    int n_head, n_kv_local, n_kv_global;
    int head_local, head_global;
    int window;
    int n_shared; /* trailing layers without K/V of their own */
    int n_ple;    /* width of per-layer embeddings, 0: none */
    bool k_eq_v;  /* global layers have no attn_v */
    int n_expert, n_expert_used, n_ff_expert;
    int n_ctx, n_vocab;
    struct {
        int n_embd, n_ff, n_head;
    } drafter;
    int n_embd_out; /* of a drafter: its target's n_embd; 0: not a drafter */
};

/* The real shape, and a small one with the same kinds of layers (below 1 MB when quantised, 2 MB
 * in F32; head sizes 16 and 32; every row a multiple of 32). Copy and change as needed. */
struct gemma_shape gemma_true_shape(enum gemma_size size);
struct gemma_shape gemma_tiny_shape(enum gemma_size size);
struct gemma_shape gemma_drafter_shape(const struct gemma_shape *target);
bool gemma_size_from_name(const char *name, enum gemma_size *out); /* "e2b", "26b-a4b", "26b" */

/* Types of the tensors, and what to leave out. */
struct gemma_layout {
    enum format matrix;      /* everything that is not named below */
    enum format value, down; /* attn_v; ffn_down */
    enum format expert_down;
    enum format token_embd, ple_embd;
    enum format ple_proj, ple_gate; /* per_layer_model_proj; inp_gate and proj */
    bool keep_shared_kv;            /* K/V tensors of layers that do not use them */
    bool separate_experts;          /* ffn_gate_exps and ffn_up_exps instead of the fused tensor */
    bool no_layer_scale, no_expert_scale;

    /* A target and a drafter that agree. Layers add nothing to their input, so that the target's
     * next token depends on the newest one alone. Its output.weight is zero but for the first
     * columns, and the drafter's token_embd has these columns in `agreement` percent of its rows.
     * The others are zero: the drafter never guesses these tokens. */
    bool is_simple;
    int agreement;
    enum format output; /* of both tables */
};

/* The types that published files have; see gemma_file.c. Where a row is not a whole number of
 * blocks, a type with smaller blocks is taken instead. */
struct gemma_layout gemma_layout_for_format(enum format main);

/* Every tensor the same: for tests of a format. */
struct gemma_layout gemma_layout_plain(enum format format);

enum gemma_draw {
    DRAW_NORMAL,  /* mean, spread */
    DRAW_UNIFORM, /* mean - spread to mean + spread */
    DRAW_ROPE,    /* 1 for the rotated quarter of the pairs, then 1e30 */
    DRAW_IDENTITY,
    DRAW_COMMON /* normal, and the same in every file: see n_drawn */
};

struct gemma_tensor {
    char name[64];
    enum format format;
    int n_dims;
    int64_t dims[GGUF_DIMS_MAX];
    enum gemma_draw draw;
    float mean, spread;
    int64_t n_drawn; /* DRAW_COMMON: the first columns; the others are zero */
    int agreement;   /* DRAW_COMMON: percent of the rows; the others are zero */
};

/* Calls `take` for every tensor in file order. */
typedef void (*gemma_tensor_fn)(void *user, const struct gemma_tensor *tensor);
void gemma_tensors(const struct gemma_shape *shape, const struct gemma_layout *layout,
                   gemma_tensor_fn take, void *user);

/* Whether a row of a DRAW_COMMON tensor is not zero. */
bool gemma_row_is_drawn(const struct gemma_tensor *tensor, int64_t row);

/* Draws the tensor's n values. */
void gemma_draw_values(struct rng *r, const struct gemma_tensor *tensor, float *values, int64_t n);

/* All keys but the tokenizer's. */
void gemma_put_keys(struct gguf_writer *w, const struct gemma_shape *shape);

/* The tokenizer's keys: the real special ids, newline and space runs, byte tokens and single
 * characters, and made-up words with one merge each. 262144 tokens are laid out as in the
 * real vocabulary, fewer (at least 640) with the characters after the byte tokens. */
void gemma_put_vocabulary(struct gguf_writer *w, int n_vocab);

#endif
