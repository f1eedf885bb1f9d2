/* The same conversation gives the same prompt whichever API it comes through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/asks.h"

#ifdef CARAT_HAVE_JSON

#define SCHEMA                                                                                     \
    "{'type':'object','properties':{'city':{'type':'string','description':'Where'},"               \
    "'days':{'type':'integer'}},'required':['city']}"
#define FUNCTION "'name':'weather','description':'Tells the weather'"

/* A system text, a question, an answer with a thought, a text and two calls, their results, an
 * answer, and a question. */
static const char chat[] =
    "{'messages':[{'role':'system','content':'Be brief. '},{'role':'user','content':'Rain?'},"
    "{'role':'assistant','content':'I look.','reasoning_content':'Two cities.','tool_calls':["
    "{'id':'a','type':'function','function':{'name':'weather','arguments':"
    "'{\\'city\\':\\'Rome\\',\\'days\\':2}'}},"
    "{'id':'b','type':'function','function':{'name':'weather','arguments':"
    "'{\\'city\\':\\'Oslo\\'}'}}]},"
    "{'role':'tool','tool_call_id':'a','content':'sunny'},"
    "{'role':'tool','tool_call_id':'b','content':'rain'},"
    "{'role':'assistant','content':'Oslo only.'},{'role':'user','content':'Sure?'}],"
    "'tools':[{'type':'function','function':{" FUNCTION ",'parameters':" SCHEMA "}}],"
    "'enable_thinking':true}";

static const char messages[] =
    "{'system':'Be brief. ','messages':[{'role':'user','content':'Rain?'},"
    "{'role':'assistant','content':[{'type':'thinking','thinking':'Two cities.','signature':'x'},"
    "{'type':'text','text':'I look.'},"
    "{'type':'tool_use','id':'a','name':'weather','input':{'city':'Rome','days':2}},"
    "{'type':'tool_use','id':'b','name':'weather','input':{'city':'Oslo'}}]},"
    "{'role':'user','content':["
    "{'type':'tool_result','tool_use_id':'a','content':'sunny'},"
    "{'type':'tool_result','tool_use_id':'b','content':[{'type':'text','text':'rain'}]}]},"
    "{'role':'assistant','content':'Oslo only.'},"
    "{'role':'user','content':[{'type':'text','text':'Sure?',"
    "'cache_control':{'type':'ephemeral'}}]}],"
    "'tools':[{" FUNCTION ",'input_schema':" SCHEMA "}],"
    "'thinking':{'type':'enabled','budget_tokens':2000},'max_tokens':4000}";

static const char responses[] =
    "{'instructions':'Be brief. ','input':[{'role':'user','content':'Rain?'},"
    "{'type':'reasoning','id':'rs_1','summary':[{'type':'summary_text','text':'Two cities.'}]},"
    "{'type':'message','role':'assistant','content':[{'type':'output_text','text':'I look.'}]},"
    "{'type':'function_call','call_id':'a','name':'weather','arguments':"
    "'{\\'city\\':\\'Rome\\',\\'days\\':2}'},"
    "{'type':'function_call','call_id':'b','name':'weather','arguments':'{\\'city\\':\\'Oslo\\'}'},"
    "{'type':'function_call_output','call_id':'a','output':'sunny'},"
    "{'type':'function_call_output','call_id':'b','output':[{'type':'input_text','text':'rain'}]},"
    "{'type':'message','role':'assistant','content':[{'type':'output_text','text':'Oslo only.'}]},"
    "{'type':'message','role':'user','content':[{'type':'input_text','text':'Sure?'}]}],"
    "'tools':[{'type':'function'," FUNCTION ",'parameters':" SCHEMA ",'strict':false}],"
    "'reasoning':{'effort':'low'}}";

