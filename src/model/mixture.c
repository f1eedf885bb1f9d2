#include "model/mixture.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "quant/grid_blocks.h"

/* clang-format off */
/*   name        type  base    better  layers  tokens  inputs  experts */
#define MIXTURE_LIST(X)                                                \
    X("Q4_K_M",    15, Q4_K,   Q6_K,   SOME,   Q6_K,   Q5_K,   Q4_K)   \
    X("Q8_0",       7, Q8_0,   Q8_0,   NONE,   Q8_0,   Q8_0,   Q8_0)   \
    X("Q4_0",       2, Q4_0,   Q4_0,   NONE,   Q6_K,   Q4_0,   Q4_0)   \
    X("Q4_1",       3, Q4_1,   Q4_1,   NONE,   Q6_K,   Q4_1,   Q4_1)   \
    X("Q5_0",       8, Q5_0,   Q5_0,   NONE,   Q6_K,   Q5_0,   Q5_0)   \
    X("Q5_1",       9, Q5_1,   Q5_1,   NONE,   Q6_K,   Q5_1,   Q5_1)   \
    X("Q2_K",      10, Q2_K,   Q3_K,   ALL,    Q6_K,   Q3_K,   Q2_K)   \
    X("Q3_K_S",    11, Q3_K,   Q3_K,   NONE,   Q6_K,   Q3_K,   Q3_K)   \
    X("Q3_K_M",    12, Q3_K,   Q4_K,   ALL,    Q6_K,   Q4_K,   Q3_K)   \
    X("Q3_K_L",    13, Q3_K,   Q5_K,   ALL,    Q6_K,   Q5_K,   Q3_K)   \
    X("Q4_K_S",    14, Q4_K,   Q5_K,   FIRST,  Q6_K,   Q4_K,   Q4_K)   \
    X("Q5_K_S",    16, Q5_K,   Q5_K,   NONE,   Q6_K,   Q5_K,   Q5_K)   \
    X("Q5_K_M",    17, Q5_K,   Q6_K,   SOME,   Q6_K,   Q6_K,   Q5_K)   \
    X("Q6_K",      18, Q6_K,   Q6_K,   NONE,   Q6_K,   Q6_K,   Q6_K)   \
    X("IQ3_XXS",   23, IQ3_XXS, Q4_K,  FIRST,  Q6_K,   IQ3_S,  IQ3_XXS) \
    X("IQ3_S",     26, IQ3_S,  Q4_K,   FIRST,  Q6_K,   IQ3_S,  IQ3_S)  \
    X("IQ4_XS",    30, IQ4_XS, Q5_K,   FIRST,  Q6_K,   IQ4_XS, IQ4_XS) \
    X("IQ4_NL",    25, IQ4_NL, Q5_K,   FIRST,  Q6_K,   IQ4_NL, IQ4_NL) \
    X("MXFP4_MOE", 38, Q8_0,   Q8_0,   NONE,   Q8_0,   Q8_0,   MXFP4)  \
    X("F16",        1, F16,    F16,    NONE,   F16,    F16,    F16)    \
    X("BF16",      32, BF16,   BF16,   NONE,   BF16,   BF16,   BF16)   \
    X("F32",        0, F32,    F32,    NONE,   F32,    F32,    F32)

/* Types that need importance. The better type is that of the feed-forward outputs of the first
 * eighth of the layers. Values of all layers are Q4_K: they are few where heads share them, as in
 * Gemma.
 *   name        type  base     better  outputs  inputs */
#define LOW_MIXTURE_LIST(X)                            \
    X("IQ2_M",     29, IQ2_S,   IQ3_S,  IQ3_S,   IQ3_S) \
    X("IQ2_S",     28, IQ2_XS,  IQ3_S,  IQ3_S,   IQ3_S) \
    X("IQ2_XS",    20, IQ2_XS,  Q2_K,   IQ2_XS,  Q2_K)  \
    X("IQ2_XXS",   19, IQ2_XXS, Q2_K,   IQ2_XXS, Q2_K)  \
    X("IQ1_M",     31, IQ1_M,   Q2_K,   IQ2_XXS, Q2_K)  \
    X("IQ1_S",     24, IQ1_S,   Q2_K,   IQ2_XXS, Q2_K)
/* clang-format on */

