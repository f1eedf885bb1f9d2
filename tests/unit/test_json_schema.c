/* JSON Schema as grammars: which values are taken, what is refused and with which path, and the
 * schemas of tests/golden/schemas.json: they compile fast, masks agree with checks along random
 * walks, and what the walks write is JSON. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "json/json_tree.h"
#include "support/cost.h"
#include "support/takes.h"
#include "support/values.h"

static struct grammar_fixture f;

static int open_fixture(void **state)
{
    (void)state;
    grammar_fixture_open(&f, 4096);
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    grammar_fixture_deinit(&f);
    return 0;
}

static void check_takes(const char *schema, const char *const *good, const char *const *bad)
{
    carat_grammar *g;
    struct carat_error err = {0};
    if (json_schema_open(&g, &f, schema, strlen(schema), &err)) fail_msg("%s", err.message);
    assert_takes(g, &f, schema, good, bad);
    grammar_close(g);
}

static void check_refused(const char *schema, enum carat_status status, const char *message)
{
    carat_grammar *g;
    struct carat_error err = {0};
    int found = json_schema_open(&g, &f, schema, strlen(schema), &err);
    if (found != (int)status || !strstr(err.message, message))
        fail_msg("%.200s: \"%s\" expected, \"%s\" found", schema, message, err.message);
    assert_null(g);
}

static void test_values(void **state)
{
    (void)state;
    check_takes("{\"type\":\"string\"}", TEXTS("\"\"", "\"a \xc3\xa9 \\n\\u00e9\\ud83d\\ude00\""),
                TEXTS("a", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"a", " \"\""));
    check_takes("{\"type\":\"number\"}", TEXTS("0", "-1.5e+10", "120", "0.25E3"),
                TEXTS("1e400", "01", "1.", ".5", "+1", "1e", "--1"));
    check_takes("{\"type\":\"integer\"}", TEXTS("0", "-12", "999999999999999999"),
                TEXTS("1.0", "1e3", "00", "1000000000000000000"));
    check_takes("{\"type\":[\"boolean\",\"null\"]}", TEXTS("true", "false", "null"), TEXTS("0"));
    check_takes("{}", TEXTS("{}", "[1, {\"a\": [ ]}]", "\"x\"", "{ \"a\" : 1 , \"b\" : 2 }", "{ }"),
                TEXTS("{  }", "[1,  2]", "[1,]", "{\"a\"}", "[\n1]", "", "1 "));
    check_takes(
        "{\"const\":{\"a\":[1,\"x\\\"\",null,1.5]}}",
        TEXTS("{\"a\":[1,\"x\\\"\",null,1.5]}", "{ \"a\" : [ 1 , \"x\\\"\" , null , 1.5 ] }"),
        TEXTS("{\"a\":[1]}"));
    check_takes("{\"enum\":[\"a\",\"ab\",\"b\",\"\",3,null]}",
                TEXTS("\"a\"", "\"ab\"", "\"b\"", "\"\"", "3", "null"), TEXTS("\"c\"", "\"abc\""));
    check_takes("{\"type\":\"integer\",\"enum\":[1,2.0,\"x\",2.5]}", TEXTS("1", "2"),
                TEXTS("\"x\"", "2.5"));
}

static void test_strings(void **state)
{
    (void)state;
    check_takes("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
                TEXTS("\"ab\"", "\"\xc3\xa9\xf0\x9f\x98\x80z\"", "\"\\ud83d\\ude00\\n\""),
                TEXTS("\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""));
    check_takes("{\"type\":\"string\",\"pattern\":\"^a|b$\"}", TEXTS("\"axx\"", "\"xxb\"", "\"a\""),
                TEXTS("\"xa\"", "\"bx\""));
    check_takes("{\"type\":\"string\",\"pattern\":\"^a\\u0000+$\"}", TEXTS("\"a\\u0000\\u0000\""),
                TEXTS("\"a\""));
    check_takes("{\"type\":\"string\",\"pattern\":\"a.c\"}", TEXTS("\"xxabcxx\"", "\"a\\\"c\""),
                TEXTS("\"ac\"", "\"a\\nc\""));
    check_takes("{\"type\":\"string\",\"pattern\":\"^(?:\\\\d{2,3}|[^\\\\w\\\\s]+?)$\"}",
                TEXTS("\"12\"", "\"123\"", "\"\\\"/\\\\\""), TEXTS("\"1\"", "\"a\"", "\" \""));
    check_takes("{\"type\":\"string\",\"pattern\":\"^[a-z]*$\",\"minLength\":2,\"maxLength\":4}",
                TEXTS("\"ab\"", "\"abcd\""), TEXTS("\"a\"", "\"abcde\""));
    check_takes("{\"type\":\"string\",\"format\":\"date\"}",
                TEXTS("\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\""),
                TEXTS("\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\""));
    check_takes("{\"type\":\"string\",\"format\":\"date-time\"}",
                TEXTS("\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.123+05:30\""),
                TEXTS("\"2024-01-01T24:00:00Z\"", "\"2024-01-01T00:00:00\""));
    check_takes("{\"type\":\"string\",\"format\":\"ipv4\"}", TEXTS("\"255.0.10.1\""),
                TEXTS("\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""));
    check_takes("{\"type\":\"string\",\"format\":\"email\"}", TEXTS("\"a.b+c@example.co.uk\""),
                TEXTS("\"a@b\"", "\".a@b.c\"", "\"a b@c.de\""));
    check_takes("{\"type\":\"string\",\"format\":\"uri\"}", TEXTS("\"anything\""), TEXTS("1"));
}

static void test_patterns_name_groups_and_code_points(void **state)
{
    (void)state;
    check_takes("{\"pattern\":\"^(?<year>\\\\d{4})-(?<month>\\\\d\\\\d)$\"}", TEXTS("\"2026-11\""),
                TEXTS("\"2026\"", "\"year\""));
    check_takes("{\"pattern\":\"^[\\\\u{1F600}-\\\\u{1f602}\\\\u{61}]+$\"}",
                TEXTS("\"a\xf0\x9f\x98\x81\""), TEXTS("\"u\"", "\"\xf0\x9f\x98\x83\""));
    check_takes("{\"pattern\":\"^[\\\\uD83D\\\\uDE00x]\\\\ud83d\\\\ude01{2}$\"}",
                TEXTS("\"\xf0\x9f\x98\x80\xf0\x9f\x98\x81\xf0\x9f\x98\x81\"",
                      "\"x\xf0\x9f\x98\x81\xf0\x9f\x98\x81\""),
                TEXTS("\"x\xf0\x9f\x98\x81\"", "\"x\""));
    check_takes("{\"pattern\":\"^(\\\\uD83D\\\\u0061|b)$\"}", TEXTS("\"b\""), TEXTS("\"a\""));
}

static void test_patterns_of_which_one_class_varies_have_lengths(void **state)
{
    (void)state;
    check_takes("{\"pattern\":\"^[A-Z][a-z]*!$\",\"minLength\":3,\"maxLength\":4}",
                TEXTS("\"Ab!\"", "\"Abc!\""), TEXTS("\"A!\"", "\"Abcd!\"", "\"ab!\""));
    check_takes("{\"pattern\":\"^ab\",\"maxLength\":4}", TEXTS("\"ab\"", "\"ab\\n\\n\""),
                TEXTS("\"abcde\"", "\"a\""));
    check_takes("{\"pattern\":\"\\\\.py$\",\"minLength\":4}", TEXTS("\"a.py\""), TEXTS("\".py\""));
    check_takes("{\"pattern\":\"^x(y(?:z[0-9]{2,}))$\",\"maxLength\":6}",
                TEXTS("\"xyz12\"", "\"xyz123\""), TEXTS("\"xyz1\"", "\"xyz1234\""));
    check_takes("{\"pattern\":\"^(?:ab){2}$\",\"maxLength\":4}", TEXTS("\"abab\""),
                TEXTS("\"ab\""));
    check_refused("{\"pattern\":\"^(?:ab){2}$\",\"maxLength\":3}", CARAT_EUSAGE, "matches no text");
    check_refused("{\"pattern\":\"^(?:ab)+$\",\"maxLength\":3}", CARAT_EUNSUPPORTED,
                  "#/maxLength:");
    check_refused("{\"pattern\":\"ab\",\"maxLength\":3}", CARAT_EUNSUPPORTED, "#/maxLength:");
    check_refused("{\"pattern\":\"^a|b$\",\"maxLength\":3}", CARAT_EUNSUPPORTED, "#/maxLength:");
}

/* Where a format does not keep the lengths, these are enforced and it is an annotation. */
static void test_formats_with_lengths(void **state)
{
    (void)state;
    check_takes("{\"format\":\"email\",\"maxLength\":7}", TEXTS("\"a@b.cd\"", "\"nobody\""),
                TEXTS("\"aaa@b.cd\""));
    check_takes("{\"format\":\"email\",\"minLength\":3}", TEXTS("\"a@b.cd\""), TEXTS("\"nobody\""));
    check_takes("{\"format\":\"uuid\",\"maxLength\":36}",
                TEXTS("\"123e4567-e89b-12d3-a456-426614174000\""), TEXTS("\"123e4567\""));
    check_refused("{\"format\":\"date\",\"maxLength\":9}", CARAT_EUSAGE, "matches no text");
}

