/* Binding: one pass over the tensor lists. The lists say what must be there and in which shape;
 * then views are made of parts that the forward pass reads on their own (the two halves of a fused
 * expert matrix, the trunk and tail rows of the per-layer projection). */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "plan/kv.h"

enum need { NEVER, MAY, MUST };

enum {
#define X(field, name, rows, cols, n_expert, need) MODEL_FIELD_##field,
    MODEL_TENSOR_LIST(X)
#undef X
        MODEL_FIELD_COUNT
};
enum {
#define X(field, name, rows, cols, n_expert, need) LAYER_FIELD_##field,
    LAYER_TENSOR_LIST(X)
#undef X
        LAYER_FIELD_COUNT
};

/* Weights added at load. Per model: two vectors, and a second view of ple_proj. Per layer: a
 * vector, and a second view of a fused expert matrix. */
enum { MODEL_EXTRA = 3, LAYER_EXTRA = 2 };

struct binder {
    struct weights *w;
    const struct gemma_config *c;
    const struct gguf *g;
    struct arena *arena;
    bool *used; /* by index in the file */
    struct carat_error *err;
};

struct shape {
    int64_t rows, cols, n_expert;
};

static struct weight *add_weight(struct weights *w)
{
    return &w->all[w->n_all++];
}

static int check_tensor(const struct binder *b, const struct gguf_tensor *t, struct shape want)
{
    const char *path = gguf_path(b->g);
    bool is_vector = want.rows == 1;
    int64_t rows = is_vector ? 1 : want.rows;
    if (t->dims[0] != want.cols || t->dims[1] != rows || t->dims[2] != want.n_expert ||
        t->dims[3] != 1) {
        err_set(b->err, CARAT_EFORMAT,
                "%s: tensor \"%s\": %lld x %lld x %lld expected, %lld x %lld x %lld found", path,
                t->name, (long long)want.cols, (long long)rows, (long long)want.n_expert,
                (long long)t->dims[0], (long long)t->dims[1], (long long)t->dims[2]);
        err_hint(b->err, "the metadata and the tensors of this file do not fit together");
        return CARAT_EFORMAT;
    }
    if (!t->is_supported || (is_vector && t->format != FORMAT_F32)) {
        err_set(b->err, CARAT_EFORMAT, "%s: tensor \"%s\": type %s is not supported%s", path,
                t->name, t->type_name, is_vector ? " for a vector, F32 expected" : "");
        if (!is_vector)
            err_hint(b->err,
                     "use a file in Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, "
                     "IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_M, IQ1_S, "
                     "MXFP4, F16, BF16 or F32");
        return CARAT_EFORMAT;
    }
    return CARAT_OK;
}

/* There are only a few norm weights and frequencies, and they reach every row: a NaN among them is
 * found at load. */
static int check_vector(const struct binder *b, const struct gguf_tensor *t)
{
    const float *values = (const float *)(const void *)t->data;
    for (int64_t i = 0; i < t->dims[0]; i++)
        if (!isfinite(values[i]))
            return err_set(b->err, CARAT_EFORMAT,
                           "%s: tensor \"%s\": value %lld is %g, a finite number expected",
                           gguf_path(b->g), t->name, (long long)i, (double)values[i]);
    return CARAT_OK;
}

/* Finds, checks and lists one tensor; *out is NULL when it is optional and absent. */
static int bind_tensor(struct binder *b, struct weight **out, const char *name, enum need need,
                       struct shape want)
{
    *out = NULL;
    const struct gguf_tensor *t = gguf_tensor_find(b->g, name);
    if (t) b->used[t - gguf_tensor_at(b->g, 0)] = need != NEVER;
    if (need == NEVER || (!t && need == MAY)) return CARAT_OK;
    if (!t)
        return err_set(b->err, CARAT_EFORMAT, "%s: tensor \"%s\" is missing", gguf_path(b->g),
                       name);
    TRY(check_tensor(b, t, want));
    if (want.rows == 1) TRY(check_vector(b, t));
    size_t row_bytes = format_row_bytes(t->format, want.cols);
    struct weight *w = *out = add_weight(b->w);
    *w = (struct weight){.name = t->name,
                         .format = t->format,
                         .n_expert = (int32_t)want.n_expert,
                         .rows = want.rows,
                         .cols = want.cols,
                         .row_bytes = row_bytes,
                         .expert_bytes = row_bytes * (size_t)want.rows,
                         .data = t->data};
    b->w->n_params += want.rows * want.cols * want.n_expert;
    b->w->bytes_mapped += t->bytes;
    return CARAT_OK;
}

static int bind_model(struct binder *b)
{
    const struct gemma_config *c = b->c;
#define X(field, name, rows, cols, n_expert, need)                                                 \
    TRY(bind_tensor(b, &b->w->field, name, need, (struct shape){rows, cols, n_expert}));
    MODEL_TENSOR_LIST(X)
#undef X
    return CARAT_OK;
}

