/* OpenAI's responses: every member, and what is refused, by its path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/responses_tools.h"
#include "support/asks.h"

#ifdef CARAT_HAVE_JSON

#define FUNCTION "{'type':'function','name':'f','parameters':{'type':'object'}}"
#define PATCH                                                                                      \
    "{'type':'custom','name':'patch','description':'Edits','format':{'type':'grammar',"            \
    "'syntax':'lark','definition':'start: LINE'}}"
#define SPACE                                                                                      \
    "{'type':'namespace','name':'mcp__git','description':'Git','tools':["                          \
    "{'type':'function','name':'log','description':'L','strict':true,'parameters':"                \
    "{'type':'object'}},{'type':'custom','name':'raw'}]}"
#define CALL "{'type':'function_call','call_id':'a','name':'f','arguments':'{}'}"

/* {"input": "Hi", MEMBERS} */
static struct ask taken(const char *members)
{
    char text[2048];
    snprintf(text, sizeof text, "{'input':'Hi'%s%s}", members[0] ? "," : "", members);
    return asks_taken(API_RESPONSES, text);
}

static void refused_as(enum carat_status code, const char *text, const char *words)
{
    asks_expect_refused(API_RESPONSES, code, text, words);
}

static void refused(const char *text, const char *words)
{
    refused_as(CARAT_EUSAGE, text, words);
}

static void a_text_is_a_question(void **state)
{
    (void)state;
    struct ask ask = taken("");
    asks_expect(&ask, "messages", "[{'role':'user','content':'Hi'}]");
    asks_expect(&ask, "tools", "null");
    assert_int_equal(ask.request.max_tokens, -1);
    assert_false(ask.is_stream || ask.request.want_logprobs);
    ask_close(&ask);
}

static void every_member_is_taken(void **state)
{
    (void)state;
    struct ask ask = taken(
        "'model':'m','stream':true,'instructions':'Be brief','max_output_tokens':20,"
        "'temperature':0,'top_p':0.5,'top_logprobs':3,'parallel_tool_calls':false,"
        "'prompt_cache_key':'k','user':'u','store':true,'truncation':'auto',"
        "'include':['reasoning.encrypted_content'],'metadata':{'a':'b'},'service_tier':'auto',"
        "'reasoning':{'effort':'none','summary':'auto'},'text':{'verbosity':'low'},"
        "'previous_response_id':null,'background':false,'safety_identifier':'x',"
        "'stream_options':{'include_obfuscation':false},'max_tool_calls':3");
    assert_string_equal(ask.model, "m");
    assert_string_equal(ask.session, "k");
    assert_true(ask.is_stream && ask.request.want_logprobs);
    assert_int_equal(ask.request.n_top_logprobs, 3);
    assert_int_equal(ask.request.max_tokens, 20);
    assert_true(ask.request.sampling.temperature == 0 && ask.request.sampling.top_p == 0.5f);
    asks_expect(&ask, "enable_thinking", "false");
    asks_expect(&ask, "parallel_tool_calls", "false");
    asks_expect(&ask, "messages",
                "[{'role':'system','content':'Be brief'},{'role':'user','content':'Hi'}]");
    ask_close(&ask);
    ask = taken("'include':['message.output_text.logprobs']");
    assert_true(ask.request.want_logprobs);
    ask_close(&ask);
}

