#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/gguf.h"

#define MODEL "gemma4"
#define DRAFTER "gemma4-assistant"

/* A file whose keys begin with the name of its architecture, and where errors go. */
struct reader {
    const struct gguf *g;
    const char *prefix;
    struct carat_error *err;
};

struct key {
    char text[80];
};

static struct key key_of(const struct reader *r, const char *name)
{
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", r->prefix, name);
    return key;
}

/* The container's look-ups name the key only. */
static int in_file(const struct reader *r, int status)
{
    return status && r->err ? err_within(r->err, "%s", gguf_path(r->g)) : status;
}

static bool has_key(const struct reader *r, const char *name)
{
    return gguf_find(r->g, key_of(r, name).text) != NULL;
}

static int miss_key(const struct reader *r, const char *name)
{
    return err_set(r->err, CARAT_EFORMAT, "%s: key \"%s\" is missing", gguf_path(r->g),
                   key_of(r, name).text);
}

/* A required count between two bounds. */
static int read_count(const struct reader *r, const char *name, uint32_t least, uint32_t most,
                      int32_t *out)
{
    const struct key key = key_of(r, name);
    uint32_t value = 0;
    if (!has_key(r, name)) return miss_key(r, name);
    TRY(in_file(r, gguf_get_u32(r->g, key.text, &value, r->err)));
    if (value < least || value > most)
        return err_set(r->err, CARAT_EFORMAT, "%s: key \"%s\": %u to %u expected, %u found",
                       gguf_path(r->g), key.text, least, most, value);
    *out = (int32_t)value;
    return CARAT_OK;
}

/* The same for a key that may be absent; *out then keeps its value. */
static int read_count_or(const struct reader *r, const char *name, uint32_t least, uint32_t most,
                         int32_t *out)
{
    return has_key(r, name) ? read_count(r, name, least, most, out) : CARAT_OK;
}

static int read_float(const struct reader *r, const char *name, bool required, float least,
                      float most, float *out)
{
    const struct key key = key_of(r, name);
    if (required && !has_key(r, name)) return miss_key(r, name);
    TRY(in_file(r, gguf_get_f32(r->g, key.text, out, r->err)));
    if (!(*out >= least && *out <= most))
        return err_set(r->err, CARAT_EFORMAT, "%s: key \"%s\": %g to %g expected, %g found",
                       gguf_path(r->g), key.text, (double)least, (double)most, (double)*out);
    return CARAT_OK;
}

bool config_is_drafter(const struct gguf *g)
{
    struct gguf_string arch = {0};
    char shown[GGUF_PRINTABLE_BYTES];
    if (gguf_get_string(g, "general.architecture", &arch, NULL) != CARAT_OK) return false;
    gguf_printable(shown, arch.data, arch.length);
    return strncmp(shown, MODEL, strlen(MODEL)) == 0 &&
           (strstr(shown, "assistant") || strstr(shown, "mtp"));
}

static int read_architecture(const struct reader *r)
{
    struct gguf_string arch = {0};
    TRY(in_file(r, gguf_get_string(r->g, "general.architecture", &arch, r->err)));
    size_t length = strlen(r->prefix);
    bool wants_model = strcmp(r->prefix, MODEL) == 0;
    if (arch.length == length && memcmp(arch.data, r->prefix, length) == 0) return CARAT_OK;
    char shown[GGUF_PRINTABLE_BYTES];
    gguf_printable(shown, arch.data, arch.length);
    if (wants_model && config_is_drafter(r->g)) {
        err_set(r->err, CARAT_EFORMAT,
                "%s: this is a drafter, which is no model by itself (general.architecture: "
                "\"%s\")",
                gguf_path(r->g), shown);
        err_hint(r->err, "give the model, and this file with --model-draft");
        return CARAT_EFORMAT;
    }
    err_set(r->err, CARAT_EFORMAT, "%s: general.architecture: \"%s\" expected, \"%s\" found",
            gguf_path(r->g), r->prefix, shown);
    err_hint(r->err, wants_model
                         ? "carat runs Gemma 4 text models only (E2B, E4B, 12B, 26B-A4B, 31B)"
                         : "a drafter is one of Google's \"assistant\" models for Gemma 4, in "
                           "the form that llama.cpp writes");
    return CARAT_EFORMAT;
}