static int bind_layer(struct binder *b, int32_t l)
{
    const struct gemma_config *c = b->c;
    const struct layer_spec *s = &c->layer[l];
    struct layer_weights *w = &b->w->layer[l];
    char full[96];
#define X(field, name, rows, cols, n_expert, need)                                                 \
    snprintf(full, sizeof full, "blk.%d.%s", l, name);                                             \
    TRY(bind_tensor(b, &w->field, full, need, (struct shape){rows, cols, n_expert}));
    LAYER_TENSOR_LIST(X)
#undef X
    if (c->n_expert && !w->expert_scale) { /* its name in older files */
        snprintf(full, sizeof full, "blk.%d.ffn_gate_inp.per_expert_scale", l);
        TRY(bind_tensor(b, &w->expert_scale, full, MAY, (struct shape){1, c->n_expert, 1}));
    }
    w->out_scale = w->layer_scale ? *(const float *)w->layer_scale->data : 1.0f;
    return CARAT_OK;
}

/* A vector of n floats in the model's arena, listed as a weight. */
static float *add_vector(struct binder *b, struct weight **out, const char *name, int64_t n)
{
    float *values = arena_take(b->arena, (size_t)n, sizeof *values);
    if (!values) return NULL;
    *out = add_weight(b->w);
    **out = (struct weight){.name = name,
                            .format = FORMAT_F32,
                            .n_expert = 1,
                            .rows = 1,
                            .cols = n,
                            .row_bytes = (size_t)n * sizeof(float),
                            .expert_bytes = (size_t)n * sizeof(float),
                            .data = values};
    return values;
}

/* inv_freq[i] = base^(-2i/d) / factor[i], in double and rounded once. A pair whose factor is
 * 1e30 does not turn: its frequency is exactly 0, not almost 0. */
static int make_rope(struct binder *b)
{
    const struct gemma_config *c = b->c;
    const float *factor = b->w->rope_freqs->data;
    for (int kind = 0; kind < 2; kind++) {
        int32_t d = kind ? c->head_dim_global : c->head_dim_local;
        double base = (double)(kind ? c->rope_base_global : c->rope_base_local);
        float *inv_freq = add_vector(b, kind ? &b->w->rope_global : &b->w->rope_local,
                                     kind ? "(global rotation)" : "(local rotation)", d / 2);
        if (!inv_freq) return err_no_memory(b->err, "rotation table", (size_t)d * 2);
        for (int32_t i = 0; i < d / 2; i++) {
            double f = kind ? (double)factor[i] : 1.0;
            if (f <= 0)
                return err_set(b->err, CARAT_EFORMAT,
                               "%s: tensor \"rope_freqs.weight\": value %d is %g, a positive "
                               "number expected",
                               gguf_path(b->g), i, f);
            inv_freq[i] = f >= 1e20 ? 0.0f : (float)(pow(base, -2.0 * i / d) / f);
        }
    }
    return CARAT_OK;
}

/* Gives the norm of a head other weights in columns that no rotation turns: the product with `by`,
 * or 1 where that is NULL. */
static int move_norm(struct binder *b, struct weight *w, const float *by)
{
    const float *from = w->data;
    int32_t d = (int32_t)w->cols;
    float *values = arena_take(b->arena, (size_t)d, sizeof *values);
    if (!values) return err_no_memory(b->err, "norm of heads", (size_t)d * sizeof *values);
    for (int32_t i = 0; i < d; i++) {
        bool is_kept = kv_has_own_key(d, b->w->turned, i);
        values[i] = is_kept ? from[i] : by ? from[i] * by[i] : 1.0f;
    }
    w->data = values;
    return CARAT_OK;
}

/* On layers without a V, keys and values come from one projection and one norm: in columns that no
 * rotation turns they differ by the weights of the keys' norm alone. A score is a sum over columns
 * of q w k, so these weights may as well belong to the queries. Then such keys are the values, and
 * the cache holds them once. */
static int share_keys(struct binder *b)
{
    const struct gemma_config *c = b->c;
    const float *inv_freq = b->w->rope_global->data;
    int32_t n_pairs = c->head_dim_global / 2;
    while (n_pairs > 0 && inv_freq[n_pairs - 1] == 0.0f) n_pairs--;
    b->w->turned = kv_turned(c->head_dim_global, n_pairs);
    for (int32_t l = 0; l < c->n_layer; l++) {
        const struct layer_spec *s = &c->layer[l];
        if (!s->is_global || !c->layer[s->kv_layer].k_eq_v) continue;
        const float *key_norm = b->w->layer[s->kv_layer].attn_k_norm->data;
        TRY(move_norm(b, b->w->layer[l].attn_q_norm, key_norm));
    }
    for (int32_t l = 0; l < c->n_kv_layer; l++)
        if (c->layer[l].is_global && c->layer[l].k_eq_v)
            TRY(move_norm(b, b->w->layer[l].attn_k_norm, NULL));
    return CARAT_OK;
}

