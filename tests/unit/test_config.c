/* What a model file may look like and what it may not: changing one thing in a good file reaches
 * every message of the configuration and of the binding of tensors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "carat_inspect.h"
#include "engine/model_file.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

enum { SEED = 11, N_VOCAB = 768, N_TEXT = 24 };

static struct scratch scratch;

static int open_scratch(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    scratch_open(&scratch);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return mem_blocks_live() == 0 ? 0 : -1;
}

static struct gguf_writer tiny(enum gemma_size size)
{
    struct gguf_writer w = {0};
    struct tiny_options options = {.size = size, .format = FORMAT_F32, .seed = SEED};
    tiny_model_put(&w, &options);
    return w;
}

/* Saves and opens; the writer is spent. */
static int open_written(struct gguf_writer *w, carat_model **out, struct carat_error *err)
{
    char path[512];
    *err = (struct carat_error){0};
    assert_false(w->failed);
    assert_int_equal(gguf_save(w, scratch_file(&scratch, "m.gguf", path), err), CARAT_OK);
    gguf_writer_deinit(w);
    int status = carat_model_open(out, path, err);
    remove(path);
    return status;
}

static void check_refused(struct gguf_writer *w, const char *first, const char *second)
{
    carat_model *m;
    struct carat_error err;
    int status = open_written(w, &m, &err);
    if (status != CARAT_EFORMAT || m)
        fail_msg("\"%s\" expected, status %d and \"%s\" found", first, status, err.message);
    assert_int_equal(err.code, CARAT_EFORMAT);
    if (!strstr(err.message, first) || !strstr(err.message, second))
        fail_msg("\"%s\" and \"%s\" expected in \"%s\"", first, second, err.message);
    assert_non_null(strstr(err.message, "m.gguf"));
}

static carat_model *open_good(struct gguf_writer *w)
{
    carat_model *m;
    struct carat_error err;
    if (open_written(w, &m, &err)) fail_msg("%s", err.message);
    return m;
}

/* ---- Keys ------------------------------------------------------------------------------- */

#define ATTENTION "gemma4.attention."

static void required_keys_are_named_when_missing(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "gemma4.block_count",         "gemma4.context_length",
        "gemma4.embedding_length",    "gemma4.embedding_length_per_layer_input",
        "gemma4.feed_forward_length", ATTENTION "head_count",
        ATTENTION "head_count_kv",    ATTENTION "key_length",
        ATTENTION "value_length",     ATTENTION "key_length_swa",
        ATTENTION "value_length_swa", ATTENTION "layer_norm_rms_epsilon",
        ATTENTION "sliding_window",   ATTENTION "sliding_window_pattern",
        "gemma4.rope.freq_base",      "gemma4.rope.dimension_count",
        "gemma4.expert_used_count",   "gemma4.expert_feed_forward_length",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct gguf_writer w = tiny(GEMMA_26B);
        gguf_drop_key(&w, keys[i]);
        check_refused(&w, keys[i], "is missing");
    }
    struct gguf_writer w = tiny(GEMMA_26B);
    gguf_drop_key(&w, "general.architecture");
    check_refused(&w, "general.architecture", "\"gemma4\" expected");
}

static void one_global_layer_without_its_values_is_not_taken_for_shared_keys(void **state)
{
    (void)state;
    struct gguf_writer w = tiny(GEMMA_E2B); /* layer 2 is global and has attn_v */
    gguf_drop_tensor(&w, "blk.2.attn_v.weight");
    check_refused(&w, "blk.2.attn_v.weight", "is missing");
    w = tiny(GEMMA_12B); /* layers 2 and 5 are global and have none */
    struct gguf_out_tensor *k = gguf_writer_tensor(&w, "blk.2.attn_k.weight");
    gguf_add_values(&w, "blk.2.attn_v.weight", FORMAT_F32, k->dims, 2, k->data);
    check_refused(&w, "blk.5.attn_v.weight", "is missing");
}

