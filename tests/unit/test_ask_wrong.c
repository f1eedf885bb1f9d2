/* What is wrong with a request is said once, by the whole path of the wrong value, in the words of
 * the client's API; numbers that are whole are integers, however they are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/ask_path.h"
#include "support/asks.h"

#ifdef CARAT_HAVE_JSON

/* ---- Paths ------------------------------------------------------------------------------ */

static void names_and_pointers_become_one_path(void **state)
{
    static const char *const cases[][2] = {
        {"messages[0].role: a role expected", "messages[0].role: a role expected"},
        {"tools[0].function: name: a string expected, nothing found",
         "tools[0].function.name: a string expected, nothing found"},
        {"stream_options: include_usage: a boolean expected",
         "stream_options.include_usage: a boolean expected"},
        {"tools[1].function: parameters: json schema: #/properties/a~1b/anyOf/0/type: no",
         "tools[1].function.parameters.properties.a/b.anyOf[0].type: no"},
        {"json_schema: json schema: #/not: no", "json_schema.not: no"},
        {"json_schema: json schema: #: no", "json_schema: no"},
        {"format: json schema: #/.../x: no", "format....x: no"},
        {"prompt: [3]: no", "prompt[3]: no"},
        {"a: properties.b: properties.c: required: an array expected",
         "a.properties.b.properties.c.required: an array expected"},
        {"model: \"a\" expected, \"b: c\" found", "model: \"a\" expected, \"b: c\" found"},
        {"the prompt has 5 tokens: too many", "the prompt has 5 tokens: too many"},
        {"not valid JSON: line 1, column 2: no", "not valid JSON: line 1, column 2: no"},
        {"grammar: line 1, column 10: no", "grammar: line 1, column 10: no"},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct carat_error err = {0};
        snprintf(err.message, sizeof err.message, "%s", cases[i][0]);
        ask_path_join(&err);
        assert_string_equal(err.message, cases[i][1]);
        ask_path_join(&err); /* it is joined already */
        assert_string_equal(err.message, cases[i][1]);
    }
}

static void paths_of_any_length_keep_what_is_wrong(void **state)
{
    (void)state;
    for (size_t n = 1; n < 500; n++) {
        struct carat_error err = {0};
        memset(err.message, 'a', n);
        snprintf(err.message + n, sizeof err.message - n, ": b: #/c/1: it is wrong");
        ask_path_join(&err);
        assert_true(strlen(err.message) < sizeof err.message);
        if (n < 300) assert_non_null(strstr(err.message, ": it is wrong"));
    }
}

static void anthropic_writes_places_with_dots(void **state)
{
    struct carat_error err = {.message = "messages[3].content[1].source[0]: [1] expected"};
    (void)state;
    ask_path_dots(&err);
    assert_string_equal(err.message, "messages.3.content.1.source.0: [1] expected");
}

/* ---- Parts ------------------------------------------------------------------------------ */

static const struct {
    enum api api;
    const char *before, *after, *path;
} contents[] = {
    {API_CHAT, "{'messages':[{'role':'user','content':[{'type':'text','text':'a'},", "]}]}",
     "messages[0].content[1]"},
    {API_RESPONSES, "{'input':[{'role':'user','content':[{'type':'input_text','text':'a'},", "]}]}",
     "input[0].content[1]"},
    {API_MESSAGES, "{'messages':[{'role':'user','content':[{'type':'text','text':'a'},", "]}]}",
     "messages.0.content.1"},
    {API_MESSAGES, "{'messages':[{'role':'assistant','content':[{'type':'text','text':'a'},",
     "]}]}", "messages.0.content.1"},
    {API_MESSAGES, "{'messages':[{'role':'user','content':'a'}],'system':[", "]}", "system.0"},
};

static void refuse_part(enum carat_status code, const char *part, const char *member,
                        const char *words)
{
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        char text[512], expected[256];
        snprintf(text, sizeof text, "%s%s%s", contents[i].before, part, contents[i].after);
        snprintf(expected, sizeof expected, "%s%s: %s", contents[i].path, member, words);
        asks_expect_refused(contents[i].api, code, text, expected);
    }
}

static void parts_that_are_no_text_are_named(void **state)
{
    static const char *const kinds[] = {"image_url",  "input_image", "image",     "input_audio",
                                        "audio",      "video",       "video_url", "file",
                                        "input_file", "document",    "frob"};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char part[128], words[128];
        snprintf(part, sizeof part, "{'type':'%s','url':'http://127.0.0.1/'}", kinds[i]);
        snprintf(words, sizeof words, "\"%s\" is not supported", kinds[i]);
        refuse_part(CARAT_EUNSUPPORTED, part, ".type", words);
    }
}