/* Layers, widths and what depends on the kind of file. A drafter has no keys of its own. */
static int read_dimensions(struct gemma_config *c, const struct reader *r, bool is_draft)
{
    uint32_t least = is_draft ? 1 : 2;
    TRY(read_count(r, "block_count", least, LAYERS_MAX, &c->n_layer));
    TRY(read_count(r, "context_length", 1, 1u << 24, &c->n_ctx_train));
    TRY(read_count(r, "embedding_length", 1, 1u << 16, &c->n_embd));
    uint32_t all = (uint32_t)c->n_layer;
    int32_t n_shared = is_draft ? c->n_layer : 0;
    TRY(read_count_or(r, "attention.shared_kv_layers", is_draft ? all : 0, is_draft ? all : all - 1,
                      &n_shared));
    c->n_kv_layer = c->n_layer - n_shared;
    return read_count(r, "attention.sliding_window", 2, (uint32_t)c->n_ctx_train, &c->window);
}

/* What drafters do not have. */
static int read_extras(struct gemma_config *c, const struct reader *r)
{
    TRY(read_count(r, "embedding_length_per_layer_input", 0, 4096, &c->n_ple));
    TRY(read_count_or(r, "expert_count", 0, 1024, &c->n_expert));
    if (c->n_expert == 0) return CARAT_OK;
    TRY(read_count(r, "expert_used_count", 1, (uint32_t)c->n_expert, &c->n_expert_used));
    return read_count(r, "expert_feed_forward_length", 1, 1u << 16, &c->n_ff_expert);
}

/* Key and value width of a kind of layer are one number here, and RoPE turns the whole head. */
static int read_head_dim(const struct reader *r, const char *suffix, int32_t *out)
{
    char key_length[32], value_length[32], rope_dims[32];
    snprintf(key_length, sizeof key_length, "attention.key_length%s", suffix);
    snprintf(value_length, sizeof value_length, "attention.value_length%s", suffix);
    snprintf(rope_dims, sizeof rope_dims, "rope.dimension_count%s", suffix);
    TRY(read_count(r, key_length, 2, 1024, out));
    if (*out % 2)
        return err_set(r->err, CARAT_EFORMAT, "%s: key \"%s\": an even number expected, %d found",
                       gguf_path(r->g), key_of(r, key_length).text, *out);
    int32_t n_value = 0, n_rope = *out;
    TRY(read_count(r, value_length, 2, 1024, &n_value));
    TRY((suffix[0] ? read_count_or : read_count)(r, rope_dims, 1, 1024, &n_rope));
    const char *other = n_value != *out ? value_length : rope_dims;
    if (n_value == *out && n_rope == *out) return CARAT_OK;
    return err_set(r->err, CARAT_EFORMAT,
                   "%s: key \"%s\": %d expected, as the key length, %d found", gguf_path(r->g),
                   key_of(r, other).text, *out, n_value != *out ? n_value : n_rope);
}

static int read_numbers(struct gemma_config *c, const struct reader *r)
{
    TRY(read_head_dim(r, "", &c->head_dim_global));
    TRY(read_head_dim(r, "_swa", &c->head_dim_local));
    c->rope_base_local = 10000.0f;
    c->softcap = 30.0f;
    TRY(read_float(r, "attention.layer_norm_rms_epsilon", true, 1e-12f, 1e-2f, &c->rms_eps));
    TRY(read_float(r, "rope.freq_base", true, 1.0f, 1e12f, &c->rope_base_global));
    TRY(read_float(r, "rope.freq_base_swa", false, 1.0f, 1e12f, &c->rope_base_local));
    return read_float(r, "final_logit_softcapping", false, 1e-3f, 1e6f, &c->softcap);
}

