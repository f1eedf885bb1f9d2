/* Hostile bodies, in every API: refused at once, by the path of the member that is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "json/json_memory.h"
#include "support/asks.h"

#ifdef CARAT_HAVE_JSON

/* SECONDS of a core, with sanitizers; without them the slowest case takes less than 0.2. */
enum { SECONDS = 5, DEPTH = 100, KEYS = 20000, ITEMS = 50000 };

/* A body that is fine, up to its last brace. */
static const char *const bodies[API_COUNT] = {
    [API_CHAT] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]",
    [API_COMPLETIONS] = "{\"prompt\":\"a\"",
    [API_RESPONSES] = "{\"input\":\"a\"",
    [API_MESSAGES] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]",
    [API_OLLAMA_CHAT] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]",
    [API_OLLAMA_GENERATE] = "{\"prompt\":\"a\""};

/* Members that each API reads; "options." is put around those that begin so. */
static const char *const members[API_COUNT][24] = {
    [API_CHAT] = {"n", "max_tokens", "top_k", "top_logprobs", "seed", "repeat_last_n",
                  "temperature", "top_p", "stop", "logit_bias", "stream", "stream_options",
                  "model"},
    [API_COMPLETIONS] = {"n", "max_tokens", "top_k", "logprobs", "seed", "temperature", "echo",
                         "best_of", "stop", "stream", "model"},
    [API_RESPONSES] = {"instructions", "max_output_tokens", "top_logprobs", "include", "tools",
                       "tool_choice", "parallel_tool_calls", "text", "reasoning", "temperature",
                       "top_p", "previous_response_id", "stream", "model"},
    [API_MESSAGES] = {"system", "max_tokens", "top_k", "temperature", "top_p", "stop_sequences",
                      "tools", "tool_choice", "thinking", "metadata", "output_config",
                      "output_format", "stream", "model"},
    [API_OLLAMA_CHAT] = {"think",
                         "format",
                         "tools",
                         "options",
                         "options.temperature",
                         "options.top_k",
                         "options.top_p",
                         "options.min_p",
                         "options.seed",
                         "options.stop",
                         "options.num_predict",
                         "options.repeat_penalty",
                         "options.repeat_last_n",
                         "options.presence_penalty",
                         "options.frequency_penalty",
                         "options.mirostat",
                         "options.mirostat_tau",
                         "options.typical_p",
                         "stream",
                         "model"},
    [API_OLLAMA_GENERATE] = {"system", "raw", "suffix", "template", "images", "think", "format",
                             "options", "stream"},
};

static const char *const values[] = {"-2147483649",
                                     "-1",
                                     "0",
                                     "-0.0",
                                     "2147483648",
                                     "9223372036854775807",
                                     "1.5",
                                     "1e308",
                                     "\"x\"",
                                     "\"\"",
                                     "\"\\u0000\"",
                                     "[]",
                                     "[[]]",
                                     "[-1]",
                                     "[1e308]",
                                     "[\"\"]",
                                     "[null]",
                                     "{}",
                                     "{\"type\":7}",
                                     "{\"type\":\"x\"}",
                                     "true",
                                     "[{}]",
                                     "[{\"type\":{}}]"};

/* Of this thread: what others do on the machine does not count. */
static double cpu_seconds(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Taken, or refused at once by a message that begins with `path`. Where that says more than a path,
 * the body has to be refused. */
static void check(enum api api, const struct buf *text, const char *path)
{
    struct ask ask;
    struct carat_error err = {0};
    long before = mem_blocks_live();
    double start = cpu_seconds();
    int status =
        ask_read(&ask, api, buf_text(text), text->length, &asks_defaults, &asks_limits, &err);
    double took = cpu_seconds() - start;
    bool is_refused = status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED;
    bool is_named = strncmp(err.message, path, strlen(path)) == 0;
    if (status != CARAT_OK && !(is_refused && is_named))
        fail_msg("api %d, %.200s: status %d, \"%s\"; \"%s\" expected", (int)api, buf_text(text),
                 status, err.message, path);
    if (status == CARAT_OK && strchr(path, ' ')) fail_msg("%.200s: taken", buf_text(text));
    if (took > SECONDS) fail_msg("api %d, %.200s: %.1f s", (int)api, buf_text(text), took);
    ask_close(&ask);
    assert_int_equal(mem_blocks_live(), before);
}

static void every_member_with_every_wrong_value_is_named(void **state)
{
    (void)state;
    for (int api = 0; api < API_COUNT; api++)
        for (size_t m = 0; m < 24 && members[api][m]; m++)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                const char *name = members[api][m];
                bool is_option = strncmp(name, "options.", 8) == 0;
                struct buf text = {0};
                buf_printf(&text, "%s,%s\"%s\":%s%s}", bodies[api],
                           is_option ? "\"options\":{" : "", is_option ? name + 8 : name, values[v],
                           is_option ? "}" : "");
                check((enum api)api, &text, name);
                buf_deinit(&text);
            }
}