static const struct mixture mixtures[] = {
#define X(name, type, base, better, layers, tokens, inputs, experts)                               \
    {name,                                                                                         \
     type,                                                                                         \
     FORMAT_##base,                                                                                \
     FORMAT_##better,                                                                              \
     BETTER_##layers,                                                                              \
     FORMAT_##tokens,                                                                              \
     FORMAT_##inputs,                                                                              \
     FORMAT_##experts,                                                                             \
     FORMAT_COUNT,                                                                                 \
     FORMAT_COUNT},
    MIXTURE_LIST(X)
#undef X
#define X(name, type, base, better, outputs, inputs)                                               \
    {name,                                                                                         \
     type,                                                                                         \
     FORMAT_##base,                                                                                \
     FORMAT_##better,                                                                              \
     BETTER_FIRST,                                                                                 \
     FORMAT_Q5_K,                                                                                  \
     FORMAT_##inputs,                                                                              \
     FORMAT_##base,                                                                                \
     FORMAT_Q4_K,                                                                                  \
     FORMAT_##outputs},
        LOW_MIXTURE_LIST(X)
#undef X
};
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

const struct mixture *mixture_at(int32_t index)
{
    return index >= 0 && index < N_MIXTURES ? &mixtures[index] : NULL;
}

const struct mixture *mixture_find(const char *name)
{
    static const char *const medium[] = {"Q3_K", "Q4_K", "Q5_K"}; /* stand for ..._M */
    char full[16];
    snprintf(full, sizeof full, "%s", name);
    for (size_t i = 0; i < sizeof medium / sizeof *medium; i++)
        if (strcasecmp(name, medium[i]) == 0) snprintf(full, sizeof full, "%s_M", medium[i]);
    for (int32_t i = 0; i < N_MIXTURES; i++)
        if (strlen(name) < sizeof full && strcasecmp(full, mixtures[i].name) == 0)
            return &mixtures[i];
    return NULL;
}

/* ---- A tensor ---------------------------------------------------------------------------- */

static bool is_better_layer(enum better_layers layers, int layer, int n_layer)
{
    int eighth = n_layer / 8;
    switch (layers) {
    case BETTER_NONE: return false;
    case BETTER_FIRST: return layer < eighth;
    case BETTER_SOME:
        return layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2;
    case BETTER_ALL: return true;
    }
    return false;
}

/* "ffn_down" of "blk.7.ffn_down.weight", and the layer; the name without ".weight" of others. */
static void split_name(const char *name, int *layer, char out[64])
{
    int used = 0;
    *layer = -1;
    if (sscanf(name, "blk.%d.%n", layer, &used) < 1 || used == 0) *layer = -1;
    snprintf(out, 64, "%s", name + (*layer < 0 ? 0 : used));
    char *end = strstr(out, ".weight");
    if (end) *end = '\0';
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}
#define IS_ONE_OF(name, ...)                                                                       \
    is_one_of(name, (const char *const[]){__VA_ARGS__},                                            \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* An error in one of these is an error in every value of a row. */
static bool must_be_exact(const char *part)
{
    return IS_ONE_OF(part, "ffn_gate_inp", "per_layer_model_proj");
}

enum format mixture_format(const struct mixture *m, const struct gemma_config *c,
                           const struct gguf_tensor *t, bool is_pure)
{
    int layer;
    char part[64];
    split_name(t->name, &layer, part);
    if (t->n_dims < 2 || must_be_exact(part)) return FORMAT_COUNT;
    if (is_pure) return m->experts;
    enum format base = strstr(part, "_exps") ? m->experts : m->base;
    if (IS_ONE_OF(part, "token_embd", "output")) return m->tokens;
    if (strcmp(part, "per_layer_token_embd") == 0) return m->inputs;
    if (IS_ONE_OF(part, "inp_gate", "proj"))
        return format_is_float(m->base) ? m->base : FORMAT_Q8_0;
    if (m->values != FORMAT_COUNT && strcmp(part, "attn_v") == 0) return m->values;
    if (m->outputs != FORMAT_COUNT && strcmp(part, "attn_output") == 0) return m->outputs;
    bool decides_much = IS_ONE_OF(part, "attn_v", "ffn_down", "ffn_down_exps") ||
                        (m->layers == BETTER_ALL && strcmp(part, "attn_output") == 0);
    if (decides_much && is_better_layer(m->layers, layer, c->n_layer)) return m->better;
    return base;
}

bool mixture_needs_importance(enum format format)
{
    return format_has_grid(format) && format != FORMAT_IQ3_S && format != FORMAT_IQ3_XXS;
}

enum format mixture_fit(enum format format, int64_t cols)
{
    if (cols % format_traits(format)->block_elements == 0) return format;
    if (cols % 32 != 0) return FORMAT_F16;
    switch (format) {
    case FORMAT_Q2_K:
    case FORMAT_Q3_K:
    case FORMAT_IQ4_XS: return FORMAT_IQ4_NL;
    case FORMAT_Q4_K: return FORMAT_Q5_0;
    case FORMAT_Q5_K: return FORMAT_Q5_1;
    default: return format_has_grid(format) ? FORMAT_IQ4_NL : FORMAT_Q8_0;
    }
}
