/* Token ids of another implementation for 210 strings. All oracle models have the same
 * vocabulary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_JSON

#include <jansson.h>

#include "base/mem.h"
#include "text/tokenizer.h"

#define FIXTURES CARAT_SOURCE_DIR "/tests/golden/fixtures/"

static void check_ids(const char *text, const json_t *expected, const int32_t *ids, size_t count)
{
    int equal = json_array_size(expected) == count;
    for (size_t i = 0; equal && i < count; i++)
        equal = json_integer_value(json_array_get(expected, i)) == ids[i];
    if (equal) return;
    print_error("text: %s\nfound:", text);
    for (size_t i = 0; i < count; i++) print_error(" %d", ids[i]);
    print_error("\n");
    fail();
}

static void check_model(const char *path, const json_t *cases)
{
    struct carat_error err = {0};
    struct gguf *g;
    struct vocab *v;
    assert_int_equal(gguf_open(&g, path, &err), CARAT_OK);
    assert_int_equal(vocab_open(&v, g, &err), CARAT_OK);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *text = json_object_get(one, "text");
        enum carat_special special = json_is_true(json_object_get(one, "parse_special"))
                                         ? CARAT_SPECIAL_ALL
                                         : CARAT_SPECIAL_USER_DEFINED;
        int32_t *ids;
        size_t count, length = json_string_length(text);
        assert_int_equal(tokenizer_encode(v, json_string_value(text), length, special, false, &ids,
                                          &count, &err),
                         CARAT_OK);
        check_ids(json_string_value(text), json_object_get(one, "ids"), ids, count);
        mem_free(ids);
    }
    vocab_close(v);
    gguf_close(g);
}

static void test_all_models(void **state)
{
    (void)state;
    static const char *const models[] = {"e2b-q8_0", "e4b-q4_0", "12b-q4_k", "26b-q4_0",
                                         "31b-mixed"};
    json_error_t problem;
    json_t *cases = json_load_file(FIXTURES "tokens.json", JSON_ALLOW_NUL, &problem);
    assert_non_null(cases);
    assert_int_equal(json_array_size(cases), 210);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[4096];
        snprintf(path, sizeof path, FIXTURES "%s.gguf", models[i]);
        check_model(path, cases);
    }
    json_decref(cases);
}

#else

static void test_all_models(void **state)
{
    (void)state;
    print_message("built without jansson: skipped\n");
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
