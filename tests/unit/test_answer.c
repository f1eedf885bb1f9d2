/* Answers: parts up to a stop string. A search byte by byte tells what must come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "answer/answer.h"
#include "answer/stop.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/text_fixture.h"
#include "text/tokenizer.h"

static int32_t *encode(const char *text, size_t length, size_t *count)
{
    struct carat_error err;
    int32_t *ids;
    assert_int_equal(
        tokenizer_encode(shared_vocab(), text, length, CARAT_SPECIAL_ALL, false, &ids, count, &err),
        CARAT_OK);
    return ids;
}

static carat_answer *open_answer(const char *const *stops, size_t n, bool is_raw)
{
    carat_answer *a;
    struct carat_error err = {0};
    struct carat_answer_options options = {
        .stops = stops, .n_stops = n, .is_raw = is_raw, .show_special = true};
    if (answer_open(&a, shared_vocab(), NULL, 0, &options, &err)) fail_msg("%s", err.message);
    return a;
}

/* Parts as text: "T..." an answer, "R..." reasoning, "C..." a call, "|" between them. */
static void add_parts(struct buf *out, char *open, const struct carat_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char kind = "TRC"[parts[i].kind];
        assert_true(parts[i].length > 0);
        if (kind != *open || kind == 'C') buf_printf(out, "%s%c", *open ? "|" : "", kind);
        if (kind == 'C') buf_add_text(out, parts[i].name);
        buf_add(out, parts[i].text, parts[i].length);
        *open = kind;
    }
}

/* Feeds ids in groups of `step`, or of random size with `r`. Returns the stop string. */
static const char *feed(carat_answer *a, const int32_t *ids, size_t count, uint32_t step,
                        struct rng *r, struct buf *out)
{
    const struct carat_part *parts;
    struct carat_error err = {0};
    size_t n;
    char open = 0;
    buf_clear(out);
    for (size_t i = 0, group; i < count; i += group) {
        group = r ? 1 + rng_below(r, step) : step;
        if (group > count - i) group = count - i;
        assert_int_equal(answer_push(a, ids + i, group, &parts, &n, &err), CARAT_OK);
        add_parts(out, &open, parts, n);
    }
    assert_int_equal(answer_finish(a, &parts, &n, &err), CARAT_OK);
    add_parts(out, &open, parts, n);
    return answer_stop(a);
}

/* In every grouping, each time on an answer of its own. */
static void check(const char *said, size_t length, const char *const *stops, size_t n_stops,
                  bool is_raw, const char *expected, const char *expected_stop)
{
    size_t count;
    int32_t *ids = encode(said, length, &count);
    struct buf out = {0};
    struct rng r = {.state = 3};
    for (uint32_t way = 0; way < 8; way++) {
        carat_answer *a = open_answer(stops, n_stops, is_raw);
        uint32_t step = way == 0 ? (uint32_t)count + 1 : way < 4 ? way : 6;
        const char *stop = feed(a, ids, count, step, way < 4 ? NULL : &r, &out);
        assert_string_equal(buf_text(&out), expected);
        assert_string_equal(stop ? stop : "(none)", expected_stop ? expected_stop : "(none)");
        answer_close(a);
    }
    buf_deinit(&out);
    mem_free(ids);
}

