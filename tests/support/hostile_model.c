/* Well-formed containers that are not a Gemma 4 model, or not a whole one: architecture,
 * tokenizer, texts and weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "support/gguf_patch.h"
#include "support/hostile.h"

#define G "gemma4."
#define T "tokenizer.ggml."

/* ---- Makers shared by many rows --------------------------------------------------------- */

static void drop_key(struct hostile_maker *m)
{
    gguf_drop_key(&m->writer, m->test->object);
}

static void put_u32(struct hostile_maker *m)
{
    gguf_put_u32(&m->writer, m->test->object, (uint32_t)m->test->number);
}

static void put_i64(struct hostile_maker *m)
{
    gguf_put_i64(&m->writer, m->test->object, (int64_t)m->test->number);
}

static void put_f32(struct hostile_maker *m)
{
    gguf_put_f32(&m->writer, m->test->object, (float)m->test->real);
}

static void put_f64(struct hostile_maker *m)
{
    gguf_put_f64(&m->writer, m->test->object, m->test->real);
}

static void put_text(struct hostile_maker *m)
{
    gguf_put_text(&m->writer, m->test->object, m->test->text);
}

/* A string of `number` bytes, `text` repeated. */
static void put_long_text(struct hostile_maker *m)
{
    struct buf b = {0};
    while (b.length < m->test->number) buf_add_text(&b, m->test->text);
    gguf_put_string(&m->writer, m->test->object, b.data, (size_t)m->test->number);
    buf_deinit(&b);
}

static void put_bytes(struct hostile_maker *m)
{
    gguf_put_string(&m->writer, m->test->object, m->test->text, (size_t)m->test->number);
}

/* An array of i32 (or bool) of `number` elements, all `field`. */
static void put_i32s(struct hostile_maker *m)
{
    int32_t values[128];
    for (int i = 0; i < 128; i++) values[i] = m->test->field;
    gguf_put_array(&m->writer, m->test->object, GGUF_I32, values, (size_t)m->test->number);
}

static void put_bools(struct hostile_maker *m)
{
    uint8_t values[128];
    memset(values, m->test->field, sizeof values);
    gguf_put_array(&m->writer, m->test->object, GGUF_BOOL, values, (size_t)m->test->number);
}

static void drop_tensor(struct hostile_maker *m)
{
    gguf_drop_tensor(&m->writer, m->test->object);
}

/* Another type number and zeros for data. */
static void retype_tensor(struct hostile_maker *m)
{
    struct gguf_out_tensor *t = gguf_writer_tensor(&m->writer, m->test->object);
    carat_assert(t);
    int64_t dims[GGUF_DIMS_MAX];
    memcpy(dims, t->dims, sizeof dims);
    gguf_add_bytes(&m->writer, m->test->object, (uint32_t)m->test->field, dims, t->n_dims, NULL,
                   m->test->number);
}

/* F32 of `number` values (by `field` rows), each `real`. */
static void reshape_tensor(struct hostile_maker *m)
{
    int64_t dims[2] = {(int64_t)m->test->number, m->test->field ? m->test->field : 1};
    size_t n = (size_t)(dims[0] * dims[1]);
    float *values = malloc(n * sizeof *values);
    carat_assert(values);
    for (size_t i = 0; i < n; i++) values[i] = (float)m->test->real;
    gguf_add_values(&m->writer, m->test->object, FORMAT_F32, dims, m->test->field ? 2 : 1, values);
    free(values);
}

/* Every byte of a matrix the same: 0xff makes all scale fields NaN. */
static void fill_tensor(struct hostile_maker *m)
{
    struct gguf_out_tensor *t = gguf_writer_tensor(&m->writer, m->test->object);
    carat_assert(t && t->data);
    memset(t->data, m->test->field, (size_t)t->bytes);
}

/* ---- Tokenizer -------------------------------------------------------------------------- */

