#include "support/gemma_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "quant/grid_blocks.h"

/* clang-format off */
static const struct gemma_shape true_shapes[GEMMA_SIZES] = {
    [GEMMA_E2B] = {.name = "e2b", .n_layer = 35, .period = 5, .n_embd = 1536, .n_ff = 6144,
                   .n_ff_tail = 12288, .n_head = 8, .n_kv_local = 1, .n_kv_global = 1,
                   .window = 512, .n_shared = 20, .n_ple = 256, .n_ctx = 131072,
                   .drafter = {.n_embd = 256, .n_ff = 2048, .n_head = 4}},
    [GEMMA_E4B] = {.name = "e4b", .n_layer = 42, .period = 6, .n_embd = 2560, .n_ff = 10240,
                   .n_head = 8, .n_kv_local = 2, .n_kv_global = 2, .window = 512,
                   .n_shared = 18, .n_ple = 256, .n_ctx = 131072,
                   .drafter = {.n_embd = 256, .n_ff = 2048, .n_head = 4}},
    [GEMMA_12B] = {.name = "12b", .n_layer = 48, .period = 6, .n_embd = 3840, .n_ff = 15360,
                   .n_head = 16, .n_kv_local = 8, .n_kv_global = 1, .window = 1024,
                   .k_eq_v = true, .n_ctx = 262144,
                   .drafter = {.n_embd = 1024, .n_ff = 8192, .n_head = 16}},
    [GEMMA_26B] = {.name = "26b-a4b", .n_layer = 30, .period = 6, .n_embd = 2816, .n_ff = 2112,
                   .n_head = 16, .n_kv_local = 8, .n_kv_global = 2, .window = 1024,
                   .k_eq_v = true, .n_expert = 128, .n_expert_used = 8, .n_ff_expert = 704,
                   .n_ctx = 262144, .drafter = {.n_embd = 1024, .n_ff = 8192, .n_head = 16}},
    [GEMMA_31B] = {.name = "31b", .n_layer = 60, .period = 6, .n_embd = 5376, .n_ff = 21504,
                   .n_head = 32, .n_kv_local = 16, .n_kv_global = 4, .window = 1024,
                   .k_eq_v = true, .n_ctx = 262144,
                   .drafter = {.n_embd = 1024, .n_ff = 8192, .n_head = 32}},
};

/* Fewer layers, but at least two global ones. As in the real models the last layers with K/V of
 * their own are a local one and then a global one: llama.cpp relies on it. */
static const struct gemma_shape tiny_shapes[GEMMA_SIZES] = {
    [GEMMA_E2B] = {.name = "tiny-e2b", .n_layer = 6, .period = 3, .n_embd = 64, .n_ff = 64,
                   .n_ff_tail = 128, .n_head = 4, .n_kv_local = 1, .n_kv_global = 1, .window = 8,
                   .n_shared = 3, .n_ple = 32},
    [GEMMA_E4B] = {.name = "tiny-e4b", .n_layer = 8, .period = 4, .n_embd = 64, .n_ff = 96,
                   .n_head = 4, .n_kv_local = 2, .n_kv_global = 2, .window = 8, .n_shared = 4,
                   .n_ple = 32},
    [GEMMA_12B] = {.name = "tiny-12b", .n_layer = 6, .period = 3, .n_embd = 64, .n_ff = 128,
                   .n_head = 4, .n_kv_local = 2, .n_kv_global = 1, .window = 8, .k_eq_v = true},
    [GEMMA_26B] = {.name = "tiny-26b-a4b", .n_layer = 6, .period = 3, .n_embd = 64, .n_ff = 96,
                   .n_head = 4, .n_kv_local = 2, .n_kv_global = 1, .window = 8, .k_eq_v = true,
                   .n_expert = 8, .n_expert_used = 2, .n_ff_expert = 32},
    [GEMMA_31B] = {.name = "tiny-31b", .n_layer = 6, .period = 3, .n_embd = 64, .n_ff = 96,
                   .n_head = 8, .n_kv_local = 4, .n_kv_global = 2, .window = 8, .k_eq_v = true},
};
/* clang-format on */

