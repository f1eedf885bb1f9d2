/* Answers in the words of OpenAI's chat and completions: streams and bodies, byte by byte where
 * clients look at them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/reply.h"
#include "base/mem.h"

static const struct reply_facts facts = {
    .id = "r1", .model = "m", .created = 7, .fingerprint = "f", .n_prompt = 4};
static const struct reply_usage usage = {.n_prompt = 10,
                                         .n_cached = 4,
                                         .n_generated = 5,
                                         .n_thinking = 2,
                                         .queue_seconds = 2,
                                         .prefill_seconds = 0.5,
                                         .decode_seconds = 0.25};

#define HEAD                                                                                       \
    "{\"id\":\"chatcmpl-r1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\","  \
    "\"system_fingerprint\":\"f\",\"choices\":["
#define TIMINGS                                                                                    \
    "\"timings\":{\"cache_n\":4,\"prompt_n\":6,\"prompt_ms\":500,\"prompt_per_token_ms\":"         \
    "83.33333333333333,\"prompt_per_second\":12,\"predicted_n\":5,\"predicted_ms\":250,"           \
    "\"predicted_per_token_ms\":50,\"predicted_per_second\":20,\"queue_ms\":2000}"
#define USAGE                                                                                      \
    "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15,"                 \
    "\"prompt_tokens_details\":{\"cached_tokens\":4},"                                             \
    "\"completion_tokens_details\":{\"reasoning_tokens\":2}}"

static struct reply *open_reply(const struct ask *ask)
{
    struct reply *r = NULL;
    assert_int_equal(reply_open(&r, ask, &facts, NULL), CARAT_OK);
    return r;
}

static void part(struct reply *r, enum carat_part_kind kind, const char *text, struct buf *out)
{
    struct carat_part p = {
        .kind = kind, .text = text, .length = strlen(text), .name = "", .is_complete = true};
    if (kind == CARAT_PART_TOOL_CALL) p.name = "f";
    reply_part(r, 0, &p, out);
}

static void done(struct reply *r, enum reply_end end, bool in_thought, struct buf *out)
{
    struct reply_done d = {.end = end, .is_cut_in_thought = in_thought, .usage = usage};
    reply_answer_done(r, 0, &d, out);
}

/* The next event is this line. */
static void expect_event(const char **at, const char *data)
{
    char expected[2048];
    snprintf(expected, sizeof expected, "data: %s\n\n", data);
    if (strncmp(*at, expected, strlen(expected)) != 0)
        fail_msg("found:\n%s\nexpected:\n%s", *at, expected);
    *at += strlen(expected);
}

static void a_stream_has_role_thought_text_end_usage_and_done(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1, .is_stream = true, .wants_usage = true};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    assert_string_equal(reply_content_type(r), "text/event-stream");
    reply_begin(r, &out);
    reply_ping(r, &out);
    part(r, CARAT_PART_THINKING, "hm\n", &out);
    part(r, CARAT_PART_TEXT, "Hi \"you\"", &out);
    done(r, REPLY_STOP, false, &out);
    reply_finish(r, &out);
    const char *at = buf_text(&out);
    expect_event(&at, HEAD "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                           "\"finish_reason\":null}],\"usage\":null}");
    assert_memory_equal(at, ": ping\n\n", 8);
    at += 8;
    expect_event(&at, HEAD "{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\\n\"},"
                           "\"finish_reason\":null}],\"usage\":null}");
    expect_event(&at, HEAD "{\"index\":0,\"delta\":{\"content\":\"Hi \\\"you\\\"\"},"
                           "\"finish_reason\":null}],\"usage\":null}");
    expect_event(&at, HEAD "{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],"
                           "\"usage\":null," TIMINGS "}");
    expect_event(&at, HEAD "]," USAGE "}");
    expect_event(&at, "[DONE]");
    assert_string_equal(at, "");
    buf_deinit(&out);
    reply_close(r);
}

static void timings_count_guesses_if_there_were_any(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    struct reply_done d = {.usage = usage};
    d.usage.n_drafted = 7;
    d.usage.n_accepted = 3;
    reply_answer_done(r, 0, &d, &out);
    reply_finish(r, &out);
    assert_non_null(
        strstr(buf_text(&out), "\"queue_ms\":2000,\"draft_n\":7,\"draft_n_accepted\":3}"));
    buf_deinit(&out);
    reply_close(r);
}

