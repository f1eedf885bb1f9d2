/* Model files in other types: what they hold, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "carat_quantize.h"
#include "model/mixture.h"
#include "gguf/imatrix.h"
#include "support/answers.h"
#include "support/gguf_walk.h"
#include "support/imatrix_file.h"

enum { N_SOURCES = GEMMA_SIZES };

static char sources[N_SOURCES][512];  /* one of each size in BF16 */
static char matrices[N_SOURCES][512]; /* importance of all their layers */

/* A model with rows of 256 columns, in Q8_0. */
static const char wide[] = CARAT_SOURCE_DIR "/tests/golden/fixtures/e2b-q8_0.gguf";
static char wide_matrix[512];
static const enum gemma_size sizes[N_SOURCES] = {GEMMA_E2B, GEMMA_E4B, GEMMA_12B, GEMMA_26B,
                                                 GEMMA_31B};

static int save_matrix(const char *model, const char *path)
{
    struct gguf *g;
    struct carat_error err = {0};
    struct gguf_writer w = {0};
    int status = gguf_open(&g, model, &err);
    if (status) return status;
    imatrix_put_model(&w, g, 5);
    status = gguf_save(&w, path, &err);
    gguf_writer_deinit(&w);
    gguf_close(g);
    return status;
}

static int open_sources(void **state)
{
    if (open_models(state)) return -1;
    for (int i = 0; i < N_SOURCES; i++) {
        char name[32];
        struct carat_error err = {0};
        struct tiny_options options = {.size = sizes[i], .format = FORMAT_BF16, .seed = TINY_SEED};
        snprintf(name, sizeof name, "source-%d.gguf", i);
        scratch_file(&scratch, name, sources[i]);
        if (tiny_model_save(sources[i], &options, &err)) return -1;
        snprintf(name, sizeof name, "matrix-%d.gguf", i);
        scratch_file(&scratch, name, matrices[i]);
        if (save_matrix(sources[i], matrices[i])) return -1;
    }
    return save_matrix(wide, scratch_file(&scratch, "wide.gguf", wide_matrix));
}

/* ---- Files in memory --------------------------------------------------------------------- */

struct written {
    struct buf file;
    int n_tensors, fails_at; /* the piece that cannot be written; -1: none */
    int n_weighted;
    double error_max, errors, weighted; /* sums, over layers' tensors */
    uint64_t bytes;                     /* of tensors */
};

static int take_piece(void *user, const void *bytes, size_t n, struct carat_error *err)
{
    struct written *w = user;
    if (w->fails_at >= 0 && w->fails_at-- == 0) return err_set(err, CARAT_EIO, "the disk is full");
    buf_add(&w->file, bytes, n);
    return w->file.failed ? err_no_memory(err, "file", n) : CARAT_OK;
}

static void take_tensor(void *user, const struct carat_quantized *t, int32_t index, int32_t count)
{
    struct written *w = user;
    assert_int_equal(index, w->n_tensors++);
    assert_true(index < count);
    assert_true(t->error >= 0 && t->n_values > 0);
    if (t->error > w->error_max) w->error_max = t->error;
    assert_true(t->weighted_error >= 0 && (t->is_weighted || t->weighted_error == 0));
    w->n_weighted += t->is_weighted;
    if (strncmp(t->name, "blk.", 4) == 0) w->errors += t->error;
    w->weighted += t->weighted_error;
    w->bytes += t->to_bytes;
}

static struct carat_quantize_options options_of(const char *type, struct written *w)
{
    *w = (struct written){.fails_at = -1};
    return (struct carat_quantize_options){.size = sizeof(struct carat_quantize_options),
                                           .type = type,
                                           .n_threads = 2,
                                           .write = take_piece,
                                           .tensor = take_tensor,
                                           .user = w};
}

static void quantize(const char *path, const struct carat_quantize_options *o)
{
    struct carat_error err = {0};
    if (carat_quantize(path, o, &err)) fail_msg("%s", err.message);
}

