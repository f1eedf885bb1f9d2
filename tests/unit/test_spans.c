/* Traces: the header `traceparent`, lists of pairs, and spans as OTLP has them in JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/otlp_reply.h"
#include "server/pairs.h"
#include "server/span.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static void a_well_formed_caller_is_gone_on_with(void **state)
{
    (void)state;
    static const char *const good[] = {"00-" TRACE "-" PARENT "-01", "00-" TRACE "-" PARENT "-03",
                                       "7f-" TRACE "-" PARENT "-01",
                                       "7f-" TRACE "-" PARENT "-01-what follows"};
    struct trace_context t;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(trace_context_begin(&t, good[i]));
        assert_string_equal(t.trace, TRACE);
        assert_string_equal(t.parent, PARENT);
        assert_int_equal(strspn(t.span, "0123456789abcdef"), 16);
        assert_string_not_equal(t.span, PARENT);
    }
    assert_false(trace_context_begin(&t, "00-" TRACE "-" PARENT "-00"));
    assert_string_equal(t.span, "");
}

static void every_other_caller_begins_a_trace(void **state)
{
    (void)state;
    static const char good[] = "00-" TRACE "-" PARENT "-01";
    struct trace_context t, other;
    char wrong[sizeof good];
    for (size_t i = 0; i < sizeof good - 1; i++) { /* one character is wrong, or the last */
        memcpy(wrong, good, sizeof good);
        wrong[i] = 'G';
        assert_true(trace_context_begin(&t, wrong));
        assert_string_not_equal(t.trace, TRACE);
        wrong[i] = '\0';
        assert_true(trace_context_begin(&t, wrong));
        assert_string_equal(t.parent, "");
    }
    assert_true(trace_context_begin(&t, NULL));
    assert_true(trace_context_begin(&other, NULL));
    assert_int_equal(strspn(t.trace, "0123456789abcdef"), 32);
    assert_string_not_equal(t.trace, other.trace);
    assert_string_not_equal(t.span, other.span);
}

static void pairs_are_read_to_their_end(void **state)
{
    (void)state;
    const char *at = " a = b%2C%20c ,, d=,e=f=g,";
    struct pair p;
    assert_int_equal(pairs_next(&at, &p), 1);
    assert_string_equal(p.name, "a");
    assert_string_equal(p.value, "b, c");
    assert_int_equal(pairs_next(&at, &p), 1);
    assert_string_equal(p.name, "d");
    assert_string_equal(p.value, "");
    assert_int_equal(pairs_next(&at, &p), 1);
    assert_string_equal(p.value, "f=g");
    assert_int_equal(pairs_next(&at, &p), 0);
    assert_int_equal(pairs_next(&at, &p), 0);
}

static void pairs_that_are_wrong_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"a",     "=b",     "a b=c",  "a=%", "a=%1",
                                        "a=%1g", "a=%0ab", "a=\x7f", "a:=b"};
    char longer[2048];
    struct pair p;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = wrong[i];
        assert_int_equal(pairs_next(&at, &p), -1);
    }
    memset(longer, 'a', sizeof longer);
    memcpy(longer + sizeof longer - 3, "=b", 3);
    const char *at = longer;
    assert_int_equal(pairs_next(&at, &p), -1); /* the name is too long */
    longer[1] = '=';
    at = longer;
    assert_int_equal(pairs_next(&at, &p), -1); /* and the value */
}

static void a_span_is_written_to_the_byte(void **state)
{
    (void)state;
    const struct span_source source = {"carat", "0.1.0", "demo", "a=b,service.name=x"};
    struct span span = {.context = {TRACE, "0102030405060708", PARENT},
                        .begin_ns = 1700000000000000001,
                        .end_ns = INT64_MAX,
                        .method = "POST",
                        .route = "/tokenize",
                        .scheme = "http",
                        .status = 503,
                        .id = "mine"};
    struct buf out = {0};
    spans_write(&out, &source, &span, 1);
    assert_string_equal(
        buf_text(&out),
        "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
        "{\"key\":\"service.name\",\"value\":{\"stringValue\":\"carat\"}},"
        "{\"key\":\"service.version\",\"value\":{\"stringValue\":\"0.1.0\"}},"
        "{\"key\":\"a\",\"value\":{\"stringValue\":\"b\"}}]},"
        "\"scopeSpans\":[{\"scope\":{\"name\":\"carat\",\"version\":\"0.1.0\"},\"spans\":["
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0102030405060708\",\"parentSpanId\":\"" PARENT
        "\",\"flags\":769,\"name\":\"POST /tokenize\",\"kind\":2,"
        "\"startTimeUnixNano\":\"1700000000000000001\","
        "\"endTimeUnixNano\":\"9223372036854775807\",\"attributes\":["
        "{\"key\":\"http.request.method\",\"value\":{\"stringValue\":\"POST\"}},"
        "{\"key\":\"http.route\",\"value\":{\"stringValue\":\"/tokenize\"}},"
        "{\"key\":\"url.path\",\"value\":{\"stringValue\":\"/tokenize\"}},"
        "{\"key\":\"url.scheme\",\"value\":{\"stringValue\":\"http\"}},"
        "{\"key\":\"http.response.status_code\",\"value\":{\"intValue\":\"503\"}},"
        "{\"key\":\"error.type\",\"value\":{\"stringValue\":\"503\"}},"
        "{\"key\":\"gen_ai.request.id\",\"value\":{\"stringValue\":\"mine\"}}],"
        "\"status\":{\"code\":2}}]}]}]}");
    buf_deinit(&out);
}

static void replies_that_are_none_refuse_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t rejected;
    } replies[] = {
        {"{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}", 3},
        {"{\"partialSuccess\":{\"rejectedSpans\":3}}", 3},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"99999999999999999999999\"}}", 7},
        {"{\"partialSuccess\":{\"rejectedSpans\":9007199254740993}}", 7},
        {"{\"partialSuccess\":{\"rejectedSpans\":-3}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"-3\"}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":null}}", 0},
        {"{\"partialSuccess\":[3]}", 0},
        {"{\"partialSuccess\":{}}", 0},
        {"[3]", 0},
        {"{}", 0},
        {"{", 0},
        {"", 0},
        {"<html>", 0},
    };
#ifndef CARAT_HAVE_JSON
    skip(); /* built without jansson: nothing is read */
#endif
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++)
        assert_int_equal(otlp_reply_rejected(replies[i].text, strlen(replies[i].text), 7),
                         replies[i].rejected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_well_formed_caller_is_gone_on_with),
        cmocka_unit_test(every_other_caller_begins_a_trace),
        cmocka_unit_test(pairs_are_read_to_their_end),
        cmocka_unit_test(pairs_that_are_wrong_are_refused),
        cmocka_unit_test(a_span_is_written_to_the_byte),
        cmocka_unit_test(replies_that_are_none_refuse_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