struct gemma_shape gemma_true_shape(enum gemma_size size)
{
    struct gemma_shape shape = true_shapes[size];
    shape.head_local = 256;
    shape.head_global = 512;
    shape.n_vocab = 262144;
    return shape;
}

struct gemma_shape gemma_tiny_shape(enum gemma_size size)
{
    struct gemma_shape shape = tiny_shapes[size];
    shape.head_local = 16;
    shape.head_global = 32;
    shape.n_ctx = 512;
    shape.n_vocab = 768;
    shape.drafter.n_embd = 32;
    shape.drafter.n_ff = 64;
    shape.drafter.n_head = shape.n_head;
    return shape;
}

/* Three local layers and a global one, which read the K/V of the target. */
struct gemma_shape gemma_drafter_shape(const struct gemma_shape *target)
{
    struct gemma_shape shape = *target;
    shape.n_layer = shape.n_shared = shape.period = 4;
    shape.n_embd = target->drafter.n_embd;
    shape.n_ff = target->drafter.n_ff;
    shape.n_head = target->drafter.n_head;
    shape.n_ff_tail = shape.n_ple = shape.n_expert = 0;
    shape.n_embd_out = target->n_embd;
    return shape;
}

bool gemma_size_from_name(const char *name, enum gemma_size *out)
{
    for (int i = 0; i < GEMMA_SIZES; i++) {
        if (strcasecmp(name, true_shapes[i].name) != 0) continue;
        *out = (enum gemma_size)i;
        return true;
    }
    if (strcasecmp(name, "26b") != 0) return false;
    *out = GEMMA_26B;
    return true;
}

struct gemma_layout gemma_layout_plain(enum format format)
{
    return (struct gemma_layout){.matrix = format,
                                 .value = format,
                                 .down = format,
                                 .expert_down = format,
                                 .token_embd = format,
                                 .ple_embd = format,
                                 .ple_proj = format,
                                 .ple_gate = format,
                                 .agreement = 100,
                                 .output = format};
}

/* Q4_0 as in the quantisation-aware files of Google: both tables Q6_K. Q8_0: tables Q8_0 too.
 * Q4_K as in the usual mixture: tables, attn_v and ffn_down Q6_K, expert_down Q5_1 since its 704
 * inputs exclude K-quants. The others: one type everywhere. per_layer_model_proj is always BF16,
 * and the table that a target and a drafter have in common Q8_0. */
struct gemma_layout gemma_layout_for_format(enum format main)
{
    struct gemma_layout layout = gemma_layout_plain(main);
    layout.ple_proj = FORMAT_BF16;
    layout.output = FORMAT_Q8_0;
    if (main == FORMAT_Q4_0 || main == FORMAT_Q4_K) {
        layout.token_embd = FORMAT_Q6_K;
        layout.ple_embd = FORMAT_Q6_K;
    }
    if (main == FORMAT_Q4_K) {
        layout.value = FORMAT_Q6_K;
        layout.down = FORMAT_Q6_K;
        layout.expert_down = FORMAT_Q5_1;
    }
    return layout;
}

/* A type of which `inputs` is a whole number of blocks. */
static enum format fitting_format(enum format format, int64_t inputs)
{
    if (inputs % format_traits(format)->block_elements == 0) return format;
    if (inputs % 32 != 0) return FORMAT_F16;
    switch (format) {
    case FORMAT_Q2_K:
    case FORMAT_Q3_K:
    case FORMAT_IQ4_XS: return FORMAT_IQ4_NL;
    case FORMAT_Q4_K: return FORMAT_Q4_0;
    case FORMAT_Q5_K: return FORMAT_Q5_0;
    default: return format_has_grid(format) ? FORMAT_IQ4_NL : FORMAT_Q8_0;
    }
}

/* ---- Tensors ---------------------------------------------------------------------------- */