static void test_wrong_patterns(void **state)
{
    (void)state;
    check_refused("{\"pattern\":\"(?<year\"}", CARAT_EUSAGE, "1: the group's name does not end");
    check_refused("{\"pattern\":\"(?<=a)\"}", CARAT_EUNSUPPORTED, "1: groups that look around");
    check_refused("{\"pattern\":\"(?i:a)\"}", CARAT_EUNSUPPORTED, "1: groups that look around");
    check_refused("{\"pattern\":\"(?<\"}", CARAT_EUNSUPPORTED, "1: groups that look around");
    check_refused("{\"pattern\":\"\\\\u{}\"}", CARAT_EUSAGE, "3: a code point up to");
    check_refused("{\"pattern\":\"\\\\u{110000}\"}", CARAT_EUSAGE, "3: a code point up to");
    check_refused("{\"pattern\":\"\\\\u{61\"}", CARAT_EUSAGE, "3: a code point up to");
    check_refused("{\"pattern\":\"\\\\uD83D\\\\u12\"}", CARAT_EUSAGE, "hexadecimal digits");
    check_refused("{\"pattern\":\"\\\\uD83D\\\\u\"}", CARAT_EUSAGE, "hexadecimal digits");
}

/* Bounds against arithmetic, over many numbers around them. */
static void check_range(const char *schema, double low, double high, bool open_low, bool open_high,
                        bool is_integer)
{
    carat_grammar *g;
    struct carat_error err = {0};
    if (json_schema_open(&g, &f, schema, strlen(schema), &err)) fail_msg("%s", err.message);
    for (int k = -2600; k <= 2600; k++) {
        char text[32];
        double x = is_integer ? k : k / 20.0;
        int n = snprintf(text, sizeof text, is_integer ? "%.0f" : k % 20 ? "%.2f" : "%.0f", x);
        bool expected = (open_low ? x > low : x >= low) && (open_high ? x < high : x <= high);
        if (grammar_takes(g, &f, text, (size_t)n) != expected)
            fail_msg("%s: %s: %d expected", schema, text, expected);
    }
    grammar_close(g);
}

