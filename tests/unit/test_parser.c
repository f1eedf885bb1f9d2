/* Model output: every case is fed whole, id by id, in pairs and at random; the parts must be the
 * same. Texts of cases are ids of the made-up vocabulary, with marks written as tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "support/cost.h"
#include "support/text_fixture.h"
#include "text/call_stream.h"
#include "text/call_syntax.h"
#include "text/parser.h"
#include "text/thought.h"
#include "text/tokenizer.h"

static int32_t *encode(const char *text, size_t *count)
{
    struct carat_error err;
    int32_t *ids;
    assert_int_equal(tokenizer_encode(shared_vocab(), text, strlen(text), CARAT_SPECIAL_ALL, false,
                                      &ids, count, &err),
                     CARAT_OK);
    return ids;
}

/* Parts as text: [T answer] [R reasoning] [C name arguments], ! for a repaired or cut call. Pieces
 * of a streamed call become what the whole call would be. */
struct shown {
    struct buf *out;
    char open;
    struct buf name, arguments;
};

static void open_part(struct shown *s, char kind)
{
    if (s->open) buf_add_char(s->out, ']');
    buf_printf(s->out, "[%c", kind);
    s->open = kind;
}

static void add_call(struct shown *s, const char *name, const char *text, size_t length,
                     bool is_complete)
{
    open_part(s, 'C');
    buf_printf(s->out, "%s %s ", is_complete ? "" : "!", name);
    buf_add(s->out, text, length);
}

static void add_part(struct shown *s, const struct carat_part *part)
{
    char kind = part->kind == CARAT_PART_THINKING ? 'R' : 'T';
    switch (part->kind) {
    case CARAT_PART_CALL_BEGIN:
        buf_clear(&s->name);
        buf_clear(&s->arguments);
        buf_add_text(&s->name, part->name);
        assert_int_equal(part->length, 0);
        return;
    case CARAT_PART_CALL_ARGUMENTS:
        assert_int_equal(utf8_valid_prefix(part->text, part->length), part->length);
        buf_add(&s->arguments, part->text, part->length);
        break;
    case CARAT_PART_CALL_END:
        add_call(s, buf_text(&s->name), buf_text(&s->arguments), s->arguments.length,
                 part->is_complete);
        assert_int_equal(part->length, 0);
        return;
    case CARAT_PART_TOOL_CALL:
        add_call(s, part->name, part->text, part->length, part->is_complete);
        break;
    default:
        if (kind != s->open) {
            open_part(s, kind);
            buf_add_char(s->out, ' ');
        }
        buf_add(s->out, part->text, part->length);
    }
    assert_true(part->length > 0);
}

static void add_parts(struct shown *s, const struct carat_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) add_part(s, &parts[i]);
}

/* How ids come: steps of `step`, or with `r` at random up to it. */
struct way {
    uint32_t step;
    struct rng *r;
    bool streams_calls;
};

static void run(struct buf *out, const int32_t *prompt, size_t n_prompt, const int32_t *ids,
                size_t count, struct way way, bool *is_thinking)
{
    struct carat_parser *p;
    struct carat_error err;
    const struct carat_part *parts;
    size_t n;
    struct shown shown = {.out = out};
    buf_clear(out);
    assert_int_equal(parser_open(&p, shared_vocab(), prompt, n_prompt, &err), CARAT_OK);
    if (way.streams_calls) parser_stream_calls(p);
    for (size_t i = 0; i < count;) {
        size_t step = way.r ? 1 + rng_below(way.r, way.step) : way.step;
        if (step > count - i) step = count - i;
        assert_int_equal(parser_push(p, ids + i, step, &parts, &n, &err), CARAT_OK);
        add_parts(&shown, parts, n);
        i += step;
    }
    assert_int_equal(parser_finish(p, &parts, &n, &err), CARAT_OK);
    add_parts(&shown, parts, n);
    if (shown.open) buf_add_char(out, ']');
    buf_deinit(&shown.name);
    buf_deinit(&shown.arguments);
    *is_thinking = parser_is_thinking(p);
    assert_int_equal(parser_finish(p, &parts, &n, &err), CARAT_OK);
    assert_int_equal(n, 0);
    parser_close(p);
}