static void a_text_ends_before_its_first_stop_string(void **state)
{
    (void)state;
    static const struct {
        const char *said, *stops[3], *expected, *stop;
    } cases[] = {
        {"one two three", {"two"}, "Tone ", "two"},
        {"one two three", {"four"}, "Tone two three", NULL},
        {"two", {"two"}, "", "two"},
        {"one tw", {"two"}, "Tone tw", NULL}, /* held back, and then no end */
        {"aaab", {"aab"}, "Ta", "aab"},
        {"abababc", {"ababc"}, "Tab", "ababc"},
        {"abcd", {"abcd", "bc"}, "Ta", "bc"}, /* the one that is complete first */
        {"abcd", {"cd", "bcd"}, "Ta", "bcd"}, /* complete at once: the longer one */
        {"x\ny\nz", {"\n"}, "Tx", "\n"},
        {"gr\xc3\xbc\xc3\x9f dich", {"\xc3\x9f"}, "Tgr\xc3\xbc", "\xc3\x9f"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 0;
        while (n < 3 && cases[i].stops[n]) n++;
        check(cases[i].said, strlen(cases[i].said), cases[i].stops, n, false, cases[i].expected,
              cases[i].stop);
    }
}

/* Where a reader who looks at one byte after the other would stop. */
static const char *first_stop(const char *text, size_t length, const char *const *stops, size_t n,
                              size_t *upto)
{
    *upto = length;
    for (size_t end = 1; end <= length; end++) {
        const char *found = NULL;
        for (size_t i = 0; i < n; i++) {
            size_t of_stop = strlen(stops[i]);
            if (of_stop > end || memcmp(text + end - of_stop, stops[i], of_stop) != 0) continue;
            if (!found || of_stop > strlen(found)) found = stops[i];
        }
        if (!found) continue;
        *upto = end - strlen(found);
        return found;
    }
    return NULL;
}

static void random_texts_end_where_a_reader_of_bytes_would_stop(void **state)
{
    (void)state;
    struct rng r = {.state = 11};
    int n_stopped = 0;
    for (int round = 0; round < 300; round++) {
        uint32_t n_letters = round % 2 ? 3 : 2;
        char text[41] = "T", words[3][6];
        const char *stops[3];
        size_t length = 1 + rng_below(&r, 39), upto;
        for (size_t i = 0; i < length; i++) text[1 + i] = "abc"[rng_below(&r, n_letters)];
        for (int i = 0; i < 3; i++) {
            size_t n = 2 + rng_below(&r, 4);
            for (size_t k = 0; k < n; k++) words[i][k] = "abc"[rng_below(&r, n_letters)];
            words[i][n] = '\0';
            stops[i] = words[i];
        }
        const char *stop = first_stop(text + 1, length, stops, 3, &upto);
        n_stopped += stop != NULL;
        char expected[41] = "";
        if (upto) memcpy(expected, text, upto + 1);
        check(text + 1, length, stops, 3, round % 3 == 0, expected, stop);
    }
    assert_in_range(n_stopped, 50, 290);
}

static void nothing_of_a_stop_string_is_ever_handed_out(void **state)
{
    (void)state;
    static const char *const stops[] = {"##end"};
    static const char said[] = "a # b ## c ##en ##e##end never";
    size_t count, n;
    int32_t *ids = encode(said, strlen(said), &count);
    carat_answer *a = open_answer(stops, 1, false);
    const struct carat_part *parts;
    struct carat_error err;
    struct buf all = {0};
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(answer_push(a, &ids[i], 1, &parts, &n, &err), CARAT_OK);
        for (size_t k = 0; k < n; k++) buf_add(&all, parts[k].text, parts[k].length);
        assert_true(all.length <= 19 && memcmp(buf_text(&all), said, all.length) == 0);
        if (answer_stop(a)) assert_int_equal(all.length, 19);
    }
    assert_string_equal(answer_stop(a), "##end");
    buf_deinit(&all);
    answer_close(a);
    mem_free(ids);
}

static void thoughts_and_calls_are_not_compared_with_stop_strings(void **state)
{
    (void)state;
    static const char *const stops[] = {"stop", "ab"};
    static const char said[] =
        "<|channel>thought\nstop<channel|>a<|tool_call>call:stop{}<tool_call|>b stop c";
    check(said, strlen(said), stops, 2, false, "Rstop|Ta|Cstop{}|Tb ", "stop");
    static const char held[] = "x sto<|tool_call>call:f{}<tool_call|>";
    check(held, strlen(held), stops, 2, false, "Tx sto|Cf{}", NULL); /* in its order */
}

static void a_raw_answer_is_one_text_with_its_marks(void **state)
{
    (void)state;
    static const char said[] = "<|channel>thought\nx<channel|>y";
    static const char *const stops[] = {"<channel|>"};
    check(said, strlen(said), NULL, 0, true, "T<|channel>thought\nx<channel|>y", NULL);
    check(said, strlen(said), stops, 1, true, "T<|channel>thought\nx", "<channel|>");
}

static void an_answer_says_whether_it_is_inside_a_thought(void **state)
{
    (void)state;
    static const char said[] = "<|channel>thought\nhm<channel|>yes";
    const struct carat_part *parts;
    struct carat_error err;
    size_t count, n, n_thinking = 0;
    int32_t *ids = encode(said, strlen(said), &count);
    carat_answer *a = open_answer(NULL, 0, false);
    assert_false(answer_is_thinking(a));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(answer_push(a, &ids[i], 1, &parts, &n, &err), CARAT_OK);
        n_thinking += answer_is_thinking(a);
    }
    assert_true(n_thinking > 0 && !answer_is_thinking(a));
    answer_close(a);
    mem_free(ids);
}

