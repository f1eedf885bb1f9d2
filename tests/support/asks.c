#include "support/asks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "support/values.h"

const struct carat_sampling asks_defaults = {
    .temperature = 1.0f, .top_k = 64, .top_p = 0.95f, .repeat_last_n = 64};
const struct ask_limits asks_limits = {
    .n_max = 8, .messages_max = 12, .tools_max = 4, .stops_max = 3};

static struct buf quoted(const char *form)
{
    struct buf text = {0};
    buf_add_text(&text, form);
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] == '\'') text.data[i] = '"';
    return text;
}

static int read_text(enum api api, const char *form, struct ask *ask, struct carat_error *err)
{
    struct buf text = quoted(form);
    int status =
        ask_read(ask, api, buf_text(&text), text.length, &asks_defaults, &asks_limits, err);
    buf_deinit(&text);
    return status;
}

struct ask asks_taken(enum api api, const char *text)
{
    struct ask ask;
    struct carat_error err = {0};
    if (read_text(api, text, &ask, &err) != CARAT_OK) fail_msg("%s: %s", text, err.message);
    return ask;
}

void asks_expect_refused(enum api api, enum carat_status code, const char *text, const char *words)
{
    struct ask ask;
    struct carat_error err = {0};
    long before = mem_blocks_live();
    int status = read_text(api, text, &ask, &err);
    if (status != (int)code || strncmp(err.message, words, strlen(words)) != 0)
        fail_msg("%s: status %d, \"%s\"; \"%s\" expected", text, status, err.message, words);
    ask_close(&ask);
    assert_int_equal(mem_blocks_live(), before);
}

void asks_expect_memory_reported(enum api api, const char *form)
{
    struct buf text = quoted(form);
    bool has_failed = true;
    for (long n = 0; has_failed; n++) {
        struct ask ask;
        struct carat_error err = {0};
        long before = mem_blocks_live();
        mem_fail_after(n);
        int status =
            ask_read(&ask, api, buf_text(&text), text.length, &asks_defaults, &asks_limits, &err);
        has_failed = mem_fail_after(-1);
        ask_close(&ask);
        assert_int_equal(status, has_failed ? CARAT_EMEMORY : CARAT_OK);
        assert_int_equal(mem_blocks_live(), before);
    }
    buf_deinit(&text);
}

char *asks_prompt(const struct ask *ask)
{
    char *text = NULL;
    size_t length;
    struct carat_error err = {0};
    if (carat_chat_text(CARAT_SIZE_SMALL, &ask->request.root, &text, &length, &err) != CARAT_OK)
        fail_msg("%s", err.message);
    return text;
}

void asks_expect(const struct ask *ask, const char *key, const char *expected)
{
    struct buf out = {0};
    struct json j = {.out = &out};
    put_value(&j, json_member(&ask->request.root, key));
    for (size_t i = 0; i < out.length; i++)
        if (out.data[i] == '"') out.data[i] = '\'';
    if (strcmp(buf_text(&out), expected) != 0)
        fail_msg("%s:\n%s found\n%s expected", key, buf_text(&out), expected);
    buf_deinit(&out);
}