static void test_bounds_of_numbers(void **state)
{
    (void)state;
    static const int bounds[][2] = {{0, 0},    {0, 9},     {1, 10},     {5, 123}, {-7, 7},
                                    {-30, -4}, {-99, 100}, {99, 101},   {10, 99}, {-1000, -999},
                                    {0, 1999}, {-1, 0},    {1000, 1001}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        char schema[200];
        int low = bounds[i][0], high = bounds[i][1];
        for (int kind = 0; kind < 8; kind++) {
            bool open_low = kind & 1, open_high = kind & 2, is_integer = kind & 4;
            if (low == high && (open_low || open_high)) continue;
            if (high - low == 1 && open_low && open_high && is_integer) continue;
            snprintf(schema, sizeof schema, "{\"type\":\"%s\",\"%s\":%d,\"%s\":%d}",
                     is_integer ? "integer" : "number", open_low ? "exclusiveMinimum" : "minimum",
                     low, open_high ? "exclusiveMaximum" : "maximum", high);
            check_range(schema, low, high, open_low, open_high, is_integer);
        }
        snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%d}", low);
        check_range(schema, low, INFINITY, false, false, true);
        snprintf(schema, sizeof schema, "{\"type\":\"number\",\"maximum\":%d.35}", high);
        check_range(schema, -INFINITY, high + (high < 0 ? -0.35 : 0.35), false, false, false);
    }
    check_range("{\"type\":\"number\",\"minimum\":0.15,\"exclusiveMaximum\":0.35}", 0.15, 0.35,
                false, true, false);
    check_range("{\"type\":\"number\",\"minimum\":-12.5,\"maximum\":12.75}", -12.5, 12.75, false,
                false, false);
    check_takes("{\"type\":\"number\",\"exclusiveMaximum\":1,\"minimum\":0}",
                TEXTS("0", "0.999999999", "0.0"), TEXTS("1", "0.9999999999999999999999", "1.0"));
}

/* What is far below a large bound has as many decimals as without one. */
static void test_decimals_of_numbers_with_large_bounds(void **state)
{
    (void)state;
    check_takes("{\"type\":\"number\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
                TEXTS("3.14", "-0.000001", "99999.123456789", "123456789.25", "9007199254740991"),
                TEXTS("9007199254740991.1", "9007199254740992", "999999999999999.99"));
    check_takes("{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1000000}",
                TEXTS("0.01", "9.999999999", "999999.999999999"), TEXTS("0", "0.0", "1000000"));
}

static void test_arrays(void **state)
{
    (void)state;
    check_takes(
        "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
        TEXTS("[1]", "[1,2]", "[ 1 , 2 , 3 ]"), TEXTS("[]", "[1,2,3,4]", "[\"a\"]", "[1,]"));
    check_takes("{\"type\":\"array\",\"maxItems\":0}", TEXTS("[]", "[ ]"), TEXTS("[1]"));
    check_takes("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"boolean\"}],\"minItems\":1}",
                TEXTS("[1]", "[1,true]"), TEXTS("[]", "[1,true,2]", "[true]"));
    check_takes("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":"
                "{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}",
                TEXTS("[1,null]", "[1,null,null]"), TEXTS("[1]", "[1,null,null,null]", "[null]"));
    check_takes("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":1000000}",
                TEXTS("[]", "[1,2,3]"), TEXTS("[1"));
}