/* A drafter's queries meet the keys of its model, so they take over the same weights. */
static int take_key_norms(struct binder *b, const struct weights_file *model)
{
    char name[64];
    b->w->turned = model->weights->turned;
    for (int32_t l = 0; l < b->c->n_layer; l++) {
        const struct layer_spec *s = &b->c->layer[l];
        if (!s->is_global || !model->config->layer[s->kv_layer].k_eq_v) continue;
        snprintf(name, sizeof name, "blk.%d.attn_k_norm.weight", s->kv_layer);
        const struct gguf_tensor *key_norm = gguf_tensor_find(model->gguf, name);
        TRY(move_norm(b, b->w->layer[l].attn_q_norm, (const float *)(const void *)key_norm->data));
    }
    return CARAT_OK;
}

/* The rows of ple_proj for the layers that see every token, and for the rest. */
static void cut_ple_proj(struct weights *w, const struct gemma_config *c)
{
    struct weight *trunk = w->ple_proj, *tail = add_weight(w);
    int64_t trunk_rows = (int64_t)c->n_ple * (c->n_kv_layer - 1);
    *tail = *trunk;
    tail->rows -= trunk_rows;
    tail->data = (const char *)trunk->data + (size_t)trunk_rows * trunk->row_bytes;
    trunk->rows = trunk_rows;
    w->ple_proj_trunk = trunk_rows ? trunk : NULL;
    w->ple_proj_tail = tail;
}

/* A fused expert matrix has 2 n rows: the first n are gate, the last n up. */
static int cut_experts(struct binder *b, struct layer_weights *w, int32_t l)
{
    if (!w->expert_gate_up) {
        if (w->expert_gate && w->expert_up) return CARAT_OK;
        return err_set(b->err, CARAT_EFORMAT,
                       "%s: tensor \"blk.%d.ffn_gate_up_exps.weight\" is missing, and so are "
                       "ffn_gate_exps and ffn_up_exps",
                       gguf_path(b->g), l);
    }
    struct weight *gate = w->expert_gate_up, *up = add_weight(b->w);
    gate->rows /= 2;
    *up = *gate;
    up->data = (const char *)gate->data + (size_t)gate->rows * gate->row_bytes;
    w->expert_gate = gate;
    w->expert_up = up;
    w->expert_gate_up = NULL;
    return CARAT_OK;
}

static int make_router(struct binder *b, struct layer_weights *w)
{
    const float *s = w->router_scale->data;
    int64_t n = w->router_scale->cols;
    float *scaled = add_vector(b, &w->router_input_scale, "(router scale)", n);
    if (!scaled) return err_no_memory(b->err, "router scale", (size_t)n * sizeof *scaled);
    for (int64_t i = 0; i < n; i++) scaled[i] = (float)((double)s[i] / sqrt((double)n));
    return CARAT_OK;
}

/* One sentence about tensors that are in the file and have no use here. */
static void note_unused(const struct binder *b, struct buf *note)
{
    size_t n_unused = 0;
    const char *first = NULL;
    for (size_t i = 0; i < gguf_tensor_count(b->g); i++) {
        if (b->used[i]) continue;
        if (!first) first = gguf_tensor_at(b->g, i)->name;
        n_unused++;
    }
    if (n_unused)
        buf_printf(note, "%zu tensor%s not used by the text model skipped, first \"%s\"", n_unused,
                   n_unused == 1 ? "" : "s", first);
}

/* `model`: whose keys they read if they are a drafter's; else NULL. */
static int bind_all(struct weights *w, const struct gemma_config *c, const struct gguf *g,
                    const struct weights_file *model, struct arena *arena, struct buf *note,
                    struct carat_error *err)
{
    memset(w, 0, sizeof *w);
    size_t n_layer = (size_t)c->n_layer;
    size_t n = MODEL_FIELD_COUNT + MODEL_EXTRA + n_layer * (LAYER_FIELD_COUNT + LAYER_EXTRA);
    w->all = arena_take(arena, n, sizeof *w->all);
    w->layer = arena_take(arena, n_layer, sizeof *w->layer);
    bool *used = arena_take(arena, gguf_tensor_count(g) + 1, sizeof *used);
    if (!w->all || !w->layer || !used) return err_no_memory(err, "weights", n * sizeof *w->all);
    struct binder b = {.w = w, .c = c, .g = g, .arena = arena, .used = used, .err = err};
    TRY(bind_model(&b));
    for (int32_t l = 0; l < c->n_layer; l++) {
        TRY(bind_layer(&b, l));
        if (!c->n_expert) continue;
        TRY(cut_experts(&b, &w->layer[l], l));
        TRY(make_router(&b, &w->layer[l]));
    }
    TRY(make_rope(&b));
    TRY(model ? take_key_norms(&b, model) : share_keys(&b));
    if (c->n_ple) cut_ple_proj(w, c);
    carat_assert((size_t)w->n_all <= n);
    note_unused(&b, note);
    return CARAT_OK;
}

int weights_bind(struct weights *w, const struct gemma_config *c, const struct gguf *g,
                 struct arena *arena, struct buf *note, struct carat_error *err)
{
    return bind_all(w, c, g, NULL, arena, note, err);
}

int weights_bind_drafter(struct weights *w, const struct gemma_config *c, const struct gguf *g,
                         const struct weights_file *model, struct arena *arena, struct buf *note,
                         struct carat_error *err)
{
    return bind_all(w, c, g, model, arena, note, err);
}
