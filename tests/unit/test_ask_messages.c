/* Anthropic's messages: every member, and what is refused, by its path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/asks.h"

#ifdef CARAT_HAVE_JSON

#define ONE "'messages':[{'role':'user','content':'Hi'}]"
#define TOOL "{'name':'f','input_schema':{'type':'object'}}"
#define CALLED                                                                                     \
    "{'role':'user','content':'Q'},{'role':'assistant','content':["                                \
    "{'type':'tool_use','id':'a','name':'f','input':{}}]},"

#define TWENTY(x) x x x x x x x x x x x x x x x x x x x x
#define DEEP TWENTY("[") TWENTY("[") TWENTY("[") "1" TWENTY("]") TWENTY("]") TWENTY("]")

/* {ONE, MEMBERS} */
static struct ask taken(const char *members)
{
    char text[2048];
    snprintf(text, sizeof text, "{" ONE "%s%s}", members[0] ? "," : "", members);
    return asks_taken(API_MESSAGES, text);
}

static void refused_as(enum carat_status code, const char *text, const char *words)
{
    asks_expect_refused(API_MESSAGES, code, text, words);
}

static void refused(const char *text, const char *words)
{
    refused_as(CARAT_EUSAGE, text, words);
}

static void a_request_that_says_little_gets_4096_tokens(void **state)
{
    (void)state;
    struct ask ask = taken("");
    assert_int_equal(ask.request.max_tokens, 4096);
    assert_int_equal(ask.request.thinking_max, 0);
    assert_false(ask.is_stream || ask.has_billing_line);
    assert_int_equal(ask.n_ignored_tools, 0);
    assert_string_equal(ask.model, "");
    assert_string_equal(ask.session, "");
    asks_expect(&ask, "enable_thinking", "null");
    asks_expect(&ask, "tools", "null");
    asks_expect(&ask, "messages", "[{'role':'user','content':'Hi'}]");
    ask_close(&ask);
}

static void every_member_is_taken(void **state)
{
    (void)state;
    struct ask ask =
        taken("'model':'opus-4.1','max_tokens':9,'temperature':0.5,'top_k':7,'top_p':0.25,"
              "'stop_sequences':['\\n','b'],'stream':true,'metadata':{'user_id':'u1'},"
              "'service_tier':'auto','container':null,'context_management':{'edits':[]},"
              "'thinking':{'type':'enabled','budget_tokens':1024},'tools':[" TOOL "]");
    assert_string_equal(ask.model, "opus-4.1");
    assert_int_equal(ask.request.max_tokens, 9);
    assert_true(ask.request.sampling.temperature == 0.5f && ask.request.sampling.top_p == 0.25f);
    assert_int_equal(ask.request.sampling.top_k, 7);
    assert_int_equal(ask.request.n_stops, 2);
    assert_string_equal(ask.request.stops[1], "b");
    assert_true(ask.is_stream);
    assert_string_equal(ask.session, "u1");
    assert_int_equal(ask.request.thinking_max, 1024);
    asks_expect(&ask, "enable_thinking", "true");
    asks_expect(&ask, "tools",
                "[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}]");
    ask_close(&ask);
}

static void the_first_line_of_accounting_is_dropped(void **state)
{
    (void)state;
    struct ask ask = taken("'system':'x-anthropic-billing-header: cc=1; cch=ab;\\nBe kind.'");
    assert_true(ask.has_billing_line);
    asks_expect(&ask, "messages",
                "[{'role':'system','content':'Be kind.'},{'role':'user','content':'Hi'}]");
    ask_close(&ask);
    ask = taken("'system':[{'type':'text','text':'x-anthropic-billing-header: cc=1; cch=ab;'}]");
    assert_true(ask.has_billing_line);
    asks_expect(&ask, "messages", "[{'role':'user','content':'Hi'}]");
    ask_close(&ask);
    ask = taken("'system':[{'type':'text','text':'A'},"
                "{'type':'text','text':'x-anthropic-billing-header: this is the second block'}]");
    assert_false(ask.has_billing_line);
    ask_close(&ask);
}

