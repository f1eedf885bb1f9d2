/* OpenAI's chat requests as the server reads them. Requests are written with apostrophes for
 * quotes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/ask.h"
#include "base/mem.h"

#ifdef CARAT_HAVE_JSON

static const struct carat_sampling defaults = {
    .temperature = 1.0f, .top_k = 64, .top_p = 0.95f, .repeat_last_n = 64};
static const struct ask_limits limits = {
    .n_max = 8, .messages_max = 4, .tools_max = 2, .stops_max = 3};

static int read_text(const char *form, struct ask *ask, struct carat_error *err)
{
    char text[4096];
    snprintf(text, sizeof text, "%s", form);
    for (char *c = text; *c; c++)
        if (*c == '\'') *c = '"';
    return ask_read(ask, API_CHAT, text, strlen(text), &defaults, &limits, err);
}

/* {"messages": [one], MEMBERS} */
static int read_with(const char *members, struct ask *ask, struct carat_error *err)
{
    char text[4096];
    snprintf(text, sizeof text, "{'messages':[{'role':'user','content':'Hi'}]%s%s}",
             members[0] ? "," : "", members);
    return read_text(text, ask, err);
}

static struct ask taken(const char *members)
{
    struct ask ask;
    struct carat_error err = {0};
    if (read_with(members, &ask, &err) != CARAT_OK) fail_msg("%s: %s", members, err.message);
    return ask;
}

static void expect_refused(const char *text, const char *words)
{
    struct ask ask;
    struct carat_error err = {0};
    long before = mem_blocks_live();
    int status = read_text(text, &ask, &err);
    bool is_refused = status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED;
    if (!is_refused || strncmp(err.message, words, strlen(words)) != 0)
        fail_msg("%s: status %d, \"%s\"; \"%s\" expected", text, status, err.message, words);
    ask_close(&ask);
    assert_int_equal(mem_blocks_live(), before);
}

static void a_request_that_says_little_gets_one_answer_at_once(void **state)
{
    (void)state;
    struct ask ask = taken("");
    assert_int_equal(ask.n, 1);
    assert_int_equal(ask.n_prompts, 0);
    assert_int_equal(ask.thinking_max, 0);
    assert_false(ask.is_stream || ask.wants_usage || ask.wants_progress || ask.wants_timings);
    assert_false(ask.ignores_stop || ask.no_cache || ask.wants_echo);
    assert_string_equal(ask.model, "");
    assert_string_equal(ask.session, "");
    ask_close(&ask);
}

static void members_of_a_server_are_taken(void **state)
{
    (void)state;
    struct ask ask =
        taken("'model':'m','stream':true,'stream_options':{'include_usage':true},'n':3,"
              "'prompt_cache_key':'k','user':'u','return_progress':true,'timings_per_token':true,"
              "'cache_prompt':false,'ignore_eos':true,'reasoning_budget':100,'id_slot':3,'seed':5,"
              "'store':true,'service_tier':'auto','metadata':{},'logprobs':true,'top_logprobs':2");
    assert_int_equal(ask.n, 3);
    assert_true(ask.is_stream && ask.wants_usage && ask.wants_progress && ask.wants_timings);
    assert_true(ask.no_cache && ask.ignores_stop && ask.request.want_logprobs);
    assert_int_equal(ask.thinking_max, 100);
    assert_string_equal(ask.model, "m");
    assert_string_equal(ask.session, "k");
    ask_close(&ask);
    ask = taken("'user':'u','prompt_cache_key':''");
    assert_string_equal(ask.session, "u");
    ask_close(&ask);
}

/* -1: the template's default, else 0 or 1. */
static int thinks(const char *members)
{
    struct ask ask = taken(members);
    const struct carat_value *value = json_member(&ask.request.root, "enable_thinking");
    int flag = value->kind == CARAT_BOOL ? value->as.boolean : -1;
    ask_close(&ask);
    return flag;
}

