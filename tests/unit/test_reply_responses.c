/* Answers in the words of OpenAI's responses: every event, with rising numbers, and bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/replies.h"

#ifdef CARAT_HAVE_JSON

#define EVENT(type, number, rest)                                                                  \
    "event: " type "\ndata: {'type':'" type "','sequence_number':" number "," rest "}\n\n"
#define ITEM(type, number, index, id, rest)                                                        \
    EVENT(type, number, "'output_index':" index ",'item_id':'" id "'," rest)
#define REQUEST                                                                                    \
    "'instructions':null,'metadata':null,'previous_response_id':null,'max_output_tokens':null,"    \
    "'parallel_tool_calls':true,'store':false,'temperature':1,'top_p':0.5,'tool_choice':'auto',"   \
    "'tools':[],'text':{'format':{'type':'text'}},'truncation':'disabled',"
#define RESPONSE(status, details, output, usage)                                                   \
    "{'id':'resp_r1','object':'response','created_at':7,'status':'" status                         \
    "','error':null,'incomplete_details':" details ",'model':'m','output':[" output "]," REQUEST   \
    "'usage':" usage "}"
#define USAGE                                                                                      \
    "{'input_tokens':10,'input_tokens_details':{'cached_tokens':4},'output_tokens':5,"             \
    "'output_tokens_details':{'reasoning_tokens':2},'total_tokens':15}"

#define SUMMARY(text) "{'type':'summary_text','text':'" text "'}"
#define TEXT(text) "{'type':'output_text','annotations':[],'logprobs':[],'text':'" text "'}"
#define REASONING(status, content)                                                                 \
    "{'id':'rs_r1_0_0','type':'reasoning','status':'" status "','summary':[" content "]}"
#define MESSAGE(id, status, content)                                                               \
    "{'id':'" id "','type':'message','status':'" status "','role':'assistant','content':[" content \
    "]}"
#define CALL(id, status, call, name, arguments)                                                    \
    "{'id':'" id "','type':'function_call','status':'" status "','call_id':'" call                 \
    "','name':'" name "','arguments':'" arguments "'}"

static struct ask asked(bool is_stream)
{
    struct ask ask = {.api = API_RESPONSES, .n = 1, .is_stream = is_stream};
    ask.request.max_tokens = -1;
    ask.request.sampling.temperature = 1;
    ask.request.sampling.top_p = 0.5f;
    return ask;
}

static void a_stream_has_items_in_their_order(void **state)
{
    (void)state;
    struct ask ask = asked(true);
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    reply_begin(r, &out);
    replies_expect(&out, EVENT("response.created", "0",
                               "'response':" RESPONSE("in_progress", "null", "", "null"))
                             EVENT("response.in_progress", "1",
                                   "'response':" RESPONSE("in_progress", "null", "", "null")));
    replies_part(r, CARAT_PART_THINKING, "h", &out);
    replies_part(r, CARAT_PART_THINKING, "m", &out);
    replies_expect(&out, EVENT("response.output_item.added", "2",
                               "'output_index':0,'item':" REASONING("in_progress", ""))
                             ITEM("response.reasoning_summary_part.added", "3", "0", "rs_r1_0_0",
                                  "'summary_index':0,'part':" SUMMARY(""))
                                 ITEM("response.reasoning_summary_text.delta", "4", "0",
                                      "rs_r1_0_0", "'summary_index':0,'delta':'h'")
                                     ITEM("response.reasoning_summary_text.delta", "5", "0",
                                          "rs_r1_0_0", "'summary_index':0,'delta':'m'"));
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    replies_expect(
        &out, ITEM("response.reasoning_summary_text.done", "6", "0", "rs_r1_0_0",
                   "'summary_index':0,'text':'hm'")
                  ITEM("response.reasoning_summary_part.done", "7", "0", "rs_r1_0_0",
                       "'summary_index':0,'part':" SUMMARY("hm"))
                      EVENT("response.output_item.done", "8",
                            "'output_index':0,'item':" REASONING("completed", SUMMARY("hm")))
                          EVENT("response.output_item.added", "9",
                                "'output_index':1,'item':" MESSAGE("msg_r1_0_1", "in_progress", ""))
                              ITEM("response.content_part.added", "10", "1", "msg_r1_0_1",
                                   "'content_index':0,'part':" TEXT(""))
                                  ITEM("response.output_text.delta", "11", "1", "msg_r1_0_1",
                                       "'content_index':0,'delta':'Hi','logprobs':[]"));
    replies_call(r, "f", "{'a':1}", true, &out);
    replies_expect(
        &out,
        ITEM("response.output_text.done", "12", "1", "msg_r1_0_1",
             "'content_index':0,'text':'Hi','logprobs':[]")
            ITEM("response.content_part.done", "13", "1", "msg_r1_0_1",
                 "'content_index':0,'part':" TEXT("Hi"))
                EVENT("response.output_item.done", "14",
                      "'output_index':1,'item':" MESSAGE("msg_r1_0_1", "completed", TEXT("Hi")))
                    EVENT("response.output_item.added", "15",
                          "'output_index':2,'item':" CALL("fc_r1_0_2", "in_progress", "call_r1_0_0",
                                                          "f", ""))
                        ITEM("response.function_call_arguments.delta", "16", "2", "fc_r1_0_2",
                             "'delta':'{\\'a\\':1}'")
                            ITEM("response.function_call_arguments.done", "17", "2", "fc_r1_0_2",
                                 "'name':'f','arguments':'{\\'a\\':1}'")
                                EVENT("response.output_item.done", "18",
                                      "'output_index':2,'item':" CALL("fc_r1_0_2", "completed",
                                                                      "call_r1_0_0", "f",
                                                                      "{\\'a\\':1}")));
    replies_done(r, REPLY_STOP, NULL, &out);
    reply_finish(r, &out);
    replies_expect(&out, EVENT("response.completed", "19",
                               "'response':" RESPONSE(
                                   "completed", "null",
                                   REASONING("completed", SUMMARY("hm")) "," MESSAGE(
                                       "msg_r1_0_1", "completed",
                                       TEXT("Hi")) "," CALL("fc_r1_0_2", "completed", "call_r1_0_0",
                                                            "f", "{\\'a\\':1}"),
                                   USAGE)));
    buf_deinit(&out);
    reply_close(r);
}

static void an_answer_that_was_cut_is_incomplete(void **state)
{
    (void)state;
    struct ask ask = asked(true);
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    buf_clear(&out);
    replies_done(r, REPLY_LENGTH, NULL, &out);
    buf_clear(&out);
    reply_finish(r, &out);
    replies_expect(&out, EVENT("response.incomplete", "6",
                               "'response':" RESPONSE(
                                   "incomplete", "{'reason':'max_output_tokens'}",
                                   MESSAGE("msg_r1_0_0", "incomplete", TEXT("Hi")), USAGE)));
    buf_deinit(&out);
    reply_close(r);
}

static void a_body_is_the_response(void **state)
{
    (void)state;
    struct ask ask = asked(false);
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    replies_done(r, REPLY_STOP_TEXT, "x", &out);
    assert_int_equal(out.length, 0);
    reply_finish(r, &out);
    replies_expect(&out, RESPONSE("completed", "null",
                                  MESSAGE("msg_r1_0_0", "completed", TEXT("Hi")), USAGE) "\n");
    buf_deinit(&out);
    reply_close(r);
}

/* {"input": "..."} of a custom tool is its text again, and its name the client's. */
static void custom_tools_and_namespaces_get_their_names_back(void **state)
{
    (void)state;
    struct ask_tool tools[] = {
        {.shown = "patch", .name = "patch", .space = "", .is_custom = true},
        {.shown = "mcp__git__log", .name = "log", .space = "mcp__git", .is_custom = false}};
    struct ask ask = asked(true);
    ask.renamed = tools;
    ask.n_renamed = 2;
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    replies_call(r, "patch", "{'input':'*** a\\nb'}", true, &out);
#define CUSTOM(status, input)                                                                      \
    "{'id':'ctc_r1_0_0','type':'custom_tool_call','status':'" status                               \
    "','call_id':'call_r1_0_0','name':'patch','input':'" input "'}"
    replies_expect(&out,
                   EVENT("response.output_item.added", "0",
                         "'output_index':0,'item':" CUSTOM("in_progress", ""))
                       ITEM("response.custom_tool_call_input.delta", "1", "0", "ctc_r1_0_0",
                            "'delta':'*** a\\nb'") ITEM("response.custom_tool_call_input.done", "2",
                                                        "0", "ctc_r1_0_0", "'input':'*** a\\nb'")
                           EVENT("response.output_item.done", "3",
                                 "'output_index':0,'item':" CUSTOM("completed", "*** a\\nb")));
    replies_call(r, "mcp__git__log", "{}", true, &out);
    assert_non_null(strstr(buf_text(&out), "\"name\":\"log\",\"namespace\":\"mcp__git\","
                                           "\"arguments\":\"{}\""));
    assert_null(strstr(buf_text(&out), "mcp__git__log"));
    buf_deinit(&out);
    reply_close(r);
}