static void results_come_before_the_text_of_their_message(void **state)
{
    (void)state;
    struct ask ask = asks_taken(
        API_MESSAGES, "{'messages':[" CALLED "{'role':'user','content':["
                      "{'type':'text','text':'<system-reminder>'},"
                      "{'type':'tool_result','tool_use_id':'a','is_error':true,"
                      "'content':[{'type':'text','text':'no'},{'type':'text','text':'file'}]},"
                      "{'type':'text','text':'Go on'}]}]}");
    asks_expect(&ask, "messages",
                "[{'role':'user','content':'Q'},{'role':'assistant','tool_calls':[{'id':'a',"
                "'type':'function','function':{'name':'f','arguments':{}}}]},"
                "{'role':'tool','tool_call_id':'a','content':{'error':'no\\nfile'}},"
                "{'role':'user','content':[{'type':'text','text':'<system-reminder>'},"
                "{'type':'text','text':'Go on'}]}]");
    ask_close(&ask);
    ask = asks_taken(API_MESSAGES, "{'messages':[" CALLED "{'role':'user','content':["
                                   "{'type':'tool_result','tool_use_id':'a'}]}]}");
    asks_expect(&ask, "messages",
                "[{'role':'user','content':'Q'},{'role':'assistant','tool_calls':[{'id':'a',"
                "'type':'function','function':{'name':'f','arguments':{}}}]},"
                "{'role':'tool','tool_call_id':'a','content':''}]");
    ask_close(&ask);
}

static void a_result_may_name_the_tools_that_were_found(void **state)
{
    (void)state;
    struct ask ask =
        asks_taken(API_MESSAGES, "{'messages':[" CALLED "{'role':'user','content':["
                                 "{'type':'tool_result','tool_use_id':'a','content':["
                                 "{'type':'tool_reference','tool_name':'read_file'}]}]}]}");
    asks_expect(&ask, "messages",
                "[{'role':'user','content':'Q'},{'role':'assistant','tool_calls':[{'id':'a',"
                "'type':'function','function':{'name':'f','arguments':{}}}]},"
                "{'role':'tool','tool_call_id':'a','content':'read_file'}]");
    ask_close(&ask);
    refused_as(CARAT_EUNSUPPORTED,
               "{'messages':[{'role':'user','content':[{'type':'tool_reference','tool_name':'a'}"
               "]}]}",
               "messages.0.content.0.type: \"tool_reference\" is not supported");
}

static void tools_that_a_provider_runs_are_left_out_and_counted(void **state)
{
    (void)state;
    struct ask ask =
        taken("'tools':[{'type':'web_search_20250305','name':'web_search','max_uses':5}," TOOL
              ",{'type':'custom','name':'g','description':'G','strict':true,"
              "'input_schema':{'type':'object'}}],'tool_choice':{'type':'any'}");
    assert_int_equal(ask.n_ignored_tools, 1);
    asks_expect(&ask, "tool_choice", "'required'");
    asks_expect(&ask, "tools",
                "[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}},"
                "{'type':'function','function':{'name':'g','description':'G','parameters':"
                "{'type':'object'},'strict':true}}]");
    ask_close(&ask);
    ask = taken("'tools':[{'type':'bash_20250124','name':'bash'}],'tool_choice':{'type':'auto'}");
    assert_int_equal(ask.n_ignored_tools, 1);
    asks_expect(&ask, "tools", "null");
    asks_expect(&ask, "tool_choice", "null");
    ask_close(&ask);
}

static void expect_choice(const char *choice, const char *expected, const char *parallel)
{
    char text[512];
    snprintf(text, sizeof text, "'tools':[" TOOL "],'tool_choice':%s", choice);
    struct ask ask = taken(text);
    asks_expect(&ask, "tool_choice", expected);
    asks_expect(&ask, "parallel_tool_calls", parallel);
    ask_close(&ask);
}

static void every_tool_choice_is_taken(void **state)
{
    (void)state;
    expect_choice("{'type':'auto'}", "'auto'", "null");
    expect_choice("{'type':'any','disable_parallel_tool_use':true}", "'required'", "false");
    expect_choice("{'type':'auto','disable_parallel_tool_use':false}", "'auto'", "null");
    expect_choice("{'type':'none'}", "'none'", "null");
    expect_choice("{'type':'tool','name':'f'}", "{'type':'function','function':{'name':'f'}}",
                  "null");
}