static void test_objects(void **state)
{
    (void)state;
    check_takes("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
                "\"integer\"},\"c\":{\"type\":\"integer\"}},\"required\":[\"b\"]}",
                TEXTS("{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":1,\"c\":2}",
                      "{ \"a\" : 1 , \"b\" : 2 , \"c\" : 3 }"),
                TEXTS("{}", "{\"a\":1}", "{\"b\":1,\"a\":2}", "{\"b\":1,\"b\":2}", "{\"b\":1,}",
                      "{,\"b\":1}", "{\"d\":1,\"b\":2}"));
    check_takes("{\"properties\":{\"a\":true,\"b\":true}}",
                TEXTS("{}", "{ }", "{\"a\":1}", "{\"b\":[]}", "{\"a\":1,\"b\":2}"),
                TEXTS("{  }", "{\"c\":1}", "1"));
    check_takes("{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},"
                "\"additionalProperties\":{\"type\":\"integer\"}}",
                TEXTS("{}", "{\"ab\":null}", "{\"a\":1,\"abc\":2}", "{\"ab\":null,\"\":1}",
                      "{\"\xc3\xa9\":1}"),
                TEXTS("{\"ab\":1}", "{\"a\":null}", "{\"\\u0061b\":1}"));
    check_takes("{\"type\":\"object\",\"required\":[\"x\"]}",
                TEXTS("{\"x\":1}", "{\"x\":1,\"y\":2}"), TEXTS("{}", "{\"y\":1}"));
    check_takes("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":"
                "[\"z\"]}",
                TEXTS("{\"z\":[]}", "{\"a\":1,\"z\":2}"), TEXTS("{\"a\":1}"));
    check_takes("{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},"
                "\"additionalProperties\":false}",
                TEXTS("{}", "{\"x1\":1,\"xy\":2}"), TEXTS("{\"y\":1}"));
    check_takes("{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}", TEXTS("{\"b\":1}"),
                TEXTS("{\"a\":1}"));
}

/* Many schemas name what is required before they list the properties. */
static void test_properties_come_in_their_order_wherever_required_stands(void **state)
{
    (void)state;
    check_takes("{\"required\":[\"b\",\"a\"],\"properties\":{\"a\":true,\"b\":true}}",
                TEXTS("{\"a\":1,\"b\":2}"), TEXTS("{\"b\":2,\"a\":1}", "{\"b\":2}"));
    check_takes("{\"required\":[\"b\"],\"properties\":{\"a\":true,\"b\":true}}",
                TEXTS("{\"a\":1,\"b\":2}", "{\"b\":2}"), TEXTS("{\"b\":2,\"a\":1}"));
    check_takes("{\"required\":[\"z\"],\"properties\":{\"a\":true}}",
                TEXTS("{\"a\":1,\"z\":2}", "{\"z\":2}"), TEXTS("{\"z\":2,\"a\":1}"));
    check_takes("{\"required\":[\"b\"],\"allOf\":[{\"properties\":{\"a\":true,\"b\":true}}]}",
                TEXTS("{\"a\":1,\"b\":2}"), TEXTS("{\"b\":2,\"a\":1}"));
}

static void test_combinations(void **state)
{
    (void)state;
    check_takes("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":2}]}",
                TEXTS("12", "\"ab\""), TEXTS("\"abc\"", "null"));
    check_takes("{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5}]}",
                TEXTS("3", "5"), TEXTS("2", "6"));
    check_takes("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
                "{\"properties\":{\"b\":{\"type\":\"integer\"},\"a\":{\"minimum\":5}}}]}",
                TEXTS("{\"a\":5}", "{\"a\":7,\"b\":1}"), TEXTS("{\"a\":4}", "{\"b\":1}"));
    check_takes("{\"type\":\"object\",\"properties\":{\"e\":true,\"p\":true},\"anyOf\":"
                "[{\"required\":[\"e\"]},{\"required\":[\"p\"]}]}",
                TEXTS("{\"e\":1}", "{\"p\":1}", "{\"e\":1,\"p\":1}"), TEXTS("{}"));
    check_takes(
        "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},"
        "{\"properties\":{\"k\":{\"const\":2},\"v\":{\"type\":\"null\"}},\"required\":[\"k\"]}]}",
        TEXTS("{\"k\":1}", "{\"k\":2,\"v\":null}"), TEXTS("{\"k\":1,\"v\":null}"));
    check_takes("{\"oneOf\":[{\"properties\":{\"a\":true},\"required\":[\"a\"]},{\"properties\":"
                "{\"b\":true},\"required\":[\"b\"]}]}",
                TEXTS("{\"a\":1}", "{\"b\":1}"), TEXTS("{\"a\":1,\"b\":1}"));
    check_takes("{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"array\",\"items\":"
                "{\"$ref\":\"#\"}}}}",
                TEXTS("[]", "[[],[[]]]"), TEXTS("[1]"));
    check_takes("{\"$ref\":\"#/$defs/x\",\"minimum\":3,\"$defs\":{\"x\":{\"type\":\"integer\"}}}",
                TEXTS("3"), TEXTS("2"));
    check_takes("{\"type\":\"string\",\"nullable\":true}", TEXTS("null", "\"\""), TEXTS("1"));
}

/* What pydantic writes for unions that a member tells apart: OpenAPI's hint changes no value. */
static void test_a_discriminator_is_a_hint(void **state)
{
    (void)state;
    check_takes(
        "{\"discriminator\":{\"mapping\":{\"cat\":\"#/$defs/Cat\",\"dog\":\"#/$defs/Dog\"},"
        "\"propertyName\":\"kind\"},\"oneOf\":[{\"$ref\":\"#/$defs/Cat\"},{\"$ref\":"
        "\"#/$defs/Dog\"}],\"$defs\":{\"Cat\":{\"properties\":{\"kind\":{\"const\":\"cat\","
        "\"type\":\"string\"},\"lives\":{\"type\":\"integer\"}},\"required\":[\"kind\",\"lives\"],"
        "\"type\":\"object\"},\"Dog\":{\"properties\":{\"kind\":{\"const\":\"dog\",\"type\":"
        "\"string\"}},\"required\":[\"kind\"],\"type\":\"object\"}}}",
        TEXTS("{\"kind\":\"cat\",\"lives\":9}", "{\"kind\":\"dog\"}"),
        TEXTS("{\"kind\":\"cat\"}", "{\"kind\":\"dog\",\"lives\":9}", "{\"kind\":\"cow\"}"));
}