static void check_after(const char *prompt_text, const char *text, const char *expected,
                        bool thinks_at_end)
{
    size_t n_prompt, count;
    int32_t *prompt = encode(prompt_text, &n_prompt), *ids = encode(text, &count);
    struct buf found = {0};
    struct rng r = {42};
    for (int k = 0; k < 48; k++) {
        bool is_thinking;
        int way = k / 2;
        uint32_t step = way == 0 ? (uint32_t)count + 1 : way < 4 ? (uint32_t)way : 6;
        run(&found, prompt, n_prompt, ids, count,
            (struct way){.step = step, .r = way < 4 ? NULL : &r, .streams_calls = k % 2},
            &is_thinking);
        if (strcmp(buf_text(&found), expected) != 0)
            fail_msg("way %d of: %s\nexpected: %s\nfound:    %s", way, text, expected,
                     buf_text(&found));
        assert_int_equal(is_thinking, thinks_at_end);
    }
    buf_deinit(&found);
    mem_free(prompt);
    mem_free(ids);
}

#define PROMPT "<bos><|turn>user\nhi<turn|>\n<|turn>model\n"

static void check(const char *text, const char *expected)
{
    check_after(PROMPT, text, expected, false);
}

static void test_thoughts(void **state)
{
    (void)state;
    check("", "");
    check("hello", "[T hello]");
    check("hello<turn|>", "[T hello]");
    check("<|channel>thought\nso\n<channel|>hello<turn|>", "[R so][T hello]");
    check("<|channel>thought\nso<channel|>hello", "[R so][T hello]");
    check("<|channel>thought\nso\n\n<channel|>hello", "[R so\n][T hello]");
    check("<|channel>thought\n<channel|>hello", "[T hello]");
    check("<|channel>thought<channel|>hello", "[T hello]");
    check("<|channel><channel|>hello", "[T hello]");
    check("<|channel>other\nso<channel|>hello", "[R other\nso][T hello]");
    check("<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>d", "[R a][T b][R c][T d]");
    check("<|channel>thought\na<|channel>thought\nb<channel|>c", "[R ab][T c]");
    check("<|channel>thoughtless<channel|>x", "[R thoughtless][T x]");
    /* Answers may begin with the word. */
    check("thought", "[T thought]");
    check("thoughtful", "[T thoughtful]");
    check("thought\nmore", "[T thought\nmore]");
    check("tho", "[T tho]");
    /* A stray end, and the word that models write before it. */
    check("<channel|>hello", "[T hello]");
    check("hello<channel|> you", "[T hello you]");
    check("thought\n<channel|>hello", "[T hello]");
    check("thought<channel|>hello", "[T hello]");
    check("<|channel>thought\n<channel|>thought\n<channel|>thought\n<channel|>a", "[T a]");
    /* Other special tokens are not shown. */
    check("a<pad><bos>b<mask>", "[T ab]");
}

static void test_cut_thoughts(void **state)
{
    (void)state;
    check_after(PROMPT, "<|channel>thought\nbecause", "[R because]", true);
    check_after(PROMPT, "<|channel>thought\nbecause<turn|>", "[R because]", true);
    check_after(PROMPT, "<|channel>tho", "", true);
    check_after(PROMPT, "<|channel>", "", true);
    check_after(PROMPT, "<|channel>thought\n", "", true);
}