static void every_kind_of_thinking_is_taken(void **state)
{
    (void)state;
    static const struct {
        const char *said, *thinks;
        int32_t budget;
    } cases[] = {
        {"'thinking':{'type':'enabled','budget_tokens':5000}", "true", 5000},
        {"'thinking':{'type':'enabled'}", "true", 0},
        {"'thinking':{'type':'adaptive','display':'omitted'}", "true", 0},
        {"'thinking':{'type':'between_tools'}", "true", 0},
        {"'thinking':{'type':'disabled'}", "false", 0},
        {"'thinking':null", "null", 0},
        {"'output_config':{'effort':'high'}", "null", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ask ask = taken(cases[i].said);
        asks_expect(&ask, "enable_thinking", cases[i].thinks);
        assert_int_equal(ask.request.thinking_max, cases[i].budget);
        ask_close(&ask);
    }
}

static void a_schema_is_taken_by_both_of_its_names(void **state)
{
    (void)state;
    static const char *const said[] = {
        "'output_config':{'format':{'type':'json_schema','schema':{'type':'object'}}}",
        "'output_format':{'type':'json_schema','schema':{'type':'object'}}"};
    for (size_t i = 0; i < 2; i++) {
        struct ask ask = taken(said[i]);
        asks_expect(&ask, "response_format",
                    "{'type':'json_schema','json_schema':{'name':'answer','schema':"
                    "{'type':'object'}}}");
        ask_close(&ask);
    }
}

static void what_is_not_text_is_refused_by_its_path(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{'messages':[{'role':'user','content':[{'type':'text','text':'a'},{'type':'image',"
         "'source':{'type':'base64','media_type':'image/png','data':'aaaa'}}]}]}",
         "messages.0.content.1.type: \"image\" is not supported"},
        {"{'messages':[{'role':'user','content':[{'type':'document','source':{'type':'url',"
         "'url':'http://127.0.0.1/x.pdf'}}]}]}",
         "messages.0.content.0.type: \"document\" is not supported"},
        {"{'messages':[" CALLED "{'role':'user','content':[{'type':'tool_result','tool_use_id':'a',"
         "'content':[{'type':'image','source':{}}]}]}]}",
         "messages.2.content.0.content.0.type: \"image\" is not supported"},
        {"{'system':[{'type':'image'}]," ONE "}", "system.0.type: \"image\" is not supported"},
        {"{'messages':[{'role':'assistant','content':[{'type':'server_tool_use','id':'s',"
         "'name':'web_search','input':{}}]}]}",
         "messages.0.content.0.type: \"server_tool_use\" is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused_as(CARAT_EUNSUPPORTED, cases[i].text, cases[i].words);
}

static void a_conversation_that_a_server_holds_is_refused(void **state)
{
    (void)state;
    const char *words = "thread: not supported";
    refused_as(CARAT_EUNSUPPORTED, "{'thread':{'type':'create'}," ONE "}", words);
    refused_as(CARAT_EUNSUPPORTED,
               "{'thread':{'type':'continue','previous_message_id':'msg_1'},'messages':[{'role':"
               "'user','content':[{'type':'tool_result','tool_use_id':'a','content':'b'}]}]}",
               words);
    struct ask ask = taken("'thread':null");
    ask_close(&ask);
}

static void what_is_wrong_in_messages_is_named(void **state)
{
    (void)state;
    refused("[]", "request: an object expected");
    refused("{}", "messages: an array expected, null found");
    refused("{'messages':[]}", "messages: at least 1 expected, 0 found");
    refused("{'messages':{}}", "messages: an array expected, an object found");
    refused("{'messages':[1]}", "messages.0: an object expected, an integer found");
    refused("{'messages':[{'content':'a'}]}", "messages.0.role: user, assistant or system "
                                              "expected, null found");
    refused("{'messages':[{'role':'tool','content':'a'}]}", "messages.0.role: user");
    refused("{'messages':[{'role':'user'}]}", "messages.0.content: a string or an array expected");
    refused("{'messages':[{'role':'user','content':7}]}", "messages.0.content: a string");
    refused("{'messages':[{'role':'user','content':['a']}]}",
            "messages.0.content.0: an object expected, \"a\" found");
    refused("{'messages':[{'role':'user','content':[{'type':'text'}]}]}",
            "messages.0.content.0.text: a string expected, null found");
    refused("{'messages':[{'role':'user','content':[{'text':'a'}]}]}",
            "messages.0.content.0.type: \"text\" expected, null found");
    refused("{'messages':[{'role':'user','content':[{'type':'tool_result','tool_use_id':'a'}]}]}",
            "messages.0.content.0.tool_use_id: the id of a call in the answer before it "
            "expected, \"a\" found");
    refused("{'messages':[" CALLED "{'role':'user','content':[{'type':'tool_result',"
            "'tool_use_id':'b'}]}]}",
            "messages.2.content.0.tool_use_id: the id of a call");
    refused("{'messages':[" CALLED "{'role':'user','content':'x'},{'role':'user','content':["
            "{'type':'tool_result','tool_use_id':'a'}]}]}",
            "messages.3.content.0.tool_use_id: the id of a call");
    refused("{'messages':[" CALLED "{'role':'user','content':[{'type':'tool_result',"
            "'tool_use_id':'a','is_error':1}]}]}",
            "messages.2.content.0.is_error: a boolean expected, an integer found");
    refused("{'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'a','name':'',"
            "'input':{}}]}]}",
            "messages.0.content.0.name: 1 to 256 bytes expected, 0 found");
    refused("{'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'a','name':'f',"
            "'input':'{}'}]}]}",
            "messages.0.content.0.input: an object expected, \"{}\" found");
    refused("{'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'a','name':'f',"
            "'input':{'a':" DEEP "}}]}]}",
            "messages.0.content.0.input: nesting of at most 60 expected");
    refused("{'messages':[{'role':'assistant','content':[{'type':'thinking','thinking':3}]}]}",
            "messages.0.content.0.thinking: a string expected, an integer found");
    refused("{'messages':[0,0,0,0,0,0,0,0,0,0,0,0,0]}", "messages: at most 12 expected, 13 found");
    refused("{'system':7," ONE "}", "system: a string or an array expected, an integer found");
    refused("{'system':[{'type':'text','text':null}]," ONE "}", "system.0.text: a string");
}

/* {ONE, MEMBERS} is refused. */
static void refused_with(const char *members, const char *words)
{
    char text[1024];
    snprintf(text, sizeof text, "{" ONE ",%s}", members);
    refused(text, words);
}

static void what_is_wrong_elsewhere_is_named(void **state)
{
    (void)state;
    refused_with("'max_tokens':0", "max_tokens: 1 to 2147483647 expected, 0 found");
    refused_with("'max_tokens':-1", "max_tokens: 1 to");
    refused_with("'max_tokens':2147483648", "max_tokens: 1 to");
    refused_with("'max_tokens':1.5", "max_tokens: an integer expected, 1.5 found");
    refused_with("'max_tokens':'9'", "max_tokens: an integer expected, a string found");
    refused_with("'temperature':-1", "temperature: 0 to 100 expected, -1 found");
    refused_with("'top_p':'x'", "top_p: a number expected, a string found");
    refused_with("'top_k':-2", "top_k: -1 to");
    refused_with("'stream':'yes'", "stream: a boolean expected");
    refused_with("'model':7", "model: a string expected");
    refused_with("'stop_sequences':'a\\u0000b'", "stop_sequences: a text without NUL");
    refused_with("'stop_sequences':['']", "stop_sequences.0: 1 to 256 bytes expected, 0 found");
    refused_with("'stop_sequences':['a',7]", "stop_sequences.1: a string expected");
    refused_with("'stop_sequences':['a','b','c','d']", "stop_sequences: at most 3 expected, 4");
    refused_with("'metadata':'u'", "metadata: an object expected");
    refused_with("'metadata':{'user_id':7}", "metadata.user_id: a string expected");
    refused_with("'thinking':true", "thinking: an object expected");
    refused_with("'thinking':{'type':'always'}", "thinking.type: \"enabled\", \"disabled\" or");
    refused_with("'thinking':{'type':'enabled','budget_tokens':0}", "thinking.budget_tokens: 1 to");
    refused_with("'output_config':3", "output_config: an object expected");
    refused_with("'output_config':{'format':{'type':'xml'}}", "output_config.format.type: \"json_");
    refused_with("'output_format':{'type':'json_schema'}", "output_format.schema: an object");
    refused_with("'tools':{}", "tools: an array expected");
    refused_with("'tools':[3]", "tools.0: an object expected");
    refused_with("'tools':[{'name':'f'}]", "tools.0.input_schema: an object expected, null found");
    refused_with("'tools':[{'input_schema':{}}]", "tools.0.name: a string expected, null found");
    refused_with("'tools':[{'name':'f','input_schema':{},'description':1}]",
                 "tools.0.description: a string expected");
    refused_with("'tools':[{'name':'a\\nb','input_schema':{}}]",
                 "tools.0.name: a name without control characters expected");
    refused_with("'tools':[{'type':3,'name':'f'}]", "tools.0.type: a string expected");
    refused_with("'tools':[{'name':'f','input_schema':{},'strict':'x'}]", "tools.0.strict: a bool");
    refused_with("'tools':[0,0,0,0,0]", "tools: at most 4 expected, 5 found");
    refused_with("'tools':[" TOOL "],'tool_choice':'auto'", "tool_choice: an object expected");
    refused_with("'tools':[" TOOL "],'tool_choice':{'type':'some'}", "tool_choice.type: \"auto\"");
    refused_with("'tools':[" TOOL "],'tool_choice':{'type':'tool','name':'g'}",
                 "tool_choice.name: the name of one of the tools expected, \"g\" found");
    refused_with("'tools':[" TOOL "],'tool_choice':{'type':'tool'}", "tool_choice.name: a string");
    refused_with("'tool_choice':{'type':'any'}", "tool_choice.type: tools to call expected");
}

static void expect_names(const struct ask *ask, const char *said, const char *expected)
{
    struct carat_error err = {0};
    snprintf(err.message, sizeof err.message, "%s", said);
    ask_use_names(ask, &err);
    assert_string_equal(err.message, expected);
}

static void what_others_find_wrong_has_the_path_of_the_client(void **state)
{
    (void)state;
    struct ask ask = taken("'tools':[{'type':'web_search_1','name':'w'}," TOOL "],'output_config':"
                           "{'format':{'type':'json_schema','schema':{'type':'object'}}}");
    expect_names(&ask, "tools[0].function: parameters: #/a: no", "tools.1.input_schema.a: no");
    expect_names(&ask, "tools[0].function: name: no", "tools.1.name: no");
    expect_names(&ask, "tools[0].function: no", "tools.1: no");
    expect_names(&ask, "tools[1].function: name: no", "tools.1.function.name: no");
    expect_names(&ask, "tools: no", "tools: no");
    expect_names(&ask, "response_format.json_schema.schema: #/a: no",
                 "output_config.format.schema.a: no");
    ask_close(&ask);
    ask = taken("");
    expect_names(&ask, "tools[0].function: name: no", "tools.0.function.name: no");
    ask_close(&ask);
}

#define ASKED "'messages':[{'role':'user','content':'Q'},{'role':'assistant','content':"
#define USER_TURN "<bos><|turn>user\nQ<turn|>\n<|turn>model\n"

/* {ASKED, CONTENT, MEMBERS} */
static void begins(const char *content, const char *members, const char *prompt)
{
    char text[1024];
    snprintf(text, sizeof text, "{" ASKED "%s}]%s}", content, members);
    struct ask ask = asks_taken(API_MESSAGES, text);
    char *found = asks_prompt(&ask);
    assert_string_equal(found, prompt);
    carat_free(found);
    ask_close(&ask);
}

static void the_model_goes_on_with_an_answer_at_the_end(void **state)
{
    (void)state;
    begins("'A'", "", USER_TURN "A");
    begins("[{'type':'text','text':'A '},{'type':'text','text':' B'}]", "", USER_TURN "A  B");
    begins("[{'type':'thinking','thinking':'T','signature':''},{'type':'text','text':'A'}]",
           ",'thinking':{'type':'disabled'},'tool_choice':{'type':'auto'},'tools':[]",
           USER_TURN "A");
    /* An empty one says nothing, and thoughts alone are a turn. */
    begins("''", "", USER_TURN);
    begins("[]", "", USER_TURN);
    begins("[{'type':'text','text':''}]", ",'thinking':{'type':'enabled'}",
           "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nQ<turn|>\n<|turn>model\n");
    begins("[{'type':'thinking','thinking':'T','signature':''}]", "",
           USER_TURN "<|channel>thought\nT\n<channel|><turn|>\n<|turn>model\n");
}

static void what_cannot_follow_an_answer_at_the_end_is_refused(void **state)
{
    (void)state;
    static const char *const members[][2] = {
        {"'thinking':{'type':'enabled','budget_tokens':5}", "thinking"},
        {"'thinking':{'type':'adaptive'}", "thinking"},
        {"'output_format':{'type':'json_schema','schema':{}}", "output_format"},
        {"'output_config':{'format':{'type':'json_schema','schema':{}}}", "output_config.format"},
        {"'tools':[" TOOL "],'tool_choice':{'type':'any'}", "tool_choice"},
        {"'tools':[" TOOL "],'tool_choice':{'type':'tool','name':'f'}", "tool_choice"},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char text[512], words[128];
        snprintf(text, sizeof text, "{" ASKED "'A'}],%s}", members[i][0]);
        snprintf(words, sizeof words,
                 "messages.1: an answer cannot be begun by the client together with %s",
                 members[i][1]);
        refused(text, words);
    }
    static const char blank[] =
        "messages.1: final assistant content cannot end with trailing whitespace";
    refused("{" ASKED "'A '}]}", blank);
    refused("{" ASKED "'\\n'}]}", blank);
    refused("{" ASKED "[{'type':'text','text':'A'},{'type':'text','text':'B\\t'}]}]}", blank);
    refused("{'messages':[{'role':'assistant','content':''}]}",
            "messages.0.content: a text expected in the only message, none found");
    refused("{" ASKED "[{'type':'text','text':'A'},{'type':'tool_use','id':'a','name':'f'}]}]}",
            "messages.1: a message with a tool_result for each tool_use expected after it");
}

static void memory_that_is_out_is_reported(void **state)
{
    (void)state;
    asks_expect_memory_reported(
        API_MESSAGES, "{'system':[{'type':'text','text':'S'}],'messages':[{'role':'user',"
                      "'content':'Q'},{'role':'assistant','content':[{'type':'thinking',"
                      "'thinking':'T'},{'type':'tool_use','id':'a','name':'f'}]},"
                      "{'role':'user','content':[{'type':'tool_result','tool_use_id':'a'}]}],"
                      "'stop_sequences':['a'],'metadata':{'user_id':'u'}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_says_little_gets_4096_tokens),
        cmocka_unit_test(every_member_is_taken),
        cmocka_unit_test(the_first_line_of_accounting_is_dropped),
        cmocka_unit_test(results_come_before_the_text_of_their_message),
        cmocka_unit_test(a_result_may_name_the_tools_that_were_found),
        cmocka_unit_test(tools_that_a_provider_runs_are_left_out_and_counted),
        cmocka_unit_test(every_tool_choice_is_taken),
        cmocka_unit_test(every_kind_of_thinking_is_taken),
        cmocka_unit_test(a_schema_is_taken_by_both_of_its_names),
        cmocka_unit_test(what_is_not_text_is_refused_by_its_path),
        cmocka_unit_test(a_conversation_that_a_server_holds_is_refused),
        cmocka_unit_test(what_is_wrong_in_messages_is_named),
        cmocka_unit_test(what_is_wrong_elsewhere_is_named),
        cmocka_unit_test(what_others_find_wrong_has_the_path_of_the_client),
        cmocka_unit_test(the_model_goes_on_with_an_answer_at_the_end),
        cmocka_unit_test(what_cannot_follow_an_answer_at_the_end_is_refused),
        cmocka_unit_test(memory_that_is_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