static void every_switch_of_thinking_works(void **state)
{
    (void)state;
    assert_int_equal(thinks(""), -1);
    assert_int_equal(thinks("'reasoning_effort':'none'"), 0);
    assert_int_equal(thinks("'reasoning_effort':'low'"), 1);
    assert_int_equal(thinks("'reasoning_effort':'none','enable_thinking':true"), 1);
    assert_int_equal(thinks("'chat_template_kwargs':{'enable_thinking':false}"), 0);
    assert_int_equal(thinks("'reasoning_effort':'high','reasoning_budget':0"), 0);
    assert_int_equal(thinks("'thinking_budget_tokens':0"), 0);
    assert_int_equal(thinks("'reasoning_budget':-1"), -1);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    expect_refused("[]", "request: an object expected, an array found");
    expect_refused("{", "not valid JSON: line 1");
    expect_refused("{}", "messages: an array expected, null found");
    expect_refused("{'messages':[]}", "messages: at least one expected");
    expect_refused("{'messages':[1,2,3,4,5]}", "messages: at most 4 expected, 5 found");
    expect_refused("{'messages':[1],'tools':[1,2,3]}", "tools: at most 2 expected, 3 found");
    expect_refused("{'messages':[1],'stop':['a','b','c','d']}", "stop: at most 3 expected");
    expect_refused("{'messages':[1],'n':9}", "n: 1 to 8 expected, 9 found");
    expect_refused("{'messages':[1],'n':1000000000}", "n: 1 to 8 expected");
    expect_refused("{'messages':[1],'n':0}", "n: 1 to 8 expected, 0 found");
    expect_refused("{'messages':[1],'stream':1}", "stream: a boolean expected");
    expect_refused("{'messages':[1],'stream_options':1}", "stream_options: an object expected");
    expect_refused("{'messages':[1],'stream_options':{'include_usage':1}}",
                   "stream_options.include_usage: a boolean expected");
    expect_refused("{'messages':[1],'model':7}", "model: a string expected");
    expect_refused("{'messages':[1],'reasoning_budget':-2}", "reasoning_budget: -1 to");
    expect_refused("{'messages':[1],'stop_token_ids':[1]}", "stop_token_ids: not supported");
    expect_refused("{'messages':[{'role':'user','content':[{'type':'image_url'}]}]}",
                   "messages[0].content[0].type: \"image_url\" is not supported");
    expect_refused("{'messages':[{'role':'assistant'}]}",
                   "messages[0]: content or tool_calls expected");
    expect_refused("{'messages':[1],'tools':[{'function':{'name':'a\\nb'}}]}",
                   "tools[0].function.name: a name without control characters expected");
    expect_refused("{'messages':[{'role':'tool','content':'a'}]}",
                   "messages[0].role: \"tool\" after an answer with tool_calls expected");
    expect_refused("{'messages':[{'role':'assistant','content':null,'tool_calls':[{}]},"
                   "{'role':'tool','content':'a'},{'role':'user','content':'b'},"
                   "{'role':'tool','content':'c'}]}",
                   "messages[3].role: \"tool\" after an answer");
}

static void arguments_of_calls_are_decoded_and_a_request_member_means_nothing(void **state)
{
    (void)state;
    struct ask ask;
    struct carat_error err;
    assert_int_equal(read_text("{'request':{},'messages':[{'role':'assistant','tool_calls':[{'id':"
                               "'1','function':{'name':'f','arguments':'{}'}}]}]}",
                               &ask, &err),
                     CARAT_OK);
    const struct carat_value *messages = json_member(&ask.request.root, "messages");
    const struct carat_value *calls = json_member(&messages->as.array.items[0], "tool_calls");
    const struct carat_value *function = json_member(&calls->as.array.items[0], "function");
    assert_int_equal(json_member(function, "arguments")->kind, CARAT_OBJECT);
    ask_close(&ask);
}

static void memory_that_is_out_is_reported(void **state)
{
    (void)state;
    int delivered = 1;
    for (long n = 0; delivered; n++) {
        struct ask ask;
        struct carat_error err = {0};
        long before = mem_blocks_live();
        mem_fail_after(n);
        int status = read_with("'stop':['a'],'n':2,'user':'u','reasoning_budget':0", &ask, &err);
        delivered = mem_fail_after(-1);
        ask_close(&ask);
        assert_int_equal(status, delivered ? CARAT_EMEMORY : CARAT_OK);
        assert_int_equal(mem_blocks_live(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_says_little_gets_one_answer_at_once),
        cmocka_unit_test(members_of_a_server_are_taken),
        cmocka_unit_test(every_switch_of_thinking_works),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(arguments_of_calls_are_decoded_and_a_request_member_means_nothing),
        cmocka_unit_test(memory_that_is_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
