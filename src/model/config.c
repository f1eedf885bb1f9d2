#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/gguf.h"

#define KEY(name) "gemma4." name

/* The container's look-ups name the key only. */
static int in_file(const struct gguf *g, int status, struct carat_error *err)
{
    return status && err ? err_within(err, "%s", gguf_path(g)) : status;
}

/* A required count between two bounds. */
static int read_count(const struct gguf *g, const char *key, uint32_t least, uint32_t most,
                      int32_t *out, struct carat_error *err)
{
    if (!gguf_find(g, key))
        return err_set(err, CARAT_EFORMAT, "%s: key \"%s\" is missing", gguf_path(g), key);
    uint32_t value = 0;
    TRY(in_file(g, gguf_get_u32(g, key, &value, err), err));
    if (value < least || value > most)
        return err_set(err, CARAT_EFORMAT, "%s: key \"%s\": %u to %u expected, %u found",
                       gguf_path(g), key, least, most, value);
    *out = (int32_t)value;
    return CARAT_OK;
}

/* The same for a key that may be absent; *out then keeps its value. */
static int read_count_or(const struct gguf *g, const char *key, uint32_t least, uint32_t most,
                         int32_t *out, struct carat_error *err)
{
    return gguf_find(g, key) ? read_count(g, key, least, most, out, err) : CARAT_OK;
}

static int read_float(const struct gguf *g, const char *key, bool required, float least, float most,
                      float *out, struct carat_error *err)
{
    if (required && !gguf_find(g, key))
        return err_set(err, CARAT_EFORMAT, "%s: key \"%s\" is missing", gguf_path(g), key);
    TRY(in_file(g, gguf_get_f32(g, key, out, err), err));
    if (!(*out >= least && *out <= most))
        return err_set(err, CARAT_EFORMAT, "%s: key \"%s\": %g to %g expected, %g found",
                       gguf_path(g), key, (double)least, (double)most, (double)*out);
    return CARAT_OK;
}

static int read_architecture(const struct gguf *g, struct carat_error *err)
{
    struct gguf_string arch = {0};
    TRY(in_file(g, gguf_get_string(g, "general.architecture", &arch, err), err));
    if (arch.length == 6 && memcmp(arch.data, "gemma4", 6) == 0) return CARAT_OK;
    char shown[GGUF_PRINTABLE_BYTES];
    gguf_printable(shown, arch.data, arch.length);
    bool is_drafter =
        strncmp(shown, "gemma4", 6) == 0 && (strstr(shown, "assistant") || strstr(shown, "mtp"));
    if (is_drafter)
        return err_set(err, CARAT_EFORMAT,
                       "%s: this is a drafter, which is no model by itself; carat does not use "
                       "drafters yet (general.architecture: \"%s\")",
                       gguf_path(g), shown);
    err_set(err, CARAT_EFORMAT, "%s: general.architecture: \"gemma4\" expected, \"%s\" found",
            gguf_path(g), shown);
    err_hint(err, "carat runs Gemma 4 text models only (E2B, E4B, 12B, 26B-A4B, 31B)");
    return CARAT_EFORMAT;
}

static int read_dimensions(struct gemma_config *c, const struct gguf *g, struct carat_error *err)
{
    int32_t n_shared = 0;
    TRY(read_count(g, KEY("block_count"), 2, LAYERS_MAX, &c->n_layer, err));
    TRY(read_count(g, KEY("context_length"), 1, 1u << 24, &c->n_ctx_train, err));
    TRY(read_count(g, KEY("embedding_length"), 1, 1u << 16, &c->n_embd, err));
    TRY(read_count(g, KEY("embedding_length_per_layer_input"), 0, 4096, &c->n_ple, err));
    TRY(read_count_or(g, KEY("attention.shared_kv_layers"), 0, (uint32_t)c->n_layer - 1, &n_shared,
                      err));
    c->n_kv_layer = c->n_layer - n_shared;
    TRY(read_count(g, KEY("attention.sliding_window"), 2, (uint32_t)c->n_ctx_train, &c->window,
                   err));
    TRY(read_count_or(g, KEY("expert_count"), 0, 1024, &c->n_expert, err));
    if (c->n_expert == 0) return CARAT_OK;
    TRY(read_count(g, KEY("expert_used_count"), 1, (uint32_t)c->n_expert, &c->n_expert_used, err));
    return read_count(g, KEY("expert_feed_forward_length"), 1, 1u << 16, &c->n_ff_expert, err);
}