/* What comes of a text in `out`, as all deltas say it together. Empties `out`. */
static void hear_input(struct buf *out, struct buf *heard)
{
    static const char event[] = "event: response.custom_tool_call_input.delta\ndata: ";
    for (const char *at = buf_text(out); (at = strstr(at, event)) != NULL;) {
        const char *end = strchr(at += sizeof event - 1, '\n');
        struct json_tree tree;
        assert_int_equal(json_tree_read(&tree, at, (size_t)(end - at), JSON_PLAIN, NULL), CARAT_OK);
        const struct carat_value *delta = json_member(&tree.root, "delta");
        assert_int_equal(delta->kind, CARAT_STRING);
        assert_true(delta->as.string.length > 0);
        buf_add(heard, delta->as.string.data, delta->as.string.length);
        json_tree_free(&tree);
    }
    buf_clear(out);
}

static void give_call_piece(struct reply *r, enum carat_part_kind kind, const char *text,
                            size_t length, struct buf *out)
{
    struct carat_part part = {
        .kind = kind, .text = text, .length = length, .name = "patch", .is_complete = true};
    reply_part(r, 0, &part, out);
}

/* Cut anywhere, inside characters and escapes too. */
static void the_text_of_a_custom_tool_streams_as_it_is_made(void **state)
{
    static const char json[] =
        "{\"input\":\"a\\n\\\"\xC3\xA9\\u0001\\uD83D\\uDE00\xF0\x9F\x98\x80\\\\b\"}";
    static const char text[] = "a\n\"\xC3\xA9\x01\xF0\x9F\x98\x80\xF0\x9F\x98\x80\\b";
    enum { N = sizeof json - 1 };
    (void)state;
    struct ask_tool tool = {.shown = "patch", .name = "patch", .space = "", .is_custom = true};
    struct ask ask = asked(true);
    ask.renamed = &tool;
    ask.n_renamed = 1;
    for (size_t cut = 0; cut < N; cut++) {
        struct reply *r = replies_open(&ask);
        struct buf out = {0}, heard = {0};
        size_t before;
        give_call_piece(r, CARAT_PART_CALL_BEGIN, "", 0, &out);
        give_call_piece(r, CARAT_PART_CALL_ARGUMENTS, json, cut, &out);
        hear_input(&out, &heard);
        before = heard.length;
        if (cut >= 11) assert_true(before > 0); /* as it is made, not at the end */
        for (size_t i = cut; i < N; i++)
            give_call_piece(r, CARAT_PART_CALL_ARGUMENTS, json + i, 1, &out);
        hear_input(&out, &heard);
        assert_string_equal(buf_text(&heard), text);
        give_call_piece(r, CARAT_PART_CALL_END, "", 0, &out);
        assert_null(strstr(buf_text(&out), "input.delta"));
        assert_non_null(strstr(buf_text(&out), "\"input\":\"a\\n\\\"\xC3\xA9\\u0001"));
        buf_deinit(&out);
        buf_deinit(&heard);
        reply_close(r);
    }
}