static void items_become_messages(void **state)
{
    (void)state;
    struct ask ask = asks_taken(
        API_RESPONSES,
        "{'input':[{'type':'message','role':'developer','content':[{'type':'input_text','text':"
        "'D'}]},{'role':'user','content':'Q'},{'type':'reasoning','id':'rs','summary':[],"
        "'encrypted_content':'gAAA'},"
        "{'type':'message','role':'assistant','id':'m1','status':'completed','content':["
        "{'type':'output_text','text':'A','annotations':[]},{'type':'refusal','refusal':'no'}]},"
        "{'type':'message','role':'assistant','content':'B'}," CALL ","
        "{'type':'custom_tool_call','call_id':'b','name':'patch','input':'*** x'},"
        "{'type':'function_call_output','call_id':'a','output':'1'},"
        "{'type':'custom_tool_call_output','call_id':'b','output':[{'type':'input_text',"
        "'text':'2'},"
        "{'type':'input_text','text':'3'}]}]}");
    asks_expect(&ask, "messages",
                "[{'role':'developer','content':'D'},{'role':'user','content':'Q'},"
                "{'role':'assistant','content':[{'type':'text','text':'A'},"
                "{'type':'text','text':'no'}]},"
                "{'role':'assistant','content':'B','tool_calls':["
                "{'id':'a','type':'function','function':{'name':'f','arguments':{}}},"
                "{'id':'b','type':'function','function':{'name':'patch','arguments':"
                "{'input':'*** x'}}}]},{'role':'tool','tool_call_id':'a','content':'1'},"
                "{'role':'tool','tool_call_id':'b','content':[{'type':'text','text':'2'},"
                "{'type':'text','text':'3'}]}]");
    ask_close(&ask);
}

/* What agents write to each other; it says it is encrypted and is not. */
static void a_message_of_another_agent_is_one_of_the_user(void **state)
{
    (void)state;
    struct ask ask = asks_taken(
        API_RESPONSES,
        "{'input':[{'type':'agent_message','author':'/root','recipient':'/root/a','content':["
        "{'type':'input_text','text':'Message Type: MESSAGE'},"
        "{'type':'encrypted_content','encrypted_content':'Look into it.'}]}]}");
    asks_expect(&ask, "messages",
                "[{'role':'user','content':[{'type':'text','text':'Message Type: MESSAGE'},"
                "{'type':'text','text':'Look into it.'}]}]");
    ask_close(&ask);
    asks_expect_refused(API_RESPONSES, CARAT_EUSAGE,
                        "{'input':[{'type':'agent_message','content':[{'type':"
                        "'encrypted_content'}]}]}",
                        "input[0].content[0].encrypted_content: a string expected");
}

static void a_text_between_calls_and_results_stays_with_the_calls(void **state)
{
    (void)state;
    struct ask ask =
        asks_taken(API_RESPONSES, "{'input':[" CALL ",{'role':'assistant','content':'T'},"
                                  "{'type':'function_call_output','call_id':'a','output':'1'}]}");
    asks_expect(&ask, "messages",
                "[{'role':'assistant','content':'T','tool_calls':[{'id':'a','type':'function',"
                "'function':{'name':'f','arguments':{}}}]},"
                "{'role':'tool','tool_call_id':'a','content':'1'}]");
    ask_close(&ask);
}

