/* ollama's chat and generate: every member, and what is refused, by its path. */
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
#define TOOL "{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}"

/* {ONE, MEMBERS} */
static struct ask taken(const char *members)
{
    char text[2048];
    snprintf(text, sizeof text, "{" ONE "%s%s}", members[0] ? "," : "", members);
    return asks_taken(API_OLLAMA_CHAT, text);
}

static void refused(const char *text, const char *words)
{
    asks_expect_refused(API_OLLAMA_CHAT, CARAT_EUSAGE, text, words);
}

static void a_request_that_says_little_gets_a_stream(void **state)
{
    (void)state;
    struct ask ask = taken("");
    assert_true(ask.is_stream);
    assert_int_equal(ask.request.max_tokens, -1);
    assert_memory_equal(&ask.request.sampling, &asks_defaults, sizeof asks_defaults);
    assert_false(ask.is_unload || ask.is_load);
    asks_expect(&ask, "messages", "[{'role':'user','content':'Hi'}]");
    asks_expect(&ask, "enable_thinking", "null");
    ask_close(&ask);
    ask = taken("'stream':false");
    assert_false(ask.is_stream);
    ask_close(&ask);
}

static void every_option_is_taken(void **state)
{
    (void)state;
    struct ask ask =
        taken("'model':'gemma4:latest','keep_alive':'5m','tools':[" TOOL "],'logprobs':true,"
              "'top_logprobs':2,'options':{'temperature':0.5,'top_k':3,'top_p':0.25,'min_p':0.125,"
              "'seed':9,'stop':['a','b'],'num_predict':7,'num_ctx':8192,'num_gpu':1,"
              "'repeat_penalty':1.5,'repeat_last_n':-1,'presence_penalty':1,'frequency_penalty':-1,"
              "'mirostat':2,'mirostat_tau':4,'mirostat_eta':0.25,'typical_p':0.5,'tfs_z':1,"
              "'num_thread':4}");
    const struct carat_sampling *p = &ask.request.sampling;
    assert_string_equal(ask.model, "gemma4:latest");
    assert_true(p->temperature == 0.5f && p->top_p == 0.25f && p->min_p == 0.125f);
    assert_int_equal(p->top_k, 3);
    assert_true(ask.request.has_seed && p->seed == 9);
    assert_true(p->repeat_penalty == 1.5f && p->repeat_last_n == -1);
    assert_true(p->presence_penalty == 1 && p->frequency_penalty == -1);
    assert_true(p->typical_p == 0.5f && p->mirostat == 2);
    assert_true(p->mirostat_tau == 4 && p->mirostat_eta == 0.25f);
    assert_int_equal(ask.request.n_stops, 2);
    assert_int_equal(ask.request.max_tokens, 7);
    assert_true(ask.request.want_logprobs);
    assert_int_equal(ask.request.n_top_logprobs, 2);
    asks_expect(&ask, "tools",
                "[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}]");
    ask_close(&ask);
    ask = taken("'options':{'num_predict':-2,'stop':'END'}");
    assert_int_equal(ask.request.max_tokens, -1);
    assert_string_equal(ask.request.stops[0], "END");
    ask_close(&ask);
}

static void every_way_to_think_and_format_is_taken(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"'think':true", "enable_thinking", "true"},
        {"'think':false", "enable_thinking", "false"},
        {"'think':'low'", "enable_thinking", "true"},
        {"'think':'none'", "enable_thinking", "false"},
        {"'think':null", "enable_thinking", "null"},
        {"'format':'json'", "response_format", "{'type':'json_object'}"},
        {"'format':''", "response_format", "null"},
        {"'format':{'type':'object'}", "response_format",
         "{'type':'json_schema','json_schema':{'name':'answer','schema':{'type':'object'}}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ask ask = taken(cases[i][0]);
        asks_expect(&ask, cases[i][1], cases[i][2]);
        ask_close(&ask);
    }
}

static void results_find_their_calls(void **state)
{
    (void)state;
    struct ask ask = asks_taken(
        API_OLLAMA_CHAT,
        "{'messages':[{'role':'user','content':'Q','images':[]},{'role':'assistant','content':'',"
        "'tool_calls':[{'function':{'index':0,'name':'f','arguments':{'a':1}}},"
        "{'id':'own','function':{'name':'g','arguments':'{}'}},{'function':{'name':'h'}}]},"
        "{'role':'tool','tool_name':'h','content':'3'},{'role':'tool','content':'1'},"
        "{'role':'tool','tool_call_id':'own','content':'2'}]}");
    asks_expect(&ask, "messages",
                "[{'role':'user','content':'Q'},{'role':'assistant','tool_calls':["
                "{'id':'call_0','type':'function','function':{'name':'f','arguments':{'a':1}}},"
                "{'id':'own','type':'function','function':{'name':'g','arguments':{}}},"
                "{'id':'call_2','type':'function','function':{'name':'h','arguments':{}}}]},"
                "{'role':'tool','tool_call_id':'call_2','content':'3'},"
                "{'role':'tool','tool_call_id':'call_0','content':'1'},"
                "{'role':'tool','tool_call_id':'own','content':'2'}]");
    ask_close(&ask);
}

