/* Errors in the words of each API. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api_error.h"
#include "base/status.h"

static struct api_error from(enum carat_status code, const char *message, const char *hint)
{
    struct carat_error err;
    err_set(&err, code, "%s", message);
    if (*hint) err_hint(&err, "%s", hint);
    return api_error_from(&err);
}

static void expect(struct api_error e, int status, const char *type, const char *code,
                   const char *param, const char *message)
{
    assert_int_equal(e.status, status);
    assert_string_equal(e.type, type);
    assert_string_equal(e.code ? e.code : "", code);
    assert_string_equal(e.param, param);
    assert_string_equal(e.message, message);
}

static void what_the_client_did_wrong_is_400_and_names_the_member(void **state)
{
    (void)state;
    const char *usage = "invalid_request_error";
    expect(from(CARAT_EUSAGE, "messages[1].content[0].type: \"text\" expected", "say it"), 400,
           usage, "", "messages[1].content[0].type",
           "messages[1].content[0].type: \"text\" expected; say it");
    expect(from(CARAT_EUSAGE, "n: 1 to 8 expected", ""), 400, usage, "", "n", "n: 1 to 8 expected");
    expect(from(CARAT_EUSAGE, "not valid JSON: line 1, column 2: x", ""), 400, usage,
           "invalid_json", "", "not valid JSON: line 1, column 2: x");
    expect(from(CARAT_EUSAGE, "request: an object expected", ""), 400, usage, "", "",
           "request: an object expected");
    expect(from(CARAT_EUNSUPPORTED, "messages[0].content[1].type: no images", ""), 400, usage,
           "unsupported_value", "messages[0].content[1].type",
           "messages[0].content[1].type: no images");
    expect(from(CARAT_EUSAGE, "two words: x", ""), 400, usage, "", "", "two words: x");
}

static void a_long_prompt_is_recognised_by_agents(void **state)
{
    (void)state;
    struct api_error e =
        from(CARAT_ECONTEXT, "prompt of 70000 tokens exceeds the available context size of 8192",
             "shorten it");
    assert_string_equal(e.code, "context_length_exceeded");
    assert_non_null(strstr(e.message, "exceeds the available context size"));
    assert_int_equal(e.n_prompt, 70000);
    assert_int_equal(e.n_ctx, 8192);
    struct buf out = {0};
    api_error_body(&e, FAMILY_OPENAI, "r", &out);
    assert_non_null(strstr(buf_text(&out), "\"n_prompt_tokens\":70000,\"n_ctx\":8192"));
    buf_clear(&out);
    api_error_body(&e, FAMILY_ANTHROPIC, "r", &out);
    assert_non_null(strstr(buf_text(&out), "\"prompt is too long: 70000 tokens > 8192 maximum"));
    e = from(CARAT_ECONTEXT, "prompt: 99 bytes or more found", "");
    assert_string_equal(e.code, "context_length_exceeded");
    assert_non_null(strstr(e.message, "exceeds the available context size"));
    buf_clear(&out);
    api_error_body(&e, FAMILY_ANTHROPIC, "r", &out);
    assert_non_null(strstr(buf_text(&out), "\"prompt is too long: prompt: 99 bytes"));
    buf_deinit(&out);
}

static void what_the_server_did_wrong_shows_no_paths(void **state)
{
    (void)state;
    static const enum carat_status codes[] = {CARAT_EINTERNAL, CARAT_EFORMAT,  CARAT_EMEMORY,
                                              CARAT_EDEVICE,   CARAT_ENETWORK, CARAT_EADDRESS,
                                              CARAT_ECHECKSUM, CARAT_ENUMERIC, CARAT_EIO};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct api_error e = from(codes[i], "/srv/secret: failed", "look into /srv/secret");
        assert_true(e.status >= 500);
        assert_null(strstr(e.message, "secret"));
    }
    assert_int_equal(from(CARAT_EMEMORY, "x", "").status, 503);
    assert_int_equal(from(CARAT_EDEVICE, "x", "").status, 503);
    assert_int_equal(from(CARAT_ENUMERIC, "x", "").status, 500);
    struct api_error busy = from(CARAT_EBUSY, "queue: full", "");
    expect(busy, 429, "rate_limit_error", "queue_full", "", "queue: full");
    assert_int_equal(busy.retry_after, 1);
}

static void each_family_has_its_own_body(void **state)
{
    (void)state;
    struct api_error e = api_error_make(404, "model_not_found", "no model \"%s\"\n", "x");
    struct buf out = {0};
    api_error_body(&e, FAMILY_OPENAI, "r1", &out);
    assert_string_equal(buf_text(&out),
                        "{\"error\":{\"message\":\"no model \\\"x\\\"\\n\",\"type\":"
                        "\"not_found_error\",\"param\":null,\"code\":\"model_not_found\"}}\n");
    buf_clear(&out);
    api_error_body(&e, FAMILY_ANTHROPIC, "r1", &out);
    assert_string_equal(buf_text(&out),
                        "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":"
                        "\"no model \\\"x\\\"\\n\"},\"request_id\":\"r1\"}\n");
    buf_clear(&out);
    api_error_body(&e, FAMILY_OLLAMA, "r1", &out);
    assert_string_equal(buf_text(&out), "{\"error\":\"no model \\\"x\\\"\\n\"}\n");
    buf_deinit(&out);
    assert_int_equal(api_family(API_CHAT), FAMILY_OPENAI);
    assert_int_equal(api_family(API_RESPONSES), FAMILY_OPENAI);
    assert_int_equal(api_family(API_MESSAGES), FAMILY_ANTHROPIC);
    assert_int_equal(api_family(API_OLLAMA_GENERATE), FAMILY_OLLAMA);
}

static void a_thread_is_refused_in_words_that_clients_act_on(void **state)
{
    (void)state;
    struct api_error e = from(CARAT_EUNSUPPORTED, "thread: not supported", "");
    struct buf out = {0};
    api_error_body(&e, FAMILY_ANTHROPIC, "r1", &out);
    assert_non_null(strstr(buf_text(&out), "\"message\":\"thread: not supported\",\"details\":"
                                           "{\"error_code\":\"thread_unsupported_request\"}}"));
    buf_clear(&out);
    api_error_body(&e, FAMILY_OPENAI, "r1", &out);
    assert_null(strstr(buf_text(&out), "details"));
    buf_deinit(&out);
}

static void every_status_has_a_type(void **state)
{
    (void)state;
    for (int status = 400; status < 600; status++) {
        struct api_error e = api_error_make(status, NULL, "x");
        assert_non_null(e.type);
        assert_int_equal(e.status, status);
    }
    assert_string_equal(api_error_make(418, NULL, "x").type, "invalid_request_error");
    assert_string_equal(api_error_make(502, NULL, "x").type, "server_error");
    assert_string_equal(api_error_make(413, NULL, "x").code, "request_too_large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_client_did_wrong_is_400_and_names_the_member),
        cmocka_unit_test(a_long_prompt_is_recognised_by_agents),
        cmocka_unit_test(what_the_server_did_wrong_shows_no_paths),
        cmocka_unit_test(each_family_has_its_own_body),
        cmocka_unit_test(a_thread_is_refused_in_words_that_clients_act_on),
        cmocka_unit_test(every_status_has_a_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
