/* The container: good files and every look-up, files cut at every byte, every byte changed,
 * split files, and memory that runs out at every allocation. */
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
#include "support/gguf_walk.h"
#include "support/gguf_writer.h"
#include "support/scratch.h"

/* A file of all value types and four tensors, one of them of a type that is only skipped. */
static void put_sample(struct gguf_writer *w)
{
    static const struct gguf_string words[] = {{"a", 1}, {"", 0}, {"b\0c", 3}};
    static const uint16_t numbers[] = {1, 65535};
    static const uint8_t flags[] = {1, 0, 1};
    static const float reals[] = {0.5f, -2.0f};
    static const int64_t row[] = {32}, matrix[] = {64, 3}, experts[] = {32, 2, 2};
    float values[192];
    for (int i = 0; i < 192; i++) values[i] = (float)(i % 7) - 3.0f;
    gguf_put_u8(w, "u8", 255);
    gguf_put_raw(w, "i8", 2, GGUF_I8, "\xff", 1);
    gguf_put_u16(w, "u16", 65535);
    gguf_put_raw(w, "i16", 3, GGUF_I16, "\xfe\xff", 2);
    gguf_put_u32(w, "u32", UINT32_MAX);
    gguf_put_i32(w, "i32", -7);
    gguf_put_u64(w, "u64", UINT64_C(1) << 40);
    gguf_put_i64(w, "i64", 12);
    gguf_put_f32(w, "f32", 0.25f);
    gguf_put_f64(w, "f64", 1e300);
    gguf_put_f64(w, "f64.small", 0.5);
    gguf_put_f32(w, "f32.nan", NAN);
    gguf_put_bool(w, "bool", true);
    gguf_put_text(w, "text", "hello");
    gguf_put_strings(w, "strings", words, 3);
    gguf_put_array(w, "u16s", GGUF_U16, numbers, 2);
    gguf_put_array(w, "flags", GGUF_BOOL, flags, 3);
    gguf_put_array(w, "reals", GGUF_F32, reals, 2);
    gguf_put_array(w, "empty", GGUF_I32, NULL, 0);
    gguf_add_values(w, "vector", FORMAT_F32, row, 1, values);
    gguf_add_values(w, "matrix", FORMAT_Q8_0, matrix, 2, values);
    gguf_add_bytes(w, "foreign", 9, row, 1, NULL, 36); /* Q8_1 */
    gguf_add_values(w, "experts", FORMAT_Q4_0, experts, 3, values);
}

static struct gguf *open_image(const struct buf *image)
{
    struct gguf *g = NULL;
    struct carat_error err = {0};
    if (gguf_open_memory(&g, image->data, image->length, "sample", &err) != CARAT_OK)
        fail_msg("%s", err.message);
    return g;
}

static void save_image(const struct gguf_writer *w, struct buf *image)
{
    struct carat_error err = {0};
    if (gguf_save_image(w, image, &err) != CARAT_OK) fail_msg("%s", err.message);
}

static int open_sample(void **state)
{
    static struct buf image;
    struct gguf_writer w = {0};
    put_sample(&w);
    save_image(&w, &image);
    gguf_writer_deinit(&w);
    *state = &image;
    return 0;
}

static int close_sample(void **state)
{
    buf_deinit(*state);
    return 0;
}