/* Each branch alone lists one of the two keys, but what stands next to oneOf lists both. */
static void test_branches_may_overlap_within_a_property(void **state)
{
    (void)state;
#define HAS(key)                                                                                   \
    "{\"properties\":{\"k\":{\"properties\":{\"" key "\":true},\"required\":[\"" key "\"]}},"      \
    "\"required\":[\"k\"]}"
    check_takes("{\"oneOf\":[" HAS("a") "," HAS("b") "]}",
                TEXTS("{\"k\":{\"a\":1}}", "{\"k\":{\"b\":1}}"),
                TEXTS("{\"k\":{\"a\":1,\"b\":1}}", "{\"k\":{}}"));
    check_refused("{\"properties\":{\"k\":{\"properties\":{\"a\":true,\"b\":true}}},"
                  "\"oneOf\":[" HAS("a") "," HAS("b") "]}",
                  CARAT_EUNSUPPORTED, "#/oneOf: a value might fit two");
    check_refused(
        "{\"oneOf\":[{\"allOf\":[" HAS("a") "],\"anyOf\":[{},{\"properties\":{\"k\":"
                                            "{\"properties\":{\"b\":true}}}}]}," HAS("b") "]}",
        CARAT_EUNSUPPORTED, "#/oneOf: a value might fit two");
}

/* "items" and "additionalProperties" speak of what their own schema does not list. */
static void test_all_of_joins_what_its_schemas_do_not_list(void **state)
{
    (void)state;
    check_takes("{\"allOf\":[{\"prefixItems\":[{\"type\":\"integer\"}]},"
                "{\"items\":{\"minimum\":3}}]}",
                TEXTS("[]", "[3]", "[4,5.5]"), TEXTS("[2]", "[3.5]", "[3,2]"));
    check_takes("{\"items\":false,\"allOf\":[{\"prefixItems\":[{},{}]}]}", TEXTS("[]"),
                TEXTS("[1]", "[1,2]"));
    check_takes("{\"items\":true,\"allOf\":[{\"prefixItems\":[{\"type\":\"null\"}]}]}",
                TEXTS("[null]", "[null,1]"), TEXTS("[1]"));
    check_takes("{\"allOf\":[{\"items\":[{\"type\":\"null\"}],\"additionalItems\":false},{}]}",
                TEXTS("[]", "[null]"), TEXTS("[1]", "[null,1]"));
    check_refused("{\"allOf\":[{\"additionalProperties\":false},"
                  "{\"patternProperties\":{\"^x\":{}}}]}",
                  CARAT_EUNSUPPORTED, "#/allOf/0/additionalProperties: together with");
    check_refused("{\"patternProperties\":{\"^x\":{}},\"allOf\":[{\"additionalProperties\":false,"
                  "\"patternProperties\":{}}]}",
                  CARAT_EUNSUPPORTED, "#/allOf/0/additionalProperties: together with");
}

/* What zod 4 writes for records, and for texts of a form: the pattern is what it checks. */
static void test_what_says_nothing_more_is_taken(void **state)
{
    (void)state;
#define RECORD                                                                                     \
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"propertyNames\":"
    check_takes(RECORD "{\"type\":\"string\"}}", TEXTS("{}", "{\"a\":1}"), TEXTS("{\"a\":\"b\"}"));
    check_takes(RECORD "{}}", TEXTS("{\"a\":1}"), TEXTS("1"));
    check_takes(RECORD "true}", TEXTS("{\"a\":1}"), TEXTS("1"));
    check_refused(RECORD "{\"type\":\"string\",\"maxLength\":2}}", CARAT_EUNSUPPORTED,
                  "#/propertyNames:");
    check_refused(RECORD "{\"type\":\"integer\"}}", CARAT_EUNSUPPORTED, "#/propertyNames:");
    check_refused(RECORD "false}", CARAT_EUNSUPPORTED, "#/propertyNames:");
    check_takes("{\"type\":\"string\",\"format\":\"date\","
                "\"pattern\":\"^20\\\\d\\\\d-(?:0[1-9]|1[0-2])$\"}",
                TEXTS("\"2026-11\""), TEXTS("\"2026-11-23\"", "\"2026-13\""));
}

