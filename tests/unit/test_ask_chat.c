/* OpenAI's chat requests as the server reads them. Requests are written with apostrophes for
 * quotes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/asks.h"

#ifdef CARAT_HAVE_JSON

/* {"messages": [one], MEMBERS} */
static struct ask taken(const char *members)
{
    char text[4096];
    snprintf(text, sizeof text, "{'messages':[{'role':'user','content':'Hi'}]%s%s}",
             members[0] ? "," : "", members);
    return asks_taken(API_CHAT, text);
}

static void refused(const char *text, const char *words)
{
    asks_expect_refused(API_CHAT, CARAT_EUSAGE, text, words);
}

static void a_request_that_says_little_gets_one_answer_at_once(void **state)
{
    (void)state;
    struct ask ask = taken("");
    assert_int_equal(ask.n, 1);
    assert_int_equal(ask.n_prompts, 0);
    assert_int_equal(ask.request.thinking_max, 0);
    assert_false(ask.is_stream || ask.wants_usage || ask.wants_progress || ask.wants_timings);
    assert_false(ask.request.ignores_stop || ask.no_cache || ask.wants_echo);
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
    assert_true(ask.no_cache && ask.request.ignores_stop && ask.request.want_logprobs);
    assert_int_equal(ask.request.thinking_max, 100);
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

static void an_answer_that_is_begun_is_held_to_nothing(void **state)
{
    (void)state;
#define BEGUN "'messages':[{'role':'assistant','content':'a'}],'continue_final_message':true"
    static const char *const members[][2] = {
        {"'response_format':{'type':'json_object'}", "response_format: nothing expected with "},
        {"'response_format':{'type':'json_schema','json_schema':{'schema':{}}}",
         "response_format: nothing expected with continue_final_message"},
        {"'json_schema':{}", "json_schema: nothing expected with continue_final_message"},
        {"'grammar':'root ::= [a]'", "grammar: nothing expected with continue_final_message"},
        {"'tool_choice':'required'", "tool_choice: nothing expected with continue_final_message"},
        {"'tool_choice':{'type':'function','function':{'name':'f'}}", "tool_choice: nothing"},
        {"'continue_final_message':7", "continue_final_message: a boolean expected"},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char text[512];
        snprintf(text, sizeof text, "{" BEGUN ",%s}", members[i][0]);
        refused(text, members[i][1]);
    }
    struct ask ask = asks_taken(API_CHAT, "{" BEGUN ",'response_format':{'type':'text'},"
                                          "'tool_choice':'auto','n':2}");
    char *prompt = asks_prompt(&ask);
    assert_string_equal(prompt, "<bos><|turn>model\na");
    carat_free(prompt);
    ask_close(&ask);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refused("[]", "request: an object expected, an array found");
    refused("{", "not valid JSON: line 1");
    refused("{}", "messages: an array expected, null found");
    refused("{'messages':[]}", "messages: at least one expected");
    refused("{'messages':[1,2,3,4,5,6,7,8,9,10,11,12,13]}",
            "messages: at most 12 expected, 13 found");
    refused("{'messages':[1],'tools':[1,2,3,4,5]}", "tools: at most 4 expected, 5 found");
    refused("{'messages':[1],'stop':['a','b','c','d']}", "stop: at most 3 expected");
    refused("{'messages':[1],'n':9}", "n: 1 to 8 expected, 9 found");
    refused("{'messages':[1],'n':1000000000}", "n: 1 to 8 expected");
    refused("{'messages':[1],'n':0}", "n: 1 to 8 expected, 0 found");
    refused("{'messages':[1],'stream':1}", "stream: a boolean expected");
    refused("{'messages':[1],'stream_options':1}", "stream_options: an object expected");
    refused("{'messages':[1],'stream_options':{'include_usage':1}}",
            "stream_options.include_usage: a boolean expected");
    refused("{'messages':[1],'model':7}", "model: a string expected");
    refused("{'messages':[1],'reasoning_budget':-2}", "reasoning_budget: -1 to");
    refused("{'messages':[1],'stop_token_ids':[1]}", "stop_token_ids: not supported");
    asks_expect_refused(API_CHAT, CARAT_EUNSUPPORTED,
                        "{'messages':[{'role':'user','content':[{'type':'image_url'}]}]}",
                        "messages[0].content[0].type: \"image_url\" is not supported");
    refused("{'messages':[{'role':'assistant'}]}", "messages[0]: content or tool_calls expected");
    refused("{'messages':[1],'tools':[{'function':{'name':'a\\nb'}}]}",
            "tools[0].function.name: a name without control characters expected");
    refused("{'messages':[{'role':'tool','content':'a'}]}",
            "messages[0].role: \"tool\" after an answer with tool_calls expected");
    refused("{'messages':[{'role':'assistant','content':null,'tool_calls':[{}]},"
            "{'role':'tool','content':'a'},{'role':'user','content':'b'},"
            "{'role':'tool','content':'c'}]}",
            "messages[3].role: \"tool\" after an answer");
}

static void arguments_of_calls_are_decoded_and_a_request_member_means_nothing(void **state)
{
    (void)state;
    struct ask ask =
        asks_taken(API_CHAT, "{'request':{},'messages':[{'role':'assistant','tool_calls':[{'id':"
                             "'1','function':{'name':'f','arguments':'{}'}}]}]}");
    const struct carat_value *messages = json_member(&ask.request.root, "messages");
    const struct carat_value *calls = json_member(&messages->as.array.items[0], "tool_calls");
    const struct carat_value *function = json_member(&calls->as.array.items[0], "function");
    assert_int_equal(json_member(function, "arguments")->kind, CARAT_OBJECT);
    ask_close(&ask);
}

static void memory_that_is_out_is_reported(void **state)
{
    (void)state;
    asks_expect_memory_reported(API_CHAT,
                                "{'messages':[{'role':'user','content':'Hi'}],'stop':['a'],"
                                "'n':2,'user':'u','reasoning_budget':0}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_says_little_gets_one_answer_at_once),
        cmocka_unit_test(members_of_a_server_are_taken),
        cmocka_unit_test(every_switch_of_thinking_works),
        cmocka_unit_test(an_answer_that_is_begun_is_held_to_nothing),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(arguments_of_calls_are_decoded_and_a_request_member_means_nothing),
        cmocka_unit_test(memory_that_is_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