struct visit {
    const struct gemma_shape *shape;
    const struct gemma_layout *layout;
    gemma_tensor_fn take;
    void *user;
    int layer; /* < 0: names without prefix */
};

static void set_name(const struct visit *v, struct gemma_tensor *t, const char *name)
{
    if (v->layer >= 0)
        snprintf(t->name, sizeof t->name, "blk.%d.%s", v->layer, name);
    else
        snprintf(t->name, sizeof t->name, "%s", name);
}

/* A vector of norm weights or scales, kept as F32. */
static void vector(const struct visit *v, const char *name, int64_t n, enum gemma_draw draw,
                   float mean, float spread)
{
    struct gemma_tensor t = {.format = FORMAT_F32,
                             .n_dims = 1,
                             .dims = {n, 1, 1, 1},
                             .draw = draw,
                             .mean = mean,
                             .spread = spread};
    set_name(v, &t, name);
    v->take(v->user, &t);
}

static void norm(const struct visit *v, const char *name, int64_t n, float scale)
{
    vector(v, name, n, DRAW_NORMAL, scale, 0.25f * scale);
}

/* `experts` matrices (0: one, of two dimensions) with a spread of gain / sqrt(inputs). */
static void matrices(const struct visit *v, const char *name, enum format format, int64_t inputs,
                     int64_t outputs, int64_t experts, float gain)
{
    struct gemma_tensor t = {.format = fitting_format(format, inputs),
                             .n_dims = experts ? 3 : 2,
                             .dims = {inputs, outputs, experts ? experts : 1, 1},
                             .draw = DRAW_NORMAL,
                             .spread = gain / sqrtf((float)inputs)};
    set_name(v, &t, name);
    v->take(v->user, &t);
}

static void matrix(const struct visit *v, const char *name, enum format format, int64_t inputs,
                   int64_t outputs)
{
    matrices(v, name, format, inputs, outputs, 0, 0.8f);
}

/* The last matrix of a branch, whose output is added to the residual. */
static void last_matrices(const struct visit *v, const char *name, enum format format,
                          int64_t inputs, int64_t outputs, int64_t experts)
{
    matrices(v, name, format, inputs, outputs, experts, v->layout->is_simple ? 0.0f : 0.8f);
}

static void attention_tensors(const struct visit *v)
{
    const struct gemma_shape *s = v->shape;
    bool is_global = (v->layer + 1) % s->period == 0;
    bool has_kv =
        v->layer < s->n_layer - s->n_shared || (v->layout->keep_shared_kv && !s->n_embd_out);
    int64_t head = is_global ? s->head_global : s->head_local;
    int64_t kv = head * (is_global ? s->n_kv_global : s->n_kv_local);
    norm(v, "attn_norm.weight", s->n_embd, 1.0f);
    matrix(v, "attn_q.weight", v->layout->matrix, s->n_embd, s->n_head * head);
    norm(v, "attn_q_norm.weight", head, 1.0f);
    if (has_kv) {
        matrix(v, "attn_k.weight", v->layout->matrix, s->n_embd, kv);
        /* With weights of one the softmax of wide heads would be one-hot, and a comparison of
         * two engines would measure chaos. */
        norm(v, "attn_k_norm.weight", head, 2.0f / sqrtf((float)head));
        if (!(s->k_eq_v && is_global)) matrix(v, "attn_v.weight", v->layout->value, s->n_embd, kv);
    }
    last_matrices(v, "attn_output.weight", v->layout->matrix, s->n_head * head, s->n_embd, 0);
    norm(v, "post_attention_norm.weight", s->n_embd, 0.3f);
}