static void test_bounds_beyond_64_bits_are_kept_as_far_as_numbers_go(void **state)
{
    (void)state;
    check_takes("{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}",
                TEXTS("0", "9223372036854775807"), TEXTS("-1", "18446744073709551616"));
    check_takes("{\"type\":\"number\",\"minimum\":-1.7e308,\"maximum\":1.7e308}",
                TEXTS("-12.5", "0", "999999999999999999"), TEXTS("1e309"));
    check_takes("{\"type\":\"integer\",\"minimum\":-2e18,\"maximum\":2e18}",
                TEXTS("2000000000000000000", "-2000000000000000000"),
                TEXTS("2000000000000000001", "-2000000000000000001"));
    check_takes("{\"enum\":[9223372036854775807],\"maximum\":18446744073709551615}",
                TEXTS("9223372036854775807"), TEXTS("1"));
    check_takes("{\"enum\":[3,1e300,-1e300,1e-40],\"minimum\":1,\"maximum\":5}", TEXTS("3"),
                TEXTS("1e+300", "-1e+300", "1e-40"));
    check_refused("{\"minimum\":18446744073709551615}", CARAT_EUNSUPPORTED,
                  "#/minimum: a number below 2^63");
    check_refused("{\"maximum\":-18446744073709551615}", CARAT_EUNSUPPORTED,
                  "#/maximum: a number below 2^63");
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("{\"properties\":{\"a\":{\"not\":{}}}}", CARAT_EUNSUPPORTED,
                  "#/properties/a/not: the keyword is not supported");
    check_refused("{\"type\":\"array\",\"uniqueItems\":true}", CARAT_EUNSUPPORTED,
                  "#/uniqueItems:");
    check_refused("{\"type\":\"object\",\"minProperties\":1}", CARAT_EUNSUPPORTED,
                  "#/minProperties:");
    check_refused("{\"type\":\"integer\",\"multipleOf\":5}", CARAT_EUNSUPPORTED, "#/multipleOf:");
    check_refused("{\"if\":{},\"then\":{}}", CARAT_EUNSUPPORTED, "#/if:");
    check_refused("{\"type\":\"strin\"}", CARAT_EUSAGE, "#/type:");
    check_refused("{\"anyOf\":[{\"allOf\":[{\"x\":1}]}]}", CARAT_EUNSUPPORTED, "/allOf/0/x:");
    check_refused("{\"anyOf\":[{},{\"not\":{}}]}", CARAT_EUNSUPPORTED, "#/anyOf/1/not:");
    check_refused("{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"string\",\"x\":1}]}",
                  CARAT_EUNSUPPORTED, "#/oneOf/1/x:");
    check_refused("{\"items\":{\"type\":\"string\",\"pattern\":\"a(?=b)\"}}", CARAT_EUNSUPPORTED,
                  "#/items/pattern: character 2: groups that look around");
    check_refused("{\"pattern\":\"(a\"}", CARAT_EUSAGE,
                  "#/pattern: character 1: the group does not");
    check_refused("{\"pattern\":\"\\\\bx\"}", CARAT_EUNSUPPORTED, "#/pattern: character 2");
    check_refused("{\"pattern\":\"a+b+c\",\"maxLength\":5}", CARAT_EUNSUPPORTED, "#/maxLength:");
    check_refused("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", CARAT_EUNSUPPORTED,
                  "#/oneOf: a value might fit two");
    check_refused("{\"$ref\":\"http://example.com/x\"}", CARAT_EUNSUPPORTED,
                  "only references within");
    check_refused("{\"$ref\":\"#/$defs/none\"}", CARAT_EUSAGE, "there is nothing at this place");
    check_refused("{\"$ref\":\"#/$defs/a%00b\",\"$defs\":{\"a\":{}}}", CARAT_EUSAGE,
                  "there is nothing at this place");
    check_refused("{\"$ref\":\"#/$defs/a%-1\",\"$defs\":{\"a\\u00FF\":{}}}", CARAT_EUSAGE,
                  "there is nothing at this place");
    check_refused("{\"$ref\":\"#/anyOf/+0\",\"anyOf\":[{\"type\":\"null\"}]}", CARAT_EUSAGE,
                  "there is nothing at this place");
    check_refused("{\"$ref\":\"#\"}", CARAT_EUSAGE, "matches no text of finite length");
    check_refused("{\"allOf\":[{\"$ref\":\"#\"}]}", CARAT_EUNSUPPORTED, "does it refer to itself");
    check_refused("{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", CARAT_EUSAGE,
                  "matches no text of finite length");
    check_refused("{\"allOf\":[false]}", CARAT_EUSAGE, "matches no text");
    check_refused("{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", CARAT_EUSAGE,
                  "matches no text");
    check_refused("{\"required\":[\"x\"],\"additionalProperties\":false}", CARAT_EUNSUPPORTED,
                  "the property is required");
    check_refused("{\"properties\":3}", CARAT_EUSAGE, "#/properties: an object of schemas");
    check_refused("[]", CARAT_EUSAGE, "#: a schema expected");
    check_refused("{\"a\":", CARAT_EUSAGE, "not valid JSON: line 1");
}

/* ---- Hostile schemas -------------------------------------------------------------------- */

static void check_survives(struct buf *schema)
{
    carat_grammar *g;
    struct carat_error err = {0};
    assert_false(schema->failed);
    int status = json_schema_open(&g, &f, schema->data, schema->length, &err);
    print_message("%.40s...: %s\n", schema->data, status ? err.message : "compiles");
    assert_true(status == CARAT_OK || err.message[0]);
    grammar_close(g);
    buf_deinit(schema);
}