static void test_values(void **state)
{
    struct gguf *g = open_image(*state);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_alignment(g), 32);
    assert_int_equal(gguf_kv_count(g), 19);
    assert_int_equal(gguf_part_count(g), 1);
    assert_string_equal(gguf_path(g), "sample");
    assert_null(gguf_find(g, "absent"));
    assert_null(gguf_find(g, ""));
    assert_int_equal(gguf_find(g, "u8")->value.u, 255);
    assert_int_equal(gguf_find(g, "i8")->value.i, -1);
    assert_int_equal(gguf_find(g, "i16")->value.i, -2);
    assert_int_equal(gguf_find(g, "i32")->value.i, -7);
    assert_int_equal(gguf_find(g, "u64")->value.u, UINT64_C(1) << 40);
    assert_true(gguf_find(g, "f64")->value.f == 1e300);
    assert_int_equal(gguf_find(g, "bool")->value.u, 1);
    const struct gguf_kv *strings = gguf_find(g, "strings");
    assert_int_equal(strings->count, 3);
    assert_int_equal(strings->strings[1].length, 0);
    assert_memory_equal(strings->strings[2].data, "b\0c", 3);
    assert_int_equal(gguf_array_int(gguf_find(g, "u16s"), 1), 65535);
    assert_int_equal(gguf_array_int(gguf_find(g, "flags"), 2), 1);
    assert_true(gguf_array_float(gguf_find(g, "reals"), 1) == -2.0);
    assert_int_equal(gguf_find(g, "empty")->count, 0);
    assert_string_equal(gguf_kv_at(g, 0)->key.data, "u8");
    assert_string_equal(gguf_type_name(GGUF_F64), "f64");
    gguf_close(g);
}

static void test_typed(void **state)
{
    struct gguf *g = open_image(*state);
    struct carat_error err = {0};
    uint32_t u = 1;
    assert_int_equal(gguf_get_u32(g, "absent", &u, &err), CARAT_OK);
    assert_int_equal(u, 1);
    assert_int_equal(gguf_get_u32(g, "i64", &u, &err), CARAT_OK);
    assert_int_equal(u, 12);
    assert_int_equal(gguf_get_u32(g, "u32", &u, &err), CARAT_OK);
    assert_int_equal(u, UINT32_MAX);
    assert_int_equal(gguf_get_u32(g, "i32", &u, &err), CARAT_EFORMAT);
    assert_non_null(strstr(err.message, "\"i32\": -7 is out of range"));
    assert_int_equal(gguf_get_u32(g, "u64", &u, &err), CARAT_EFORMAT);
    assert_int_equal(gguf_get_u32(g, "text", &u, &err), CARAT_EFORMAT);
    assert_non_null(strstr(err.message, "\"text\": is string, an integer is expected"));
    assert_int_equal(gguf_get_u32(g, "bool", &u, &err), CARAT_EFORMAT);

    float f = 0.0f;
    assert_int_equal(gguf_get_f32(g, "f32", &f, &err), CARAT_OK);
    assert_true(f == 0.25f);
    assert_int_equal(gguf_get_f32(g, "f64.small", &f, &err), CARAT_OK);
    assert_true(f == 0.5f);
    assert_int_equal(gguf_get_f32(g, "f64", &f, &err), CARAT_EFORMAT);
    assert_int_equal(gguf_get_f32(g, "f32.nan", &f, NULL), CARAT_EFORMAT);
    assert_int_equal(gguf_get_f32(g, "u8", &f, &err), CARAT_EFORMAT);

    bool b = false;
    assert_int_equal(gguf_get_bool(g, "bool", &b, &err), CARAT_OK);
    assert_true(b);
    assert_int_equal(gguf_get_bool(g, "u8", &b, &err), CARAT_EFORMAT);

    struct gguf_string text = {0};
    assert_int_equal(gguf_get_string(g, "text", &text, &err), CARAT_OK);
    assert_int_equal(text.length, 5);
    assert_int_equal(gguf_get_string(g, "strings", &text, &err), CARAT_EFORMAT);
    assert_non_null(strstr(err.message, "is array of string, string is expected"));
    gguf_close(g);
}