/* One value a layer, from an array or from a scalar that holds for all of them. */
static int read_per_layer(const struct gemma_config *c, const struct reader *r, const char *name,
                          uint32_t most, uint32_t *out)
{
    const struct key key = key_of(r, name);
    if (!has_key(r, name)) return miss_key(r, name);
    TRY(in_file(r, gguf_get_u32_per_layer(r->g, key.text, (uint32_t)c->n_layer, out, r->err)));
    for (int32_t l = 0; l < c->n_layer; l++)
        if (out[l] < 1 || out[l] > most)
            return err_set(r->err, CARAT_EFORMAT,
                           "%s: key \"%s\": layer %d: 1 to %u expected, %u found", gguf_path(r->g),
                           key.text, l, most, out[l]);
    return CARAT_OK;
}

static int read_layer_kinds(struct gemma_config *c, const struct reader *r)
{
    static const char name[] = "attention.sliding_window_pattern";
    const struct key key = key_of(r, name);
    const struct gguf_kv *kv = gguf_find(r->g, key.text);
    if (!kv) return miss_key(r, name);
    if (kv->type != GGUF_ARRAY)
        return err_set(r->err, CARAT_EFORMAT, "%s: key \"%s\": an array of bool expected, %s found",
                       gguf_path(r->g), key.text, gguf_type_name(kv->type));
    uint32_t is_local[LAYERS_MAX];
    TRY(in_file(r, gguf_get_u32_per_layer(r->g, key.text, (uint32_t)c->n_layer, is_local, r->err)));
    int32_t n_local = 0;
    for (int32_t l = 0; l < c->n_layer; l++) {
        c->layer[l].is_global = !is_local[l];
        n_local += is_local[l] != 0;
    }
    if (n_local == 0 || n_local == c->n_layer)
        return err_set(r->err, CARAT_EFORMAT,
                       "%s: key \"%s\": local and global layers expected, all %d are %s",
                       gguf_path(r->g), key.text, c->n_layer, n_local ? "local" : "global");
    return CARAT_OK;
}

/* The last layer of a kind that owns keys; -1: there is none. */
static int32_t last_owner(const struct gemma_config *c, bool is_global)
{
    int32_t l = c->n_kv_layer - 1;
    while (l >= 0 && c->layer[l].is_global != is_global) l--;
    return l;
}

/* What layer l shares with the layer whose keys it reads. `owner` is the config of that one. */
static int check_layer(const struct gemma_config *c, const struct reader *r, int32_t l,
                       const struct gemma_config *owner)
{
    const struct layer_spec *s = &c->layer[l];
    if (s->n_heads % s->n_kv_heads)
        return err_set(r->err, CARAT_EFORMAT,
                       "%s: layer %d: %u query heads cannot share %u key heads", gguf_path(r->g), l,
                       s->n_heads, s->n_kv_heads);
    if (s->kv_layer < 0)
        return err_set(r->err, CARAT_EFORMAT,
                       "%s: key \"%s\": %s layer %d has no earlier layer of its kind to "
                       "share with",
                       gguf_path(r->g), key_of(r, "attention.shared_kv_layers").text,
                       s->is_global ? "global" : "local", l);
    if (owner->layer[s->kv_layer].n_kv_heads != s->n_kv_heads)
        return err_set(r->err, CARAT_EFORMAT,
                       "%s: layer %d has %d key heads but shares those of layer %d%s, which has %d",
                       gguf_path(r->g), l, s->n_kv_heads, s->kv_layer,
                       owner == c ? "" : " of the model", owner->layer[s->kv_layer].n_kv_heads);
    return CARAT_OK;
}