/* The tokens of the file as views into the writer's memory. */
static size_t read_tokens(const struct hostile_maker *m, struct gguf_string tokens[1024])
{
    const struct gguf_out_key *key = NULL;
    for (size_t i = 0; i < m->writer.n_key; i++)
        if (strcmp(m->writer.keys[i].name, T "tokens") == 0) key = &m->writer.keys[i];
    carat_assert(key);
    uint64_t n, length;
    const char *at = (const char *)key->value + 4;
    memcpy(&n, at, 8);
    at += 8;
    carat_assert(n <= 1024);
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&length, at, 8);
        tokens[i] = (struct gguf_string){.data = at + 8, .length = (size_t)length};
        at += 8 + length;
    }
    return (size_t)n;
}

/* Replaces the token `field` by `text` (of `number` bytes, if not 0). */
static void set_token(struct hostile_maker *m)
{
    struct gguf_string tokens[1024];
    size_t n = read_tokens(m, tokens);
    size_t length = m->test->number ? (size_t)m->test->number : strlen(m->test->text);
    tokens[m->test->field] = (struct gguf_string){.data = m->test->text, .length = length};
    gguf_put_strings(&m->writer, T "tokens", tokens, n);
}

static void token_of_a_megabyte(struct hostile_maker *m)
{
    struct gguf_string tokens[1024];
    size_t n = read_tokens(m, tokens), length = 1 << 20;
    char *text = malloc(length);
    carat_assert(text);
    memset(text, 'x', length);
    tokens[700] = (struct gguf_string){.data = text, .length = length};
    gguf_put_strings(&m->writer, T "tokens", tokens, n);
    free(text);
}

static void token_count(struct hostile_maker *m)
{
    struct gguf_string tokens[1024];
    read_tokens(m, tokens);
    gguf_put_strings(&m->writer, T "tokens", tokens, (size_t)m->test->number);
}

static void one_merge(struct hostile_maker *m)
{
    struct gguf_string merge = {.data = m->test->text, .length = strlen(m->test->text)};
    gguf_put_strings(&m->writer, T "merges", &merge, 1);
}

/* Ten million empty merges: 80 MB of zero bytes, as a hole in the file after the last key. */
static void many_merges(struct hostile_maker *m)
{
    static const uint8_t head[12] = {GGUF_STRING, 0, 0, 0, 0x80, 0x96, 0x98, 0};
    struct key_spot s;
    gguf_drop_key(&m->writer, T "merges");
    gguf_put_raw(&m->writer, "last", 4, GGUF_U8, "", 1);
    maker_image(m);
    find_key_spot(&m->image, "last", &s);
    patch_replace(&m->image, s.length_at, m->image.length - s.length_at, NULL, 0);
    uint64_t length = strlen(T "merges");
    uint32_t type = GGUF_ARRAY;
    buf_add(&m->image, &length, 8);
    buf_add(&m->image, T "merges", (size_t)length);
    buf_add(&m->image, &type, 4);
    buf_add(&m->image, head, sizeof head);
    scratch_write(m->scratch, "model.gguf", m->image.data, m->image.length);
    int status = truncate(m->path, (off_t)m->image.length + 90000000);
    carat_assert(status == 0);
    m->is_saved = true;
}

static void scores_short(struct hostile_maker *m)
{
    static const float scores[2] = {0};
    gguf_put_array(&m->writer, T "scores", GGUF_F32, scores, 2);
}

/* ---- Architecture ----------------------------------------------------------------------- */

/* An untied file without an embedding. */
static void only_output(struct hostile_maker *m)
{
    struct gguf_out_tensor *t = gguf_writer_tensor(&m->writer, "token_embd.weight");
    gguf_add_bytes(&m->writer, "output.weight", t->gguf_type, t->dims, 2, NULL, t->bytes);
    gguf_drop_tensor(&m->writer, "token_embd.weight");
}

