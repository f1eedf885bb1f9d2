/* Importance matrices: both forms of files, and files that are none. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "gguf/imatrix.h"
#include "support/imatrix_file.h"
#include "support/scratch.h"

static struct scratch scratch;

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&scratch);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static int open_bytes(struct imatrix **out, const void *data, size_t n, struct carat_error *err)
{
    char path[512];
    scratch_write(&scratch, "matrix", data, n);
    return imatrix_open(out, scratch_file(&scratch, "matrix", path), err);
}

/* ---- What is read ------------------------------------------------------------------------ */

static const float values[8] = {0, 1, 2, 5, 3, 3, 3, 3};
static const char *const names[2] = {"blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"};

/* Two entries: eight columns, and two experts with four columns each, of which the first has not
 * been in use. */
static void make_gguf(struct buf *out)
{
    struct gguf_writer w = {0};
    imatrix_put_keys(&w, 34, "words.txt");
    imatrix_put(&w, names[0], 8, 1, values, (const float[]){7});
    imatrix_put(&w, names[1], 4, 2, values, (const float[]){0, 9});
    assert_int_equal(gguf_save_image(&w, out, NULL), CARAT_OK);
    gguf_writer_deinit(&w);
}

static void make_dat(struct buf *out)
{
    imatrix_dat_count(out, 2);
    imatrix_dat_add(out, names[1], 7, (const float[]){0, 0, 0, 0, 3, 3, 3, 3}, 8);
    imatrix_dat_add(out, names[0], 7, values, 8);
    imatrix_dat_end(out, 34, "words.txt");
}

static void both_forms_say_the_same(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        struct imatrix *m;
        struct buf file = {0};
        struct carat_error err = {0};
        float row[8];
        if (form)
            make_gguf(&file);
        else
            make_dat(&file);
        if (open_bytes(&m, file.data, file.length, &err)) fail_msg("%s", err.message);
        assert_int_equal(imatrix_count(m), 2);
        assert_int_equal(imatrix_chunks(m), 34);
        assert_int_equal(imatrix_dataset(m).length, 9);
        assert_memory_equal(imatrix_dataset(m).data, "words.txt", 9);
        assert_null(imatrix_find(m, "blk.0.attn_k.weight"));
        const struct imatrix_entry *e = imatrix_find(m, names[0]);
        assert_int_equal(e->n_values, 8);
        imatrix_read(e, 0, 1, row);
        assert_float_equal(row[0], 1e-6, 1e-9); /* never 0 */
        for (int i = 1; i < 8; i++) assert_float_equal(row[i], values[i] / 2.5f, 1e-6);
        e = imatrix_find(m, names[1]);
        imatrix_read(e, 0, 2, row);
        imatrix_read(e, 1, 2, row + 4);
        for (int i = 0; i < 8; i++) assert_float_equal(row[i], 1, 0);
        imatrix_close(m);
        buf_deinit(&file);
    }
}

/* Early versions of llama.cpp wrote files that end after the entries or after the chunks. */
static void old_files_end_earlier(void **state)
{
    (void)state;
    struct buf file = {0};
    struct imatrix *m;
    make_dat(&file);
    size_t end = file.length - strlen("words.txt") - 4;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_bytes(&m, file.data, end - (i ? 4 : 0), NULL), CARAT_OK);
        assert_int_equal(imatrix_chunks(m), i ? 0 : 34);
        assert_int_equal(imatrix_dataset(m).length, 0);
        imatrix_close(m);
    }
    buf_deinit(&file);
}

/* ---- What is refused --------------------------------------------------------------------- */

static void refuse(const struct buf *file, const char *text)
{
    struct imatrix *m;
    struct carat_error err = {0};
    int status = open_bytes(&m, file->data, file->length, &err);
    assert_int_equal(status, CARAT_EFORMAT);
    assert_null(m);
    if (!strstr(err.message, text) || !strstr(err.message, "matrix"))
        fail_msg("\"%s\" expected in: %s", text, err.message);
}