/* `owner`: whose keys layers without their own read: c itself, or the model of a drafter. */
static int read_layers(struct gemma_config *c, const struct reader *r,
                       const struct gemma_config *owner)
{
    uint32_t n_heads[LAYERS_MAX], n_kv_heads[LAYERS_MAX], n_ff[LAYERS_MAX];
    TRY(read_layer_kinds(c, r));
    TRY(read_per_layer(c, r, "attention.head_count", 1024, n_heads));
    TRY(read_per_layer(c, r, "attention.head_count_kv", 1024, n_kv_heads));
    TRY(read_per_layer(c, r, "feed_forward_length", 1u << 20, n_ff));
    for (int32_t l = 0; l < c->n_layer; l++) {
        struct layer_spec *s = &c->layer[l];
        s->has_kv = l < c->n_kv_layer;
        s->head_dim = s->is_global ? c->head_dim_global : c->head_dim_local;
        s->window = s->is_global ? 0 : c->window;
        s->n_heads = (int32_t)n_heads[l];
        s->n_kv_heads = (int32_t)n_kv_heads[l];
        s->n_ff = (int32_t)n_ff[l];
        s->kv_layer = s->has_kv ? l : last_owner(owner, s->is_global);
        TRY(check_layer(c, r, l, owner));
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
static int read_vocabulary(struct gemma_config *c, const struct reader *r)
{
    const struct gguf_tensor *table = gguf_tensor_find(r->g, "token_embd.weight");
    if (!table)
        return err_set(r->err, CARAT_EFORMAT, "%s: tensor \"token_embd.weight\" is missing",
                       gguf_path(r->g));
    if (table->n_dims != 2 || table->dims[1] < 2 || table->dims[1] > 1 << 24)
        return err_set(
            r->err, CARAT_EFORMAT,
            "%s: tensor \"token_embd.weight\": %d x vocabulary expected, %lld x %lld found",
            gguf_path(r->g), c->n_embd, (long long)table->dims[0], (long long)table->dims[1]);
    c->n_vocab = (int32_t)table->dims[1];
    return CARAT_OK;
}

/* A model whose keys contradict its tensors would talk fluent nonsense. */
static int check_extras(const struct gemma_config *c, const struct reader *r)
{
    if (c->n_expert == 0 && gguf_tensor_find(r->g, "blk.0.ffn_gate_inp.weight"))
        return err_set(r->err, CARAT_EFORMAT,
                       "%s: key \"%s\" is 0 or missing, but there are experts", gguf_path(r->g),
                       key_of(r, "expert_count").text);
    if (c->n_ple == 0 && gguf_tensor_find(r->g, "per_layer_token_embd.weight"))
        return err_set(r->err, CARAT_EFORMAT,
                       "%s: key \"%s\" is 0, but there is a per-layer embedding table",
                       gguf_path(r->g), key_of(r, "embedding_length_per_layer_input").text);
    return CARAT_OK;
}

int config_read(struct gemma_config *c, const struct gguf *g, struct carat_error *err)
{
    const struct reader r = {g, MODEL, err};
    memset(c, 0, sizeof *c);
    TRY(read_architecture(&r));
    TRY(read_dimensions(c, &r, false));
    TRY(read_extras(c, &r));
    TRY(read_numbers(c, &r));
    TRY(read_layers(c, &r, c));
    TRY(read_vocabulary(c, &r));
    read_k_eq_v(c, g);
    return check_extras(c, &r);
}

/* A drafter has been trained with its model and reads that model's keys. */
static int check_match(const struct gemma_config *c, const struct reader *r,
                       const struct gemma_config *model)
{
    const struct {
        const char *what;
        int32_t expected, found;
    } facts[] = {{"width of the model", model->n_embd, c->n_backbone},
                 {"vocabulary", model->n_vocab, c->n_vocab},
                 {"width of local heads", model->head_dim_local, c->head_dim_local},
                 {"width of global heads", model->head_dim_global, c->head_dim_global},
                 {"sliding window", model->window, c->window}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (facts[i].expected == facts[i].found) continue;
        err_set(r->err, CARAT_EFORMAT,
                "%s: this drafter is for another model: %s: %d expected, %d "
                "found",
                gguf_path(r->g), facts[i].what, facts[i].expected, facts[i].found);
        err_hint(r->err, "take the drafter that was published for this size of model");
        return CARAT_EFORMAT;
    }
    return CARAT_OK;
}

int config_read_drafter(struct gemma_config *c, const struct gguf *g,
                        const struct gemma_config *model, struct carat_error *err)
{
    const struct reader r = {g, DRAFTER, err};
    memset(c, 0, sizeof *c);
    TRY(read_architecture(&r));
    TRY(read_dimensions(c, &r, true));
    TRY(read_count(&r, "embedding_length_out", 1, 1u << 16, &c->n_backbone));
    TRY(read_numbers(c, &r));
    TRY(read_vocabulary(c, &r));
    TRY(check_match(c, &r, model));
    return read_layers(c, &r, model);
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