static void tokens_come_with_their_text(void **state)
{
    (void)state;
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        struct ask ask = asked(is_stream);
        ask.request.want_logprobs = true;
        struct reply *r = replies_open(&ask);
        struct buf out = {0};
        struct reply_token token = {.bytes = "Hi", .length = 2, .logprob = -1, .is_text = true};
        reply_token(r, 0, &token, &out);
        replies_part(r, CARAT_PART_TEXT, "Hi", &out);
        replies_done(r, REPLY_STOP, NULL, &out);
        reply_finish(r, &out);
        static const char entry[] = "\"logprobs\":[{\"token\":\"Hi\",\"logprob\":-1,\"bytes\":"
                                    "[72,105],\"top_logprobs\":[]}]";
        const char *first = strstr(buf_text(&out), entry);
        assert_non_null(first);
        assert_null(strstr(first + 1, entry)); /* once */
        buf_deinit(&out);
        reply_close(r);
    }
}

/* "A", a call, "B": each message has the tokens of its own text. */
static void tokens_come_with_the_message_that_they_are_of(void **state)
{
    (void)state;
    struct ask ask = asked(false);
    ask.request.want_logprobs = true;
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    struct reply_token a = {.bytes = "A", .length = 1, .logprob = -1, .is_text = true};
    struct reply_token b = {.bytes = "B", .length = 1, .logprob = -2, .is_text = true};
    struct reply_token c = {.bytes = "C", .length = 1, .logprob = -3, .is_text = true};
    reply_token(r, 0, &a, &out);
    replies_part(r, CARAT_PART_TEXT, "A", &out);
    replies_call(r, "f", "{}", true, &out);
    reply_token(r, 0, &b, &out);
    replies_part(r, CARAT_PART_TEXT, "B", &out);
    reply_token(r, 0, &c, &out);
    replies_part(r, CARAT_PART_TEXT, "C", &out);
    replies_done(r, REPLY_STOP, NULL, &out);
    reply_finish(r, &out);
    const char *text = buf_text(&out);
    assert_non_null(strstr(text, "\"logprobs\":[{\"token\":\"A\",\"logprob\":-1,\"bytes\":[65],"
                                 "\"top_logprobs\":[]}],\"text\":\"A\""));
    assert_non_null(strstr(text, "\"logprobs\":[{\"token\":\"B\",\"logprob\":-2,\"bytes\":[66],"
                                 "\"top_logprobs\":[]},{\"token\":\"C\",\"logprob\":-3,\"bytes\":"
                                 "[67],\"top_logprobs\":[]}],\"text\":\"BC\""));
    buf_deinit(&out);
    reply_close(r);
}