static void optional_keys_have_the_values_of_the_family(void **state)
{
    (void)state;
    struct gguf_writer w = tiny(GEMMA_12B);
    gguf_drop_key(&w, "gemma4.rope.freq_base_swa");
    gguf_drop_key(&w, "gemma4.rope.dimension_count_swa");
    gguf_drop_key(&w, "gemma4.final_logit_softcapping");
    gguf_drop_key(&w, ATTENTION "shared_kv_layers");
    carat_model *m = open_good(&w);
    const struct gemma_config *c = &m->config;
    assert_true(c->rope_base_local == 10000.0f && c->softcap == 30.0f);
    assert_int_equal(c->n_kv_layer, c->n_layer);
    assert_int_equal(c->n_expert, 0);
    carat_model_close(m);
}

struct integer_case {
    const char *key;
    uint32_t value;
    const char *part;
};

static void integers_out_of_range_are_refused_with_the_range(void **state)
{
    (void)state;
    static const struct integer_case cases[] = {
        {"gemma4.block_count", 0, "2 to 256 expected, 0 found"},
        {"gemma4.block_count", 1, "2 to 256 expected, 1 found"},
        {"gemma4.block_count", 257, "2 to 256 expected, 257 found"},
        {"gemma4.block_count", UINT32_MAX, "4294967295 found"},
        {"gemma4.context_length", 0, "0 found"},
        {"gemma4.context_length", (1u << 24) + 1, "16777217 found"},
        {"gemma4.embedding_length", 0, "0 found"},
        {"gemma4.embedding_length", 65537, "65537 found"},
        {"gemma4.embedding_length_per_layer_input", 4097, "0 to 4096 expected"},
        {ATTENTION "shared_kv_layers", 6, "0 to 5 expected, 6 found"},
        {ATTENTION "sliding_window", 1, "2 to 512 expected, 1 found"},
        {ATTENTION "sliding_window", 513, "513 found"},
        {ATTENTION "key_length", 1, "2 to 1024 expected"},
        {ATTENTION "key_length", 1026, "1026 found"},
        {ATTENTION "key_length", 33, "an even number expected, 33 found"},
        {ATTENTION "value_length", 16, "32 expected, as the key length, 16 found"},
        {ATTENTION "value_length_swa", 32, "16 expected, as the key length, 32 found"},
        {"gemma4.rope.dimension_count", 16, "32 expected, as the key length, 16 found"},
        {"gemma4.rope.dimension_count_swa", 32, "16 expected, as the key length, 32 found"},
        {"gemma4.expert_count", 1025, "0 to 1024 expected"},
        {"gemma4.expert_count", 0, "is 0 or missing, but there are experts"},
        {"gemma4.expert_used_count", 0, "1 to 8 expected, 0 found"},
        {"gemma4.expert_used_count", 9, "1 to 8 expected, 9 found"},
        {"gemma4.expert_feed_forward_length", 0, "0 found"},
        {ATTENTION "head_count", 0, "layer 0: 1 to 1024 expected, 0 found"},
        {ATTENTION "head_count", 3, "3 query heads cannot share 2 key heads"},
        {ATTENTION "head_count_kv", 0, "layer 0: 1 to 1024 expected, 0 found"},
        {"gemma4.feed_forward_length", 0, "layer 0: 1 to 1048576 expected, 0 found"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = tiny(GEMMA_26B);
        gguf_put_u32(&w, cases[i].key, cases[i].value);
        bool names_layer = strstr(cases[i].part, "query heads") != NULL;
        check_refused(&w, cases[i].part, names_layer ? "layer 0" : cases[i].key);
    }
}

static void reals_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        float value;
    } cases[] = {
        {ATTENTION "layer_norm_rms_epsilon", 0},
        {ATTENTION "layer_norm_rms_epsilon", -1e-6f},
        {ATTENTION "layer_norm_rms_epsilon", 1},
        {ATTENTION "layer_norm_rms_epsilon", NAN},
        {"gemma4.rope.freq_base", 0},
        {"gemma4.rope.freq_base", INFINITY},
        {"gemma4.rope.freq_base_swa", -1},
        {"gemma4.rope.freq_base_swa", NAN},
        {"gemma4.final_logit_softcapping", 0},
        {"gemma4.final_logit_softcapping", -30},
        {"gemma4.final_logit_softcapping", INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = tiny(GEMMA_E2B);
        gguf_put_f32(&w, cases[i].key, cases[i].value);
        check_refused(&w, cases[i].key, "expected");
    }
}