/* The state comes from the end of the prompt. */
static void test_prompts(void **state)
{
    (void)state;
#define ANSWERED                                                                                   \
    "<bos><|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>response:f{}"              \
    "<tool_response|>"
    check_after(ANSWERED "<|channel>thought\n", "so\n<channel|>done", "[R so][T done]", false);
    check_after(ANSWERED "<|channel>thought", "\nso\n<channel|>done", "[R so][T done]", false);
    check_after(ANSWERED "<|channel>", "thought\nso<channel|>done", "[R so][T done]", false);
    check_after(ANSWERED "<|channel>thought\nfirst", " second<channel|>done", "[R  second][T done]",
                false);
    check_after(ANSWERED "<|channel>thought\n", "so", "[R so]", true);
    check_after(ANSWERED, "done", "[T done]", false);
    check_after(PROMPT "<|channel>thought\n<channel|>", "hello", "[T hello]", false);
    check_after(PROMPT "<|channel>thought\n<channel|>", "<|channel>thought\nso<channel|>hello",
                "[R so][T hello]", false);
    check_after(PROMPT "<|tool_call>call:f{a:", "1}<tool_call|>x", "[C f {\"a\":1}][T x]", false);
    check_after(PROMPT "<|tool_call>call:f{}<tool_call|><|tool_response>",
                "response:f{value:1}<tool_response|>ok", "[T ok]", false);
    check_after("", "hello", "[T hello]", false);
}

static void test_calls(void **state)
{
    (void)state;
#define Q "<|\"|>"
    check("<|tool_call>call:f{}<tool_call|>", "[C f {}]");
    check("<|tool_call>call:f{}<tool_call|><|tool_response>", "[C f {}]");
    check("<|tool_call>call:f{a:" Q "x" Q ",b:2}<tool_call|>", "[C f {\"a\":\"x\",\"b\":2}]");
    check("I look.<|tool_call>call:f{}<tool_call|> Done.", "[T I look.][C f {}][T  Done.]");
    check("<|tool_call>call:f{}<tool_call|><|tool_call>call:g{}<tool_call|>", "[C f {}][C g {}]");
    check("<|tool_call>call:f{}<tool_call|><tool_call|><tool_call|>x", "[C f {}][T x]");
    check("<|channel>thought\nso\n<channel|><|tool_call>call:f{}<tool_call|>", "[R so][C f {}]");
    check("<|tool_call>call:f{a:{b:[1,{c:null}],d:true},e:[]}<tool_call|>",
          "[C f {\"a\":{\"b\":[1,{\"c\":null}],\"d\":true},\"e\":[]}]");
    check("<|tool_call>call:f{a:" Q "x, {y}: [z]\n \"q\" \xC3\xA9" Q "}<tool_call|>",
          "[C f {\"a\":\"x, {y}: [z]\\n \\\"q\\\" \xC3\xA9\"}]");
    check("<|tool_call>call:f{a.b-c@d:" Q Q "}<tool_call|>", "[C f {\"a.b-c@d\":\"\"}]");
    check("<|tool_call>call:f{a:-1.5e-05}<tool_call|>", "[C f {\"a\":-1.5e-05}]");
    /* What the model says in place of the tool is not shown. The answer after it is. */
    check("<|tool_call>call:f{}<tool_call|><|tool_response>response:f{value:1}<tool_response|>ok",
          "[C f {}][T ok]");
    /* A call inside a thought, which goes on. */
    check_after(PROMPT, "<|channel>thought\na<|tool_call>call:f{}<tool_call|>b",
                "[R a][C f {}][R b]", true);
}

static void test_cut_calls(void **state)
{
    (void)state;
    check("<|tool_call>call:f{a:1}<|tool_response>",
          "[C f {\"a\":1}]"); /* complete but for its end */
    check("<|tool_call>call:f{a:1<turn|>", "[C! f {\"a\":1}]");
    check("<|tool_call>call:f{a:" Q "long te", "[C! f {\"a\":\"long te\"}]");
    check("<|tool_call>call:f", "[C! f {}]");
    check("<|tool_call>call:f{a:" Q "x}<tool_call|>", "[C! f {\"a\":\"x\"}]");
    check("<|tool_call>call:f{a:x" Q "}<tool_call|>", "[C! f {\"a\":\"x\"}]");
    check("<|tool_call>call:f{a:1<|tool_call>call:g{}<tool_call|>", "[C! f {\"a\":1}][C g {}]");
    check("<|tool_call>call:f{a:1<|channel>thought\nso<channel|>x", "[C! f {\"a\":1}][R so][T x]");
    check("<|tool_call>call:f{a:1]]}<tool_call|>", "[C! f {\"a\":1}]");
    check("<|tool_call>call:f{a:1}}}<tool_call|>", "[C! f {\"a\":1}]");
    check("<|tool_call>call:f<tool_call|>", "[C! f {}]");
    check("<|tool_call>call:f(a=\"x\")<tool_call|>", "[C! f {\"a\":\"x\"}]");
}