static void parts_without_a_type_or_a_text_are_named(void **state)
{
    (void)state;
    refuse_part(CARAT_EUSAGE, "{'text':'a'}", ".type", "\"text\" expected, null found");
    refuse_part(CARAT_EUSAGE, "{'type':7,'text':'a'}", ".type", "\"text\" expected, an integer");
    refuse_part(CARAT_EUSAGE, "{'type':'text'}", ".text", "a string expected, null found");
    refuse_part(CARAT_EUSAGE, "{'type':'text','text':[]}", ".text", "a string expected, an array");
}

static void the_hint_says_what_to_do(void **state)
{
    static const char text[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"a\"}]}]}";
    struct ask ask;
    struct carat_error err = {0};
    (void)state;
    assert_int_equal(
        ask_read(&ask, API_CHAT, text, sizeof text - 1, &asks_defaults, &asks_limits, &err),
        CARAT_EUNSUPPORTED);
    assert_string_equal(err.hint, "carat reads text only: leave this part out");
    ask_close(&ask);
}

/* ---- Results ---------------------------------------------------------------------------- */

static void a_result_names_a_call_of_the_answer_before_it(void **state)
{
#define TALK(id)                                                                                   \
    "{'messages':[{'role':'user','content':'a'},{'role':'assistant','tool_calls':[{'id':'c',"      \
    "'type':'function','function':{'name':'f','arguments':'{}'}}]},{'role':'tool'," id             \
    "'content':'x'}]}"
    (void)state;
    asks_expect_refused(API_CHAT, CARAT_EUSAGE, TALK("'tool_call_id':'b',"),
                        "messages[2].tool_call_id: the id of a call in the answer before it "
                        "expected, \"b\" found");
    struct ask ask = asks_taken(API_CHAT, TALK("'tool_call_id':'c',"));
    ask_close(&ask);
    ask = asks_taken(API_CHAT, TALK(""));
    ask_close(&ask);
}

/* ---- Numbers ---------------------------------------------------------------------------- */

#define USER "'messages':[{'role':'user','content':'a'}]"
static const struct {
    enum api api;
    const char *before, *after, *path;
} integers[] = {
    {API_CHAT, "{" USER ",'max_tokens':", "}", "max_tokens"},
    {API_CHAT, "{" USER ",'max_completion_tokens':", "}", "max_completion_tokens"},
    {API_CHAT, "{" USER ",'top_k':", "}", "top_k"},
    {API_CHAT, "{" USER ",'seed':", "}", "seed"},
    {API_CHAT, "{" USER ",'repeat_last_n':", "}", "repeat_last_n"},
    {API_CHAT, "{" USER ",'reasoning_budget':", "}", "reasoning_budget"},
    {API_CHAT, "{" USER ",'n':", "}", "n"},
    {API_CHAT, "{" USER ",'logprobs':true,'top_logprobs':", "}", "top_logprobs"},
    {API_COMPLETIONS, "{'prompt':[5,", "]}", "prompt[1]"},
    {API_COMPLETIONS, "{'prompt':[[5],[6,", "]]}", "prompt[1][1]"},
    {API_COMPLETIONS, "{'prompt':'a','logprobs':", "}", "logprobs"},
    {API_RESPONSES, "{'input':'a','max_output_tokens':", "}", "max_output_tokens"},
    {API_RESPONSES, "{'input':'a','top_logprobs':", "}", "top_logprobs"},
    {API_MESSAGES, "{" USER ",'max_tokens':", "}", "max_tokens"},
    {API_MESSAGES, "{" USER ",'thinking':{'type':'enabled','budget_tokens':", "}}",
     "thinking.budget_tokens"},
    {API_OLLAMA_CHAT, "{" USER ",'options':{'num_predict':", "}}", "options.num_predict"},
    {API_OLLAMA_CHAT, "{" USER ",'options':{'top_k':", "}}", "options.top_k"},
    {API_OLLAMA_CHAT, "{" USER ",'options':{'seed':", "}}", "options.seed"},
};
enum { N_INTEGERS = sizeof integers / sizeof *integers };

static void write_integer(char text[512], size_t i, const char *number)
{
    snprintf(text, 512, "%s%s%s", integers[i].before, number, integers[i].after);
}

static void whole_numbers_are_integers_however_they_are_written(void **state)
{
    static const char *const wholes[] = {"4", "4.0", "4e0", "0.4e1", "40e-1"};
    (void)state;
    for (size_t i = 0; i < N_INTEGERS; i++)
        for (size_t k = 0; k < sizeof wholes / sizeof *wholes; k++) {
            char text[512];
            write_integer(text, i, wholes[k]);
            struct ask ask = asks_taken(integers[i].api, text);
            ask_close(&ask);
        }
    struct ask ask = asks_taken(API_CHAT, "{" USER ",'max_tokens':4e1,'seed':-0.0,'top_k':40.0}");
    assert_int_equal(ask.request.max_tokens, 40);
    assert_int_equal(ask.request.sampling.top_k, 40);
    assert_true(ask.request.has_seed);
    assert_int_equal(ask.request.sampling.seed, 0);
    ask_close(&ask);
    ask = asks_taken(API_OLLAMA_CHAT, "{" USER ",'options':{'num_predict':7.0,'seed':9.0}}");
    assert_int_equal(ask.request.max_tokens, 7);
    assert_int_equal(ask.request.sampling.seed, 9);
    ask_close(&ask);
    ask = asks_taken(API_MESSAGES, "{" USER ",'thinking':{'type':'enabled','budget_tokens':2e3}}");
    assert_int_equal(ask.request.thinking_max, 2000);
    ask_close(&ask);
    ask = asks_taken(API_COMPLETIONS, "{'prompt':[1.0,2e1]}");
    assert_int_equal(ask.prompts[0].ids[1], 20);
    ask_close(&ask);
}

static void what_is_no_integer_is_named(void **state)
{
    static const char *const wrong[][2] = {
        {"40.5", "an integer expected, 40.5 found"},
        {"1e300", "an integer of 64 bits expected, 1e+300 found"},
        {"-1e300", "an integer of 64 bits expected, -1e+300 found"},
        {"99999999999999999999", "an integer of 64 bits expected, 1e+20 found"},
        {"9223372036854775808", "an integer of 64 bits expected, 9.22337e+18 found"},
        {"1e-300", "an integer expected, 1e-300 found"},
        {"'NaN'", "an integer expected, a string found"},
        {"'4'", "an integer expected, a string found"},
        {"{}", "an integer expected, an object found"},
    };
    (void)state;
    for (size_t i = 0; i < N_INTEGERS; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            char text[512], expected[256];
            write_integer(text, i, wrong[k][0]);
            snprintf(expected, sizeof expected, "%s: %s", integers[i].path, wrong[k][1]);
            asks_expect_refused(integers[i].api, CARAT_EUSAGE, text, expected);
        }
}

static void numbers_that_json_cannot_have_are_no_json(void **state)
{
    static const char *const wrong[] = {"1e400", "-1e400", "NaN", "Infinity", "+1", "01", ".5"};
    (void)state;
    for (size_t i = 0; i < N_INTEGERS; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            char text[512];
            write_integer(text, i, wrong[k]);
            asks_expect_refused(integers[i].api, CARAT_EUSAGE, text, "not valid JSON: line 1");
        }
}

static void numbers_beyond_their_range_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_INTEGERS; i++) {
        char text[512], expected[256];
        if (strstr(integers[i].path, "seed")) continue; /* any is one */
        write_integer(text, i, "9007199254740991.0");
        snprintf(expected, sizeof expected, "%s: ", integers[i].path);
        asks_expect_refused(integers[i].api, CARAT_EUSAGE, text, expected);
    }
}