static void expert_tensors(const struct visit *v)
{
    const struct gemma_shape *s = v->shape;
    enum format format = v->layout->matrix;
    matrix(v, "ffn_gate_inp.weight", FORMAT_F32, s->n_embd, s->n_expert);
    vector(v, "ffn_gate_inp.scale", s->n_embd, DRAW_UNIFORM, 1.25f, 0.75f);
    if (!v->layout->no_expert_scale)
        vector(v, "ffn_down_exps.scale", s->n_expert, DRAW_UNIFORM, 1.0f, 0.5f);
    norm(v, "pre_ffw_norm_2.weight", s->n_embd, 1.0f);
    norm(v, "post_ffw_norm_1.weight", s->n_embd, 0.3f);
    norm(v, "post_ffw_norm_2.weight", s->n_embd, 0.3f);
    if (v->layout->separate_experts) {
        matrices(v, "ffn_gate_exps.weight", format, s->n_embd, s->n_ff_expert, s->n_expert, 0.8f);
        matrices(v, "ffn_up_exps.weight", format, s->n_embd, s->n_ff_expert, s->n_expert, 0.8f);
    } else {
        matrices(v, "ffn_gate_up_exps.weight", format, s->n_embd, 2 * s->n_ff_expert, s->n_expert,
                 0.8f);
    }
    last_matrices(v, "ffn_down_exps.weight", v->layout->expert_down, s->n_ff_expert, s->n_embd,
                  s->n_expert);
}

static void layer_tensors(const struct visit *v)
{
    const struct gemma_shape *s = v->shape;
    bool is_tail = v->layer >= s->n_layer - s->n_shared;
    int64_t n_ff = is_tail && s->n_ff_tail ? s->n_ff_tail : s->n_ff;
    attention_tensors(v);
    norm(v, "ffn_norm.weight", s->n_embd, 1.0f);
    matrix(v, "ffn_gate.weight", v->layout->matrix, s->n_embd, n_ff);
    matrix(v, "ffn_up.weight", v->layout->matrix, s->n_embd, n_ff);
    last_matrices(v, "ffn_down.weight", v->layout->down, n_ff, s->n_embd, 0);
    norm(v, "post_ffw_norm.weight", s->n_embd, 0.3f);
    if (s->n_expert) expert_tensors(v);
    if (s->n_ple) {
        matrix(v, "inp_gate.weight", v->layout->ple_gate, s->n_embd, s->n_ple);
        last_matrices(v, "proj.weight", v->layout->ple_gate, s->n_ple, s->n_embd, 0);
        norm(v, "post_norm.weight", s->n_embd, 0.3f);
    }
    if (!v->layout->no_layer_scale)
        vector(v, "layer_output_scale.weight", 1, DRAW_UNIFORM, 0.9f, 0.2f);
}

/* The table of a simple model that gives the logits. Their spread of 4 makes the likeliest token
 * stand out, so that a drafter is as sure of its guesses as a real one. */
static void common_table(const struct visit *v, const char *name, int64_t n_drawn, int agreement)
{
    struct gemma_tensor t = {.format = fitting_format(v->layout->output, n_drawn),
                             .n_dims = 2,
                             .dims = {v->shape->n_embd, v->shape->n_vocab, 1, 1},
                             .draw = DRAW_COMMON,
                             .spread = 4.0f / sqrtf((float)n_drawn),
                             .n_drawn = n_drawn,
                             .agreement = agreement};
    set_name(v, &t, name);
    v->take(v->user, &t);
}

/* Between the widths of target and drafter. The first one reads the embedding of a token and then
 * the hidden state of the row that it came from; that of a simple model takes the beginning of the
 * embedding as it is, in a format that can hold it. */
static void projections(const struct visit *v)
{
    const struct gemma_shape *s = v->shape;
    int64_t n_in = 2 * (int64_t)s->n_embd_out;
    if (v->layout->is_simple) {
        struct gemma_tensor t = {.format = FORMAT_F16,
                                 .n_dims = 2,
                                 .dims = {n_in, s->n_embd, 1, 1},
                                 .draw = DRAW_IDENTITY};
        set_name(v, &t, "nextn.pre_projection.weight");
        v->take(v->user, &t);
    } else {
        matrix(v, "nextn.pre_projection.weight", v->layout->matrix, n_in, s->n_embd);
    }
    last_matrices(v, "nextn.post_projection.weight", v->layout->matrix, s->n_embd, s->n_embd_out,
                  0);
}