static void namespaces_and_custom_tools_become_functions(void **state)
{
    (void)state;
    struct ask ask =
        taken("'tools':[{'type':'web_search'}," PATCH "," SPACE ",{'type':'image_generation'}]");
    assert_int_equal(ask.n_ignored_tools, 2);
    assert_int_equal(ask.n_renamed, 3);
    asks_expect(
        &ask, "tools",
        "[{'type':'function','function':{'name':'patch','description':'Edits','parameters':"
        "{'type':'object','properties':{'input':{'type':'string','description':'start: LINE'}},"
        "'required':['input']}}},"
        "{'type':'function','function':{'name':'mcp__git__log','description':'L','parameters':"
        "{'type':'object'},'strict':true}},"
        "{'type':'function','function':{'name':'mcp__git__raw','parameters':{'type':'object',"
        "'properties':{'input':{'type':'string'}},'required':['input']}}}]");
    const struct ask_tool *log = responses_tool_find(&ask, "mcp__git__log", 13);
    const struct ask_tool *patch = responses_tool_find(&ask, "patch", 5);
    assert_non_null(log);
    assert_string_equal(log->name, "log");
    assert_string_equal(log->space, "mcp__git");
    assert_false(log->is_custom);
    assert_non_null(patch);
    assert_true(patch->is_custom);
    assert_string_equal(patch->space, "");
    assert_null(responses_tool_find(&ask, "f", 1));
    struct carat_error err = {.message = "tools[1].function: parameters: #/a: no"};
    ask_use_names(&ask, &err);
    assert_string_equal(err.message, "tools[2].tools[0].parameters.a: no");
    ask_close(&ask);
    ask =
        asks_taken(API_RESPONSES, "{'input':[{'type':'additional_tools','role':'developer','tools':"
                                  "[" FUNCTION "]},{'role':'user','content':'Q'}]}");
    asks_expect(&ask, "tools",
                "[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}]");
    asks_expect(&ask, "messages", "[{'role':'user','content':'Q'}]");
    ask_close(&ask);
    ask = asks_taken(API_RESPONSES,
                     "{'input':[{'type':'function_call','call_id':'a','namespace':'mcp__git',"
                     "'name':'log','arguments':'{}'}],'tools':[" SPACE "]}");
    asks_expect(&ask, "messages",
                "[{'role':'assistant','tool_calls':[{'id':'a','type':'function','function':"
                "{'name':'mcp__git__log','arguments':{}}}]}]");
    ask_close(&ask);
}

static void expect_choice(const char *choice, const char *expected)
{
    char text[1024];
    snprintf(text, sizeof text, "'tools':[" FUNCTION "," SPACE "],'tool_choice':%s", choice);
    struct ask ask = taken(text);
    asks_expect(&ask, "tool_choice", expected);
    ask_close(&ask);
}

static void every_tool_choice_is_taken(void **state)
{
    (void)state;
    expect_choice("'auto'", "'auto'");
    expect_choice("'none'", "'none'");
    expect_choice("'required'", "'required'");
    expect_choice("{'type':'function','name':'f'}", "{'type':'function','function':{'name':'f'}}");
    expect_choice("{'type':'custom','namespace':'mcp__git','name':'raw'}",
                  "{'type':'function','function':{'name':'mcp__git__raw'}}");
    expect_choice("{'type':'allowed_tools','mode':'required','tools':[{'type':'function','name':"
                  "'f'}]}",
                  "'required'");
    struct ask ask = taken("'tools':[" FUNCTION "," PATCH "],'tool_choice':{'type':'allowed_tools',"
                           "'mode':'auto','tools':[{'type':'function','name':'f'},{'type':'mcp',"
                           "'server_label':'x'}]}");
    asks_expect(&ask, "tools",
                "[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}]");
    ask_close(&ask);
}

static void every_format_is_taken(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"'text':{'format':{'type':'text'}}", "null"},
        {"'text':{'format':{'type':'json_object'}}", "{'type':'json_object'}"},
        {"'text':{'format':{'type':'json_schema','name':'n','strict':true,'schema':{'type':"
         "'object'}}}",
         "{'type':'json_schema','json_schema':{'name':'answer','schema':{'type':'object'}}}"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ask ask = taken(cases[i][0]);
        asks_expect(&ask, "response_format", cases[i][1]);
        ask_close(&ask);
    }
}

static void what_needs_a_store_is_refused(void **state)
{
    (void)state;
    refused("{'input':'a','previous_response_id':'resp_1'}", "previous_response_id: not supported");
    refused("{'input':'a','conversation':'c'}", "conversation: not supported");
    refused("{'input':'a','prompt':{'id':'p'}}", "prompt: not supported");
    refused("{'input':'a','background':true}", "background: not supported");
    refused_as(CARAT_EUNSUPPORTED, "{'input':[{'type':'item_reference','id':'i'}]}",
               "input[0].type: \"item_reference\" is not supported");
}