/* ---- Places in the queue and in the cache ----------------------------------------------- */

static void a_salt_and_a_place_behind_others_are_taken(void **state)
{
    static const enum api apis[] = {API_CHAT, API_COMPLETIONS, API_RESPONSES};
    static const char *const subjects[] = {USER, "'prompt':'a'", "'input':'a'"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char text[256];
        snprintf(text, sizeof text, "{%s,'cache_salt':'pepper','priority':3}", subjects[i]);
        struct ask ask = asks_taken(apis[i], text);
        assert_string_equal(ask.cache_salt, "pepper");
        assert_int_equal(ask.priority, 3);
        ask_close(&ask);
        snprintf(text, sizeof text, "{%s}", subjects[i]);
        ask = asks_taken(apis[i], text);
        assert_string_equal(ask.cache_salt, "");
        assert_int_equal(ask.priority, 0);
        ask_close(&ask);
        snprintf(text, sizeof text, "{%s,'priority':-1}", subjects[i]);
        asks_expect_refused(apis[i], CARAT_EUSAGE, text, "priority: 0 to 1000000 expected, -1");
        snprintf(text, sizeof text, "{%s,'cache_salt':''}", subjects[i]);
        asks_expect_refused(apis[i], CARAT_EUSAGE, text, "cache_salt: 1 to 512 bytes expected, 0");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_pointers_become_one_path),
        cmocka_unit_test(paths_of_any_length_keep_what_is_wrong),
        cmocka_unit_test(anthropic_writes_places_with_dots),
        cmocka_unit_test(parts_that_are_no_text_are_named),
        cmocka_unit_test(parts_without_a_type_or_a_text_are_named),
        cmocka_unit_test(the_hint_says_what_to_do),
        cmocka_unit_test(a_result_names_a_call_of_the_answer_before_it),
        cmocka_unit_test(a_salt_and_a_place_behind_others_are_taken),
        cmocka_unit_test(whole_numbers_are_integers_however_they_are_written),
        cmocka_unit_test(what_is_no_integer_is_named),
        cmocka_unit_test(numbers_that_json_cannot_have_are_no_json),
        cmocka_unit_test(numbers_beyond_their_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