static void repeat(struct buf *text, const char *what, size_t n)
{
    for (size_t i = 0; i < n; i++) buf_add_text(text, what);
}

/* BEGINNING, n times ONE, END. */
static void check_many(enum api api, const char *begin, const char *one, size_t n, const char *end,
                       const char *path)
{
    struct buf text = {0};
    buf_add_text(&text, begin);
    repeat(&text, one, n);
    buf_add_text(&text, end);
    check(api, &text, path);
    buf_deinit(&text);
}

static void counts_beyond_the_limits_are_refused(void **state)
{
    (void)state;
    static const struct {
        enum api api;
        const char *begin, *one, *end, *path;
    } cases[] = {
        {API_CHAT, "{\"messages\":[", "{},", "{}]}", "messages: at most 12 expected, 50001"},
        {API_MESSAGES, "{\"messages\":[", "{},", "{}]}", "messages: at most 12 expected, 50001"},
        {API_RESPONSES, "{\"input\":[", "{},", "{}]}", "input: at most 12 expected, 50001"},
        {API_OLLAMA_CHAT, "{\"messages\":[", "{},", "{}]}", "messages: at most 12 expected, 50001"},
        {API_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[", "{},",
         "{}]}", "tools: at most 4 expected, 50001"},
        {API_RESPONSES, "{\"input\":\"a\",\"tools\":[", "{},", "{}]}", "tools: at most 4 expected"},
        {API_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stop_sequences\":[",
         "\"a\",", "\"a\"]}", "stop_sequences: at most 3 expected, 50001"},
        {API_MESSAGES, "{\"messages\":[{\"role\":\"assistant\",\"content\":[",
         "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\"},",
         "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\"}]}]}",
         "messages.0.content.1024: at most 1024 calls"},
        {API_OLLAMA_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[",
         "{\"function\":{\"name\":\"f\"}},", "{\"function\":{\"name\":\"f\"}}]}]}",
         "messages[0].tool_calls[1024]: at most 1024 calls"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_many(cases[i].api, cases[i].begin, cases[i].one, ITEMS, cases[i].end, cases[i].path);
}

/* Work for each block or part is bounded, however many there are. */
static void many_small_things_take_little_time(void **state)
{
    (void)state;
    check_many(API_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":[",
               "{\"type\":\"text\",\"text\":\"a\"},", ITEMS,
               "{\"type\":\"text\",\"text\":\"a\"}]}]}", "");
    check_many(API_MESSAGES, "{\"messages\":[{\"role\":\"assistant\",\"content\":[",
               "{\"type\":\"thinking\",\"thinking\":\"a\"},", ITEMS,
               "{\"type\":\"text\",\"text\":\"a\"}]}]}", "");
    check_many(API_RESPONSES, "{\"input\":[{\"role\":\"user\",\"content\":[",
               "{\"type\":\"input_text\",\"text\":\"a\"},", ITEMS,
               "{\"type\":\"input_text\",\"text\":\"a\"}]}]}", "");
    for (int api = 0; api < API_COUNT; api++) {
        struct buf text = {0};
        buf_add_text(&text, bodies[api]);
        for (int i = 0; i < KEYS; i++) buf_printf(&text, ",\"k%d\":%d", i, i);
        buf_add_text(&text, "}");
        check((enum api)api, &text, "");
        buf_deinit(&text);
    }
}

static void what_is_no_json_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "null",
                                        "7",
                                        "\xEF\xBB\xBF{}",
                                        "{} {}",
                                        "{\"a\":1e400}",
                                        "{\"a\":NaN}",
                                        "{\"a\":\"\xFF\"}",
                                        "{\"a\":\"\\ud800\"}",
                                        "{'a':1}",
                                        "{\"a\":1,}",
                                        "{\"a\":\"\n\"}"};
    for (int api = 0; api < API_COUNT; api++)
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            struct ask ask;
            struct carat_error err = {0};
            int status = ask_read(&ask, (enum api)api, texts[i], strlen(texts[i]), &asks_defaults,
                                  &asks_limits, &err);
            if (status != CARAT_EUSAGE || !err.message[0]) fail_msg("api %d: %s", api, texts[i]);
            ask_close(&ask);
        }
}

static void depth_is_refused(void **state)
{
    (void)state;
    for (int api = 0; api < API_COUNT; api++)
        for (size_t depth = DEPTH; depth <= 1000 * DEPTH; depth *= 1000) {
            struct buf text = {0};
            buf_printf(&text, "%s,\"tools\":", bodies[api]);
            repeat(&text, "[", depth);
            repeat(&text, "]", depth);
            buf_add_text(&text, "}");
            struct ask ask;
            struct carat_error err = {0};
            int status = ask_read(&ask, (enum api)api, buf_text(&text), text.length, &asks_defaults,
                                  &asks_limits, &err);
            assert_true(status == CARAT_EUSAGE || (depth == DEPTH && status == CARAT_OK));
            ask_close(&ask);
            buf_deinit(&text);
        }
}

/* Also where it runs out inside of jansson, which calls that wrong syntax or shortens texts. */
static void memory_that_is_out_is_never_the_clients_fault(void **state)
{
    static const char *const texts[API_COUNT] = {
        [API_CHAT] =
            "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},{\"role\":\"assistant\","
            "\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":\"{\\\"a\\\":[1,2.5,\\\"x\\\"]}\"}}]}]}",
        [API_COMPLETIONS] = "{\"prompt\":[\"%s\",[1,2,3]],\"temperature\":0.5}",
        [API_RESPONSES] = "{\"input\":[{\"role\":\"user\",\"content\":\"%s\"},{\"type\":"
                          "\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":"
                          "\"{\\\"a\\\":[1,2.5]}\"}]}",
        [API_MESSAGES] = "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"system\":\"s\"}",
        [API_OLLAMA_CHAT] = "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"options\":"
                            "{\"temperature\":0}}",
        [API_OLLAMA_GENERATE] = "{\"prompt\":\"%s\",\"system\":\"s\"}"};
    char content[1500];
    (void)state;
    json_memory_watch();
    memset(content, 'a', sizeof content);
    content[sizeof content - 1] = '\0';
    for (int api = 0; api < API_COUNT; api++) {
        struct buf text = {0};
        int status = CARAT_EMEMORY;
        buf_add_text(&text, texts[api]);
        char *at = strstr(text.data, "%s");
        struct buf body = {0};
        buf_add(&body, text.data, (size_t)(at - text.data));
        buf_add_text(&body, content);
        buf_add_text(&body, at + 2);
        long n = 0;
        for (; status != CARAT_OK; n++) {
            struct ask ask;
            struct carat_error err = {0};
            mem_fail_after(n);
            status = ask_read(&ask, (enum api)api, buf_text(&body), body.length, &asks_defaults,
                              &asks_limits, &err);
            mem_fail_after(-1);
            if (status != CARAT_OK && status != CARAT_EMEMORY)
                fail_msg("api %d, allocation %ld: %d, \"%s\"", api, n, status, err.message);
            ask_close(&ask);
        }
        assert_true(n > 10);
        buf_deinit(&body);
        buf_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_out_is_never_the_clients_fault),
        cmocka_unit_test(every_member_with_every_wrong_value_is_named),
        cmocka_unit_test(counts_beyond_the_limits_are_refused),
        cmocka_unit_test(many_small_things_take_little_time),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(depth_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