static void a_failure_is_two_events(void **state)
{
    (void)state;
    struct ask ask = asked(true);
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    struct api_error error = api_error_make(503, "device_lost", "the device has failed");
    reply_ping(r, &out);
    reply_fail(r, &error, &out);
    const char *text = buf_text(&out);
    assert_non_null(strstr(text, ": ping\n\n"));
    assert_non_null(strstr(text, "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,"
                                 "\"code\":\"device_lost\",\"message\":\"the device has failed\","
                                 "\"param\":null}\n\n"));
    assert_non_null(strstr(text, "event: response.failed\n"));
    assert_non_null(strstr(text, "\"status\":\"failed\",\"error\":{\"code\":\"device_lost\","
                                 "\"message\":\"the device has failed\"}"));
    buf_deinit(&out);
    reply_close(r);
}

static void memory_that_is_out_shows(void **state)
{
    (void)state;
    struct ask ask = asked(true);
    bool delivered = true;
    for (long n = 1; delivered; n++) {
        struct reply *r = NULL;
        struct buf out = {0};
        struct reply_facts facts = {.id = "r1", .model = "m", .fingerprint = "f"};
        long before = mem_blocks_live();
        mem_fail_after(n);
        int status = reply_open(&r, &ask, &facts, NULL);
        if (status == CARAT_OK) {
            reply_begin(r, &out);
            replies_part(r, CARAT_PART_THINKING, "h", &out);
            replies_call(r, "f", "{}", true, &out);
            replies_part(r, CARAT_PART_TEXT, "t", &out);
            replies_done(r, REPLY_STOP, NULL, &out);
            reply_finish(r, &out);
        }
        delivered = mem_fail_after(-1);
        assert_int_equal(status != CARAT_OK || out.failed, delivered);
        buf_deinit(&out);
        reply_close(r);
        assert_int_equal(mem_blocks_live(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_items_in_their_order),
        cmocka_unit_test(an_answer_that_was_cut_is_incomplete),
        cmocka_unit_test(a_body_is_the_response),
        cmocka_unit_test(custom_tools_and_namespaces_get_their_names_back),
        cmocka_unit_test(the_text_of_a_custom_tool_streams_as_it_is_made),
        cmocka_unit_test(tokens_come_with_their_text),
        cmocka_unit_test(tokens_come_with_the_message_that_they_are_of),
        cmocka_unit_test(a_failure_is_two_events),
        cmocka_unit_test(memory_that_is_out_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
