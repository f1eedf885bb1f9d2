/* The reader of config files: sections, keys, values, and the line of what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/config_file.h"

static int read_text(struct config_file *f, const char *text, struct carat_error *err)
{
    *err = (struct carat_error){0};
    return config_file_read(f, "FILE", text, strlen(text), err);
}

static void keys_belong_to_sections(void **state)
{
    (void)state;
    struct config_file f;
    struct carat_error err;
    const char *text = "\xEF\xBB\xBFtemp = 1\n\n# a comment\n ; another\n[e4b]\r\n"
                       "ctx-size=8192\r\n\tsystem = You are # kind = \xE2\x82\xAC \r\n"
                       "[ hf:user/repo:Q4_K_M ]\nquoted = \"  blanks \"\nempty =\n[default]\nx==y";
    const struct {
        const char *section, *key, *value;
        int line;
    } expected[] = {
        {"default", "temp", "1", 1},
        {"e4b", "ctx-size", "8192", 6},
        {"e4b", "system", "You are # kind = \xE2\x82\xAC", 7},
        {"hf:user/repo:Q4_K_M", "quoted", "  blanks ", 9},
        {"hf:user/repo:Q4_K_M", "empty", "", 10},
        {"default", "x", "=y", 12},
    };
    assert_int_equal(read_text(&f, text, &err), CARAT_OK);
    assert_int_equal(f.n, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < f.n; i++) {
        assert_string_equal(f.entries[i].section, expected[i].section);
        assert_string_equal(f.entries[i].key, expected[i].key);
        assert_string_equal(f.entries[i].value, expected[i].value);
        assert_int_equal(f.entries[i].line, expected[i].line);
    }
    config_file_deinit(&f);
}

static void what_is_wrong_has_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a = 1\ntemp\n", "FILE:2: key = value expected"},
        {"[e4b\n", "FILE:1: a section without its ]"},
        {"\n\n[ ]\n", "FILE:3: a section without a name"},
        {"= 3", "FILE:1: a value without a key"},
        {"a = \"x", "FILE:1: the value of a lacks its closing quote"},
        {"a = \"", "FILE:1: the value of a lacks its closing quote"},
        {"a = 1\nb = \xFF\n", "FILE:2: no valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config_file f;
        struct carat_error err;
        assert_int_equal(read_text(&f, cases[i].text, &err), CARAT_EUSAGE);
        assert_int_equal(strncmp(err.message, cases[i].message, strlen(cases[i].message)), 0);
        assert_null(f.text);
    }
}

static void sizes_are_bounded_and_nul_is_refused(void **state)
{
    (void)state;
    struct config_file f;
    struct carat_error err = {0};
    struct buf text = {0};
    buf_add_text(&text, "a = ");
    while (text.length < 900000) buf_add_text(&text, "0123456789");
    assert_int_equal(config_file_read(&f, "FILE", text.data, text.length, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "FILE:1: longer than 65536 bytes");
    while (text.length <= CONFIG_BYTES_MAX) buf_add_text(&text, "0123456789");
    assert_int_equal(config_file_read(&f, "FILE", text.data, text.length, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "FILE: longer than 1048576 bytes");
    buf_clear(&text);
    for (int i = 0; i <= CONFIG_ENTRIES_MAX; i++) buf_printf(&text, "k%d = 1\n", i);
    assert_int_equal(config_file_read(&f, "FILE", text.data, text.length, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "FILE:4097: more than 4096 keys");
    assert_int_equal(config_file_read(&f, "FILE", "a = 1\nb\0 = 2\n", 13, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "FILE:2: a NUL byte");
    assert_int_equal(config_file_read(&f, "FILE", "", 0, &err), CARAT_OK);
    assert_int_equal(f.n, 0);
    config_file_deinit(&f);
    buf_deinit(&text);
}

static void running_out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    struct carat_error err = {0};
    for (long n = 0; n < 2; n++) {
        struct config_file f;
        long before = mem_blocks_live();
        mem_fail_after(n);
        assert_int_equal(config_file_read(&f, "FILE", "a = 1", 5, &err), CARAT_EMEMORY);
        mem_fail_after(-1);
        assert_int_equal(mem_blocks_live(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_belong_to_sections),
        cmocka_unit_test(what_is_wrong_has_its_line),
        cmocka_unit_test(sizes_are_bounded_and_nul_is_refused),
        cmocka_unit_test(running_out_of_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