/* Only the token is a mark. Text that spells it is part of the string. A mark that is out of place
 * is not shown. */
static void test_spelled_marks(void **state)
{
    (void)state;
    static const struct {
        const char *before, *spelled, *after, *expected;
    } cases[] = {
        {"<|tool_call>call:f{a:<|\"|>x ", "<|\"|>", " y<|\"|>}<tool_call|>",
         "[C f {\"a\":\"x <|\\\"|> y\"}]"},
        {"<|tool_call>call:f{a:<|\"|>", "<|\"|>,b:<|\"|>", "<|\"|>}<tool_call|>",
         "[C f {\"a\":\"<|\\\"|>,b:<|\\\"|>\"}]"},
        {"<|tool_call>call:f{a<|\"|>b:1}<tool_call|>", "", "", "[C! f {\"ab\":1}]"},
        {"<|tool_call>call:f<|\"|>{}<tool_call|>", "", "", "[C! f {}]"},
        {"<|tool_call>", "call<|\"|>", "<|\"|>", "[T call<|\"|>]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *texts[] = {cases[i].before, cases[i].spelled, cases[i].after};
        int32_t all[200];
        size_t n = 0;
        struct buf found = {0};
        bool is_thinking;
        for (int k = 0; k < 3; k++) {
            struct carat_error err;
            int32_t *ids;
            size_t count;
            assert_int_equal(tokenizer_encode(shared_vocab(), texts[k], strlen(texts[k]),
                                              k == 1 ? CARAT_SPECIAL_NONE : CARAT_SPECIAL_ALL,
                                              false, &ids, &count, &err),
                             CARAT_OK);
            assert_true(n + count <= 200);
            if (count) memcpy(all + n, ids, count * sizeof *ids);
            n += count;
            mem_free(ids);
        }
        for (uint32_t k = 2; k <= 11; k++) {
            struct way way = {.step = k / 2, .streams_calls = k % 2};
            run(&found, NULL, 0, all, n, way, &is_thinking);
            assert_string_equal(buf_text(&found), cases[i].expected);
        }
        buf_deinit(&found);
    }
}

/* The limit of tokens may fall anywhere: before the name of a call there is nothing to show. */
static void test_call_cut_before_its_name(void **state)
{
    (void)state;
    check("<|tool_call>", "");
    check("<|tool_call>cal", "");
    check("so <|tool_call>call:", "[T so ]");
    check("<|tool_call>call:f{}<tool_call|><|tool_call>", "[C f {}]");
    check_after(PROMPT, "<|channel>thought\nso<|tool_call>c", "[R so]", true);
}

/* Without "call:" there is no call, and the mark is not shown. */
static void test_no_calls(void **state)
{
    (void)state;
    check("the <|tool_call> token", "[T the  token]");
    check("<|tool_call>x", "[T x]");
    check("<|tool_call><tool_call|>x", "[T x]");
    check("<|tool_call>call:{a:1}<tool_call|>", "[T call:{a:1}]");
    check("<tool_call|>x", "[T x]");
    check("<tool_response|>x", "[T x]");
    check("say " Q "x" Q, "[T say x]");
    check(Q "<|channel>thought\n" Q "so" Q "<channel|>x" Q, "[R so][T x]");
    check("<|tool_call>call:" Q " " Q "{a:1}<tool_call|>", "[T call: {a:1}]");
}

static void test_utf8(void **state)
{
    (void)state;
    /* Byte tokens of U+1F999 arrive one by one; only whole characters may be given. */
    struct carat_parser *p;
    struct carat_error err;
    const struct carat_part *parts;
    size_t n;
    assert_int_equal(parser_open(&p, shared_vocab(), NULL, 0, &err), CARAT_OK);
    const unsigned char llama[] = {0xF0, 0x9F, 0xA6, 0x99};
    for (int i = 0; i < 4; i++) {
        int32_t id = vocab_byte(shared_vocab(), llama[i]);
        assert_int_equal(parser_push(p, &id, 1, &parts, &n, &err), CARAT_OK);
        assert_int_equal(n, i == 3);
    }
    assert_int_equal(parts[0].length, 4);
    assert_memory_equal(parts[0].text, llama, 4);
    int32_t cut[] = {vocab_byte(shared_vocab(), 0xE2), vocab_byte(shared_vocab(), 0x82)};
    assert_int_equal(parser_push(p, cut, 2, &parts, &n, &err), CARAT_OK);
    assert_int_equal(n, 0);
    assert_int_equal(parser_finish(p, &parts, &n, &err), CARAT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(parts[0].length, 2);
    int32_t odd[] = {-1, 1 << 30};
    assert_int_equal(parser_push(p, odd, 2, &parts, &n, &err), CARAT_OK);
    parser_close(p);
}

/* ---- Thoughts, counted without their texts ---------------------------------------------- */

static void the_count_of_thoughts_is_open_where_the_parser_thinks(void **state)
{
    (void)state;
    static const char *const pieces[] = {"<|channel>",
                                         "<channel|>",
                                         "<|tool_call>",
                                         "<tool_call|>",
                                         "<|tool_response>",
                                         "<turn|>",
                                         "<tool_response|>",
                                         "call:",
                                         "cal",
                                         "call",
                                         ":f{",
                                         "thought\n",
                                         "x",
                                         "<|\"|>",
                                         "<|turn>",
                                         "<pad>",
                                         "\xF0\x9F\xA6\x99"};
    enum { N_PIECES = sizeof pieces / sizeof *pieces, LONG = 40 };
    struct rng r = {.state = 23};
    print_message("seed 23\n");
    int n_open = 0;
    for (int round = 0; round < 4000; round++) {
        struct buf text = {0};
        struct carat_parser *p;
        struct carat_error err;
        const struct carat_part *parts;
        size_t count, n;
        for (int i = 0; i < LONG; i++) buf_add_text(&text, pieces[rng_below(&r, N_PIECES)]);
        int32_t *ids = encode(text.data, &count);
        size_t n_prompt = rng_below(&r, (uint32_t)count);
        assert_int_equal(parser_open(&p, shared_vocab(), ids, n_prompt, &err), CARAT_OK);
        struct thought t = thought_begin(shared_vocab(), ids, n_prompt);
        assert_int_equal(t.n_tokens, 0);
        for (size_t i = n_prompt; i < count; i++) {
            assert_int_equal(thought_is_open(&t), parser_is_thinking(p));
            n_open += thought_is_open(&t);
            int32_t before = t.n_tokens;
            thought_add(&t, shared_vocab(), ids[i]);
            assert_true(t.n_tokens == before || parser_is_thinking(p));
            assert_int_equal(parser_push(p, ids + i, 1, &parts, &n, &err), CARAT_OK);
        }
        parser_close(p);
        buf_deinit(&text);
        mem_free(ids);
    }
    assert_true(n_open > 1000);
}

/* ---- Arguments: random values in the model's syntax come out as the same JSON ---- */

static const char *const strings[] = {"",        "a",          "x, y",        "{a:1}",
                                      "[\"q\"]", "line\nline", "\xC3\xA9 \"", "true",
                                      "3",       ":,]}",       "it's",        "\\n"};

/* clang-format off */
static void random_value(struct rng *r, struct buf *gemma, struct json *json, int depth)
{
    uint32_t kind = rng_below(r, depth > 3 ? 5 : 7), count = rng_below(r, 4);
    const char *s = strings[rng_below(r, sizeof strings / sizeof *strings)];
    switch (kind) {
    case 0: buf_add_text(gemma, "true"); json_bool(json, true); break;
    case 1: buf_add_text(gemma, "null"); json_put_null(json); break;
    case 2: buf_printf(gemma, "%u", count); json_int(json, count); break;
    case 3: buf_add_text(gemma, "-0.5"); json_double(json, -0.5); break;
    case 4:
        buf_printf(gemma, "%c%s%c", CALL_MARK, s, CALL_MARK);
        json_put_string(json, s);
        break;
    case 5:
        buf_add_char(gemma, '[');
        json_begin_array(json);
        for (uint32_t i = 0; i < count; i++) {
            if (i) buf_add_char(gemma, ',');
            random_value(r, gemma, json, depth + 1);
        }
        buf_add_char(gemma, ']');
        json_end_array(json);
        break;
    default:
        buf_add_char(gemma, '{');
        json_begin_object(json);
        for (uint32_t i = 0; i < count; i++) {
            char key[16];
            snprintf(key, sizeof key, "key_%u", i);
            buf_printf(gemma, i ? ",%s:" : "%s:", key);
            json_key(json, key);
            random_value(r, gemma, json, depth + 1);
        }
        buf_add_char(gemma, '}');
        json_end_object(json);
    }
}
/* clang-format on */

static void test_random_arguments(void **state)
{
    (void)state;
    struct rng r = {11};
    for (int round = 0; round < 5000; round++) {
        struct buf gemma = {0}, expected = {0}, name = {0}, found = {0};
        struct json json = {.out = &expected};
        buf_add_text(&gemma, "f{v:");
        json_begin_object(&json);
        json_key(&json, "v");
        random_value(&r, &gemma, &json, 0);
        json_end_object(&json);
        buf_add_char(&gemma, '}');
        assert_true(call_read(gemma.data, gemma.length, true, &name, &found));
        assert_string_equal(found.data, expected.data);
        /* Any beginning of it is repaired to something, in bounded time. */
        size_t cut = rng_below(&r, (uint32_t)gemma.length);
        buf_clear(&found);
        call_read(gemma.data, cut, false, &name, &found);
        buf_deinit(&gemma);
        buf_deinit(&expected);
        buf_deinit(&name);
        buf_deinit(&found);
    }
}

/* ---- Streamed calls --------------------------------------------------------------------- */

/* Reads a call byte by byte. After each, what was handed out begins whatever the call becomes: cut
 * there, and closed there. */
static void check_stream(const char *text, size_t length)
{
    struct call_stream stream = {.place = CALL_NAME};
    struct buf sent = {0};
    for (size_t n = 0; n <= length; n++) {
        call_stream_read(&stream, text, n, &sent);
        for (int was_closed = 0; was_closed < 2; was_closed++) {
            struct buf name = {0}, whole = {0}, early = {0};
            call_read(text, n, was_closed, &name, &whole);
            if (sent.length > whole.length ||
                (sent.length && memcmp(sent.data, whole.data, sent.length) != 0))
                fail_msg("%.*s\nsent:  %s\nwhole: %s", (int)n, text, buf_text(&sent),
                         buf_text(&whole));
            if (stream.has_name) call_add_name(&early, text, n);
            if (stream.has_name) assert_string_equal(buf_text(&early), buf_text(&name));
            if (was_closed == 0 && stream.place == CALL_OVER)
                assert_string_equal(buf_text(&sent), buf_text(&whole));
            buf_deinit(&name);
            buf_deinit(&whole);
            buf_deinit(&early);
        }
    }
    buf_deinit(&sent);
}

/* Strikes out, repeats and changes bytes, so that every repair has something to do. */
static void damage(struct rng *r, struct buf *text)
{
    static const char bytes[] = "{}[](),: \n\"'a1-_=\xFF\xFF\xC3\xA9";
    for (uint32_t n = rng_below(r, 6); n > 0 && text->length > 4; n--) {
        size_t at = 1 + rng_below(r, (uint32_t)text->length - 2);
        switch (rng_below(r, 3)) {
        case 0:
            memmove(text->data + at, text->data + at + 1, text->length - at);
            text->length--;
            break;
        case 1: text->data[at] = bytes[rng_below(r, sizeof bytes - 1)]; break;
        default:
            buf_add_char(text, ' ');
            memmove(text->data + at + 1, text->data + at, text->length - at - 1);
            text->data[at] = bytes[rng_below(r, sizeof bytes - 1)];
        }
    }
}

static void what_was_streamed_begins_every_outcome(void **state)
{
    (void)state;
    struct rng r = {17};
    print_message("seed 17\n");
    for (int round = 0; round < 6000; round++) {
        struct buf text = {0}, ignored = {0};
        struct json json = {.out = &ignored};
        buf_add_text(&text, "f{v:");
        random_value(&r, &text, &json, 0);
        buf_printf(&text, ",w:%cso, key: it}%c}", CALL_MARK, CALL_MARK);
        if (round % 4) damage(&r, &text);
        if (text.length < 400) check_stream(text.data, text.length);
        buf_deinit(&text);
        buf_deinit(&ignored);
    }
}

static void repairs_never_contradict_what_was_streamed(void **state)
{
    (void)state;
#define M "\xFF"
    static const char *const cases[] = {
        "f{a:" M "x, b:" M "y" M "}",
        "f{a:" M "x, b: [" M "y" M "]}",
        "f{a:" M "x,, b:" M "y" M "}",
        "f{a:" M ",b:" M "y" M "}",
        "f{a:" M "x}]} ",
        "f{a:{b:" M "x} } }",
        "f{a:" M "x" M " y" M "}",
        "f{a:" M "x" M " , b:1}",
        "f{a:x" M ",b:2}",
        "f{a:x, y] z" M ",b:2}",
        "f{a:\"x\",b:1}",
        "f{a:'x,b:1}",
        "f{a:True,b:None,c:nan}",
        "f{a:,b:1}",
        "f{a b:1 , c : " M "x" M " }",
        "f{,a:1,,b:[,1,],}",
        "f{a:[1}2],b:1}",
        "f{a:1}}} x",
        "f(a=1)",
        "f",
        " f {a:1}",
        "{a:1}",
        "f{a:" M "\xE2\x82" M "}",
        "f{a:" M "\xE2\x82, b:" M "x" M "}",
        "f{a:" M "\xE2}\x82\xAC" M "}",
        "f{a:[[[{b:[" M "x" M "]}]]],c:-0.5e3}",
        "f{" M "a" M ":1}",
        "f{\"a\":1}",
        "f{a:" M "x, y z:" M "}",
        "f{a:" M "Hello, my name: " M "}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_stream(cases[i], strlen(cases[i]));
    struct buf deep = {0};
    buf_add_text(&deep, "f{a:");
    for (int i = 0; i < 70; i++) buf_add_text(&deep, i % 2 ? "[" : "{a:");
    buf_add_text(&deep, "1}]");
    check_stream(deep.data, deep.length);
    buf_deinit(&deep);
}

/* At most a word is held back of prose, and a key or a number until it ends. */
static void strings_are_streamed_as_they_come(void **state)
{
    (void)state;
    static const char text[] = "f{path:\xFFsrc/main.c\xFF,body:\xFF"
                               "Dear all, this is a long letter, and more: text follows. It has "
                               "brackets (like these) and \"quotes\", too.\n";
    struct call_stream stream = {.place = CALL_NAME};
    struct buf sent = {0};
    size_t longest = 0, word = 12;
    for (size_t n = 0; n < sizeof text; n++) {
        call_stream_read(&stream, text, n, &sent);
        size_t unsent = stream.place == CALL_STRING ? n - stream.begin : 0;
        if (unsent > longest) longest = unsent;
    }
    assert_true(longest <= word);
    assert_non_null(strstr(sent.data, "{\"path\":\"src/main.c\",\"body\":\"Dear all, this"));
    assert_non_null(strstr(sent.data, "\\\"quotes\\\", too."));
    buf_deinit(&sent);
}

/* Deep nesting and long runs: no deep recursion, no quadratic time. */
static void test_large_arguments(void **state)
{
    (void)state;
    static const char *const units[] = {"{a:", "[",    "]",    "}",       ",", "a,",
                                        "\"",  "'\",", "\xFF", "a:\xFF,", ":", "a:'b',"};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        struct buf text = {0}, name = {0}, found = {0};
        buf_add_text(&text, "f{");
        while (text.length < 300000) buf_add_text(&text, units[u]);
        buf_add_text(&text, "\xFF}");
        call_read(text.data, text.length, true, &name, &found);
        assert_true(found.length >= 2 && found.data[found.length - 1] == '}');
        struct call_stream stream = {.place = CALL_NAME};
        struct buf sent = {0};
        for (size_t n = 0; n <= text.length; n++) call_stream_read(&stream, text.data, n, &sent);
        assert_true(sent.length <= found.length);
        assert_memory_equal(sent.data, found.data, sent.length);
        buf_deinit(&sent);
        buf_deinit(&text);
        buf_deinit(&name);
        buf_deinit(&found);
    }
}

/* Many values before one mark, with blanks on both sides of the mark, which tell whether it
 * closes. */
static void read_blanks(void *user, size_t n)
{
    bool is_after = *(bool *)user;
    struct buf text = {0}, name = {0}, found = {0};
    buf_add_text(&text, "f{a:[");
    for (size_t i = 0; i < n; i++) buf_add_text(&text, "a,");
    for (size_t i = 0; i < n && !is_after; i++) buf_add_char(&text, ' ');
    buf_add_char(&text, CALL_MARK);
    for (size_t i = 0; i < n && is_after; i++) buf_add_char(&text, ' ');
    buf_add_text(&text, "x}");
    cost_begin();
    call_read(text.data, text.length, true, &name, &found);
    cost_end();
    buf_deinit(&text);
    buf_deinit(&name);
    buf_deinit(&found);
}

static void test_blanks_around_a_mark_take_linear_time(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool is_after = i;
        assert_true(cost_ratio(read_blanks, &is_after, 8000, 32000) < LINEAR_MAX);
    }
}

static void test_out_of_memory(void **state)
{
    (void)state;
    size_t n_prompt, count, n;
    int32_t *prompt = encode(PROMPT "<|tool_call>call:f{a:", &n_prompt);
    int32_t *ids = encode("1}<tool_call|>text<|channel>thought\nso<channel|>", &count);
    long before = mem_blocks_live();
    int n_whole = 0; /* of both ways */
    for (long fail = 0;; fail++) {
        struct carat_parser *p;
        struct carat_error err;
        const struct carat_part *parts;
        mem_fail_after(fail);
        int status = parser_open(&p, shared_vocab(), prompt, n_prompt, &err);
        if (status == CARAT_OK && fail % 2) parser_stream_calls(p);
        if (status == CARAT_OK) status = parser_push(p, ids, count, &parts, &n, &err);
        bool failed = mem_fail_after(-1);
        parser_close(p);
        assert_int_equal(mem_blocks_live(), before);
        assert_int_equal(status, failed ? CARAT_EMEMORY : CARAT_OK);
        n_whole += !failed;
        if (n_whole == 2) break;
        assert_true(fail < 200);
    }
    mem_free(prompt);
    mem_free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thoughts),
        cmocka_unit_test(test_cut_thoughts),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_cut_calls),
        cmocka_unit_test(test_call_cut_before_its_name),
        cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_random_arguments),
        cmocka_unit_test(the_count_of_thoughts_is_open_where_the_parser_thinks),
        cmocka_unit_test(what_was_streamed_begins_every_outcome),
        cmocka_unit_test(repairs_never_contradict_what_was_streamed),
        cmocka_unit_test(strings_are_streamed_as_they_come),
        cmocka_unit_test(test_large_arguments),
        cmocka_unit_test(test_spelled_marks),
        cmocka_unit_test(test_blanks_around_a_mark_take_linear_time),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, shared_vocab_open, shared_vocab_close);
}