static const char ollama[] =
    "{'messages':[{'role':'system','content':'Be brief. '},{'role':'user','content':'Rain?'},"
    "{'role':'assistant','content':'I look.','thinking':'Two cities.','tool_calls':["
    "{'function':{'name':'weather','arguments':{'city':'Rome','days':2}}},"
    "{'function':{'name':'weather','arguments':{'city':'Oslo'}}}]},"
    "{'role':'tool','tool_name':'weather','content':'sunny'},"
    "{'role':'tool','tool_name':'weather','content':'rain'},"
    "{'role':'assistant','content':'Oslo only.'},{'role':'user','content':'Sure?'}],"
    "'tools':[{'type':'function','function':{" FUNCTION ",'parameters':" SCHEMA "}}],"
    "'think':true}";

static char *prompt_of(enum api api, const char *text)
{
    struct ask ask = asks_taken(api, text);
    char *prompt = asks_prompt(&ask);
    ask_close(&ask);
    return prompt;
}

static void expect_same(const char *expected, enum api api, const char *text)
{
    char *found = prompt_of(api, text);
    if (strcmp(found, expected) != 0) fail_msg("found:\n%s\nexpected:\n%s", found, expected);
    carat_free(found);
}

static void a_conversation_with_tools_and_thoughts_is_the_same(void **state)
{
    (void)state;
    char *expected = prompt_of(API_CHAT, chat);
    assert_non_null(strstr(expected, "call:weather{city:<|\"|>Rome<|\"|>,days:2}"));
    assert_non_null(strstr(expected, "response:weather{value:<|\"|>rain<|\"|>}"));
    expect_same(expected, API_MESSAGES, messages);
    expect_same(expected, API_RESPONSES, responses);
    expect_same(expected, API_OLLAMA_CHAT, ollama);
    carat_free(expected);
}

static void thoughts_of_the_turn_that_goes_on_are_the_same(void **state)
{
    (void)state;
#define LAST "'role':'user','content':'Q'"
    char *expected = prompt_of(
        API_CHAT,
        "{'messages':[{" LAST "},{'role':'assistant','content':null,'reasoning':'T1\\nT2',"
        "'tool_calls':[{'id':'a','type':'function','function':{'name':'f','arguments':'{}'}}]},"
        "{'role':'tool','tool_call_id':'a','content':'r'}],'reasoning_effort':'high'}");
    assert_non_null(strstr(expected, "<|channel>thought\nT1\nT2\n<channel|><|tool_call>call:f{}"));
    expect_same(
        expected, API_MESSAGES,
        "{'messages':[{" LAST "},{'role':'assistant','content':["
        "{'type':'thinking','thinking':'T1','signature':''},"
        "{'type':'redacted_thinking','data':'xyz'},"
        "{'type':'thinking','thinking':'T2','signature':''},"
        "{'type':'tool_use','id':'a','name':'f','input':{}}]},"
        "{'role':'user','content':[{'type':'tool_result','tool_use_id':'a','content':'r'}]}],"
        "'thinking':{'type':'adaptive'}}");
    expect_same(expected, API_RESPONSES,
                "{'input':[{" LAST "},{'type':'reasoning','summary':[],'encrypted_content':'zzz',"
                "'content':[{'type':'reasoning_text','text':'T1'},"
                "{'type':'reasoning_text','text':'T2'}]},"
                "{'type':'function_call','call_id':'a','name':'f','arguments':''},"
                "{'type':'function_call_output','call_id':'a','output':'r'}],"
                "'reasoning':{'effort':'high','summary':'auto'}}");
    expect_same(expected, API_OLLAMA_CHAT,
                "{'messages':[{" LAST "},{'role':'assistant','thinking':'T1\\nT2','tool_calls':["
                "{'function':{'name':'f','arguments':{}}}]},{'role':'tool','content':'r'}],"
                "'think':'high'}");
    carat_free(expected);
}

static void an_answer_that_is_begun_is_the_same(void **state)
{
    (void)state;
    char *expected = prompt_of(API_CHAT, "{'messages':[{'role':'user','content':'Q'},"
                                         "{'role':'assistant','content':' <turn|>\\n{'}],"
                                         "'continue_final_message':true}");
    assert_non_null(strstr(expected, "<|turn>model\n <turn|>\n{"));
    expect_same(expected, API_MESSAGES,
                "{'messages':[{'role':'user','content':'Q'},"
                "{'role':'assistant','content':' <turn|>\\n{'}]}");
    carat_free(expected);
}