static void nothing_to_answer_loads_or_unloads(void **state)
{
    (void)state;
    static const struct {
        enum api api;
        const char *text;
        bool is_unload;
    } cases[] = {
        {API_OLLAMA_CHAT, "{'model':'m','messages':[],'keep_alive':0}", true},
        {API_OLLAMA_CHAT, "{'model':'m','keep_alive':'0s'}", true},
        {API_OLLAMA_CHAT, "{'model':'m','messages':[]}", false},
        {API_OLLAMA_CHAT, "{'model':'m','messages':[],'keep_alive':'0.5h'}", false},
        {API_OLLAMA_CHAT, "{'model':'m','messages':[],'keep_alive':'05m'}", false},
        {API_OLLAMA_CHAT, "{'model':'m','messages':[],'keep_alive':'0h5m'}", false},
        {API_OLLAMA_CHAT, "{'model':'m','messages':[],'keep_alive':'0.0s'}", true},
        {API_OLLAMA_CHAT, "{'model':'m','messages':[],'keep_alive':'-1'}", false},
        {API_OLLAMA_GENERATE, "{'model':'m','keep_alive':0}", true},
        {API_OLLAMA_GENERATE, "{'model':'m','prompt':''}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ask ask = asks_taken(cases[i].api, cases[i].text);
        if (ask.is_unload != cases[i].is_unload || ask.is_load == cases[i].is_unload)
            fail_msg("%s", cases[i].text);
        ask_close(&ask);
    }
}

static void generate_takes_a_question_or_a_raw_prompt(void **state)
{
    (void)state;
    struct ask ask = asks_taken(
        API_OLLAMA_GENERATE, "{'prompt':'Q','system':'S','context':[1,2],'template':'','suffix':'',"
                             "'images':null,'raw':false,'think':true}");
    asks_expect(&ask, "messages",
                "[{'role':'system','content':'S'},{'role':'user','content':'Q'}]");
    assert_int_equal(ask.n_prompts, 0);
    ask_close(&ask);
    ask = asks_taken(API_OLLAMA_GENERATE, "{'prompt':'<bos>once','raw':true}");
    assert_int_equal(ask.n_prompts, 1);
    assert_true(ask.prompts[0].has_special && !ask.prompts[0].ids);
    assert_int_equal(ask.prompts[0].length, 9);
    assert_memory_equal(ask.prompts[0].text, "<bos>once", 9);
    ask_close(&ask);
}

static void what_is_not_text_is_refused_by_its_path(void **state)
{
    (void)state;
    asks_expect_refused(API_OLLAMA_CHAT, CARAT_EUNSUPPORTED,
                        "{'messages':[{'role':'user','content':'a','images':['aaaa']}]}",
                        "messages[0].images: not supported");
    asks_expect_refused(API_OLLAMA_GENERATE, CARAT_EUNSUPPORTED, "{'prompt':'a','images':['b']}",
                        "images: not supported");
}

static void what_is_wrong_in_messages_is_named(void **state)
{
    (void)state;
    refused("{'messages':'x'}", "messages: an array expected, \"x\" found");
    refused("{'messages':[3]}", "messages[0]: an object expected");
    refused("{'messages':[{'role':'bot','content':'a'}]}", "messages[0].role: system, developer");
    refused("{'messages':[{'role':'user','content':[]}]}",
            "messages[0].content: a string expected");
    refused("{'messages':[{'role':'user','content':'a','images':'b'}]}",
            "messages[0].images: an array expected");
    refused("{'messages':[{'role':'assistant','thinking':1}]}",
            "messages[0].thinking: a string expected");
    refused("{'messages':[{'role':'assistant','tool_calls':{}}]}",
            "messages[0].tool_calls: an array expected");
    refused("{'messages':[{'role':'assistant','tool_calls':[{}]}]}",
            "messages[0].tool_calls[0].function: an object expected");
    refused("{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':''}}]}]}",
            "messages[0].tool_calls[0].function.name: 1 to 256 bytes expected");
    refused("{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':"
            "[]}}]}]}",
            "messages[0].tool_calls[0].function.arguments: a JSON object expected, an array");
    refused("{'messages':[{'role':'tool','content':'a'}]}",
            "messages[0].name: the name of a call in the answer before it expected, null found");
    refused("{'messages':[{'role':'tool','content':'a','tool_name':'f'}]}",
            "messages[0].tool_name: the name of a call");
    refused("{'messages':[{'role':'tool','content':'a','tool_call_id':'f'}]}",
            "messages[0].tool_call_id: the id of a call");
    refused("{'messages':[0,0,0,0,0,0,0,0,0,0,0,0,0]}", "messages: at most 12 expected, 13 found");
}

static void refused_with(const char *members, const char *words)
{
    char text[1024];
    snprintf(text, sizeof text, "{" ONE ",%s}", members);
    refused(text, words);
}

static void what_is_wrong_elsewhere_is_named(void **state)
{
    (void)state;
    refused_with("'options':7", "options: an object expected");
    refused_with("'options':{'temperature':-1}",
                 "options.temperature: 0 to 100 expected, -1 found");
    refused_with("'options':{'temperature':'hot'}", "options.temperature: a number expected");
    refused_with("'options':{'top_p':1.5}", "options.top_p: 0 to 1 expected");
    refused_with("'options':{'min_p':-0.5}", "options.min_p: 0 to 1");
    refused_with("'options':{'top_k':-2}", "options.top_k: -1 to 2147483647 expected, -2 found");
    refused_with("'options':{'repeat_penalty':0}", "options.repeat_penalty: 0.01 to 100");
    refused_with("'options':{'repeat_last_n':-2}", "options.repeat_last_n: -1 to");
    refused_with("'options':{'presence_penalty':3}", "options.presence_penalty: -2 to 2");
    refused_with("'options':{'frequency_penalty':-3}", "options.frequency_penalty: -2 to 2");
    refused_with("'options':{'seed':1.5}", "options.seed: an integer expected");
    refused_with("'options':{'num_predict':-3}", "options.num_predict: -2 to");
    refused_with("'options':{'num_predict':'all'}", "options.num_predict: an integer expected");
    refused_with("'options':{'stop':['']}", "options.stop[0]: 1 to 256 bytes expected");
    refused_with("'options':{'stop':7}", "options.stop: an array expected");
    refused_with("'options':{'stop':['a','b','c','d']}", "options.stop: at most 3 expected");
    refused_with("'options':{'mirostat':3}", "options.mirostat: 0 (off) or 2 expected, 3 found");
    refused_with("'options':{'mirostat':1}", "options.mirostat: 0 (off) or 2 expected, 1 found");
    refused_with("'options':{'mirostat_tau':-1}", "options.mirostat_tau: 0 to 100 expected");
    refused_with("'options':{'typical_p':2}", "options.typical_p: 0 to 1 expected, 2 found");
    refused_with("'options':{'tfs_z':0.5}", "options.tfs_z: 1 to 1 expected, 0.5 found");
    refused_with("'think':7", "think: a boolean or a level expected");
    refused_with("'think':'hard'", "think: none, minimal, low");
    refused_with("'format':7", "format: \"json\" or a JSON schema expected");
    refused_with("'format':'xml'", "format: \"json\" or a JSON schema expected, \"xml\" found");
    refused_with("'tools':{}", "tools: an array expected");
    refused_with("'tools':[0,0,0,0,0]", "tools: at most 4 expected");
    refused_with("'stream':1", "stream: a boolean expected");
    refused_with("'top_logprobs':3", "top_logprobs: ");
    asks_expect_refused(API_OLLAMA_GENERATE, CARAT_EUSAGE, "{'prompt':'a','suffix':'b'}",
                        "suffix: not supported");
    asks_expect_refused(API_OLLAMA_GENERATE, CARAT_EUSAGE, "{'prompt':'a','template':'{{ . }}'}",
                        "template: not supported");
    asks_expect_refused(API_OLLAMA_GENERATE, CARAT_EUSAGE, "{'prompt':7}",
                        "prompt: a string expected");
    asks_expect_refused(API_OLLAMA_GENERATE, CARAT_EUSAGE, "{'prompt':'a','raw':1}",
                        "raw: a boolean expected");
    asks_expect_refused(API_OLLAMA_GENERATE, CARAT_EUSAGE, "{'prompt':'a','system':1}",
                        "system: a string expected");
}

static void memory_that_is_out_is_reported(void **state)
{
    (void)state;
    asks_expect_memory_reported(API_OLLAMA_CHAT,
                                "{'messages':[{'role':'user','content':'Q'},{'role':'assistant',"
                                "'thinking':'T','tool_calls':[{'function':{'name':'f',"
                                "'arguments':'{}'}}]},{'role':'tool','content':'1'}],'format':{},"
                                "'options':{'stop':['a']}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_says_little_gets_a_stream),
        cmocka_unit_test(every_option_is_taken),
        cmocka_unit_test(every_way_to_think_and_format_is_taken),
        cmocka_unit_test(results_find_their_calls),
        cmocka_unit_test(nothing_to_answer_loads_or_unloads),
        cmocka_unit_test(generate_takes_a_question_or_a_raw_prompt),
        cmocka_unit_test(what_is_not_text_is_refused_by_its_path),
        cmocka_unit_test(what_is_wrong_in_messages_is_named),
        cmocka_unit_test(what_is_wrong_elsewhere_is_named),
        cmocka_unit_test(memory_that_is_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