static void wrong_types_are_refused(void **state)
{
    (void)state;
    static const char *const integers[] = {"gemma4.block_count", ATTENTION "sliding_window",
                                           ATTENTION "head_count", "gemma4.expert_count",
                                           "gemma4.feed_forward_length"};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        struct gguf_writer w = tiny(GEMMA_26B);
        gguf_put_text(&w, integers[i], "six");
        check_refused(&w, integers[i], "is string, an integer");
        w = tiny(GEMMA_26B);
        gguf_put_f32(&w, integers[i], 6.0f);
        check_refused(&w, integers[i], "expected");
    }
    struct gguf_writer w = tiny(GEMMA_26B);
    gguf_put_u32(&w, "gemma4.rope.freq_base", 10000);
    check_refused(&w, "gemma4.rope.freq_base", "expected");
    w = tiny(GEMMA_26B);
    gguf_put_u32(&w, "general.architecture", 4);
    check_refused(&w, "general.architecture", "expected");
    w = tiny(GEMMA_26B);
    gguf_put_text(&w, "general.architecture", "gemma3\n");
    check_refused(&w, "\"gemma4\" expected, \"gemma3\\x0a\" found", "");
    static const char *const drafters[] = {"gemma4-assistant", "gemma4_assistant", "gemma4_mtp"};
    for (size_t i = 0; i < sizeof drafters / sizeof *drafters; i++) {
        w = tiny(GEMMA_26B);
        gguf_put_text(&w, "general.architecture", drafters[i]);
        check_refused(&w, "a drafter, which is no model by itself", drafters[i]);
    }
    w = tiny(GEMMA_26B);
    gguf_put_u32(&w, ATTENTION "sliding_window_pattern", 6);
    check_refused(&w, "sliding_window_pattern", "an array of bool expected");
}

static void arrays_need_a_value_for_each_layer(void **state)
{
    (void)state;
    static const char *const keys[] = {"gemma4.feed_forward_length", ATTENTION "head_count",
                                       ATTENTION "head_count_kv"};
    static const int32_t values[7] = {4, 4, 4, 4, 4, 4, 4};
    for (size_t i = 0; i < 3; i++)
        for (size_t n = 5; n <= 7; n += 2) {
            struct gguf_writer w = tiny(GEMMA_12B);
            gguf_put_array(&w, keys[i], GGUF_I32, values, n);
            check_refused(&w, keys[i], "6");
        }
    static const uint8_t local[6] = {1, 1, 1, 1, 1, 1}, global[6] = {0};
    struct gguf_writer w = tiny(GEMMA_12B);
    gguf_put_array(&w, ATTENTION "sliding_window_pattern", GGUF_BOOL, local, 6);
    check_refused(&w, "sliding_window_pattern", "all 6 are local");
    w = tiny(GEMMA_12B);
    gguf_put_array(&w, ATTENTION "sliding_window_pattern", GGUF_BOOL, global, 6);
    check_refused(&w, "sliding_window_pattern", "all 6 are global");
    w = tiny(GEMMA_12B);
    gguf_put_array(&w, ATTENTION "sliding_window_pattern", GGUF_BOOL, local, 5);
    check_refused(&w, "sliding_window_pattern", "6");
    static const int32_t heads[6] = {2, 2, -1, 2, 2, 1};
    w = tiny(GEMMA_12B);
    gguf_put_array(&w, ATTENTION "head_count_kv", GGUF_I32, heads, 6);
    check_refused(&w, "head_count_kv", "-1");
}