static void what_is_not_text_is_refused_by_its_path(void **state)
{
    (void)state;
    refused_as(CARAT_EUNSUPPORTED,
               "{'input':[{'role':'user','content':[{'type':'input_text','text':'a'},"
               "{'type':'input_image','image_url':'http://10.0.0.1/'}]}]}",
               "input[0].content[1].type: \"input_image\" is not supported");
    refused_as(CARAT_EUNSUPPORTED,
               "{'input':[" CALL ",{'type':'function_call_output','call_id':'a','output':["
               "{'type':'input_file','file_id':'f'}]}]}",
               "input[1].output[0].type: \"input_file\" is not supported");
    refused_as(CARAT_EUNSUPPORTED, "{'input':[{'type':'computer_call'}]}",
               "input[0].type: \"computer_call\" is not supported");
    refused_as(CARAT_EUNSUPPORTED,
               "{'input':'a','tools':[" FUNCTION "],'tool_choice':{'type':'file_search'}}",
               "tool_choice.type: \"file_search\" is not supported");
}

static void what_is_wrong_in_items_is_named(void **state)
{
    (void)state;
    refused("{}", "input: a string or an array expected, null found");
    refused("{'input':[]}", "input: at least 1 expected, 0 found");
    refused("{'input':{}}", "input: a string or an array expected, an object found");
    refused("{'input':[{'type':'reasoning','summary':[]}]}", "input: a message expected");
    refused("{'input':[7]}", "input[0]: an object expected, an integer found");
    refused("{'input':[{'type':7}]}", "input[0].type: a string expected");
    refused("{'input':[{'role':'tool','content':'a'}]}", "input[0].role: user, assistant, system");
    refused("{'input':[{'role':'user'}]}", "input[0].content: a string or an array expected");
    refused("{'input':[{'role':'user','content':[3]}]}", "input[0].content[0]: an object expected");
    refused("{'input':[{'role':'user','content':[{'type':'input_text'}]}]}",
            "input[0].content[0].text: a string expected, null found");
    refused("{'input':[{'role':'user','content':[{'text':'a'}]}]}",
            "input[0].content[0].type: \"text\" expected, null found");
    refused("{'input':[{'type':'function_call','name':'f','arguments':'{}'}]}",
            "input[0].call_id: a string expected");
    refused("{'input':[{'type':'function_call','call_id':'a','arguments':'{}'}]}",
            "input[0].name: a string expected");
    refused("{'input':[{'type':'function_call','call_id':'a','name':'f','arguments':{}}]}",
            "input[0].arguments: a string expected, an object found");
    refused("{'input':[{'type':'custom_tool_call','call_id':'a','name':'f'}]}",
            "input[0].input: a string expected");
    refused("{'input':[{'type':'function_call_output','call_id':'a','output':'1'}]}",
            "input[0].call_id: the id of a call in the answer before it expected, \"a\" found");
    refused("{'input':[" CALL ",{'type':'function_call_output','call_id':'a','output':{}}]}",
            "input[1].output: a string or an array expected");
    refused("{'input':[{'type':'reasoning','summary':'x'}]}",
            "input[0].summary: an array expected");
    refused("{'input':[0,0,0,0,0,0,0,0,0,0,0,0,0]}", "input: at most 12 expected, 13 found");
    refused("{'input':'a','instructions':[]}", "instructions: a string expected, an array found");
}

/* {"input": "Hi", MEMBERS} is refused. */
static void refused_with(const char *members, const char *words)
{
    char text[1024];
    snprintf(text, sizeof text, "{'input':'Hi',%s}", members);
    refused(text, words);
}

