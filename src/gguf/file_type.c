/* What people call a file's quantisation: the type of most of its layers' weights. Embeddings do
 * not count, as they are large and often of another type. */
#include <stdio.h>
#include <string.h>

#include "gguf/gguf.h"

enum { TYPES_MAX = 64, MIX_MAX = 4 };

struct type_share {
    const char *name; /* NULL: no such tensor */
    double in_layers; /* elements of matrices */
    double bytes;     /* of all tensors */
};

static double element_count(const struct gguf_tensor *t)
{
    double n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= (double)t->dims[i];
    return n;
}

/* Adds up every type's share. Returns the bytes of all tensors. */
static double take_shares(const struct gguf *g, struct type_share *shares)
{
    double bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->gguf_type >= TYPES_MAX) continue;
        struct type_share *share = &shares[t->gguf_type];
        share->name = t->type_name;
        share->bytes += (double)t->bytes;
        bytes += (double)t->bytes;
        if (strncmp(t->name, "blk.", 4) == 0 && t->n_dims >= 2)
            share->in_layers += element_count(t);
    }
    return bytes;
}

/* general.file_type where it says more than a type: X(number, type, rest of the name) */
#define MIXED_FILE_TYPE_LIST(X)                                                                    \
    X(10, "Q2_K", " - Medium")                                                                     \
    X(11, "Q3_K", " - Small")                                                                      \
    X(12, "Q3_K", " - Medium")                                                                     \
    X(13, "Q3_K", " - Large")                                                                      \
    X(14, "Q4_K", " - Small")                                                                      \
    X(15, "Q4_K", " - Medium")                                                                     \
    X(16, "Q5_K", " - Small")                                                                      \
    X(17, "Q5_K", " - Medium")                                                                     \
    X(21, "Q2_K", " - Small")

void gguf_quantisation(const struct gguf *g, char *out, size_t size)
{
    struct type_share shares[TYPES_MAX] = {0};
    const struct type_share *most = NULL;
    uint32_t file_type = UINT32_MAX;
    take_shares(g, shares);
    for (int i = 0; i < TYPES_MAX; i++) {
        const struct type_share *s = &shares[i];
        if (!s->name) continue;
        bool is_more = !most || s->in_layers > most->in_layers ||
                       (most->in_layers == 0 && s->in_layers == 0 && s->bytes > most->bytes);
        if (is_more) most = s;
    }
    const char *name = most ? most->name : "none", *rest = "";
    if (gguf_get_u32(g, "general.file_type", &file_type, NULL)) file_type = UINT32_MAX;
#define X(number, type, text)                                                                      \
    if (file_type == (number) && strcmp(name, type) == 0) rest = text;
    MIXED_FILE_TYPE_LIST(X)
#undef X
    snprintf(out, size, "%s%s", name, rest);
}

void gguf_type_mix(const struct gguf *g, char *out, size_t size)
{
    struct type_share shares[TYPES_MAX] = {0};
    double all = take_shares(g, shares);
    size_t used = 0;
    out[0] = '\0';
    for (int n = 0; n < MIX_MAX && used < size; n++) {
        struct type_share *most = &shares[0];
        for (int i = 1; i < TYPES_MAX; i++)
            if (shares[i].bytes > most->bytes) most = &shares[i];
        if (most->bytes < all * 0.001 || most->bytes == 0) break;
        used += (size_t)snprintf(out + used, size - used, "%s%s %.1f %%", n ? ", " : "", most->name,
                                 100 * most->bytes / all);
        most->bytes = 0;
    }
}