static void test_per_layer(void **state)
{
    struct gguf *g = open_image(*state);
    struct carat_error err = {0};
    uint32_t layers[3] = {9, 9, 9};
    assert_int_equal(gguf_get_u32_per_layer(g, "absent", 3, layers, &err), CARAT_OK);
    assert_int_equal(layers[2], 9);
    assert_int_equal(gguf_get_u32_per_layer(g, "u8", 3, layers, &err), CARAT_OK);
    assert_int_equal(layers[0] + layers[1] + layers[2], 3 * 255);
    assert_int_equal(gguf_get_u32_per_layer(g, "flags", 3, layers, &err), CARAT_OK);
    assert_int_equal(layers[1], 0);
    assert_int_equal(layers[2], 1);
    assert_int_equal(gguf_get_u32_per_layer(g, "u16s", 3, layers, &err), CARAT_EFORMAT);
    assert_non_null(strstr(err.message, "the array has 2 elements, 3 are expected"));
    assert_int_equal(gguf_get_u32_per_layer(g, "i32", 3, layers, &err), CARAT_EFORMAT);
    assert_int_equal(gguf_get_u32_per_layer(g, "reals", 2, layers, &err), CARAT_EFORMAT);
    assert_int_equal(gguf_get_u32_per_layer(g, "strings", 3, layers, &err), CARAT_EFORMAT);
    gguf_close(g);
}

static void test_tensors(void **state)
{
    struct gguf *g = open_image(*state);
    assert_int_equal(gguf_tensor_count(g), 4);
    const struct gguf_tensor *t = gguf_tensor_find(g, "matrix");
    assert_non_null(t);
    assert_int_equal(t->format, FORMAT_Q8_0);
    assert_true(t->is_supported);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 64);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->dims[2], 1);
    assert_int_equal(t->bytes, 6 * 34);
    assert_int_equal(((uintptr_t)t->offset & 31), 0);
    float row[64];
    format_traits(t->format)->decode(t->data, row, 64);
    assert_float_equal(row[0], -3.0f, 0.02);
    assert_float_equal(row[6], 3.0f, 0.02);

    t = gguf_tensor_find(g, "foreign");
    assert_false(t->is_supported);
    assert_int_equal(t->format, FORMAT_COUNT);
    assert_int_equal(t->gguf_type, 9);
    assert_string_equal(t->type_name, "Q8_1");
    assert_int_equal(t->bytes, 36);
    assert_int_equal(gguf_tensor_find(g, "experts")->dims[2], 2);
    assert_null(gguf_tensor_find(g, "Matrix"));
    assert_string_equal(gguf_tensor_at(g, 0)->name, "vector");
    gguf_walk(g);
    gguf_close(g);
}

static void test_versions_and_alignment(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {8, 16, 32, 64, 4096, 65536};
    for (uint32_t version = 2; version <= 3; version++) {
        for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
            struct gguf_writer w = {.version = version, .alignment = alignments[i]};
            struct buf image = {0};
            put_sample(&w);
            save_image(&w, &image);
            struct gguf *g = open_image(&image);
            assert_int_equal(gguf_version(g), version);
            assert_int_equal(gguf_alignment(g), alignments[i]);
            assert_int_equal(gguf_tensor_find(g, "experts")->offset % alignments[i], 0);
            gguf_walk(g);
            gguf_close(g);
            buf_deinit(&image);
            gguf_writer_deinit(&w);
        }
    }
}

/* The sorted directory: found whatever the order, first or last. */
static void test_many_keys(void **state)
{
    (void)state;
    enum { KEYS = 500 };
    struct gguf_writer w = {0};
    struct buf image = {0};
    char key[32];
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "key.%u", i * 7919 % KEYS);
        gguf_put_u32(&w, key, i * 7919 % KEYS);
    }
    save_image(&w, &image);
    struct gguf *g = open_image(&image);
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t value = 0;
        snprintf(key, sizeof key, "key.%u", i);
        assert_int_equal(gguf_get_u32(g, key, &value, NULL), CARAT_OK);
        assert_int_equal(value, i);
    }
    assert_null(gguf_find(g, "key."));
    assert_null(gguf_find(g, "key.5000"));
    gguf_close(g);
    buf_deinit(&image);
    gguf_writer_deinit(&w);
}