static struct gguf *open_file(const char *path)
{
    struct gguf *g;
    struct carat_error err = {0};
    if (gguf_open(&g, path, &err)) fail_msg("%s", err.message);
    return g;
}

static struct gguf *open_written(const struct written *w)
{
    struct gguf *g;
    struct carat_error err = {0};
    if (gguf_open_memory(&g, w->file.data, w->file.length, "new", &err))
        fail_msg("%s", err.message);
    return g;
}

/* ---- What is written --------------------------------------------------------------------- */

/* The bytes of `t` in another format, one row after the other; importance may be NULL. */
static void check_values(const struct gguf_tensor *t, const struct gguf_tensor *made,
                         const struct imatrix_entry *e)
{
    int64_t rows = t->dims[1] * t->dims[2] * t->dims[3], cols = t->dims[0];
    size_t from = format_row_bytes(t->format, cols), to = format_row_bytes(made->format, cols);
    float *values = mem_alloc((size_t)cols, sizeof *values);
    uint8_t *row = mem_alloc(to, 1);
    float *importance = mem_alloc((size_t)cols, sizeof *importance);
    for (int64_t r = 0; r < rows; r++) {
        format_traits(t->format)->decode(t->data + (size_t)r * from, values, cols);
        if (e) imatrix_read(e, r / t->dims[1], t->dims[2], importance);
        format_traits(made->format)->encode(values, e ? importance : NULL, row, cols);
        assert_memory_equal(row, made->data + (size_t)r * to, to);
    }
    mem_free(values);
    mem_free(importance);
    mem_free(row);
}

static void every_tensor_has_the_type_of_the_mixture_and_its_values(void **state)
{
    (void)state;
    for (int i = 0; i < N_SOURCES; i++) {
        struct gemma_config c;
        struct gguf *from = open_file(sources[i]);
        assert_int_equal(config_read(&c, from, NULL), CARAT_OK);
        const struct mixture *m;
        struct imatrix *matrix;
        assert_int_equal(imatrix_open(&matrix, matrices[i], NULL), CARAT_OK);
        for (int32_t k = 0; (m = mixture_at(k)); k++) {
            struct written w;
            struct carat_quantize_options o = options_of(m->name, &w);
            bool has_matrix = k % 2 || mixture_needs_importance(m->base);
            if (has_matrix) o.imatrix = matrices[i];
            quantize(sources[i], &o);
            struct gguf *g = open_written(&w);
            assert_int_equal(gguf_tensor_count(g), gguf_tensor_count(from));
            for (size_t j = 0; j < gguf_tensor_count(g); j++) {
                const struct gguf_tensor *t = gguf_tensor_at(from, j), *made = gguf_tensor_at(g, j);
                enum format format = mixture_format(m, &c, t, false);
                if (format == FORMAT_COUNT) format = t->format;
                assert_string_equal(made->name, t->name);
                assert_int_equal(made->format, mixture_fit(format, t->dims[0]));
                if (made->format == t->format)
                    assert_memory_equal(made->data, t->data, t->bytes);
                else
                    check_values(t, made, has_matrix ? imatrix_find(matrix, t->name) : NULL);
            }
            gguf_close(g);
            buf_deinit(&w.file);
        }
        imatrix_close(matrix);
        gguf_close(from);
    }
}