static void test_hostile(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 60000; i++) buf_add_char(&b, '[');
    check_survives(&b);
    for (int i = 0; i < 2000; i++) buf_add_text(&b, "{\"items\":");
    buf_add_text(&b, "{}");
    for (int i = 0; i < 2000; i++) buf_add_char(&b, '}');
    check_survives(&b);
    for (int i = 0; i < 100; i++) buf_add_text(&b, "{\"anyOf\":[{},");
    buf_add_text(&b, "{}");
    for (int i = 0; i < 100; i++) buf_add_text(&b, "]}");
    check_survives(&b);
    buf_add_text(&b, "{\"enum\":[0");
    for (int i = 0; i < 100000; i++) buf_printf(&b, ",\"v%d\"", i);
    buf_add_text(&b, "]}");
    check_survives(&b);
    buf_add_text(&b, "{\"pattern\":\"^(((a*)*)*)*$\"}");
    check_survives(&b);
    buf_add_text(&b, "{\"pattern\":\"^((((((a|b){1,100}){1,100}){1,100}){1,100}){1,100}){1,9}$\"}");
    check_survives(&b);
    buf_add_text(&b, "{\"type\":\"array\",\"minItems\":1000000000}");
    check_survives(&b);
    /* Every choice doubles what is to be compiled. */
    buf_add_text(&b, "{\"allOf\":[");
    for (int i = 0; i < 30; i++)
        buf_printf(&b, "%s{\"anyOf\":[{\"minLength\":%d},{\"maxLength\":%d}]}", i ? "," : "", i, i);
    buf_add_text(&b, "]}");
    check_survives(&b);
    buf_add_text(&b, "{\"properties\":{\"a\":{}");
    for (int i = 0; i < 1500; i++)
        buf_printf(&b, ",\"property number %d\":{\"type\":\"string\"}", i);
    buf_add_text(&b, "}}");
    check_survives(&b);
}

/* Each of these few bytes asks for billions of combinations, which are refused before they take
 * gigabytes, and although none of them would leave anything to write. */
static void test_schemas_with_too_many_combinations_are_refused(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_text(&b, "{\"type\":\"integer\",\"allOf\":[");
    for (int i = 0; i < 30; i++)
        buf_printf(&b, "%s{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", i ? "," : "");
    buf_add_text(&b, "]}");
    check_refused(buf_text(&b), CARAT_EUNSUPPORTED, "#: the schemas in it have too many comb");
    buf_clear(&b);
    buf_add_text(&b, "{\"anyOf\":[{}");
    for (int i = 0; i < 999; i++) buf_add_text(&b, ",{}");
    buf_add_text(&b, "],\"allOf\":[");
    for (int k = 0; k < 2; k++) {
        buf_add_text(&b, k ? ",{\"enum\":[0" : "{\"enum\":[0");
        for (int i = 1; i < 1000; i++) buf_printf(&b, ",%d", k ? -i : i);
        buf_add_text(&b, "]}");
    }
    buf_add_text(&b, "]}");
    assert_false(b.failed);
    check_refused(buf_text(&b), CARAT_EUNSUPPORTED, "#/allOf/1/enum: too many values to comp");
    buf_deinit(&b);
}

/* As many branches as there may be, with many properties each. */
static void test_a_large_union_is_read_once(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_text(&b, "{\"oneOf\":[");
    for (int i = 0; i < 64; i++) {
        buf_printf(&b, "%s{\"properties\":{\"k\":{\"const\":%d}", i ? "," : "", i);
        for (int j = 0; j < 100; j++) buf_printf(&b, ",\"p%d\":{\"type\":\"null\"}", j);
        buf_add_text(&b, "},\"required\":[\"k\"]}");
    }
    buf_add_text(&b, "]}");
    assert_false(b.failed);
    check_takes(buf_text(&b), TEXTS("{\"k\":63,\"p99\":null}"), TEXTS("{\"k\":64}"));
    buf_deinit(&b);
}

/* Objects that are equal up to one member, whose members come in opposite orders. */
static void test_large_listed_objects_are_not_compared_for_ever(void **state)
{
    (void)state;
    enum { OBJECTS = 6, MEMBERS = 3000 };
    struct buf b = {0};
    buf_add_text(&b, "{\"allOf\":[");
    for (int k = 0; k < 2; k++) {
        buf_add_text(&b, k ? ",{\"enum\":[0" : "{\"enum\":[0");
        for (int i = 0; i < OBJECTS; i++) {
            buf_add_text(&b, ",{\"first\":0");
            for (int j = 0; j < MEMBERS; j++) buf_printf(&b, ",\"%d\":0", k ? MEMBERS - 1 - j : j);
            buf_printf(&b, ",\"last\":%d}", k ? 0 : i + 1);
        }
        buf_add_text(&b, "]}");
    }
    buf_add_text(&b, "]}");
    assert_false(b.failed);
    check_refused(buf_text(&b), CARAT_EUNSUPPORTED, "#/allOf/1/enum: too many values to compare");
    buf_deinit(&b);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"},\"b\":{\"enum\":[1,\"x\",{\"y\":[]}]},"
        "\"c\":{\"type\":\"number\",\"minimum\":0.5}},"
        "\"additionalProperties\":{\"pattern\":\"a[^b]?\"},"
        "\"$defs\":{\"x\":{\"anyOf\":[{\"type\":\"array\",\"items\":{},\"maxItems\":3},"
        "{\"format\":\"date\"}]}}}";
    long before = mem_blocks_live();
    int n = 0;
    for (;; n++) {
        carat_grammar *g;
        struct carat_error err = {0};
        mem_fail_after(n);
        int status = json_schema_open(&g, &f, schema, sizeof schema - 1, &err);
        int failed = mem_fail_after(-1);
        grammar_close(g);
        assert_int_equal(mem_blocks_live(), before);
        if (!failed) break;
        if (status != CARAT_EMEMORY) fail_msg("allocation %d: %d %s", n, status, err.message);
    }
    assert_true(n > 30);
}