static void without_include_usage_no_chunk_has_one(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1, .is_stream = true};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    reply_begin(r, &out);
    part(r, CARAT_PART_TEXT, "a", &out);
    done(r, REPLY_LENGTH, false, &out);
    reply_finish(r, &out);
    assert_null(strstr(buf_text(&out), "usage"));
    assert_non_null(strstr(buf_text(&out), "\"finish_reason\":\"length\""));
    buf_deinit(&out);
    reply_close(r);
}

static void calls_have_own_ids_and_arguments_after_their_names(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1, .is_stream = true};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    part(r, CARAT_PART_TOOL_CALL, "{\"a\":1}", &out);
    part(r, CARAT_PART_TOOL_CALL, "{}", &out);
    done(r, REPLY_STOP, false, &out);
    const char *at = buf_text(&out);
    expect_event(&at,
                 HEAD "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_r1_0_0\","
                      "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]},"
                      "\"finish_reason\":null}]}");
    expect_event(&at, HEAD "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":"
                           "{\"arguments\":\"{\\\"a\\\":1}\"}}]},\"finish_reason\":null}]}");
    expect_event(&at,
                 HEAD "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"call_r1_0_1\","
                      "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]},"
                      "\"finish_reason\":null}]}");
    expect_event(&at, HEAD "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":"
                           "{\"arguments\":\"{}\"}}]},\"finish_reason\":null}]}");
    expect_event(&at,
                 HEAD "{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]," TIMINGS "}");
    buf_deinit(&out);
    reply_close(r);
}

static void a_call_in_pieces_is_the_same_call(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1, .is_stream = true};
    struct reply *r = open_reply(&ask);
    struct buf out = {0}, whole = {0};
    struct carat_part p = {.kind = CARAT_PART_CALL_BEGIN, .text = "", .name = "f"};
    reply_part(r, 0, &p, &out);
    part(r, CARAT_PART_CALL_ARGUMENTS, "{\"a\":1}", &out);
    part(r, CARAT_PART_CALL_END, "", &out);
    done(r, REPLY_STOP, false, &out);
    reply_close(r);
    r = open_reply(&ask);
    part(r, CARAT_PART_TOOL_CALL, "{\"a\":1}", &whole);
    done(r, REPLY_STOP, false, &whole);
    reply_close(r);
    assert_string_equal(buf_text(&out), buf_text(&whole));
    buf_deinit(&out);
    buf_deinit(&whole);
}

static void a_body_says_what_the_stream_says(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    assert_string_equal(reply_content_type(r), "application/json");
    reply_begin(r, &out);
    part(r, CARAT_PART_THINKING, "h", &out);
    part(r, CARAT_PART_THINKING, "m", &out);
    part(r, CARAT_PART_TOOL_CALL, "{}", &out);
    done(r, REPLY_STOP, false, &out);
    reply_ping(r, &out);
    assert_int_equal(out.length, 0);
    reply_finish(r, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"id\":\"chatcmpl-r1\",\"object\":\"chat.completion\",\"created\":7,\"model\":\"m\","
        "\"system_fingerprint\":\"f\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\""
        ",\"content\":null,\"refusal\":null,\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":"
        "\"call_r1_0_0\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]"
        "},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}]," USAGE "," TIMINGS "}\n");
    buf_deinit(&out);
    reply_close(r);
}

static void a_cut_call_does_not_look_complete(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    struct carat_part p = {
        .kind = CARAT_PART_TOOL_CALL, .text = "{\"a\":", .length = 5, .name = "f"};
    reply_part(r, 0, &p, &out);
    done(r, REPLY_STOP, false, &out);
    reply_finish(r, &out);
    assert_non_null(strstr(buf_text(&out), "\"arguments\":\"{\\\"a\\\":\""));
    assert_non_null(strstr(buf_text(&out), "\"finish_reason\":\"length\""));
    buf_deinit(&out);
    reply_close(r);
}

static void a_limit_inside_a_thought_leaves_an_empty_text_and_says_so(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1, .says_reasoning = true};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    part(r, CARAT_PART_THINKING, "hm", &out);
    done(r, REPLY_LENGTH, true, &out);
    reply_finish(r, &out);
    assert_non_null(
        strstr(buf_text(&out), "\"content\":\"\",\"refusal\":null,\"reasoning\":\"hm\""));
    assert_non_null(
        strstr(buf_text(&out), "\"finish_reason\":\"length\",\"reasoning_truncated\":true"));
    buf_deinit(&out);
    reply_close(r);
}