/* A file with keys of every type, of a split and of an importance matrix. */
static void put_keys(struct gguf_writer *w)
{
    static const int16_t shorts[] = {-7, 0, 32767};
    static const double reals[] = {0.1, -1e300};
    gguf_put_u8(w, "test.u8", 200);
    gguf_put_u16(w, "test.u16", 60000);
    gguf_put_u64(w, "test.u64", UINT64_C(1) << 63);
    gguf_put_i32(w, "test.i32", -5);
    gguf_put_i64(w, "test.i64", -(INT64_C(1) << 40));
    gguf_put_f32(w, "test.f32", 0.1f);
    gguf_put_f64(w, "test.f64", 0.1);
    gguf_put_bool(w, "test.bool", true);
    gguf_put_string(w, "test.string", "a\0b", 3);
    gguf_put_array(w, "test.shorts", GGUF_I16, shorts, 3);
    gguf_put_array(w, "test.reals", GGUF_F64, reals, 2);
    gguf_put_text(w, "quantize.imatrix.file", "old");
    gguf_put_u32(w, "general.file_type", 32);
    gguf_put_u32(w, "general.quantization_version", 1);
}

static void keys_stay_but_for_those_about_the_type(void **state)
{
    (void)state;
    char path[512];
    struct carat_error err = {0};
    struct gguf_writer writer = {.alignment = 64};
    tiny_model_put(&writer, &(struct tiny_options){.size = GEMMA_12B, .format = FORMAT_BF16});
    put_keys(&writer);
    scratch_file(&scratch, "keys.gguf", path);
    assert_int_equal(gguf_save(&writer, path, &err), CARAT_OK);
    gguf_writer_deinit(&writer);
    struct written w;
    struct carat_quantize_options o = options_of("q5_k_s", &w);
    quantize(path, &o);
    struct gguf *from = open_file(path), *g = open_written(&w);
    assert_int_equal(gguf_alignment(g), 64);
    assert_int_equal(gguf_kv_count(g), gguf_kv_count(from) - 1);
    for (size_t i = 0; i < gguf_kv_count(from); i++) {
        const struct gguf_kv *kv = gguf_kv_at(from, i);
        if (strncmp(kv->key.data, "quantize.", 9) == 0)
            assert_null(gguf_find(g, kv->key.data));
        else if (strcmp(kv->key.data, "general.file_type") != 0 &&
                 strcmp(kv->key.data, "general.quantization_version") != 0)
            assert_true(gguf_same_key(kv, gguf_find(g, kv->key.data)));
    }
    assert_int_equal(gguf_find(g, "general.file_type")->value.u, 16);
    assert_int_equal(gguf_find(g, "general.quantization_version")->value.u, 2);
    gguf_close(from);
    gguf_close(g);
    buf_deinit(&w.file);
}

static void the_new_file_answers(void **state)
{
    (void)state;
    static const char *const types[] = {"Q4_K_M",  "Q2_K",      "Q3_K_S", "IQ4_XS", "IQ3_S",
                                        "IQ3_XXS", "MXFP4_MOE", "IQ2_XS", "IQ1_M"};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        for (int i = 0; i < N_SOURCES; i++) {
            struct written w;
            carat_model *model;
            struct carat_error err = {0};
            int32_t prompt[128];
            struct carat_quantize_options o = options_of(types[k], &w);
            if (mixture_needs_importance(mixture_find(types[k])->base)) o.imatrix = matrices[i];
            quantize(sources[i], &o);
            char path[512];
            scratch_write(&scratch, "new.gguf", w.file.data, w.file.length);
            scratch_file(&scratch, "new.gguf", path);
            if (carat_model_open(&model, path, &err)) fail_msg("%s", err.message);
            struct carat_engine_options engine = {
                .size = sizeof engine, .backend = "ref", .n_ctx = 160, .n_seq = 1};
            carat_engine *e = open_engine(model, &engine);
            struct carat_request request = mixed_request(0, prompt);
            request.max_tokens = 4;
            request.ignore_stop = true;
            assert_int_equal(ask(e, &request).n, 4);
            carat_engine_close(e);
            carat_model_close(model);
            remove(path);
            buf_deinit(&w.file);
        }
}

