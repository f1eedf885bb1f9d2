/* Answers in the words of ollama's chat and generate: lines of a stream and bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/replies.h"

#ifdef CARAT_HAVE_JSON

#define HEAD "{'model':'m','created_at':'1970-01-01T00:00:07Z',"
#define SAID(rest) HEAD "'message':{'role':'assistant'," rest "},"
#define GOES_ON "'done':false}\n"
#define COUNTS                                                                                     \
    "'total_duration':1750000000,'load_duration':0,'prompt_eval_count':10,"                        \
    "'prompt_eval_duration':500000000,'eval_count':5,'eval_duration':250000000,'done':true}\n"

static void a_chat_is_a_line_for_each_piece(void **state)
{
    (void)state;
    const struct ask ask = {.api = API_OLLAMA_CHAT, .n = 1, .is_stream = true};
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    assert_string_equal(reply_content_type(r), "application/x-ndjson");
    reply_begin(r, &out);
    assert_int_equal(out.length, 0);
    reply_ping(r, &out);
    replies_part(r, CARAT_PART_THINKING, "hm", &out);
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    replies_call(r, "f", "{'a':1}", true, &out);
    replies_call(r, "g", "{'a':", false, &out);
    replies_done(r, REPLY_LENGTH, NULL, &out);
    reply_finish(r, &out);
    replies_expect(&out,
                   SAID("'content':''") GOES_ON SAID("'content':'','thinking':'hm'")
                       GOES_ON SAID("'content':'Hi'") GOES_ON SAID(
                           "'content':'','tool_calls':[{'id':'call_r1_0_0','function':{'index':0,"
                           "'name':'f','arguments':{'a':1}}}]")
                           GOES_ON SAID("'content':''") "'done_reason':'length'," COUNTS);
    buf_deinit(&out);
    reply_close(r);
}

/* A line of a stream ends at the first line end, wherever it stands. */
static void arguments_with_line_ends_stay_in_one_line(void **state)
{
    (void)state;
    const struct ask ask = {.api = API_OLLAMA_CHAT, .n = 1, .is_stream = true};
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    reply_begin(r, &out);
    replies_call(r, "f", "{\n'a':\r\n'b\\n'}", true, &out);
    replies_expect(&out,
                   SAID("'content':'','tool_calls':[{'id':'call_r1_0_0','function':{'index':0,"
                        "'name':'f','arguments':{ 'a':  'b\\n'}}}]") GOES_ON);
    buf_deinit(&out);
    reply_close(r);
}

static void a_chat_may_be_one_body(void **state)
{
    (void)state;
    const struct ask ask = {.api = API_OLLAMA_CHAT, .n = 1};
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    assert_string_equal(reply_content_type(r), "application/json");
    replies_part(r, CARAT_PART_THINKING, "hm", &out);
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    replies_call(r, "f", "{}", true, &out);
    replies_done(r, REPLY_STOP_TEXT, "x", &out);
    reply_finish(r, &out);
    replies_expect(&out,
                   SAID("'content':'Hi','thinking':'hm','tool_calls':[{'id':'call_r1_0_0',"
                        "'function':{'index':0,'name':'f','arguments':{}}}]") "'done_reason':"
                                                                              "'stop'," COUNTS);
    buf_deinit(&out);
    reply_close(r);
}

static void generate_says_response(void **state)
{
    (void)state;
    const struct ask ask = {.api = API_OLLAMA_GENERATE, .n = 1, .is_stream = true};
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    replies_part(r, CARAT_PART_THINKING, "hm", &out);
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    replies_done(r, REPLY_STOP, NULL, &out);
    reply_finish(r, &out);
    replies_expect(&out, HEAD "'response':'','thinking':'hm'," GOES_ON HEAD
                              "'response':'Hi'," GOES_ON HEAD
                              "'response':'','done_reason':'stop'," COUNTS);
    buf_deinit(&out);
    reply_close(r);
}

static void loading_and_unloading_is_one_line(void **state)
{
    (void)state;
    const struct ask asks[] = {
        {.api = API_OLLAMA_CHAT, .n = 1, .is_stream = true, .is_unload = true},
        {.api = API_OLLAMA_CHAT, .n = 1, .is_unload = true},
        {.api = API_OLLAMA_GENERATE, .n = 1, .is_stream = true, .is_load = true}};
    static const char *const expected[] = {
        SAID("'content':''") "'done_reason':'unload','done':true}\n",
        SAID("'content':''") "'done_reason':'unload','done':true}\n",
        HEAD "'response':'','done_reason':'load','done':true}\n"};
    for (size_t i = 0; i < 3; i++) {
        struct reply *r = replies_open(&asks[i]);
        struct buf out = {0};
        reply_begin(r, &out);
        reply_finish(r, &out);
        replies_expect(&out, expected[i]);
        buf_deinit(&out);
        reply_close(r);
    }
}

static void tokens_come_with_their_text(void **state)
{
    (void)state;
    struct ask ask = {.api = API_OLLAMA_CHAT, .n = 1, .is_stream = true};
    ask.request.want_logprobs = true;
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    struct reply_top top = {.bytes = "H", .length = 1, .logprob = -0.5f};
    struct reply_token token = {
        .bytes = "Hi", .length = 2, .logprob = -0.25f, .top = &top, .n_top = 1, .is_text = true};
    reply_token(r, 0, &token, &out);
    replies_part(r, CARAT_PART_TEXT, "Hi", &out);
    replies_expect(&out, SAID("'content':'Hi'") "'logprobs':[{'token':'Hi','logprob':-0.25,'bytes':"
                                                "[72,105],'top_logprobs':[{'token':'H','logprob':"
                                                "-0.5,'bytes':[72]}]}]," GOES_ON);
    buf_deinit(&out);
    reply_close(r);
}

static void a_failure_is_a_line(void **state)
{
    (void)state;
    const struct ask ask = {.api = API_OLLAMA_CHAT, .n = 1, .is_stream = true};
    struct reply *r = replies_open(&ask);
    struct buf out = {0};
    struct api_error error = api_error_make(500, NULL, "internal failure");
    reply_fail(r, &error, &out);
    replies_expect(&out, "{'error':'internal failure'}\n");
    buf_deinit(&out);
    reply_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_is_a_line_for_each_piece),
        cmocka_unit_test(arguments_with_line_ends_stay_in_one_line),
        cmocka_unit_test(a_chat_may_be_one_body),
        cmocka_unit_test(generate_says_response),
        cmocka_unit_test(loading_and_unloading_is_one_line),
        cmocka_unit_test(tokens_come_with_their_text),
        cmocka_unit_test(a_failure_is_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