/* Key and value width of a kind of layer are one number here, and RoPE turns the whole head. */
static int read_head_dim(const struct gguf *g, const char *suffix, int32_t *out,
                         struct carat_error *err)
{
    char key[64];
    snprintf(key, sizeof key, KEY("attention.key_length%s"), suffix);
    TRY(read_count(g, key, 2, 1024, out, err));
    if (*out % 2)
        return err_set(err, CARAT_EFORMAT, "%s: key \"%s\": an even number expected, %d found",
                       gguf_path(g), key, *out);
    int32_t value_length = 0, rope_dims = *out;
    snprintf(key, sizeof key, KEY("attention.value_length%s"), suffix);
    TRY(read_count(g, key, 2, 1024, &value_length, err));
    if (value_length != *out)
        return err_set(err, CARAT_EFORMAT,
                       "%s: key \"%s\": %d expected, as the key length, %d found", gguf_path(g),
                       key, *out, value_length);
    snprintf(key, sizeof key, KEY("rope.dimension_count%s"), suffix);
    if (!suffix[0])
        TRY(read_count(g, key, 1, 1024, &rope_dims, err));
    else
        TRY(read_count_or(g, key, 1, 1024, &rope_dims, err));
    if (rope_dims != *out)
        return err_set(err, CARAT_EFORMAT,
                       "%s: key \"%s\": %d expected, as the key length, %d found", gguf_path(g),
                       key, *out, rope_dims);
    return CARAT_OK;
}

static int read_numbers(struct gemma_config *c, const struct gguf *g, struct carat_error *err)
{
    TRY(read_head_dim(g, "", &c->head_dim_global, err));
    TRY(read_head_dim(g, "_swa", &c->head_dim_local, err));
    c->rope_base_local = 10000.0f;
    c->softcap = 30.0f;
    TRY(read_float(g, KEY("attention.layer_norm_rms_epsilon"), true, 1e-12f, 1e-2f, &c->rms_eps,
                   err));
    TRY(read_float(g, KEY("rope.freq_base"), true, 1.0f, 1e12f, &c->rope_base_global, err));
    TRY(read_float(g, KEY("rope.freq_base_swa"), false, 1.0f, 1e12f, &c->rope_base_local, err));
    return read_float(g, KEY("final_logit_softcapping"), false, 1e-3f, 1e6f, &c->softcap, err);
}

/* One value a layer, from an array or from a scalar that holds for all of them. */
static int read_per_layer(const struct gemma_config *c, const struct gguf *g, const char *key,
                          uint32_t most, uint32_t *out, struct carat_error *err)
{
    if (!gguf_find(g, key))
        return err_set(err, CARAT_EFORMAT, "%s: key \"%s\" is missing", gguf_path(g), key);
    TRY(in_file(g, gguf_get_u32_per_layer(g, key, (uint32_t)c->n_layer, out, err), err));
    for (int32_t l = 0; l < c->n_layer; l++)
        if (out[l] < 1 || out[l] > most)
            return err_set(err, CARAT_EFORMAT,
                           "%s: key \"%s\": layer %d: 1 to %u expected, %u found", gguf_path(g),
                           key, l, most, out[l]);
    return CARAT_OK;
}

static int read_layer_kinds(struct gemma_config *c, const struct gguf *g, struct carat_error *err)
{
    const char *key = KEY("attention.sliding_window_pattern");
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return err_set(err, CARAT_EFORMAT, "%s: key \"%s\" is missing", gguf_path(g), key);
    if (kv->type != GGUF_ARRAY)
        return err_set(err, CARAT_EFORMAT, "%s: key \"%s\": an array of bool expected, %s found",
                       gguf_path(g), key, gguf_type_name(kv->type));
    uint32_t is_local[LAYERS_MAX];
    TRY(in_file(g, gguf_get_u32_per_layer(g, key, (uint32_t)c->n_layer, is_local, err), err));
    int32_t n_local = 0;
    for (int32_t l = 0; l < c->n_layer; l++) {
        c->layer[l].is_global = !is_local[l];
        n_local += is_local[l] != 0;
    }
    if (n_local == 0 || n_local == c->n_layer)
        return err_set(err, CARAT_EFORMAT,
                       "%s: key \"%s\": local and global layers expected, all %d are %s",
                       gguf_path(g), key, c->n_layer, n_local ? "local" : "global");
    return CARAT_OK;
}

/* The layer whose cache layer l reads: itself, or the last owning layer of the same kind. */
static int32_t kv_layer_of(const struct gemma_config *c, int32_t l)
{
    if (l < c->n_kv_layer) return l;
    for (int32_t donor = c->n_kv_layer - 1; donor >= 0; donor--)
        if (c->layer[donor].is_global == c->layer[l].is_global) return donor;
    return -1;
}