static void the_number_of_threads_changes_no_byte(void **state)
{
    (void)state;
    struct written one, many;
    struct carat_quantize_options o = options_of("Q4_K_M", &one);
    o.n_threads = 1;
    quantize(sources[3], &o);
    o = options_of("Q4_K_M", &many);
    o.n_threads = 7;
    quantize(sources[3], &o);
    assert_int_equal(one.file.length, many.file.length);
    assert_memory_equal(one.file.data, many.file.data, one.file.length);
    assert_true(one.error_max > 0.03 && one.error_max < 0.2);
    buf_deinit(&one.file);
    buf_deinit(&many.file);
}

static void a_dry_run_says_the_same_sizes(void **state)
{
    (void)state;
    struct written real, dry;
    struct carat_quantize_options o = options_of("Q5_K_M", &real);
    quantize(sources[0], &o);
    o = options_of("Q5_K_M", &dry);
    o.write = NULL;
    quantize(sources[0], &o);
    assert_int_equal(dry.file.length, 0);
    assert_int_equal(dry.n_tensors, real.n_tensors);
    assert_int_equal(dry.bytes, real.bytes);
    assert_true(dry.error_max == 0);
    buf_deinit(&real.file);
}

static void rules_come_before_the_mixture_and_pure_files_have_one_type(void **state)
{
    (void)state;
    struct written w;
    const struct carat_type_rule rules[] = {
        {"^token_embd", "q8_0"}, {"attn_q", "F16"}, {"attn", "IQ4_NL"}};
    struct carat_quantize_options o = options_of("Q4_0", &w);
    o.rules = rules;
    o.n_rules = 3;
    o.is_pure = true;
    quantize(sources[1], &o);
    struct gguf *g = open_written(&w);
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        enum format expected = FORMAT_Q4_0;
        if (t->n_dims < 2)
            expected = FORMAT_F32;
        else if (strcmp(t->name, "token_embd.weight") == 0)
            expected = FORMAT_Q8_0;
        else if (strstr(t->name, "attn"))
            expected = strstr(t->name, "attn_q") ? FORMAT_F16 : FORMAT_IQ4_NL;
        else if (strstr(t->name, "per_layer_model_proj"))
            expected = FORMAT_BF16;
        assert_int_equal(t->format, mixture_fit(expected, t->dims[0]));
    }
    gguf_close(g);
    buf_deinit(&w.file);
}

static void what_must_be_exact_stays_whatever_is_asked_for(void **state)
{
    (void)state;
    struct written w;
    const struct carat_type_rule router = {"ffn_gate", "Q4_0"}, input = {"proj", "Q4_0"};
    for (int i = 0; i < 2; i++) {
        const char *source = sources[i ? 1 : 3], *name;
        name = i ? "per_layer_model_proj.weight" : "blk.0.ffn_gate_inp.weight";
        struct carat_quantize_options o = options_of("Q8_0", &w);
        o.rules = i ? &input : &router;
        o.n_rules = 1;
        quantize(source, &o);
        struct gguf *from = open_file(source), *g = open_written(&w);
        assert_int_equal(gguf_tensor_find(g, name)->format, gguf_tensor_find(from, name)->format);
        assert_int_equal(
            gguf_tensor_find(g, i ? "blk.0.proj.weight" : "blk.0.ffn_gate.weight")->format,
            FORMAT_Q4_0);
        gguf_close(from);
        gguf_close(g);
        buf_deinit(&w.file);
    }
}