static void layers_that_share_need_a_donor_of_their_shape(void **state)
{
    (void)state;
    struct gguf_writer w = tiny(GEMMA_E2B); /* 6 layers, every third global */
    gguf_put_u32(&w, ATTENTION "shared_kv_layers", 4);
    check_refused(&w, "global layer 2 has no earlier layer of its kind", "shared_kv_layers");
    static const int32_t heads[6] = {1, 1, 1, 2, 1, 1};
    w = tiny(GEMMA_E2B);
    gguf_put_array(&w, ATTENTION "head_count_kv", GGUF_I32, heads, 6);
    check_refused(&w, "layer 3 has 2 key heads but shares those of layer 1, which has 1", "");
}

static void keys_that_deny_what_the_tensors_show_are_refused(void **state)
{
    (void)state;
    struct gguf_writer w = tiny(GEMMA_26B);
    gguf_drop_key(&w, "gemma4.expert_count");
    check_refused(&w, "expert_count", "but there are experts");
    w = tiny(GEMMA_E2B);
    gguf_put_u32(&w, "gemma4.embedding_length_per_layer_input", 0);
    check_refused(&w, "is 0, but there is a per-layer embedding table", "per_layer_input");
    w = tiny(GEMMA_12B);
    gguf_put_u32(&w, "gemma4.embedding_length_per_layer_input", 32);
    check_refused(&w, "\"per_layer_token_embd.weight\" is missing", "");
    w = tiny(GEMMA_12B);
    gguf_put_u32(&w, "gemma4.expert_count", 8);
    gguf_put_u32(&w, "gemma4.expert_used_count", 2);
    gguf_put_u32(&w, "gemma4.expert_feed_forward_length", 32);
    check_refused(&w, "is missing", "blk.0.ffn_gate_inp.weight");
}

/* ---- Tensors ---------------------------------------------------------------------------- */

struct seen {
    char (*names)[64];
    size_t n;
};

static void note_name(void *user, const struct gemma_tensor *tensor)
{
    struct seen *s = user;
    s->names = realloc(s->names, (s->n + 1) * sizeof *s->names);
    assert_non_null(s->names);
    memcpy(s->names[s->n++], tensor->name, sizeof *s->names);
}

static struct seen names_of(enum gemma_size size)
{
    struct seen s = {0};
    struct gemma_shape shape = gemma_tiny_shape(size);
    struct gemma_layout layout = gemma_layout_plain(FORMAT_F32);
    gemma_tensors(&shape, &layout, note_name, &s);
    return s;
}

/* One layer of each kind is enough: 2 is global, 3 local, 5 shares (E2B). */
static bool is_looked_at(const char *name)
{
    return strncmp(name, "blk.", 4) != 0 || strchr("235", name[4]);
}

static bool may_be_absent(const char *name)
{
    return strstr(name, "layer_output_scale") || strstr(name, "ffn_down_exps.scale");
}

static void each_tensor_is_named_when_missing(void **state)
{
    (void)state;
    static const enum gemma_size sizes[] = {GEMMA_E2B, GEMMA_26B};
    for (int k = 0; k < 2; k++) {
        struct seen s = names_of(sizes[k]);
        for (size_t i = 0; i < s.n; i++) {
            if (!is_looked_at(s.names[i]) || may_be_absent(s.names[i])) continue;
            struct gguf_writer w = tiny(sizes[k]);
            gguf_drop_tensor(&w, s.names[i]);
            check_refused(&w, s.names[i], "is missing");
        }
        free(s.names);
    }
}