static void bad_stop_strings_are_refused_by_their_number(void **state)
{
    (void)state;
    char longest[CARAT_STOP_BYTES_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const char *many[CARAT_STOPS_MAX + 1];
    for (size_t i = 0; i <= CARAT_STOPS_MAX; i++) many[i] = longest + 1;
    const char *const empty[] = {"a", ""}, *const too_long[] = {longest}, *const cut[] = {"\xc3"};
    const struct {
        const char *const *stops;
        size_t n;
        const char *word;
    } cases[] = {{many, CARAT_STOPS_MAX + 1, "1025 found"},
                 {empty, 2, "stop string 2"},
                 {too_long, 1, "257 found"},
                 {cut, 1, "UTF-8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct carat_error err = {0};
        struct carat_answer_options o = {.stops = cases[i].stops, .n_stops = cases[i].n};
        carat_answer *a = NULL;
        assert_int_equal(answer_open(&a, shared_vocab(), NULL, 0, &o, &err), CARAT_EUSAGE);
        assert_null(a);
        assert_non_null(strstr(err.message, cases[i].word));
    }
    answer_close(open_answer(many, CARAT_STOPS_MAX, false));
}

static int answer_once(const int32_t *ids, size_t count, struct carat_error *err)
{
    static const char *const stops[] = {"never", "too"};
    struct carat_answer_options options = {.stops = stops, .n_stops = 2};
    const struct carat_part *parts;
    carat_answer *a;
    size_t n;
    int status = answer_open(&a, shared_vocab(), NULL, 0, &options, err);
    if (status) return status;
    for (size_t i = 0; i < count && !status; i++)
        status = answer_push(a, &ids[i], 1, &parts, &n, err);
    int last = answer_finish(a, &parts, &n, err);
    assert_true(!status || last); /* once text was lost, no more is handed out */
    assert_true(!last || n == 0);
    answer_close(a);
    return status ? status : last;
}

static void running_out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    static const char said[] =
        "nev <|channel>thought\nhm<channel|>ne<|tool_call>call:f{a:1}<tool_call|> ever";
    size_t count;
    int32_t *ids = encode(said, strlen(said), &count);
    struct carat_error err = {0};
    long live = mem_blocks_live();
    for (long n = 0;; n++) {
        mem_fail_after(n);
        int status = answer_once(ids, count, &err);
        bool has_failed = mem_fail_after(-1);
        assert_int_equal(mem_blocks_live(), live);
        assert_int_equal(status, has_failed ? CARAT_EMEMORY : CARAT_OK);
        if (!has_failed) break;
        assert_true(n < 1000);
    }
    mem_free(ids);
}

/* Text before and after, thoughts and stop strings are as without the option. */
static void calls_come_in_pieces_when_that_is_asked_for(void **state)
{
    (void)state;
    static const char said[] = "so<|tool_call>call:f{a:<|\"|>x\ny<|\"|>,b:12}<tool_call|>on END no";
    const char *const stops[] = {"END"};
    struct carat_answer_options options = {.stops = stops, .n_stops = 1, .streams_calls = true};
    const struct carat_part *parts;
    struct carat_error err;
    size_t count, n;
    int32_t *ids = encode(said, strlen(said), &count);
    for (size_t step = 1; step <= count; step++) {
        carat_answer *a;
        struct buf out = {0};
        assert_int_equal(answer_open(&a, shared_vocab(), NULL, 0, &options, &err), CARAT_OK);
        for (size_t i = 0; i < count; i += step) {
            size_t group = step < count - i ? step : count - i;
            assert_int_equal(answer_push(a, ids + i, group, &parts, &n, &err), CARAT_OK);
            for (size_t k = 0; k < n; k++) {
                if (parts[k].kind == CARAT_PART_CALL_BEGIN) buf_printf(&out, "<%s ", parts[k].name);
                if (parts[k].kind == CARAT_PART_CALL_END)
                    buf_add_text(&out, parts[k].is_complete ? ">" : "!>");
                buf_add(&out, parts[k].text, parts[k].length);
            }
        }
        assert_string_equal(buf_text(&out), "so<f {\"a\":\"x\\ny\",\"b\":12}>on ");
        assert_string_equal(answer_stop(a), "END");
        answer_close(a);
        buf_deinit(&out);
    }
    mem_free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_ends_before_its_first_stop_string),
        cmocka_unit_test(random_texts_end_where_a_reader_of_bytes_would_stop),
        cmocka_unit_test(nothing_of_a_stop_string_is_ever_handed_out),
        cmocka_unit_test(thoughts_and_calls_are_not_compared_with_stop_strings),
        cmocka_unit_test(a_raw_answer_is_one_text_with_its_marks),
        cmocka_unit_test(an_answer_says_whether_it_is_inside_a_thought),
        cmocka_unit_test(bad_stop_strings_are_refused_by_their_number),
        cmocka_unit_test(calls_come_in_pieces_when_that_is_asked_for),
        cmocka_unit_test(running_out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, shared_vocab_open, shared_vocab_close);
}