static void types_that_do_not_fit_give_way_to_the_nearest(void **state)
{
    (void)state;
    assert_int_equal(mixture_fit(FORMAT_Q4_K, 2560), FORMAT_Q4_K);
    assert_int_equal(mixture_fit(FORMAT_Q4_K, 704), FORMAT_Q5_0);
    assert_int_equal(mixture_fit(FORMAT_Q5_K, 704), FORMAT_Q5_1);
    assert_int_equal(mixture_fit(FORMAT_Q6_K, 2112), FORMAT_Q8_0);
    assert_int_equal(mixture_fit(FORMAT_Q2_K, 704), FORMAT_IQ4_NL);
    assert_int_equal(mixture_fit(FORMAT_Q3_K, 704), FORMAT_IQ4_NL);
    assert_int_equal(mixture_fit(FORMAT_IQ4_XS, 704), FORMAT_IQ4_NL);
    assert_int_equal(mixture_fit(FORMAT_IQ3_S, 704), FORMAT_IQ4_NL);
    assert_int_equal(mixture_fit(FORMAT_IQ2_XXS, 704), FORMAT_IQ4_NL);
    assert_int_equal(mixture_fit(FORMAT_MXFP4, 704), FORMAT_MXFP4);
    assert_int_equal(mixture_fit(FORMAT_Q4_0, 40), FORMAT_F16);
}

static void the_ends_and_a_third_of_the_middle_layers_are_better(void **state)
{
    (void)state;
    static const bool better[32] = {
        [0] = 1,  [1] = 1,  [2] = 1,  [3] = 1,  [6] = 1,  [9] = 1,  [12] = 1, [15] = 1,
        [18] = 1, [21] = 1, [24] = 1, [27] = 1, [28] = 1, [29] = 1, [30] = 1, [31] = 1};
    struct gemma_config c = {.n_layer = 32};
    for (int i = 0; i < 32; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        struct gguf_tensor t = {.name = name, .n_dims = 2};
        assert_int_equal(mixture_format(mixture_find("Q4_K"), &c, &t, false),
                         better[i] ? FORMAT_Q6_K : FORMAT_Q4_K);
        assert_int_equal(mixture_format(mixture_find("q4_k_s"), &c, &t, false),
                         i < 4 ? FORMAT_Q5_K : FORMAT_Q4_K);
        assert_int_equal(mixture_format(mixture_find("Q4_K_M"), &c, &t, true), FORMAT_Q4_K);
    }
}

/* ---- Importance -------------------------------------------------------------------------- */

static uint32_t number_of(const struct gguf *g, const char *key)
{
    uint32_t value = 0;
    assert_int_equal(gguf_get_u32(g, key, &value, NULL), CARAT_OK);
    return value;
}

static void keys_name_the_matrix(void **state)
{
    (void)state;
    struct written w;
    struct gguf_string text;
    struct imatrix *matrix;
    assert_int_equal(imatrix_open(&matrix, matrices[2], NULL), CARAT_OK);
    struct carat_quantize_options o = options_of("Q4_K_S", &w);
    o.imatrix = matrices[2];
    quantize(sources[2], &o);
    struct gguf *g = open_written(&w);
    assert_int_equal(number_of(g, "quantize.imatrix.entries_count"), imatrix_count(matrix));
    assert_int_equal(number_of(g, "quantize.imatrix.chunks_count"), 12);
    assert_int_equal(gguf_get_string(g, "quantize.imatrix.file", &text, NULL), CARAT_OK);
    assert_int_equal(text.length, strlen(matrices[2]));
    assert_memory_equal(text.data, matrices[2], text.length);
    assert_int_equal(gguf_get_string(g, "quantize.imatrix.dataset", &text, NULL), CARAT_OK);
    assert_int_equal(text.length, 9);
    assert_memory_equal(text.data, "words.txt", 9);
    gguf_close(g);
    buf_deinit(&w.file);
    imatrix_close(matrix);
}

static void importance_lowers_the_errors_that_it_weighs(void **state)
{
    (void)state;
    const struct mixture *m;
    for (int32_t k = 0; (m = mixture_at(k)); k++) {
        struct written with, without;
        if (format_is_float(m->base)) continue;
        struct carat_quantize_options o = options_of(m->name, &with);
        o.may_requantize = true;
        o.imatrix = wide_matrix;
        quantize(wide, &o);
        assert_true(with.n_weighted >= 20);
        assert_true(with.weighted > 0 && with.weighted < 0.95 * with.errors);
        buf_deinit(&with.file);
        if (mixture_needs_importance(m->base)) continue;
        o = options_of(m->name, &without);
        o.may_requantize = true;
        quantize(wide, &o);
        assert_int_equal(without.n_weighted, 0);
        assert_true(with.weighted < without.errors);
        buf_deinit(&without.file);
    }
}