static void give_token(struct reply *r, struct buf *out)
{
    const struct reply_top top[2] = {{"\xC3", 1, -0.5f, 1}, {"b", 1, -1.0f, 2}};
    struct reply_token t = {.bytes = "\xC3",
                            .length = 1,
                            .logprob = -0.5f,
                            .top = top,
                            .n_top = 2,
                            .id = 1,
                            .is_text = true};
    reply_token(r, 0, &t, out);
    t = (struct reply_token){.bytes = "\xA9", .length = 1, .logprob = -0.25f, .is_text = true};
    reply_token(r, 0, &t, out);
    t.is_text = false;
    reply_token(r, 0, &t, out);
    part(r, CARAT_PART_TEXT, "\xC3\xA9", out);
}

static void log_probabilities_have_the_bytes_of_parts_of_characters(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1, .is_stream = true};
    ask.request.want_logprobs = true;
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    give_token(r, &out);
    const char *at = buf_text(&out);
    expect_event(
        &at,
        HEAD "{\"index\":0,\"delta\":{\"content\":\"\xC3\xA9\"},\"logprobs\":{\"content\":["
             "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195],\"top_logprobs\":["
             "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195]},"
             "{\"token\":\"b\",\"logprob\":-1,\"bytes\":[98]}]},"
             "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.25,\"bytes\":[169],\"top_logprobs\":[]}],"
             "\"refusal\":null},\"finish_reason\":null}]}");
    buf_deinit(&out);
    reply_close(r);
}

static void completions_echo_and_have_the_old_log_probabilities(void **state)
{
    (void)state;
    struct ask_prompt prompt = {.text = "abc", .length = 2};
    struct ask ask = {
        .api = API_COMPLETIONS, .n = 1, .prompts = &prompt, .n_prompts = 1, .wants_echo = true};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    give_token(r, &out);
    done(r, REPLY_LENGTH, false, &out);
    reply_finish(r, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"id\":\"cmpl-r1\",\"object\":\"text_completion\",\"created\":7,\"model\":\"m\","
        "\"system_fingerprint\":\"f\",\"choices\":[{\"text\":\"ab\xC3\xA9\",\"index\":0,"
        "\"logprobs\":{\"tokens\":[\"\xEF\xBF\xBD\",\"\xEF\xBF\xBD\"],\"token_logprobs\":[-0.5,"
        "-0.25],\"top_logprobs\":[{\"\xEF\xBF\xBD\":-0.5,\"b\":-1},{}],\"text_offset\":[0,1]},"
        "\"finish_reason\":\"length\"}]," USAGE "," TIMINGS "}\n");
    buf_deinit(&out);
    reply_close(r);
}

static void completions_have_each_likely_text_once(void **state)
{
    (void)state;
    struct ask_prompt prompt = {.text = "abc", .length = 3};
    struct ask ask = {.api = API_COMPLETIONS, .n = 1, .prompts = &prompt, .n_prompts = 1};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    const struct reply_top top[] = {
        {"\xC3", 1, -0.5f, 1}, {"a\"b", 3, -1.0f, 2}, {"b", 1, -1.5f, 3},
        {"\xA9", 1, -2.0f, 4}, {"\0z", 2, -2.5f, 5},  {"\0", 1, -3.0f, 6},
    };
    struct reply_token t = {
        .bytes = "b", .length = 1, .logprob = -1.5f, .top = top, .n_top = 6, .is_text = true};
    reply_token(r, 0, &t, &out);
    part(r, CARAT_PART_TEXT, "b", &out);
    done(r, REPLY_LENGTH, false, &out);
    reply_finish(r, &out);
    assert_non_null(strstr(buf_text(&out),
                           "\"top_logprobs\":[{\"\xEF\xBF\xBD\":-0.5,\"a\\\"b\":-1,\"b\":-1.5,"
                           "\"\xEF\xBF\xBDz\":-2.5}]"));
    buf_deinit(&out);
    reply_close(r);
}