/* A .dat file with one number changed. */
static void wrong_numbers_in_dat_files_are_refused(void **state)
{
    (void)state;
    const size_t name = 4, calls = name + 4 + strlen(names[1]), n = calls + 4, first = n + 4;
    static const uint32_t nan = 0x7fc00000, infinity = 0x7f800000, minus = 0xbf800000;
    const struct {
        size_t at;
        uint32_t number;
        const char *text;
    } cases[] = {
        {0, 0, "byte 0: the number of entries is 0, 1 to"},
        {0, 3, "the file ends within an importance matrix"},
        {0, INT32_MAX, "the number of entries is 2147483647"},
        {0, UINT32_MAX, "the number of entries is -1"},
        {name, 0, "byte 4: a name's length is 0, 1 to 63 expected"},
        {name, 64, "a name's length is 64"},
        {name, UINT32_MAX, "a name's length is -1"},
        {name + 4, 'a' << 8, "a name with a NUL"},
        {calls, UINT32_MAX, "a number of calls is -1"},
        {n, 0, "a number of values is 0"},
        {n, UINT32_MAX, "a number of values is -1"},
        {n, INT32_MAX, "the file ends within an importance matrix"},
        {n, 40, "the file ends within an importance matrix"},
        {first + 4, nan, "value 1 of \"blk.0.ffn_up_exps.weight\" is "},
        {first + 8, infinity, "value 2 of \"blk.0.ffn_up_exps.weight\" is inf"},
        {first + 28, minus, "is -1: finite numbers from 0 on expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf file = {0};
        make_dat(&file);
        memcpy(file.data + cases[i].at, &cases[i].number, 4);
        refuse(&file, cases[i].text);
        buf_deinit(&file);
    }
}

enum gguf_case {
    GGUF_MODEL,
    GGUF_NO_TYPE,
    GGUF_NO_ENTRIES,
    GGUF_NO_COUNTS,
    GGUF_F16_SUMS,
    GGUF_F16_COUNTS,
    GGUF_ODD_COUNTS,
    GGUF_NAN,
    GGUF_MINUS,
    GGUF_INFINITE_COUNT,
    GGUF_MINUS_COUNT,
    GGUF_CHUNKS,
    GGUF_CASES
};

static void make_wrong(struct gguf_writer *w, enum gguf_case c)
{
    const float sums[8] = {1, c == GGUF_NAN ? NAN : 1, c == GGUF_MINUS ? -1.0f : 1, 1, 1, 1, 1, 1};
    const float count = c == GGUF_INFINITE_COUNT ? INFINITY : c == GGUF_MINUS_COUNT ? -2.0f : 1;
    imatrix_put_keys(w, 34, "words.txt");
    if (c != GGUF_NO_ENTRIES)
        imatrix_put(w, "x", 8, 1, sums, (const float[]){count});
    else
        gguf_add_values(w, "y", FORMAT_F32, (const int64_t[]){8}, 1, sums);
    const int64_t three = 3, eight = 8;
    if (c == GGUF_MODEL) gguf_put_text(w, "general.type", "model");
    if (c == GGUF_NO_TYPE) gguf_drop_key(w, "general.type");
    if (c == GGUF_NO_COUNTS) gguf_drop_tensor(w, "x.counts");
    if (c == GGUF_F16_SUMS) gguf_add_values(w, "x.in_sum2", FORMAT_F16, &eight, 1, sums);
    if (c == GGUF_F16_COUNTS) gguf_add_values(w, "x.counts", FORMAT_F16, &eight, 1, sums);
    if (c == GGUF_ODD_COUNTS) gguf_add_values(w, "x.counts", FORMAT_F32, &three, 1, sums);
    if (c == GGUF_CHUNKS) gguf_put_text(w, "imatrix.chunk_count", "many");
}

static void wrong_gguf_files_are_refused(void **state)
{
    (void)state;
    static const char *const texts[GGUF_CASES] = {
        [GGUF_MODEL] = "general.type is \"model\"",
        [GGUF_NO_TYPE] = "general.type is \"\"",
        [GGUF_NO_ENTRIES] = "without entries",
        [GGUF_NO_COUNTS] = "\"x.in_sum2\" has no \"x.counts\"",
        [GGUF_F16_SUMS] = "\"x.in_sum2\" is of type F16, F32 expected",
        [GGUF_F16_COUNTS] = "\"x.counts\" is of type F16, F32 expected",
        [GGUF_ODD_COUNTS] = "\"x.in_sum2\" has 8 values, and 3 counts",
        [GGUF_NAN] = "value 1 of \"x\" is ",
        [GGUF_MINUS] = "value 2 of \"x\" is -1: finite numbers from 0 on expected",
        [GGUF_INFINITE_COUNT] = "count 0 of \"x\" is inf",
        [GGUF_MINUS_COUNT] = "count 0 of \"x\" is -2",
        [GGUF_CHUNKS] = "imatrix.chunk_count",
    };
    for (int c = 0; c < GGUF_CASES; c++) {
        struct buf file = {0};
        struct gguf_writer w = {0};
        make_wrong(&w, (enum gguf_case)c);
        assert_int_equal(gguf_save_image(&w, &file, NULL), CARAT_OK);
        refuse(&file, texts[c]);
        gguf_writer_deinit(&w);
        buf_deinit(&file);
    }
}

static void names_occur_once(void **state)
{
    (void)state;
    struct buf file = {0};
    imatrix_dat_count(&file, 3);
    for (int i = 0; i < 3; i++) imatrix_dat_add(&file, i == 1 ? "b" : "a", 1, values, 8);
    refuse(&file, "two entries for \"a\"");
    buf_deinit(&file);
}

/* A file that is cut somewhere is refused, but for the two places where old files end, and for
 * zeros after the last tensor of a GGUF file. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        struct buf file = {0};
        if (form)
            make_gguf(&file);
        else
            make_dat(&file);
        const size_t padding = form ? 24 : 0;
        size_t old = file.length - strlen("words.txt") - 4;
        for (size_t n = 0; n < file.length - padding; n++) {
            struct imatrix *m;
            struct carat_error err = {0};
            int status = open_bytes(&m, file.data, n, &err);
            bool is_old = form == 0 && (n == old || n == old - 4);
            if (status != (is_old ? CARAT_OK : CARAT_EFORMAT) || (status && !err.message[0]))
                fail_msg("%zu of %zu bytes: %d, %s", n, file.length, status, err.message);
            imatrix_close(m);
        }
        buf_deinit(&file);
    }
}

/* Any bytes: what is accepted can be read. */
static void changed_files_are_read_or_refused(void **state)
{
    (void)state;
    struct rng r = {.state = 3};
    for (int trial = 0; trial < 4000; trial++) {
        struct imatrix *m;
        struct buf file = {0};
        float row[64];
        if (trial % 2)
            make_gguf(&file);
        else
            make_dat(&file);
        for (int i = 0; i < 3; i++)
            file.data[rng_below(&r, (uint32_t)file.length)] = (char)rng_next(&r);
        int status = open_bytes(&m, file.data, file.length, NULL);
        for (size_t i = 0; status == CARAT_OK && i < imatrix_count(m); i++) {
            const struct imatrix_entry *e = imatrix_at(m, i);
            if (e->n_values > 64) continue;
            imatrix_read(e, 0, 1, row);
            for (int64_t k = 0; k < e->n_values; k++) assert_true(row[k] > 0 && row[k] <= 64);
        }
        imatrix_close(m);
        buf_deinit(&file);
    }
}

static void failures_of_memory_are_told(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        struct buf file = {0};
        bool has_failed = true;
        if (form)
            make_gguf(&file);
        else
            make_dat(&file);
        for (long n = 0; has_failed; n++) {
            struct imatrix *m;
            mem_fail_after(n);
            int status = open_bytes(&m, file.data, file.length, NULL);
            has_failed = mem_fail_after(-1);
            assert_int_equal(status, has_failed ? CARAT_EMEMORY : CARAT_OK);
            imatrix_close(m);
        }
        buf_deinit(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_say_the_same),
        cmocka_unit_test(old_files_end_earlier),
        cmocka_unit_test(wrong_numbers_in_dat_files_are_refused),
        cmocka_unit_test(wrong_gguf_files_are_refused),
        cmocka_unit_test(names_occur_once),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(changed_files_are_read_or_refused),
        cmocka_unit_test(failures_of_memory_are_told),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