static void entries_are_left_out_by_name(void **state)
{
    (void)state;
    struct written all, some, others;
    const char *const names[] = {"attn_q", "^blk.1.ffn_down"};
    struct carat_quantize_options o = options_of("Q4_0", &all);
    o.imatrix = matrices[1];
    quantize(sources[1], &o);
    o = options_of("Q4_0", &some);
    o.imatrix = matrices[1];
    o.include = names;
    o.n_include = 2;
    quantize(sources[1], &o);
    o = options_of("Q4_0", &others);
    o.imatrix = matrices[1];
    o.exclude = names;
    o.n_exclude = 2;
    quantize(sources[1], &o);
    assert_true(some.n_weighted > 1 && others.n_weighted > some.n_weighted);
    assert_int_equal(some.n_weighted + others.n_weighted, all.n_weighted);
    struct gguf *g = open_written(&some);
    assert_true(number_of(g, "quantize.imatrix.entries_count") < 20);
    gguf_close(g);
    buf_deinit(&all.file);
    buf_deinit(&some.file);
    buf_deinit(&others.file);
}

/* ---- What is refused --------------------------------------------------------------------- */

static void refuse(const char *path, const struct carat_quantize_options *o, int code,
                   const char *text)
{
    struct carat_error err = {0};
    assert_int_equal(carat_quantize(path, o, &err), code);
    if (!strstr(err.message, text)) fail_msg("\"%s\" expected in: %s", text, err.message);
}

static void what_is_quantised_already_is_refused_unless_asked_for(void **state)
{
    (void)state;
    char path[512];
    struct written w;
    struct carat_error err = {0};
    struct tiny_options tiny = {.size = GEMMA_12B, .format = FORMAT_Q8_0, .seed = TINY_SEED};
    scratch_file(&scratch, "q8.gguf", path);
    assert_int_equal(tiny_model_save(path, &tiny, &err), CARAT_OK);
    struct carat_quantize_options o = options_of("Q4_0", &w);
    refuse(path, &o, CARAT_EUSAGE, "is quantised already: Q8_0, Q");
    assert_int_equal(w.file.length, 0);
    o.may_requantize = true;
    quantize(path, &o);
    buf_deinit(&w.file);
    o = options_of("Q8_0", &w); /* nothing to do but to copy */
    quantize(path, &o);
    assert_true(w.error_max == 0);
    buf_deinit(&w.file);
}

static void wrong_types_names_and_files_are_refused(void **state)
{
    (void)state;
    struct written w;
    struct carat_quantize_options o = options_of("Q4_K_XL", &w);
    refuse(sources[0], &o, CARAT_EUSAGE, "\"Q4_K_XL\"");
    o.type = NULL;
    refuse(sources[0], &o, CARAT_EUSAGE, "no such type");
    o = options_of("Q4_0", &w);
    o.rules = &(struct carat_type_rule){"attn", "Q4_K_M"};
    o.n_rules = 1;
    refuse(sources[0], &o, CARAT_EUSAGE, "\"Q4_K_M\" of tensors \"attn\"");
    o.rules = &(struct carat_type_rule){"^attn", "Q8_0"};
    refuse(sources[0], &o, CARAT_EUSAGE, "no tensor that may change has \"^attn\"");
    o.rules = &(struct carat_type_rule){"attn_norm", "F16"}; /* vectors */
    refuse(sources[0], &o, CARAT_EUSAGE, "\"attn_norm\"");
    o.n_rules = 0;
    o.n_threads = -1;
    refuse(sources[0], &o, CARAT_EUSAGE, "threads");
    o.n_threads = 0;
    refuse("/nowhere/model.gguf", &o, CARAT_EFORMAT, "/nowhere/model.gguf");
    scratch_write(&scratch, "text.gguf", "GGUF?", 5);
    char path[512];
    refuse(scratch_file(&scratch, "text.gguf", path), &o, CARAT_EFORMAT, "text.gguf");
    assert_int_equal(w.file.length, 0);
}

