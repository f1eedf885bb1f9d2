/* Answers in the words of Anthropic's messages: streams and bodies, as clients read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/replies.h"

#ifdef CARAT_HAVE_JSON

#define EVENT(type, rest) "event: " type "\ndata: {'type':'" type "'" rest "}\n\n"
#define DELTA(index, rest) EVENT("content_block_delta", ",'index':" index ",'delta':{" rest "}")
#define STOP(index) EVENT("content_block_stop", ",'index':" index)
#define USAGE                                                                                      \
    "'usage':{'input_tokens':6,'cache_creation_input_tokens':0,'cache_read_input_tokens':4,"       \
    "'output_tokens':5,'output_tokens_details':{'thinking_tokens':2}}"
#define END(reason, stop)                                                                          \
    EVENT("message_delta", ",'delta':{'stop_reason':'" reason "','stop_sequence':" stop "}," USAGE)

static const struct ask stream = {.api = API_MESSAGES, .n = 1, .is_stream = true};
static const struct ask whole = {.api = API_MESSAGES, .n = 1};

static void a_stream_has_blocks_in_their_order(void **state)
{
    (void)state;
    struct reply *r = replies_open(&stream);
    struct buf out = {0};
    assert_string_equal(reply_content_type(r), "text/event-stream");
    reply_begin(r, &out);
    replies_expect(
        &out,
        EVENT("message_start",
              ",'message':{'id':'msg_r1','type':'message','role':'assistant','model':'m',"
              "'content':[],'stop_reason':null,'stop_sequence':null,'usage':{'input_tokens':10,"
              "'cache_creation_input_tokens':0,'cache_read_input_tokens':0,'output_tokens':0,"
              "'output_tokens_details':{'thinking_tokens':0}}}") EVENT("ping", ""));
    replies_part(r, CARAT_PART_THINKING, "h", &out);
    replies_part(r, CARAT_PART_THINKING, "m", &out);
    replies_expect(&out,
                   EVENT("content_block_start",
                         ",'index':0,'content_block':{'type':'thinking','thinking':'',"
                         "'signature':''}") DELTA("0", "'type':'thinking_delta','thinking':'h'")
                       DELTA("0", "'type':'thinking_delta','thinking':'m'"));
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    replies_expect(&out, DELTA("0", "'type':'signature_delta','signature':'Y2FyYXQ='") STOP("0")
                             EVENT("content_block_start",
                                   ",'index':1,'content_block':{'type':'text','text':''}")
                                 DELTA("1", "'type':'text_delta','text':'Hi'"));
    replies_call(r, "f", "{'a':1}", true, &out);
    replies_expect(
        &out, STOP("1") EVENT("content_block_start",
                              ",'index':2,'content_block':{'type':'tool_use','id':'toolu_r1_0_0',"
                              "'name':'f','input':{}}")
                  DELTA("2", "'type':'input_json_delta','partial_json':'{\\'a\\':1}'") STOP("2"));
    replies_call(r, "g", "{}", true, &out);
    buf_clear(&out);
    replies_part(r, CARAT_PART_TEXT, "!", &out);
    replies_expect(
        &out, EVENT("content_block_start", ",'index':4,'content_block':{'type':'text','text':''}")
                  DELTA("4", "'type':'text_delta','text':'!'"));
    replies_done(r, REPLY_STOP, NULL, &out);
    reply_finish(r, &out);
    replies_expect(&out, STOP("4") END("tool_use", "null") EVENT("message_stop", ""));
    buf_deinit(&out);
    reply_close(r);
}

static void expect_end(enum reply_end end, const char *stop, bool has_cut_call,
                       const char *expected)
{
    struct reply *r = replies_open(&stream);
    struct buf out = {0};
    if (has_cut_call) replies_call(r, "f", "{'a':", false, &out);
    buf_clear(&out);
    replies_done(r, end, stop, &out);
    replies_expect(&out, expected);
    buf_deinit(&out);
    reply_close(r);
}

static void every_end_has_its_reason(void **state)
{
    (void)state;
    expect_end(REPLY_STOP, NULL, false, END("end_turn", "null"));
    expect_end(REPLY_STOP_TEXT, "END", false, END("stop_sequence", "'END'"));
    expect_end(REPLY_LENGTH, NULL, false, END("max_tokens", "null"));
    expect_end(REPLY_LENGTH, NULL, true, END("max_tokens", "null"));
    expect_end(REPLY_STOP, NULL, true, END("max_tokens", "null"));
}

static void a_body_has_blocks_in_their_order(void **state)
{
    (void)state;
    struct reply *r = replies_open(&whole);
    struct buf out = {0};
    assert_string_equal(reply_content_type(r), "application/json");
    reply_begin(r, &out);
    replies_part(r, CARAT_PART_THINKING, "hm", &out);
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    replies_call(r, "f", "{'a':{'b':[1]}}", true, &out);
    replies_part(r, CARAT_PART_TEXT, "!", &out);
    replies_call(r, "g", "{'a':", false, &out);
    replies_done(r, REPLY_LENGTH, NULL, &out);
    assert_int_equal(out.length, 0);
    reply_finish(r, &out);
    replies_expect(
        &out,
        "{'id':'msg_r1','type':'message','role':'assistant','model':'m','content':["
        "{'type':'thinking','thinking':'hm','signature':'Y2FyYXQ='},{'type':'text','text':'Hi'},"
        "{'type':'tool_use','id':'toolu_r1_0_0','name':'f','input':{'a':{'b':[1]}}},"
        "{'type':'text','text':'!'},{'type':'tool_use','id':'toolu_r1_0_1','name':'g','input':{}}],"
        "'stop_reason':'max_tokens','stop_sequence':null," USAGE "}\n");
    buf_deinit(&out);
    reply_close(r);
}

static void a_failure_is_an_event(void **state)
{
    (void)state;
    struct reply *r = replies_open(&stream);
    struct buf out = {0};
    struct api_error error = api_error_make(503, "device_lost", "the device has failed");
    reply_ping(r, &out);
    reply_fail(r, &error, &out);
    replies_expect(&out, EVENT("ping", "") "event: error\ndata: {'type':'error','error':{'type':"
                                           "'overloaded_error','message':'the device has failed'},"
                                           "'request_id':'r1'}\n\n");
    buf_deinit(&out);
    reply_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_blocks_in_their_order),
        cmocka_unit_test(every_end_has_its_reason),
        cmocka_unit_test(a_body_has_blocks_in_their_order),
        cmocka_unit_test(a_failure_is_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
