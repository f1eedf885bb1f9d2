/* Types of files: which type each tensor of a Gemma gets in a "Q4_K_M". Where a small part of the
 * weights decides much (values, outputs of feed-forward layers, the table of tokens), better types
 * are worth their bytes. The names are llama.cpp's. The choice is close to llama.cpp's, but not the
 * same: it counts other layers, and has other types for per-layer inputs. */
#ifndef MODEL_MIXTURE_H
#define MODEL_MIXTURE_H

#include "gguf/gguf.h"
#include "model/config.h"

/* Layers whose values and feed-forward outputs get the better type. */
enum better_layers {
    BETTER_NONE,
    BETTER_FIRST, /* the first eighth */
    BETTER_SOME,  /* the first and the last eighth, and a third of the others */
    BETTER_ALL
};

struct mixture {
    const char *name;   /* "Q4_K_M" */
    uint32_t file_type; /* general.file_type */
    enum format base, better;
    enum better_layers layers;
    enum format tokens; /* of the table of tokens, which is also the head */
    enum format inputs; /* of the table of per-layer embeddings */
    enum format experts;
    enum format values;  /* FORMAT_COUNT: as `layers` says; else of all values */
    enum format outputs; /* of attention, likewise */
};

/* By index from 0; NULL after the last one. */
const struct mixture *mixture_at(int32_t index);

/* By name, in any case; NULL: there is none. */
const struct mixture *mixture_find(const char *name);

/* Returns the type that a tensor gets, or FORMAT_COUNT if it must keep the one that it has. With
 * is_pure all others get the same type. */
enum format mixture_format(const struct mixture *m, const struct gemma_config *c,
                           const struct gguf_tensor *t, bool is_pure);

/* Types of about two bits a weight and fewer, which are bad where nothing says what matters. */
bool mixture_needs_importance(enum format format);

/* The nearest type with blocks that fit in rows of so many values. */
enum format mixture_fit(enum format format, int64_t cols);

#endif