static void whole_tables(const struct visit *v)
{
    const struct gemma_shape *s = v->shape;
    const struct gemma_layout *layout = v->layout;
    if (layout->is_simple && s->n_embd_out)
        common_table(v, "token_embd.weight", s->n_embd, layout->agreement);
    else
        matrices(v, "token_embd.weight", layout->token_embd, s->n_embd, s->n_vocab, 0, 1.0f);
    if (layout->is_simple && !s->n_embd_out)
        common_table(v, "output.weight", s->drafter.n_embd, 100);
    if (layout->is_simple)
        vector(v, "output_norm.weight", s->n_embd, DRAW_NORMAL, 1.0f, 0.0f);
    else
        norm(v, "output_norm.weight", s->n_embd, 1.0f);
}

void gemma_tensors(const struct gemma_shape *shape, const struct gemma_layout *layout,
                   gemma_tensor_fn take, void *user)
{
    struct visit v = {.shape = shape, .layout = layout, .take = take, .user = user, .layer = -1};
    int64_t n_ple = (int64_t)shape->n_ple * shape->n_layer;
    whole_tables(&v);
    vector(&v, "rope_freqs.weight", shape->head_global / 2, DRAW_ROPE, 0.0f, 0.0f);
    if (shape->n_embd_out) projections(&v);
    if (shape->n_ple) {
        /* Slices of n_ple values of the table are looked up, hence the gain. */
        float gain = sqrtf((float)shape->n_layer);
        matrices(&v, "per_layer_token_embd.weight", layout->ple_embd, n_ple, shape->n_vocab, 0,
                 gain);
        matrix(&v, "per_layer_model_proj.weight", layout->ple_proj, shape->n_embd, n_ple);
        norm(&v, "per_layer_proj_norm.weight", shape->n_ple, 1.0f);
    }
    for (v.layer = 0; v.layer < shape->n_layer; v.layer++) layer_tensors(&v);
}

bool gemma_row_is_drawn(const struct gemma_tensor *t, int64_t row)
{
    struct rng r = {.state = ~(uint64_t)row};
    return rng_below(&r, 100) < (uint32_t)t->agreement;
}

/* From the row's number alone: files of other sizes and seeds have the same. */
static void draw_common(const struct gemma_tensor *t, float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i += t->dims[0]) {
        int64_t row = i / t->dims[0];
        struct rng r = {.state = (uint64_t)row};
        bool is_drawn = gemma_row_is_drawn(t, row);
        for (int64_t k = 0; k < t->dims[0]; k++)
            values[i + k] = is_drawn && k < t->n_drawn ? t->spread * rng_normal(&r) : 0.0f;
    }
}

void gemma_draw_values(struct rng *r, const struct gemma_tensor *t, float *values, int64_t n)
{
    if (t->draw == DRAW_COMMON) {
        draw_common(t, values, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        switch (t->draw) {
        case DRAW_COMMON: break;
        case DRAW_NORMAL: values[i] = t->mean + t->spread * rng_normal(r); break;
        case DRAW_UNIFORM:
            values[i] = t->mean + t->spread * (2.0f * (float)rng_unit(r) - 1.0f);
            break;
        case DRAW_ROPE: values[i] = i < n / 4 ? 1.0f : 1e30f; break;
        case DRAW_IDENTITY: values[i] = i % t->dims[0] == i / t->dims[0]; break;
        }
    }
}

/* ---- Keys ------------------------------------------------------------------------------- */

enum { LAYERS_MAX = 256 };

struct key {
    char text[64];
};

static struct key key_of(const struct gemma_shape *s, const char *name)
{
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", s->n_embd_out ? "gemma4-assistant" : "gemma4",
             name);
    return key;
}