/* A token without text, too, comes when it was made. */
static void completions_have_the_ids_of_tokens_where_they_are_wanted(void **state)
{
    (void)state;
    struct ask_prompt prompt = {.text = "abc", .length = 2};
    struct ask ask = {.api = API_COMPLETIONS,
                      .n = 1,
                      .prompts = &prompt,
                      .n_prompts = 1,
                      .wants_ids = true,
                      .wants_progress = true,
                      .is_stream = true};
    struct reply *r = open_reply(&ask);
    struct carat_part part = {.kind = CARAT_PART_TEXT, .text = "x", .length = 1, .name = ""};
    for (int32_t id = 7; id < 9; id++) {
        struct buf out = {0};
        reply_id(r, 0, id, &out);
        if (id == 7) reply_part(r, 0, &part, &out);
        reply_ids_end(r, 0, &out);
        assert_non_null(strstr(buf_text(&out), id == 7 ? "\"text\":\"x\"" : "\"text\":\"\""));
        assert_non_null(strstr(buf_text(&out), id == 7 ? "\"token_ids\":[7]" : "[8]"));
        buf_deinit(&out);
    }
    struct buf out = {0};
    reply_progress(r, 0, 3, 9, 1, &out);
    assert_non_null(strstr(buf_text(&out), "{\"total\":9,\"cache\":1,\"processed\":3}"));
    buf_deinit(&out);
    reply_close(r);
}

static void a_failure_is_the_last_event(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 1, .is_stream = true};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    struct api_error error = api_error_make(500, NULL, "it broke");
    reply_fail(r, &error, &out);
    assert_string_equal(buf_text(&out),
                        "data: {\"error\":{\"message\":\"it broke\",\"type\":\"server_error\","
                        "\"param\":null,\"code\":null}}\n\n");
    buf_deinit(&out);
    reply_close(r);
}

static void several_prompts_and_answers_are_numbered_and_prompts_count_once(void **state)
{
    (void)state;
    struct ask_prompt prompts[2] = {{.text = "a", .length = 1}, {.text = "b", .length = 1}};
    struct ask ask = {.api = API_COMPLETIONS, .n = 2, .prompts = prompts, .n_prompts = 2};
    struct reply *r = open_reply(&ask);
    struct buf out = {0};
    struct reply_done d = {.end = REPLY_STOP, .usage = usage};
    for (int32_t i = 3; i >= 0; i--) reply_answer_done(r, i, &d, &out);
    reply_finish(r, &out);
    assert_non_null(strstr(buf_text(&out), "\"index\":3"));
    assert_null(strstr(buf_text(&out), "\"index\":4"));
    assert_non_null(strstr(buf_text(&out), "\"prompt_tokens\":20,\"completion_tokens\":20,"));
    buf_deinit(&out);
    reply_close(r);
}

static void memory_that_is_out_shows_in_the_output(void **state)
{
    (void)state;
    struct ask ask = {.api = API_CHAT, .n = 2};
    int delivered = 1;
    for (long n = 0; delivered; n++) {
        struct reply *r = NULL;
        struct buf out = {0};
        long before = mem_blocks_live();
        mem_fail_after(n);
        if (reply_open(&r, &ask, &facts, NULL) == CARAT_OK) {
            give_token(r, &out);
            part(r, CARAT_PART_TOOL_CALL, "{}", &out);
            done(r, REPLY_STOP, false, &out);
            reply_finish(r, &out);
        }
        delivered = mem_fail_after(-1);
        assert_true(out.failed || !r || !delivered);
        buf_deinit(&out);
        reply_close(r);
        assert_int_equal(mem_blocks_live(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_role_thought_text_end_usage_and_done),
        cmocka_unit_test(timings_count_guesses_if_there_were_any),
        cmocka_unit_test(without_include_usage_no_chunk_has_one),
        cmocka_unit_test(calls_have_own_ids_and_arguments_after_their_names),
        cmocka_unit_test(a_call_in_pieces_is_the_same_call),
        cmocka_unit_test(a_body_says_what_the_stream_says),
        cmocka_unit_test(a_cut_call_does_not_look_complete),
        cmocka_unit_test(a_limit_inside_a_thought_leaves_an_empty_text_and_says_so),
        cmocka_unit_test(log_probabilities_have_the_bytes_of_parts_of_characters),
        cmocka_unit_test(completions_echo_and_have_the_old_log_probabilities),
        cmocka_unit_test(completions_have_each_likely_text_once),
        cmocka_unit_test(completions_have_the_ids_of_tokens_where_they_are_wanted),
        cmocka_unit_test(a_failure_is_the_last_event),
        cmocka_unit_test(several_prompts_and_answers_are_numbered_and_prompts_count_once),
        cmocka_unit_test(memory_that_is_out_shows_in_the_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