/* The matrix of another model, one that lacks a tensor, and one that fits no name. */
static void matrices_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    char path[512];
    struct written w;
    const char *name = "nose";
    struct carat_quantize_options o = options_of("IQ2_XXS", &w);
    refuse(sources[2], &o, CARAT_EUSAGE, "IQ2_XXS: bad without an importance matrix");
    o.imatrix = matrices[0];
    refuse(sources[2], &o, CARAT_EFORMAT, "columns, and the model's has ");
    o.imatrix = "/nowhere/matrix.gguf";
    refuse(sources[2], &o, CARAT_EFORMAT, "/nowhere/matrix.gguf");
    o.imatrix = sources[2];
    refuse(sources[2], &o, CARAT_EFORMAT, "no importance matrix: general.type is");
    o.imatrix = matrices[2];
    o.include = &name;
    o.n_include = 1;
    refuse(sources[2], &o, CARAT_EUSAGE, "no entry has \"nose\" in its name (include)");
    o.exclude = o.include;
    o.n_exclude = 1;
    o.n_include = 0;
    refuse(sources[2], &o, CARAT_EUSAGE, "no entry has \"nose\" in its name (exclude)");
    o.imatrix = NULL;
    o.type = "Q4_0";
    refuse(sources[2], &o, CARAT_EUSAGE, "no importance matrix");
    struct buf other = {0};
    imatrix_dat_count(&other, 1);
    imatrix_dat_add(&other, "model.layers.0.q_proj", 1, (const float[]){1, 2}, 2);
    scratch_write(&scratch, "other.dat", other.data, other.length);
    buf_deinit(&other);
    o = options_of("Q4_0", &w);
    o.imatrix = scratch_file(&scratch, "other.dat", path);
    refuse(sources[2], &o, CARAT_EFORMAT, "none of 1 entries names a tensor of the model");
    assert_int_equal(w.file.length, 0);
}

/* A type that needs importance is given to a layer without it only where a user says so. */
static void layers_without_importance_are_refused_where_they_need_it(void **state)
{
    (void)state;
    struct written w;
    char lacking[64] = "";
    struct carat_quantize_options o = options_of("IQ2_XXS", &w);
    o.may_requantize = true;
    o.imatrix = wide_matrix;
    quantize(wide, &o);
    struct gguf *g = open_written(&w);
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        if (gguf_tensor_at(g, i)->format == FORMAT_IQ2_XXS)
            snprintf(lacking, sizeof lacking, "^%s", gguf_tensor_at(g, i)->name);
    assert_true(lacking[0]);
    gguf_close(g);
    buf_deinit(&w.file);
    const char *name = lacking;
    o = options_of("IQ2_XXS", &w);
    o.may_requantize = true;
    o.imatrix = wide_matrix;
    o.exclude = &name;
    o.n_exclude = 1;
    refuse(wide, &o, CARAT_EUSAGE, "IQ2_XXS is bad without importance");
    assert_int_equal(w.file.length, 0);
    o.rules = &(struct carat_type_rule){lacking, "IQ2_XXS"};
    o.n_rules = 1;
    quantize(wide, &o);
    buf_deinit(&w.file);
}