static void a_call_that_was_cut_is_the_same(void **state)
{
    (void)state;
#define ASKED "{'messages':[{'role':'user','content':'Q'},"
#define TOLD "{'role':'tool','tool_call_id':'a','content':'r'}]}"
    char *expected =
        prompt_of(API_MESSAGES, ASKED "{'role':'assistant','content':["
                                      "{'type':'tool_use','id':'a','name':'f','input':{}}]},"
                                      "{'role':'user','content':[{'type':'tool_result',"
                                      "'tool_use_id':'a','content':'r'}]}]}");
    assert_non_null(strstr(expected, "<|tool_call>call:f{}<tool_call|>"));
    static const char *const cut[] = {"{\\'city\\':\\'Os", "{", "[1]", "null", "\\'{\\'", " ", "x"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 ASKED "{'role':'assistant','content':null,'tool_calls':[{'id':'a','type':"
                       "'function','function':{'name':'f','arguments':'%s'}}]}," TOLD,
                 cut[i]);
        expect_same(expected, API_CHAT, text);
        expect_same(expected, API_OLLAMA_CHAT, text);
        snprintf(text, sizeof text,
                 "{'input':[{'role':'user','content':'Q'},{'type':'function_call','call_id':'a',"
                 "'name':'f','arguments':'%s'},{'type':'function_call_output','call_id':'a',"
                 "'output':'r'}]}",
                 cut[i]);
        expect_same(expected, API_RESPONSES, text);
    }
    carat_free(expected);
}

static void one_question_is_the_same(void **state)
{
    (void)state;
    char *expected = prompt_of(API_CHAT, "{'messages':[{'role':'system','content':'S'},"
                                         "{'role':'user','content':'Q'}]}");
    expect_same(expected, API_MESSAGES,
                "{'system':[{'type':'text','text':'x-anthropic-billing-header: cch=1;\\nS'}],"
                "'messages':[{'role':'user','content':'Q'}]}");
    expect_same(expected, API_RESPONSES, "{'instructions':'S','input':'Q'}");
    expect_same(expected, API_RESPONSES,
                "{'input':[{'role':'system','content':'S'},{'role':'user','content':'Q'}]}");
    expect_same(expected, API_OLLAMA_GENERATE, "{'system':'S','prompt':'Q'}");
    carat_free(expected);
}

static void parts_are_the_same(void **state)
{
    (void)state;
    char *expected =
        prompt_of(API_CHAT, "{'messages':[{'role':'system','content':[{'type':'text','text':'S1'},"
                            "{'type':'text','text':'S2'}]},{'role':'user','content':["
                            "{'type':'text','text':'Q1 '},{'type':'text','text':'Q2'}]}]}");
    expect_same(expected, API_MESSAGES,
                "{'system':[{'type':'text','text':'x-anthropic-billing-header: cch=2'},"
                "{'type':'text','text':'S1','cache_control':{'type':'ephemeral'}},"
                "{'type':'text','text':'S2'}],'messages':[{'role':'user','content':["
                "{'type':'text','text':'Q1 '},{'type':'text','text':'Q2'}]}]}");
    expect_same(expected, API_RESPONSES,
                "{'input':[{'role':'system','content':[{'type':'input_text','text':'S1'},"
                "{'type':'input_text','text':'S2'}]},{'role':'user','content':["
                "{'type':'input_text','text':'Q1 '},{'type':'input_text','text':'Q2'}]}]}");
    carat_free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_with_tools_and_thoughts_is_the_same),
        cmocka_unit_test(thoughts_of_the_turn_that_goes_on_are_the_same),
        cmocka_unit_test(an_answer_that_is_begun_is_the_same),
        cmocka_unit_test(a_call_that_was_cut_is_the_same),
        cmocka_unit_test(one_question_is_the_same),
        cmocka_unit_test(parts_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