static void rope_value(struct hostile_maker *m)
{
    float values[16];
    for (int i = 0; i < 16; i++) values[i] = i < 4 ? 1.0f : 1e30f;
    values[3] = (float)m->test->real;
    gguf_add_values(&m->writer, "rope_freqs.weight", FORMAT_F32, (int64_t[]){16}, 1, values);
}

static void mmproj(struct hostile_maker *m)
{
    gguf_writer_deinit(&m->writer);
    gguf_put_text(&m->writer, "general.architecture", "clip");
    gguf_put_text(&m->writer, "general.type", "mmproj");
    gguf_add_bytes(&m->writer, "v.patch_embd.weight", 0, (int64_t[]){32}, 1, NULL, 128);
}

static void lora(struct hostile_maker *m)
{
    gguf_writer_deinit(&m->writer);
    gguf_put_text(&m->writer, "general.architecture", "gemma4");
    gguf_put_text(&m->writer, "general.type", "adapter");
    gguf_add_bytes(&m->writer, "blk.0.attn_q.weight.lora_a", 0, (int64_t[]){32}, 1, NULL, 128);
}

static void imatrix(struct hostile_maker *m)
{
    gguf_writer_deinit(&m->writer);
    gguf_put_text(&m->writer, "general.type", "imatrix");
    gguf_add_bytes(&m->writer, "blk.0.attn_q.weight.in_sum2", 0, (int64_t[]){32}, 1, NULL, 128);
}

/* clang-format off */
#define MISSING(key) {.name = "missing " key, .make = drop_key, .object = key, .expected = key}
#define NO_TENSOR(tensor) \
    {.name = "no tensor " tensor, .make = drop_tensor, .object = tensor, .expected = tensor}
#define AS_TEXT(key) \
    {.name = key " as string", .make = put_text, .object = key, .text = "7", .expected = key}
#define AS_ARRAY(key) \
    {.name = key " as array", .make = put_i32s, .object = key, .number = 3, .field = 7, \
     .expected = key}
#define AS_F32(key) \
    {.name = key " as f32", .make = put_f32, .object = key, .real = 4, .expected = key}
#define NEGATIVE(key) \
    {.name = key " negative", .make = put_i64, .object = key, .number = UINT64_MAX, \
     .expected = key}