static void what_is_wrong_elsewhere_is_named(void **state)
{
    (void)state;
    refused_with("'max_output_tokens':0", "max_output_tokens: 1 to 2147483647 expected, 0 found");
    refused_with("'max_output_tokens':9223372036854775807", "max_output_tokens: 1 to");
    refused_with("'temperature':1e300", "temperature: 0 to 100 expected");
    refused_with("'top_logprobs':21", "top_logprobs: 0 to 20 expected, 21 found");
    refused_with("'top_logprobs':-1", "top_logprobs: 0 to 20");
    refused_with("'include':'x'", "include: an array expected");
    refused_with("'reasoning':'low'", "reasoning: an object expected");
    refused_with("'reasoning':{'effort':'most'}", "reasoning.effort: none, minimal, low");
    refused_with("'text':'plain'", "text: an object expected");
    refused_with("'text':{'format':{'type':'xml'}}", "text.format.type: \"text\", \"json_object\"");
    refused_with("'text':{'format':{'type':'json_schema'}}", "text.format.schema: an object");
    refused_with("'tools':'f'", "tools: an array expected");
    refused_with("'tools':[{}]", "tools[0].type: a string expected");
    refused_with("'tools':[{'type':'function'}]", "tools[0].name: a string expected");
    refused_with("'tools':[{'type':'function','name':'f','parameters':[]}]",
                 "tools[0].parameters: an object expected");
    refused_with("'tools':[{'type':'function','name':'f','strict':3}]", "tools[0].strict: a bool");
    refused_with("'tools':[{'type':'custom','name':'f','format':'x'}]",
                 "tools[0].format: an object");
    refused_with("'tools':[{'type':'namespace','name':'n'}]", "tools[0].tools: an array expected");
    refused_with("'tools':[{'type':'namespace','name':'n','tools':[{'type':'function'}]}]",
                 "tools[0].tools[0].name: a string expected");
    refused_with("'tools':[" SPACE "," SPACE "," FUNCTION "]", "tools: at most 4 expected");
    refused_with("'tools':[" FUNCTION "],'tool_choice':'some'",
                 "tool_choice: \"auto\", \"none\", \"required\" or an object expected");
    refused_with("'tools':[" FUNCTION "],'tool_choice':{}", "tool_choice.type: a string expected");
    refused_with("'tools':[" FUNCTION "],'tool_choice':{'type':'function','name':'g'}",
                 "tool_choice.name: the name of one of the tools expected, \"g\" found");
    refused_with("'tools':[" FUNCTION "],'tool_choice':{'type':'allowed_tools','mode':'x'}",
                 "tool_choice.mode: \"auto\" or");
    refused_with("'tools':[" FUNCTION "],'tool_choice':{'type':'allowed_tools','mode':'auto',"
                 "'tools':[{'name':'g'}]}",
                 "tool_choice.tools: names of some of the tools expected");
    refused_with("'tool_choice':'required'", "tool_choice: tools to call expected with it");
    refused_with("'parallel_tool_calls':1", "parallel_tool_calls: a boolean expected");
}

static void memory_that_is_out_is_reported(void **state)
{
    (void)state;
    asks_expect_memory_reported(API_RESPONSES,
                                "{'instructions':'S','input':[{'role':'user','content':'Q'},"
                                "{'type':'function_call','call_id':'a','namespace':'n','name':'f',"
                                "'arguments':'{}'},{'type':'function_call_output','call_id':'a',"
                                "'output':'1'}],'tools':[{'type':'namespace','name':'n',"
                                "'tools':[{'type':'custom','name':'f'}]}],'prompt_cache_key':'k'}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_a_question),
        cmocka_unit_test(every_member_is_taken),
        cmocka_unit_test(items_become_messages),
        cmocka_unit_test(a_message_of_another_agent_is_one_of_the_user),
        cmocka_unit_test(a_text_between_calls_and_results_stays_with_the_calls),
        cmocka_unit_test(namespaces_and_custom_tools_become_functions),
        cmocka_unit_test(every_tool_choice_is_taken),
        cmocka_unit_test(every_format_is_taken),
        cmocka_unit_test(what_needs_a_store_is_refused),
        cmocka_unit_test(what_is_not_text_is_refused_by_its_path),
        cmocka_unit_test(what_is_wrong_in_items_is_named),
        cmocka_unit_test(what_is_wrong_elsewhere_is_named),
        cmocka_unit_test(memory_that_is_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