/* ---- The schemas of the golden list ----------------------------------------------------- */

static void read_list(struct json_tree *tree)
{
    struct buf text = {0};
    struct carat_error err = {0};
    char block[4096];
    FILE *file = fopen(CARAT_SOURCE_DIR "/tests/golden/schemas.json", "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) buf_add(&text, block, n);
    fclose(file);
    if (json_tree_read(tree, buf_text(&text), text.length, JSON_OWN, &err))
        fail_msg("%s", err.message);
    assert_int_equal(tree->root.kind, CARAT_ARRAY);
    buf_deinit(&text);
}

/* A walk of random tokens; the bits of each mask are what checks say, for some of the masks. */
static void walk(const carat_grammar *g, const char *name, struct rng *r)
{
    struct grammar_state *s;
    struct carat_error err = {0};
    struct buf text = {0};
    struct json_tree tree;
    uint64_t bits[4096 / 64];
    buf_add_char(&text, '['); /* the reader wants an array or an object */
    assert_int_equal(grammar_state_open(&s, g, NULL, 0, &err), CARAT_OK);
    for (int step = 0; step < 120; step++) {
        grammar_state_mask(s, bits);
        if (step % 6 == 0)
            for (int32_t id = 0; id < 4096; id++)
                if ((bits[id / 64] >> id % 64 & 1) != grammar_state_allows(s, id))
                    fail_msg("%s: after \"%s\": token %d", name, buf_text(&text), id);
        if (grammar_state_is_complete(s) && rng_below(r, 3) == 0) break;
        bits[100 / 64] &= ~((uint64_t)1 << 100 % 64); /* no thoughts */
        int32_t id = draw_allowed(r, &f, bits, false);
        if (id < 0) break;
        grammar_state_accept(s, id);
        add_token_text(&f, id, &text);
    }
    if (grammar_state_is_complete(s)) {
        buf_add_char(&text, ']');
        if (json_tree_read(&tree, buf_text(&text), text.length, JSON_PLAIN, &err))
            fail_msg("%s: %s: %s", name, buf_text(&text), err.message);
        json_tree_free(&tree);
    }
    assert_string_equal(grammar_state_problem(s), "");
    buf_deinit(&text);
    grammar_state_close(s);
}

static void test_golden_schemas(void **state)
{
    (void)state;
    struct json_tree list;
    struct rng r = {.state = 5};
    size_t n_slow = 0;
    read_list(&list);
    print_message("seed 5\n");
    for (size_t i = 0; i < list.root.as.array.count; i++) {
        const struct carat_value *entry = &list.root.as.array.items[i];
        const char *name = json_member(entry, "name")->as.string.data;
        struct buf text = {0};
        struct json j = {.out = &text};
        carat_grammar *g;
        struct carat_error err = {0};
        put_value(&j, json_member(entry, "schema"));
        double begin = cost_cpu_seconds();
        if (json_schema_open(&g, &f, text.data, text.length, &err))
            fail_msg("%s: %s", name, err.message);
        double seconds = cost_cpu_seconds() - begin;
        if (seconds > 0.02) print_message("%s: %.1f ms\n", name, seconds * 1e3);
        n_slow += seconds > 0.02;
        for (int k = 0; k < 6; k++) walk(g, name, &r);
        grammar_close(g);
        buf_deinit(&text);
    }
    assert_true(list.root.as.array.count >= 60);
#ifndef __SANITIZE_ADDRESS__
    assert_true(n_slow * 20 <= list.root.as.array.count);
#endif
    json_tree_free(&list);
}

int main(void)
{
#ifndef CARAT_HAVE_JSON
    print_message("skipped: carat was built without jansson\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_patterns_name_groups_and_code_points),
        cmocka_unit_test(test_patterns_of_which_one_class_varies_have_lengths),
        cmocka_unit_test(test_formats_with_lengths),
        cmocka_unit_test(test_wrong_patterns),
        cmocka_unit_test(test_bounds_of_numbers),
        cmocka_unit_test(test_decimals_of_numbers_with_large_bounds),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_properties_come_in_their_order_wherever_required_stands),
        cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_a_discriminator_is_a_hint),
        cmocka_unit_test(test_branches_may_overlap_within_a_property),
        cmocka_unit_test(test_all_of_joins_what_its_schemas_do_not_list),
        cmocka_unit_test(test_what_says_nothing_more_is_taken),
        cmocka_unit_test(test_bounds_beyond_64_bits_are_kept_as_far_as_numbers_go),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_schemas_with_too_many_combinations_are_refused),
        cmocka_unit_test(test_a_large_union_is_read_once),
        cmocka_unit_test(test_large_listed_objects_are_not_compared_for_ever),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_golden_schemas),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