/* An image in a block of exactly its size, so that a sanitizer sees a read after it. */
static int open_copy(const char *data, size_t n, struct gguf **g, void **copy,
                     struct carat_error *err)
{
    *copy = malloc(n ? n : 1);
    assert_non_null(*copy);
    memcpy(*copy, data, n);
    return gguf_open_memory(g, *copy, n, "cut", err);
}

static void test_cut_everywhere(void **state)
{
    const struct buf *image = *state;
    struct gguf *whole = open_image(image);
    const struct gguf_tensor *last = gguf_tensor_at(whole, gguf_tensor_count(whole) - 1);
    size_t needed = (size_t)last->offset + last->bytes; /* the padding after it may be missing */
    gguf_close(whole);
    for (size_t n = 0; n < image->length; n++) {
        struct gguf *g = NULL;
        struct carat_error err = {0};
        void *copy;
        int status = open_copy(image->data, n, &g, &copy, &err);
        assert_int_equal(status, n < needed ? CARAT_EFORMAT : CARAT_OK);
        assert_true(n >= needed || strncmp(err.message, "cut: ", 5) == 0);
        gguf_close(g);
        free(copy);
    }
}

static void test_change_everywhere(void **state)
{
    const struct buf *image = *state;
    static const uint8_t patterns[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    for (size_t at = 0; at < image->length; at++) {
        for (size_t p = 0; p < sizeof patterns; p++) {
            struct gguf *g = NULL;
            struct carat_error err = {0};
            void *copy = malloc(image->length);
            assert_non_null(copy);
            memcpy(copy, image->data, image->length);
            ((uint8_t *)copy)[at] = patterns[p];
            int status = gguf_open_memory(&g, copy, image->length, "changed", &err);
            assert_true(status == CARAT_OK || status == CARAT_EFORMAT);
            assert_true((status == CARAT_OK) == (g != NULL));
            if (g) gguf_walk(g);
            gguf_close(g);
            free(copy);
        }
    }
}

static void test_printable(void **state)
{
    (void)state;
    char out[GGUF_PRINTABLE_BYTES];
    assert_string_equal(gguf_printable(out, "plain \xc3\xa9", 8), "plain \xc3\xa9");
    assert_string_equal(gguf_printable(out, "\x1b[31m\n", 6), "\\x1b[31m\\x0a");
    assert_string_equal(gguf_printable(out, "\xff\xc2", 2), "\\xff\\xc2");
    assert_string_equal(gguf_printable(out,
                                       "\xc2\x9b"
                                       "0m",
                                       4),
                        "\\xc2\\x9b0m");                                            /* C1 */
    assert_string_equal(gguf_printable(out, "\xe2\x80\xae", 3), "\\xe2\\x80\\xae"); /* override */
    assert_string_equal(gguf_printable(out, "\xd8\x9c", 2), "\\xd8\\x9c");          /* mark */
    assert_string_equal(gguf_printable(out, "", 0), "");
    char text[300];
    memset(text, 'x', sizeof text);
    gguf_printable(out, text, sizeof text);
    assert_int_equal(strlen(out), GGUF_PRINTABLE_BYTES - 1);
    assert_string_equal(out + GGUF_PRINTABLE_BYTES - 4, "...");
}

/* ---- Split files ------------------------------------------------------------------------ */

enum { PARTS = 3 };

struct split_case {
    struct gguf_writer parts[PARTS];
    struct scratch scratch;
};

static void part_name(char out[64], int index, int count)
{
    snprintf(out, 64, "m-%05d-of-%05d.gguf", index + 1, count);
}

static void split_open_case(struct split_case *c)
{
    static const int64_t row[] = {32};
    memset(c, 0, sizeof *c);
    scratch_open(&c->scratch);
    for (int i = 0; i < PARTS; i++) {
        struct gguf_writer *w = &c->parts[i];
        char name[32];
        gguf_put_u16(w, "split.no", (uint16_t)i);
        gguf_put_u16(w, "split.count", PARTS);
        gguf_put_i32(w, "split.tensors.count", 2 * PARTS);
        if (i == 0) gguf_put_text(w, "general.architecture", "gemma4");
        for (int t = 0; t < 2; t++) {
            float values[32] = {(float)(10 * i + t)};
            snprintf(name, sizeof name, "tensor.%d.%d", i, t);
            gguf_add_values(w, name, FORMAT_F32, row, 1, values);
        }
    }
}

static void split_save(const struct split_case *c)
{
    for (int i = 0; i < PARTS; i++) {
        char name[64], path[512];
        part_name(name, i, PARTS);
        assert_int_equal(gguf_save(&c->parts[i], scratch_file(&c->scratch, name, path), NULL),
                         CARAT_OK);
    }
}

static void split_close_case(struct split_case *c)
{
    for (int i = 0; i < PARTS; i++) gguf_writer_deinit(&c->parts[i]);
    scratch_close(&c->scratch);
}

/* Opening part `index` must fail with a message that contains `expected`. */
static void split_refused(const struct split_case *c, int index, const char *expected)
{
    char name[64], path[512];
    struct gguf *g = NULL;
    struct carat_error err = {0};
    part_name(name, index, PARTS);
    long live = mem_blocks_live();
    assert_int_equal(gguf_open(&g, scratch_file(&c->scratch, name, path), &err), CARAT_EFORMAT);
    assert_null(g);
    assert_int_equal(mem_blocks_live(), live);
    if (!strstr(err.message, expected)) fail_msg("\"%s\" has no \"%s\"", err.message, expected);
}

static void test_split(void **state)
{
    (void)state;
    struct split_case c;
    split_open_case(&c);
    split_save(&c);
    for (int named = 0; named < PARTS; named++) {
        char name[64], path[512];
        struct gguf *g = NULL;
        struct carat_error err = {0};
        part_name(name, named, PARTS);
        if (gguf_open(&g, scratch_file(&c.scratch, name, path), &err) != CARAT_OK)
            fail_msg("%s", err.message);
        assert_int_equal(gguf_part_count(g), PARTS);
        assert_int_equal(gguf_tensor_count(g), 2 * PARTS);
        assert_non_null(gguf_find(g, "general.architecture"));
        for (int i = 0; i < PARTS; i++) {
            snprintf(name, sizeof name, "tensor.%d.1", i);
            const struct gguf_tensor *t = gguf_tensor_find(g, name);
            assert_non_null(t);
            assert_int_equal(t->part, i);
            assert_true(((const float *)(const void *)t->data)[0] == (float)(10 * i + 1));
        }
        gguf_walk(g);
        gguf_close(g);
    }
    split_close_case(&c);
}

static void test_split_missing(void **state)
{
    (void)state;
    struct split_case c;
    char name[64], path[512];
    split_open_case(&c);
    split_save(&c);
    part_name(name, 1, PARTS);
    remove(scratch_file(&c.scratch, name, path));
    split_refused(&c, 0, "part 2 of 3");
    split_refused(&c, 1, "cannot be opened");
    split_close_case(&c);
}

static void test_split_keys(void **state)
{
    (void)state;
    struct split_case c;
    split_open_case(&c);

    gguf_put_u16(&c.parts[1], "split.no", 0);
    split_save(&c);
    split_refused(&c, 0, "part 2 of 3");
    split_refused(&c, 1, "the name says part 2 of 3");
    gguf_put_u16(&c.parts[1], "split.no", 1);

    gguf_put_u16(&c.parts[2], "split.count", 4);
    split_save(&c);
    split_refused(&c, 0, "\"split.count\": is 4, 3 is expected");
    split_refused(&c, 2, "the name says part 3 of 3");
    gguf_put_text(&c.parts[2], "split.count", "3");
    split_save(&c);
    split_refused(&c, 0, "is string");
    gguf_drop_key(&c.parts[2], "split.count");
    split_save(&c);
    split_refused(&c, 2, "has no key \"split.count\"");
    gguf_put_u16(&c.parts[2], "split.count", 3);

    gguf_drop_key(&c.parts[0], "split.no");
    split_save(&c);
    split_refused(&c, 0, "split.no");
    gguf_put_u16(&c.parts[0], "split.no", 0);

    for (int i = 0; i < PARTS; i++) gguf_put_i32(&c.parts[i], "split.tensors.count", 7);
    split_save(&c);
    split_refused(&c, 0, "hold 6 tensors, 7 are expected");
    gguf_put_i32(&c.parts[1], "split.tensors.count", 6);
    split_save(&c);
    split_refused(&c, 0, "\"split.tensors.count\": is 6, 7 is expected");
    split_close_case(&c);
}

static void test_split_contents(void **state)
{
    (void)state;
    static const int64_t row[] = {32};
    float values[32] = {0};
    struct split_case c;
    split_open_case(&c);
    gguf_put_text(&c.parts[2], "general.architecture", "llama");
    split_save(&c);
    split_refused(&c, 1, "the architecture is \"llama\", \"gemma4\" is expected");
    gguf_drop_key(&c.parts[2], "general.architecture");

    gguf_drop_tensor(&c.parts[2], "tensor.2.0");
    gguf_add_values(&c.parts[2], "tensor.0.0", FORMAT_F32, row, 1, values);
    split_save(&c);
    split_refused(&c, 0, "tensor \"tensor.0.0\": occurs twice");
    split_close_case(&c);
}

static void test_split_names(void **state)
{
    (void)state;
    struct split_case c;
    char path[512];
    struct gguf *g = NULL;
    struct carat_error err = {0};
    split_open_case(&c);
    assert_int_equal(gguf_save(&c.parts[0], scratch_file(&c.scratch, "m.gguf", path), NULL), 0);
    assert_int_equal(gguf_open(&g, path, &err), CARAT_EFORMAT);
    assert_non_null(strstr(err.message, "this is part 1 of 3"));
    assert_int_equal(gguf_save(&c.parts[1], path, NULL), 0);
    assert_int_equal(gguf_open(&g, path, &err), CARAT_EFORMAT);
    assert_non_null(
        strstr(err.message, "part 2 of 3, but its name does not end in -00002-of-00003"));
    gguf_put_u32(&c.parts[0], "split.count", 1000000);
    assert_int_equal(gguf_save(&c.parts[0], path, NULL), 0);
    assert_int_equal(gguf_open(&g, path, &err), CARAT_EFORMAT);
    assert_non_null(strstr(err.message, "is 1000000, at most"));
    gguf_put_u32(&c.parts[0], "split.count", 1);
    assert_int_equal(gguf_save(&c.parts[0], path, NULL), 0);
    assert_int_equal(gguf_open(&g, path, &err), CARAT_OK);
    assert_int_equal(gguf_tensor_count(g), 2);
    gguf_close(g);
    split_close_case(&c);
}

/* ---- Memory ----------------------------------------------------------------------------- */

/* Fails the allocation 0, 1, 2, ... of opening until it succeeds. */
static void sweep(const char *path)
{
    struct gguf *g = NULL;
    long live = mem_blocks_live(), n = 0;
    for (;; n++) {
        struct carat_error err = {0};
        mem_fail_after(n);
        int status = gguf_open(&g, path, &err);
        int delivered = mem_fail_after(-1);
        if (status == CARAT_OK) {
            assert_false(delivered);
            break;
        }
        assert_true(delivered);
        assert_int_equal(status, CARAT_EMEMORY);
        assert_int_equal(err.code, CARAT_EMEMORY);
        assert_null(g);
        assert_int_equal(mem_blocks_live(), live);
        assert_true(n < 10000);
    }
    assert_true(n > 1);
    gguf_close(g);
    assert_int_equal(mem_blocks_live(), live);
}

static void test_no_memory(void **state)
{
    const struct buf *image = *state;
    struct scratch scratch;
    char path[512], name[64];
    scratch_open(&scratch);
    scratch_write(&scratch, "sample.gguf", image->data, image->length);
    sweep(scratch_file(&scratch, "sample.gguf", path));
    scratch_close(&scratch);

    struct split_case c;
    split_open_case(&c);
    split_save(&c);
    part_name(name, 1, PARTS);
    sweep(scratch_file(&c.scratch, name, path));
    split_close_case(&c);
}

static void test_writer_no_memory(void **state)
{
    (void)state;
    long live = mem_blocks_live();
    for (long n = 0;; n++) {
        struct gguf_writer w = {0};
        struct buf image = {0};
        mem_fail_after(n);
        put_sample(&w);
        int status = gguf_save_image(&w, &image, NULL);
        int delivered = mem_fail_after(-1);
        buf_deinit(&image);
        gguf_writer_deinit(&w);
        assert_int_equal(mem_blocks_live(), live);
        assert_int_equal(status, delivered ? CARAT_EMEMORY : CARAT_OK);
        if (!delivered) break;
    }
}

static void test_not_files(void **state)
{
    (void)state;
    struct gguf *g = NULL;
    struct carat_error err = {0};
    assert_int_equal(gguf_open(&g, "/nonexistent/x.gguf", &err), CARAT_EFORMAT);
    assert_int_equal(gguf_open(&g, "/", &err), CARAT_EFORMAT);
    assert_int_equal(gguf_open(&g, "/dev/zero", &err), CARAT_EFORMAT);
    assert_int_equal(gguf_open(&g, "", NULL), CARAT_EFORMAT);
    gguf_close(NULL);
}

/* Layers in Q4_K and Q6_K, embeddings in Q8_0, and what general.file_type says about them. */
static void check_quantisation(uint32_t file_type, const char *name)
{
    static const int64_t small[] = {256, 1}, medium[] = {256, 2}, large[] = {256, 64};
    static const int64_t row[] = {256};
    struct gguf_writer w = {0};
    struct buf image = {0};
    struct gguf *g;
    char found[32], mix[128];
    if (file_type != UINT32_MAX) gguf_put_u32(&w, "general.file_type", file_type);
    gguf_add_fill(&w, "token_embd.weight", FORMAT_Q8_0, large, 2, NULL, NULL);
    gguf_add_fill(&w, "blk.0.attn_q.weight", FORMAT_Q4_K, medium, 2, NULL, NULL);
    gguf_add_fill(&w, "blk.0.attn_v.weight", FORMAT_Q6_K, small, 2, NULL, NULL);
    gguf_add_fill(&w, "blk.0.attn_norm.weight", FORMAT_F32, row, 1, NULL, NULL);
    save_image(&w, &image);
    assert_int_equal(gguf_open_memory(&g, image.data, image.length, "image", NULL), CARAT_OK);
    gguf_quantisation(g, found, sizeof found);
    gguf_type_mix(g, mix, sizeof mix);
    assert_string_equal(found, name);
    assert_string_equal(mix, "Q8_0 92.0 %, F32 5.4 %, Q4_K 1.5 %, Q6_K 1.1 %");
    gguf_close(g);
    buf_deinit(&image);
    gguf_writer_deinit(&w);
}

static void test_quantisation(void **state)
{
    (void)state;
    check_quantisation(UINT32_MAX, "Q4_K");
    check_quantisation(15, "Q4_K - Medium");
    check_quantisation(14, "Q4_K - Small");
    check_quantisation(17, "Q4_K"); /* Q5_K - Medium: the tensors know better */
    check_quantisation(7, "Q4_K");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_typed),
        cmocka_unit_test(test_per_layer),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_versions_and_alignment),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_cut_everywhere),
        cmocka_unit_test(test_change_everywhere),
        cmocka_unit_test(test_printable),
        cmocka_unit_test(test_quantisation),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_missing),
        cmocka_unit_test(test_split_keys),
        cmocka_unit_test(test_split_contents),
        cmocka_unit_test(test_split_names),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_writer_no_memory),
        cmocka_unit_test(test_not_files),
    };
    return cmocka_run_group_tests(tests, open_sample, close_sample);
}