#define WRONG_TYPES(key) AS_TEXT(key), AS_ARRAY(key), AS_F32(key), NEGATIVE(key)
#define U32(key, value) \
    {.name = key " " #value, .make = put_u32, .object = key, .number = value, .expected = key}
#define F32(key, value) \
    {.name = key " " #value, .make = put_f32, .object = key, .real = value, .expected = key}
#define TOKEN(title, id, bytes, says) \
    {.name = title, .make = set_token, .field = id, .text = bytes, .number = sizeof bytes - 1, \
     .expected = says}
#define MERGE(title, merge) \
    {.name = title, .make = one_merge, .text = merge, .expected = T "merges"}
#define FILLED(tensor, byte) \
    {.name = tensor " all " #byte, .make = fill_tensor, .object = tensor, .field = byte, \
     .exit_status = 1, .expected = "non-finite"}
/* clang-format on */

#define PATTERN G "attention.sliding_window_pattern"

/* clang-format off */
static const struct hostile_case cases[] = {
    MISSING("general.architecture"), MISSING(G "block_count"), MISSING(G "context_length"),
    MISSING(G "embedding_length"), MISSING(G "feed_forward_length"),
    MISSING(G "attention.head_count"), MISSING(G "attention.head_count_kv"),
    MISSING(G "attention.key_length"), MISSING(G "attention.value_length"),
    MISSING(G "attention.key_length_swa"), MISSING(G "attention.value_length_swa"),
    MISSING(G "attention.layer_norm_rms_epsilon"), MISSING(G "attention.sliding_window"),
    MISSING(PATTERN), MISSING(G "embedding_length_per_layer_input"), MISSING(G "rope.freq_base"),
    MISSING(G "rope.dimension_count"), MISSING(T "model"), MISSING(T "tokens"),
    MISSING(T "merges"),
    {.name = "shared_kv_layers missing", .make = drop_key, .object = G "attention.shared_kv_layers",
     .expected = "blk.3.attn_k.weight"},

    WRONG_TYPES(G "block_count"), WRONG_TYPES(G "context_length"),
    WRONG_TYPES(G "embedding_length"), WRONG_TYPES(G "attention.head_count"),
    WRONG_TYPES(G "attention.key_length"), WRONG_TYPES(G "attention.sliding_window"),
    WRONG_TYPES(G "attention.shared_kv_layers"), WRONG_TYPES(G "embedding_length_per_layer_input"),
    AS_TEXT(G "rope.freq_base"), AS_TEXT(PATTERN), AS_F32(PATTERN),
    U32("general.architecture", 4), U32(G "rope.freq_base", 10000), U32(T "tokens", 1),
    U32(T "model", 1),

    F32(G "rope.freq_base", NAN), F32(G "rope.freq_base", INFINITY), F32(G "rope.freq_base", 0.0),
    F32(G "rope.freq_base", -0.0), F32(G "rope.freq_base", -10000.0),
    F32(G "rope.freq_base_swa", NAN),
    F32(G "attention.layer_norm_rms_epsilon", NAN),
    F32(G "attention.layer_norm_rms_epsilon", -1e-6),
    F32(G "final_logit_softcapping", NAN), F32(G "final_logit_softcapping", 0.0),
    F32(G "final_logit_softcapping", -30.0), F32(G "final_logit_softcapping", INFINITY),
    {.name = "rope base 1e300", .make = put_f64, .object = G "rope.freq_base", .real = 1e300,
     .expected = G "rope.freq_base"},

    {.name = "architecture llama", .make = put_text, .object = "general.architecture",
     .text = "llama", .expected = "\"llama\""},
    {.name = "architecture empty", .make = put_text, .object = "general.architecture",
     .text = "", .expected = "general.architecture"},
    {.name = "architecture of 1 MB", .make = put_long_text, .object = "general.architecture",
     .text = "\x1b[31mgemma4", .number = 1 << 20, .expected = "general.architecture"},
    U32(G "block_count", 0), U32(G "block_count", 1), U32(G "block_count", 1000000),
    {.name = "more layers than tensors", .make = put_u32, .object = G "block_count", .number = 7,
     .expected = "7"},
    U32(G "embedding_length", 0), U32(G "embedding_length", 2147483648),
    {.name = "another embedding length", .make = put_u32, .object = G "embedding_length",
     .number = 96, .expected = "token_embd.weight"},
    U32(G "attention.head_count", 0), U32(G "attention.head_count_kv", 0),
    {.name = "more key heads than query heads", .make = put_u32,
     .object = G "attention.head_count_kv", .number = 8, .expected = "heads"},
    {.name = "key heads no divisor", .make = put_u32, .object = G "attention.head_count_kv",
     .number = 3, .expected = "heads"},
    {.name = "key heads per layer, too few", .make = put_i32s, .number = 5, .field = 1,
     .object = G "attention.head_count_kv", .expected = "has 5 elements, 6"},
    {.name = "key heads per layer, negative", .make = put_i32s, .number = 6, .field = -1,
     .object = G "attention.head_count_kv", .expected = "-1 is out of range"},
    U32(G "attention.key_length", 0), U32(G "attention.key_length", 33),
    U32(G "attention.value_length", 16),
    {.name = "key length unlike the tensors", .make = put_u32,
     .object = G "attention.key_length_swa", .number = 32, .expected = "value_length_swa"},
    U32(G "attention.sliding_window", 0), U32(G "attention.sliding_window", 1),
    U32(G "attention.sliding_window", 513), U32(G "attention.sliding_window", 2147483648),
    {.name = "pattern too short", .make = put_bools, .object = PATTERN, .number = 5, .field = 1,
     .expected = "has 5 elements, 6"},
    {.name = "pattern too long", .make = put_bools, .object = PATTERN, .number = 7, .field = 1,
     .expected = "has 7 elements, 6"},
    {.name = "all local", .make = put_bools, .object = PATTERN, .number = 6, .field = 1,
     .expected = "all 6 are local"},
    {.name = "all global", .make = put_bools, .object = PATTERN, .number = 6, .field = 0,
     .expected = "all 6 are global"},
    U32(G "attention.shared_kv_layers", 6), U32(G "attention.shared_kv_layers", 7),
    {.name = "a kind of layer without a donor", .make = put_u32,
     .object = G "attention.shared_kv_layers", .number = 5, .expected = "to share with"},
    U32(G "embedding_length_per_layer_input", 0),
    U32(G "embedding_length_per_layer_input", 1000000),
    {.name = "per-layer width unlike the table", .make = put_u32,
     .object = G "embedding_length_per_layer_input", .number = 64,
     .expected = "per_layer_token_embd.weight"},
    NO_TENSOR("per_layer_token_embd.weight"), NO_TENSOR("per_layer_model_proj.weight"),
    NO_TENSOR("token_embd.weight"), NO_TENSOR("output_norm.weight"),
    NO_TENSOR("rope_freqs.weight"), NO_TENSOR("blk.0.attn_q.weight"),
    NO_TENSOR("blk.2.attn_k_norm.weight"), NO_TENSOR("blk.5.ffn_down.weight"),
    NO_TENSOR("blk.5.inp_gate.weight"),
    U32(G "rope.dimension_count", 0), U32(G "rope.dimension_count", 31),
    U32(G "rope.dimension_count", 64), U32(G "rope.dimension_count_swa", 32),
    {.name = "rope_freqs too short", .make = reshape_tensor, .object = "rope_freqs.weight",
     .number = 8, .real = 1, .expected = "rope_freqs.weight"},
    {.name = "rope_freqs with a zero", .make = rope_value, .real = 0.0,
     .expected = "rope_freqs.weight"},
    {.name = "rope_freqs with a NaN", .make = rope_value, .real = NAN,
     .expected = "rope_freqs.weight"},
    {.name = "no experts by the keys", .make = put_u32, .object = G "expert_count", .number = 0,
     .size = GEMMA_26B, .expected = G "expert_count"},
    {.name = "10^5 experts", .make = put_u32, .object = G "expert_count", .number = 100000,
     .size = GEMMA_26B, .expected = G "expert_count"},
    {.name = "another count of experts", .make = put_u32, .object = G "expert_count", .number = 16,
     .size = GEMMA_26B, .expected = "ffn_gate_inp.weight"},
    {.name = "more experts used than there are", .make = put_u32,
     .object = G "expert_used_count", .number = 9, .size = GEMMA_26B,
     .expected = G "expert_used_count"},
    {.name = "no experts used", .make = put_u32, .object = G "expert_used_count", .number = 0,
     .size = GEMMA_26B, .expected = G "expert_used_count"},
    {.name = "expert matrix missing", .make = drop_tensor, .size = GEMMA_26B,
     .object = "blk.1.ffn_gate_up_exps.weight", .expected = "ffn_gate_up_exps"},
    {.name = "feed forward widths too few", .make = put_i32s, .number = 5, .field = 64,
     .object = G "feed_forward_length", .expected = "has 5 elements, 6"},
    {.name = "norm stored as Q8_0", .make = retype_tensor, .object = "blk.0.attn_norm.weight",
     .field = 8, .number = 68, .expected = "\"blk.0.attn_norm.weight\": type Q8_0"},
    {.name = "weight as F64", .make = retype_tensor, .object = "blk.0.attn_q.weight", .field = 28,
     .number = 64 * 64 * 8, .expected = "\"blk.0.attn_q.weight\": type F64"},
    {.name = "embedding as I8", .make = retype_tensor, .object = "token_embd.weight", .field = 24,
     .number = 64 * 768, .expected = "\"token_embd.weight\": type I8"},
    {.name = "output but no embedding", .make = only_output, .expected = "token_embd.weight"},
    {.name = "norm of another length", .make = reshape_tensor, .object = "output_norm.weight",
     .number = 32, .real = 1, .expected = "output_norm.weight"},
    U32(G "context_length", 0), U32(G "context_length", 4294967295),

    {.name = "no tokens", .make = token_count, .number = 0, .expected = T "tokens"},
    {.name = "one token", .make = token_count, .number = 1, .expected = T "tokens"},
    {.name = "fewer tokens than rows", .make = token_count, .number = 760, .expected = T},
    {.name = "token types too few", .make = put_i32s, .object = T "token_type", .number = 5,
     .field = 1, .expected = T "token_type"},
    {.name = "scores too few", .make = scores_short, .expected = T "scores"},
    TOKEN("empty token", 700, "", T "tokens"),
    TOKEN("token not UTF-8", 700, "\xff\xfe", T "tokens"),
    TOKEN("token with NUL", 600, "a\0b", NULL),
    {.name = "token of 1 MB", .make = token_of_a_megabyte, .expected = T "tokens"},
    TOKEN("byte token <0x-1>", 300, "<0x-1>", T "tokens[300]"),
    TOKEN("byte token <0xGG>", 300, "<0xGG>", T "tokens[300]"),
    TOKEN("byte token <0x100>", 300, "<0x100>", T "tokens[300]"),
    TOKEN("no <|turn>", 105, "<unused105>", "<|turn>"),
    TOKEN("no <turn|>", 106, "<unused106>", "<turn|>"),
    TOKEN("no <bos>", 2, "<unused2>", "<bos>"),
    U32(T "bos_token_id", 768), U32(T "eos_token_id", 4294967295), U32(T "unknown_token_id", 768),
    U32(T "padding_token_id", 100000), NEGATIVE(T "eos_token_id"), AS_TEXT(T "eos_token_id"),
    MERGE("merge without a space", "ab"), MERGE("merge of unknown pieces", "qqq zzz"),
    MERGE("merge of nothing", ""), MERGE("merge of spaces", "   "),
    {.name = "ten million merges", .make = many_merges, .expected = T "merges"},
    AS_TEXT(T "add_bos_token"),
    {.name = "unknown tokenizer model", .make = put_text, .object = T "model", .text = "bert",
     .expected = T "model"},
    {.name = "template of 10 MB (not used)", .make = put_long_text,
     .object = "tokenizer.chat_template", .text = "{% for x in range(10**9) %}",
     .number = 10000000},
    {.name = "template not UTF-8 (not used)", .make = put_bytes,
     .object = "tokenizer.chat_template", .text = "\xff\xfe{{", .number = 4},
    {.name = "name of 1 MB with escapes", .make = put_long_text, .object = "general.name",
     .text = "\x1b]0;title\x07\x1b[31m", .number = 1 << 20},

    {.name = "mmproj", .make = mmproj, .expected = "\"clip\""},
    {.name = "LoRA", .make = lora, .expected = "block_count"},
    {.name = "imatrix", .make = imatrix, .expected = "general.architecture"},

    FILLED("token_embd.weight", 0xff), FILLED("blk.0.attn_q.weight", 0xff),
    FILLED("blk.5.ffn_down.weight", 0xff),
    {.name = "output_norm with a NaN", .make = reshape_tensor, .object = "output_norm.weight",
     .number = 64, .real = NAN, .expected = "output_norm.weight"},
    {.name = "weights of Inf", .make = reshape_tensor, .object = "blk.1.ffn_up.weight",
     .number = 64, .field = 64, .real = INFINITY, .exit_status = 1, .expected = "non-finite"},
    {.name = "embedding all zero", .make = fill_tensor, .object = "token_embd.weight", .field = 0},
};
/* clang-format on */

struct hostile_list hostile_model_cases(void)
{
    return (struct hostile_list){.cases = cases, .n = sizeof cases / sizeof *cases};
}