static int read_layers(struct gemma_config *c, const struct gguf *g, struct carat_error *err)
{
    uint32_t n_heads[LAYERS_MAX], n_kv_heads[LAYERS_MAX], n_ff[LAYERS_MAX];
    TRY(read_layer_kinds(c, g, err));
    TRY(read_per_layer(c, g, KEY("attention.head_count"), 1024, n_heads, err));
    TRY(read_per_layer(c, g, KEY("attention.head_count_kv"), 1024, n_kv_heads, err));
    TRY(read_per_layer(c, g, KEY("feed_forward_length"), 1u << 20, n_ff, err));
    for (int32_t l = 0; l < c->n_layer; l++) {
        struct layer_spec *s = &c->layer[l];
        s->has_kv = l < c->n_kv_layer;
        s->head_dim = s->is_global ? c->head_dim_global : c->head_dim_local;
        s->window = s->is_global ? 0 : c->window;
        s->n_heads = (int32_t)n_heads[l];
        s->n_kv_heads = (int32_t)n_kv_heads[l];
        s->n_ff = (int32_t)n_ff[l];
        s->kv_layer = kv_layer_of(c, l);
        if (n_heads[l] % n_kv_heads[l])
            return err_set(err, CARAT_EFORMAT,
                           "%s: layer %d: %u query heads cannot share %u key heads", gguf_path(g),
                           l, n_heads[l], n_kv_heads[l]);
        if (s->kv_layer < 0)
            return err_set(err, CARAT_EFORMAT,
                           "%s: key \"%s\": %s layer %d has no earlier layer of its kind to "
                           "share with",
                           gguf_path(g), KEY("attention.shared_kv_layers"),
                           s->is_global ? "global" : "local", l);
        if (c->layer[s->kv_layer].n_kv_heads != s->n_kv_heads)
            return err_set(
                err, CARAT_EFORMAT,
                "%s: layer %d has %d key heads but shares those of layer %d, which has %d",
                gguf_path(g), l, s->n_kv_heads, s->kv_layer, c->layer[s->kv_layer].n_kv_heads);
    }
    return CARAT_OK;
}

/* Only the tensors show whether V is the raw K projection. That holds for all global layers of a
 * model or for none, and never if there are per-layer embeddings. If a single attn_v is missing,
 * the file is damaged, and binding will say so. */
static void read_k_eq_v(struct gemma_config *c, const struct gguf *g)
{
    bool is_absent = c->n_ple == 0;
    char name[64];
    for (int32_t l = 0; l < c->n_kv_layer; l++) {
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", l);
        if (c->layer[l].is_global && gguf_tensor_find(g, name)) is_absent = false;
    }
    for (int32_t l = 0; l < c->n_kv_layer; l++)
        c->layer[l].k_eq_v = c->layer[l].is_global && is_absent;
}

/* The size of the vocabulary is that of its embedding table. */
static int read_from_tensors(struct gemma_config *c, const struct gguf *g, struct carat_error *err)
{
    const struct gguf_tensor *table = gguf_tensor_find(g, "token_embd.weight");
    if (!table)
        return err_set(err, CARAT_EFORMAT, "%s: tensor \"token_embd.weight\" is missing",
                       gguf_path(g));
    if (table->n_dims != 2 || table->dims[1] < 2 || table->dims[1] > 1 << 24)
        return err_set(
            err, CARAT_EFORMAT,
            "%s: tensor \"token_embd.weight\": %d x vocabulary expected, %lld x %lld found",
            gguf_path(g), c->n_embd, (long long)table->dims[0], (long long)table->dims[1]);
    c->n_vocab = (int32_t)table->dims[1];
    read_k_eq_v(c, g);
    /* A model whose keys contradict its tensors would talk fluent nonsense. */
    if (c->n_expert == 0 && gguf_tensor_find(g, "blk.0.ffn_gate_inp.weight"))
        return err_set(err, CARAT_EFORMAT,
                       "%s: key \"" KEY("expert_count") "\" is 0 or missing, but there are experts",
                       gguf_path(g));
    if (c->n_ple == 0 && gguf_tensor_find(g, "per_layer_token_embd.weight"))
        return err_set(err, CARAT_EFORMAT,
                       "%s: key \"%s\" is 0, but there is a per-layer embedding table",
                       gguf_path(g), KEY("embedding_length_per_layer_input"));
    return CARAT_OK;
}

int config_read(struct gemma_config *c, const struct gguf *g, struct carat_error *err)
{
    memset(c, 0, sizeof *c);
    TRY(read_architecture(g, err));
    TRY(read_dimensions(c, g, err));
    TRY(read_numbers(c, g, err));
    TRY(read_layers(c, g, err));
    return read_from_tensors(c, g, err);
}

const char *config_variant(const struct gemma_config *c)
{
    static const struct {
        int32_t n_layer, n_embd;
        const char *name;
    } known[] = {
        {35, 1536, "E2B"},     {42, 2560, "E4B"}, {48, 3840, "12B"},
        {30, 2816, "26B-A4B"}, {60, 5376, "31B"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].n_layer == c->n_layer && known[i].n_embd == c->n_embd) return known[i].name;
    return "other";
}