static void each_tensor_is_named_when_its_shape_is_wrong(void **state)
{
    (void)state;
    static const enum gemma_size sizes[] = {GEMMA_E2B, GEMMA_26B};
    for (int k = 0; k < 2; k++) {
        struct seen s = names_of(sizes[k]);
        for (size_t i = 0; i < s.n; i++) {
            if (!is_looked_at(s.names[i])) continue;
            struct gguf_writer w = tiny(sizes[k]);
            struct gguf_out_tensor *t = gguf_writer_tensor(&w, s.names[i]);
            bool is_table = strcmp(s.names[i], "token_embd.weight") == 0;
            t->dims[is_table ? 0 : t->n_dims - 1]++; /* more than there is: extended by zeros */
            uint64_t bytes = 4;
            for (int d = 0; d < t->n_dims; d++) bytes *= (uint64_t)t->dims[d];
            int64_t dims[GGUF_DIMS_MAX];
            memcpy(dims, t->dims, sizeof dims);
            gguf_add_bytes(&w, s.names[i], 0, dims, t->n_dims, NULL, bytes);
            check_refused(&w, s.names[i], "expected");
        }
        free(s.names);
    }
}

static void vectors_must_be_finite_f32(void **state)
{
    (void)state;
    static const char *const vectors[] = {
        "output_norm.weight",       "rope_freqs.weight",         "blk.0.attn_norm.weight",
        "blk.1.attn_q_norm.weight", "blk.2.attn_k_norm.weight",  "blk.3.layer_output_scale.weight",
        "blk.4.ffn_gate_inp.scale", "blk.5.ffn_down_exps.scale", "blk.0.post_ffw_norm_2.weight"};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct gguf_writer w = tiny(GEMMA_26B);
        struct gguf_out_tensor *t = gguf_writer_tensor(&w, vectors[i]);
        ((float *)t->data)[t->dims[0] - 1] = bad[i % 3];
        check_refused(&w, vectors[i], "a finite number expected");
        w = tiny(GEMMA_26B);
        int64_t n = gguf_writer_tensor(&w, vectors[i])->dims[0];
        gguf_add_bytes(&w, vectors[i], 1, &n, 1, NULL, 2 * (uint64_t)n);
        check_refused(&w, vectors[i], "type F16 is not supported for a vector, F32 expected");
    }
    static const float factors[] = {0, -1};
    for (int i = 0; i < 2; i++) {
        struct gguf_writer w = tiny(GEMMA_26B);
        ((float *)gguf_writer_tensor(&w, "rope_freqs.weight")->data)[1] = factors[i];
        check_refused(&w, "rope_freqs.weight", "a positive number expected");
    }
}

static void types_that_cannot_be_decoded_are_refused_by_name(void **state)
{
    (void)state;
    struct gguf_writer w = tiny(GEMMA_12B);
    static const int64_t dims[] = {128, 64};
    gguf_add_bytes(&w, "blk.0.ffn_down.weight", 24, dims, 2, NULL, 128 * 64); /* I8 */
    check_refused(&w, "blk.0.ffn_down.weight", "type I8 is not supported");
}

static void experts_come_fused_or_apart(void **state)
{
    (void)state;
    struct gguf_writer w = tiny(GEMMA_26B);
    gguf_drop_tensor(&w, "blk.1.ffn_gate_up_exps.weight");
    check_refused(&w, "blk.1.ffn_gate_up_exps.weight", "ffn_gate_exps and ffn_up_exps");
    struct gguf_writer apart = {0};
    struct tiny_options options = {.size = GEMMA_26B, .seed = SEED, .separate_experts = true};
    tiny_model_put(&apart, &options);
    gguf_drop_tensor(&apart, "blk.1.ffn_up_exps.weight");
    check_refused(&apart, "blk.1.ffn_gate_up_exps.weight", "is missing");
}

/* ---- Files that differ and mean the same ------------------------------------------------ */

struct logits {
    float rows[N_TEXT][N_VOCAB];
};

static int keep_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    memcpy(((struct logits *)user)->rows[position], logits, (size_t)n_vocab * sizeof *logits);
    return 0;
}