static void put_per_layer(struct gguf_writer *w, const struct gemma_shape *s, const char *name)
{
    int32_t values[LAYERS_MAX];
    carat_assert(s->n_layer <= LAYERS_MAX);
    bool is_kv = strstr(name, "head_count_kv") != NULL;
    for (int l = 0; l < s->n_layer; l++) {
        bool is_global = (l + 1) % s->period == 0, is_tail = l >= s->n_layer - s->n_shared;
        int width = is_tail && s->n_ff_tail ? s->n_ff_tail : s->n_ff;
        values[l] = is_kv ? (is_global ? s->n_kv_global : s->n_kv_local) : width;
    }
    gguf_put_array(w, key_of(s, name).text, GGUF_I32, values, (size_t)s->n_layer);
}

static void put_pattern(struct gguf_writer *w, const struct gemma_shape *s)
{
    uint8_t is_local[LAYERS_MAX];
    carat_assert(s->n_layer <= LAYERS_MAX);
    for (int l = 0; l < s->n_layer; l++) is_local[l] = (l + 1) % s->period != 0;
    gguf_put_array(w, key_of(s, "attention.sliding_window_pattern").text, GGUF_BOOL, is_local,
                   (size_t)s->n_layer);
}

static void put_int(struct gguf_writer *w, const struct gemma_shape *s, const char *name, int value)
{
    gguf_put_u32(w, key_of(s, name).text, (uint32_t)value);
}

static void put_float(struct gguf_writer *w, const struct gemma_shape *s, const char *name,
                      float value)
{
    gguf_put_f32(w, key_of(s, name).text, value);
}

/* Scalars where published files have scalars, arrays where they have arrays. */
void gemma_put_keys(struct gguf_writer *w, const struct gemma_shape *s)
{
    char name[64];
    snprintf(name, sizeof name, "random-%s%s", s->name, s->n_embd_out ? "-drafter" : "");
    gguf_put_text(w, "general.architecture", s->n_embd_out ? "gemma4-assistant" : "gemma4");
    gguf_put_text(w, "general.name", name);
    gguf_put_u32(w, "general.quantization_version", 2);
    gguf_put_f32(w, "general.sampling.temp", 1.0f);
    gguf_put_i32(w, "general.sampling.top_k", 64);
    gguf_put_f32(w, "general.sampling.top_p", 0.95f);
    put_int(w, s, "block_count", s->n_layer);
    put_int(w, s, "context_length", s->n_ctx);
    put_int(w, s, "embedding_length", s->n_embd);
    if (s->n_ff_tail)
        put_per_layer(w, s, "feed_forward_length");
    else
        put_int(w, s, "feed_forward_length", s->n_ff);
    put_int(w, s, "attention.head_count", s->n_head);
    if (s->k_eq_v || s->n_embd_out)
        put_per_layer(w, s, "attention.head_count_kv");
    else
        put_int(w, s, "attention.head_count_kv", s->n_kv_local);
    put_int(w, s, "attention.key_length", s->head_global);
    put_int(w, s, "attention.value_length", s->head_global);
    put_int(w, s, "attention.key_length_swa", s->head_local);
    put_int(w, s, "attention.value_length_swa", s->head_local);
    put_int(w, s, "rope.dimension_count", s->head_global);
    put_int(w, s, "rope.dimension_count_swa", s->head_local);
    put_int(w, s, "attention.sliding_window", s->window);
    put_int(w, s, "attention.shared_kv_layers", s->n_shared);
    put_int(w, s, "embedding_length_per_layer_input", s->n_ple);
    put_float(w, s, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_float(w, s, "rope.freq_base", 1000000.0f);
    put_float(w, s, "rope.freq_base_swa", 10000.0f);
    if (s->n_embd_out) {
        put_int(w, s, "embedding_length_out", s->n_embd_out);
        put_int(w, s, "nextn_predict_layers", s->n_layer);
    } else {
        put_float(w, s, "final_logit_softcapping", 30.0f);
    }
    put_pattern(w, s);
    if (s->n_expert) {
        put_int(w, s, "expert_count", s->n_expert);
        put_int(w, s, "expert_used_count", s->n_expert_used);
        put_int(w, s, "expert_feed_forward_length", s->n_ff_expert);
    }
}