/* One weight of a file in BF16 has these bits. */
static void refuse_weight(uint16_t bits, const char *type, const char *text)
{
    char path[512];
    struct written w;
    struct carat_error err = {0};
    struct gguf_writer writer = {0};
    tiny_model_put(&writer, &(struct tiny_options){.size = GEMMA_12B, .format = FORMAT_BF16});
    struct gguf_out_tensor *t = gguf_writer_tensor(&writer, "blk.1.ffn_up.weight");
    ((uint16_t *)t->data)[77] = bits;
    scratch_file(&scratch, "wrong.gguf", path);
    assert_int_equal(gguf_save(&writer, path, &err), CARAT_OK);
    gguf_writer_deinit(&writer);
    struct carat_quantize_options o = options_of(type, &w);
    refuse(path, &o, CARAT_EFORMAT, "\"blk.1.ffn_up.weight\"");
    buf_deinit(&w.file);
    o = options_of(type, &w);
    refuse(path, &o, CARAT_EFORMAT, text);
    buf_deinit(&w.file);
}

static void weights_that_are_no_number_or_too_large_are_refused_by_name(void **state)
{
    (void)state;
    refuse_weight(0x7FC0, "Q6_K", "has a value that is no finite number");
    refuse_weight(0x7F80, "F32", "has a value that is no finite number");
    refuse_weight(f32_to_bf16(1e6f), "F16", "has a value that is too large for F16");
    refuse_weight(f32_to_bf16(1e9f), "Q8_0", "has a value that is too large for Q8_0");
}

static void failures_of_writing_and_of_memory_end_it_with_their_reason(void **state)
{
    (void)state;
    struct written w;
    bool has_failed = true;
    for (int n = 0; has_failed; n += 7) {
        struct carat_error err = {0};
        struct carat_quantize_options o = options_of("Q4_K_M", &w);
        w.fails_at = n;
        int status = carat_quantize(sources[0], &o, &err);
        has_failed = status != CARAT_OK;
        if (has_failed) assert_string_equal(err.message, "the disk is full");
        assert_int_equal(status, has_failed ? CARAT_EIO : CARAT_OK);
        buf_deinit(&w.file);
    }
    for (int is_dry = 0; is_dry < 2; is_dry++) {
        has_failed = true;
        for (long n = 0; has_failed; n++) {
            struct carat_error err = {0};
            struct carat_quantize_options o = options_of("Q4_K_M", &w);
            o.imatrix = matrices[0];
            if (is_dry) o.write = NULL;
            mem_fail_after(n);
            int status = carat_quantize(sources[0], &o, &err);
            has_failed = mem_fail_after(-1);
            assert_int_equal(status, has_failed ? CARAT_EMEMORY : CARAT_OK);
            buf_deinit(&w.file);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_has_the_type_of_the_mixture_and_its_values),
        cmocka_unit_test(keys_stay_but_for_those_about_the_type),
        cmocka_unit_test(the_new_file_answers),
        cmocka_unit_test(keys_name_the_matrix),
        cmocka_unit_test(importance_lowers_the_errors_that_it_weighs),
        cmocka_unit_test(entries_are_left_out_by_name),
        cmocka_unit_test(the_number_of_threads_changes_no_byte),
        cmocka_unit_test(a_dry_run_says_the_same_sizes),
        cmocka_unit_test(rules_come_before_the_mixture_and_pure_files_have_one_type),
        cmocka_unit_test(what_must_be_exact_stays_whatever_is_asked_for),
        cmocka_unit_test(types_that_do_not_fit_give_way_to_the_nearest),
        cmocka_unit_test(the_ends_and_a_third_of_the_middle_layers_are_better),
        cmocka_unit_test(what_is_quantised_already_is_refused_unless_asked_for),
        cmocka_unit_test(wrong_types_names_and_files_are_refused),
        cmocka_unit_test(matrices_that_do_not_fit_are_refused),
        cmocka_unit_test(layers_without_importance_are_refused_where_they_need_it),
        cmocka_unit_test(weights_that_are_no_number_or_too_large_are_refused_by_name),
        cmocka_unit_test(failures_of_writing_and_of_memory_end_it_with_their_reason),
    };
    return cmocka_run_group_tests(tests, open_sources, close_models);
}