/* Logits of a fixed text; closes the model. */
static void score(carat_model *m, struct logits *out)
{
    int32_t text[N_TEXT];
    struct carat_error err = {0};
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = 32, .chunk = 6, .kv_type = CARAT_KV_F32};
    carat_engine *e;
    for (int i = 0; i < N_TEXT; i++) text[i] = (i * 331 + 2) % N_VOCAB;
    if (carat_engine_open(&e, m, &options, &err)) fail_msg("%s", err.message);
    assert_int_equal(carat_score(e, text, N_TEXT, NULL, 0, keep_row, out, &err), CARAT_OK);
    carat_engine_close(e);
    carat_model_close(m);
}

static struct logits expected, found;

static void check_equal_logits(struct gguf_writer *a, struct gguf_writer *b)
{
    score(open_good(a), &expected);
    score(open_good(b), &found);
    assert_memory_equal(&expected, &found, sizeof expected);
}

static void separate_experts_equal_fused_ones(void **state)
{
    (void)state;
    struct gguf_writer fused = tiny(GEMMA_26B), apart = tiny(GEMMA_26B);
    for (int l = 0; l < 6; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_up_exps.weight", l);
        const struct gguf_out_tensor *t = gguf_writer_tensor(&fused, name);
        size_t half = (size_t)(t->dims[0] * t->dims[1] / 2), n = half * (size_t)t->dims[2];
        float *parts[2] = {malloc(n * sizeof(float)), malloc(n * sizeof(float))};
        assert_true(parts[0] && parts[1]);
        for (size_t e = 0; e < (size_t)t->dims[2]; e++)
            for (int k = 0; k < 2; k++)
                memcpy(parts[k] + e * half, (const float *)t->data + (2 * e + (size_t)k) * half,
                       half * sizeof(float));
        gguf_drop_tensor(&apart, name);
        int64_t dims[] = {t->dims[0], t->dims[1] / 2, t->dims[2]};
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", l, k ? "up" : "gate");
            gguf_add_values(&apart, name, FORMAT_F32, dims, 3, parts[k]);
            free(parts[k]);
        }
    }
    check_equal_logits(&fused, &apart);
}

static void the_older_name_of_the_expert_scale_is_known(void **state)
{
    (void)state;
    struct gguf_writer now = tiny(GEMMA_26B), older = tiny(GEMMA_26B), without = tiny(GEMMA_26B);
    for (int l = 0; l < 6; l++) {
        char name[64], old_name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_down_exps.scale", l);
        snprintf(old_name, sizeof old_name, "blk.%d.ffn_gate_inp.per_expert_scale", l);
        const struct gguf_out_tensor *t = gguf_writer_tensor(&now, name);
        gguf_drop_tensor(&older, name);
        gguf_add_values(&older, old_name, FORMAT_F32, t->dims, 1, t->data);
        gguf_drop_tensor(&without, name);
    }
    check_equal_logits(&now, &older);
    score(open_good(&without), &found);
    assert_memory_not_equal(&expected, &found, sizeof expected); /* it is not ignored */
}

/* A model with a scale of 1 in every layer equals the same model without the tensor. */
static void a_missing_scale_is_one(void **state)
{
    (void)state;
    static const char *const names[] = {"layer_output_scale.weight", "ffn_down_exps.scale"};
    for (int k = 0; k < 2; k++) {
        struct gguf_writer ones = tiny(GEMMA_26B), without = tiny(GEMMA_26B);
        for (int l = 0; l < 6; l++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s", l, names[k]);
            struct gguf_out_tensor *t = gguf_writer_tensor(&ones, name);
            for (int64_t i = 0; i < t->dims[0]; i++) ((float *)t->data)[i] = 1.0f;
            gguf_drop_tensor(&without, name);
        }
        check_equal_logits(&ones, &without);
    }
}

