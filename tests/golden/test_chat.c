/* Prompts as the published templates render them, and what the ids of a prompt must be like. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_JSON

#include <jansson.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "json/json_value.h"
#include "text/chat.h"
#include "text/tokenizer.h"

#define FIXTURES CARAT_SOURCE_DIR "/tests/golden/fixtures/"

struct fixture {
    json_t *cases;
    struct gguf *g;
    struct vocab *v;
};

static int open_fixture(void **state)
{
    static struct fixture f;
    struct carat_error err;
    f.cases = json_load_file(FIXTURES "chat.json", JSON_ALLOW_NUL, NULL);
    assert_non_null(f.cases);
    assert_int_equal(json_array_size(f.cases), 52);
    assert_int_equal(gguf_open(&f.g, FIXTURES "e2b-q8_0.gguf", &err), CARAT_OK);
    assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
    *state = &f;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *f = *state;
    vocab_close(f->v);
    gguf_close(f->g);
    json_decref(f->cases);
    return 0;
}

static enum carat_size size_of(const json_t *one)
{
    const char *size = json_string_value(json_object_get(one, "size"));
    return strcmp(size, "large") == 0 ? CARAT_SIZE_LARGE : CARAT_SIZE_SMALL;
}

/* The guard against a prompt without a turn for the model may add one. */
static void test_texts(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < json_array_size(f->cases); i++) {
        json_t *one = json_array_get(f->cases, i);
        const json_t *expected = json_object_get(one, "prompt");
        struct arena arena = {0};
        struct carat_value request;
        struct carat_error err = {0};
        assert_int_equal(json_value_from_chat(json_object_get(one, "request"), false, &(size_t){0},
                                              &arena, &request, &err),
                         CARAT_OK);
        char *text;
        size_t length;
        assert_int_equal(chat_text(size_of(one), &request, &text, &length, &err), CARAT_OK);
        struct buf guarded = {0};
        buf_add(&guarded, json_string_value(expected), json_string_length(expected));
        bool asked =
            json_is_true(json_object_get(json_object_get(one, "request"), "add_generation_prompt"));
        if (asked && guarded.length > 8 &&
            strcmp(guarded.data + guarded.length - 8, "<turn|>\n") == 0)
            buf_add_text(&guarded, "<|turn>model\n");
        assert_string_equal(text, guarded.data);
        assert_int_equal(length, guarded.length);
        buf_deinit(&guarded);
        mem_free(text);
        arena_deinit(&arena);
    }
}

/* Ids: BOS once and first. Encoding the text with special tokens gives the same ids, as no
 * message of the fixtures contains the text of a special token. Decoding gives the text. */
static void test_ids(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < json_array_size(f->cases); i++) {
        json_t *one = json_array_get(f->cases, i);
        struct arena arena = {0};
        struct carat_value request;
        struct carat_error err = {0};
        assert_int_equal(json_value_from_chat(json_object_get(one, "request"), false, &(size_t){0},
                                              &arena, &request, &err),
                         CARAT_OK);
        char *text;
        size_t length, count, plain_count;
        int32_t *ids, *plain;
        assert_int_equal(chat_text(size_of(one), &request, &text, &length, &err), CARAT_OK);
        assert_int_equal(chat_tokenize(f->v, size_of(one), &request, 1 << 20, &ids, &count, &err),
                         CARAT_OK);
        assert_int_equal(tokenizer_encode(f->v, text, length, CARAT_SPECIAL_ALL, true, &plain,
                                          &plain_count, &err),
                         CARAT_OK);
        assert_int_equal(count, plain_count);
        assert_memory_equal(ids, plain, count * sizeof *ids);
        struct buf back = {0};
        for (size_t k = 0; k < count; k++) {
            tokenizer_decode_one(f->v, ids[k], true, &back);
            assert_int_equal(ids[k] == vocab_special(f->v, VOCAB_BOS), k == 0);
        }
        assert_string_equal(buf_text(&back), text);
        buf_deinit(&back);
        mem_free(ids);
        mem_free(plain);
        mem_free(text);
        arena_deinit(&arena);
    }
}

#else

static int open_fixture(void **state)
{
    (void)state;
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    return 0;
}

static void test_texts(void **state)
{
    (void)state;
    print_message("built without jansson: skipped\n");
    skip();
}

static void test_ids(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_ids)};
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