static void keys_of_layers_that_share_are_skipped_when_present(void **state)
{
    (void)state;
    struct gguf_writer trimmed = tiny(GEMMA_E2B), kept = tiny(GEMMA_E2B);
    for (int l = 3; l < 6; l++) { /* of any shape and type, NaN too: nobody looks at them */
        static const int64_t dims[] = {32, 5};
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_k.weight", l);
        gguf_add_bytes(&kept, name, 1, dims, 2, NULL, 32 * 5 * 2);
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", l);
        gguf_add_bytes(&kept, name, 24, dims, 2, NULL, 32 * 5);
        snprintf(name, sizeof name, "blk.%d.attn_k_norm.weight", l);
        static const float nan_value = NAN;
        static const int64_t one[] = {1};
        gguf_add_values(&kept, name, FORMAT_F32, one, 1, &nan_value);
    }
    carat_model *m = open_good(&kept);
    assert_non_null(strstr(m->info.note, "9 tensors"));
    score(m, &found);
    m = open_good(&trimmed);
    assert_null(strstr(m->info.note, "tensor"));
    score(m, &expected);
    assert_memory_equal(&expected, &found, sizeof expected);
}

static void unknown_tensors_are_skipped_with_one_note(void **state)
{
    (void)state;
    struct gguf_writer plain = tiny(GEMMA_12B), more = tiny(GEMMA_12B);
    static const int64_t dims[] = {64, 2};
    gguf_add_bytes(&more, "v.blk.0.attn_q.weight", 1, dims, 2, NULL, 256);
    carat_model *m = open_good(&more);
    assert_non_null(strstr(m->info.note, "1 tensor not used by the text model skipped, "
                                         "first \"v.blk.0.attn_q.weight\""));
    int64_t n_params = m->info.n_params;
    score(m, &found);
    m = open_good(&plain);
    assert_int_equal(m->info.n_params, n_params);
    score(m, &expected);
    assert_memory_equal(&expected, &found, sizeof expected);
}

static void an_output_matrix_of_its_own_is_used(void **state)
{
    (void)state;
    struct gguf_writer tied = tiny(GEMMA_31B), same = tiny(GEMMA_31B), other = tiny(GEMMA_31B);
    struct gguf_out_tensor *t = gguf_writer_tensor(&tied, "token_embd.weight");
    gguf_add_values(&same, "output.weight", FORMAT_F32, t->dims, 2, t->data);
    gguf_add_bytes(&other, "output.weight", 0, t->dims, 2, NULL, t->bytes);
    check_equal_logits(&tied, &same);
    score(open_good(&other), &found);
    for (int i = 0; i < N_VOCAB; i++) assert_true(found.rows[0][i] == 0);
}

/* ---- What is read right ----------------------------------------------------------------- */

/* Names lose what turns text around; numbers without a sign have none. */
static void a_listing_shows_texts_and_large_numbers_safely(void **state)
{
    (void)state;
    static const uint64_t large[] = {UINT64_MAX, 1};
    struct gguf_writer w = tiny(GEMMA_E2B);
    struct carat_file_facts facts;
    struct carat_error err;
    char path[512], *text;
    gguf_put_text(&w, "general.name", "a\xe2\x80\xae\xd8\x9c\xc2\x9b b");
    gguf_put_u64(&w, "x.large", UINT64_MAX);
    gguf_put_array(&w, "x.list", GGUF_U64, large, 2);
    assert_int_equal(gguf_save(&w, scratch_file(&scratch, "m.gguf", path), &err), CARAT_OK);
    gguf_writer_deinit(&w);
    assert_int_equal(carat_file_facts(path, false, &facts, &err), CARAT_OK);
    assert_string_equal(facts.name, "a b");
    assert_int_equal(carat_show_json(path, &text, &err), CARAT_OK);
    assert_non_null(strstr(text, "\"value\":18446744073709551615}"));
    assert_non_null(strstr(text, "\"value\":[18446744073709551615,1]}"));
    carat_free(text);
    remove(path);
}

static void the_facts_of_the_five_kinds_are_read(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        struct gguf_writer w = tiny((enum gemma_size)size);
        struct gemma_shape s = gemma_tiny_shape((enum gemma_size)size);
        carat_model *m = open_good(&w);
        const struct gemma_config *c = &m->config;
        assert_int_equal(c->n_layer, s.n_layer);
        assert_int_equal(c->n_kv_layer, s.n_layer - s.n_shared);
        assert_int_equal(c->n_ple, s.n_ple);
        assert_int_equal(c->n_expert, s.n_expert);
        assert_int_equal(m->info.size, s.n_ple ? CARAT_SIZE_SMALL : CARAT_SIZE_LARGE);
        assert_string_equal(m->info.variant, "other");
        for (int l = 0; l < s.n_layer; l++) {
            const struct layer_spec *y = &c->layer[l];
            bool is_global = (l + 1) % s.period == 0, is_tail = l >= s.n_layer - s.n_shared;
            assert_int_equal(y->is_global, is_global);
            assert_int_equal(y->has_kv, !is_tail);
            assert_int_equal(y->head_dim, is_global ? s.head_global : s.head_local);
            assert_int_equal(y->n_kv_heads, is_global ? s.n_kv_global : s.n_kv_local);
            assert_int_equal(y->n_ff, is_tail && s.n_ff_tail ? s.n_ff_tail : s.n_ff);
            assert_int_equal(y->k_eq_v, is_global && s.k_eq_v);
            assert_int_equal(y->window, is_global ? 0 : s.window);
            assert_int_equal(y->kv_layer, !is_tail ? l : s.n_layer - s.n_shared - 2 + is_global);
        }
        carat_model_close(m);
    }
}

static void variants_are_told_by_shape(void **state)
{
    (void)state;
    static const char *const variants[] = {"E2B", "E4B", "12B", "26B-A4B", "31B"};
    for (int i = 0; i < GEMMA_SIZES; i++) {
        struct gemma_shape s = gemma_true_shape((enum gemma_size)i);
        struct gemma_config c = {.n_layer = s.n_layer, .n_embd = s.n_embd};
        assert_string_equal(config_variant(&c), variants[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(required_keys_are_named_when_missing),
        cmocka_unit_test(one_global_layer_without_its_values_is_not_taken_for_shared_keys),
        cmocka_unit_test(optional_keys_have_the_values_of_the_family),
        cmocka_unit_test(integers_out_of_range_are_refused_with_the_range),
        cmocka_unit_test(reals_out_of_range_are_refused),
        cmocka_unit_test(wrong_types_are_refused),
        cmocka_unit_test(arrays_need_a_value_for_each_layer),
        cmocka_unit_test(layers_that_share_need_a_donor_of_their_shape),
        cmocka_unit_test(keys_that_deny_what_the_tensors_show_are_refused),
        cmocka_unit_test(each_tensor_is_named_when_missing),
        cmocka_unit_test(each_tensor_is_named_when_its_shape_is_wrong),
        cmocka_unit_test(vectors_must_be_finite_f32),
        cmocka_unit_test(types_that_cannot_be_decoded_are_refused_by_name),
        cmocka_unit_test(experts_come_fused_or_apart),
        cmocka_unit_test(separate_experts_equal_fused_ones),
        cmocka_unit_test(the_older_name_of_the_expert_scale_is_known),
        cmocka_unit_test(a_missing_scale_is_one),
        cmocka_unit_test(keys_of_layers_that_share_are_skipped_when_present),
        cmocka_unit_test(unknown_tensors_are_skipped_with_one_note),
        cmocka_unit_test(an_output_matrix_of_its_own_is_used),
        cmocka_unit_test(a_listing_shows_texts_and_large_numbers_safely),
        cmocka_unit_test(the_facts_of_the_five_kinds_are_read),
        cmocka_unit_test(variants_are_told_by_shape),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
