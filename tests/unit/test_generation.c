/* Tokens on their way to a client: scripted ones instead of an engine's, through parts and replies
 * of every API. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "carat.h"

#ifdef CARAT_HAVE_JSON

#include "base/buf.h"
#include "server/generation.h"
#include "support/heard.h"

#define DEMO CARAT_SOURCE_DIR "/models/demo.gguf"

static carat_model *model;

static int open_model(void **state)
{
    (void)state;
    return carat_model_open(&model, DEMO, NULL);
}

static int close_model(void **state)
{
    (void)state;
    carat_model_close(model);
    return 0;
}

/* ---- Scripts ---------------------------------------------------------------------------- */

enum { IDS_MAX = 2048 };

struct script {
    int32_t ids[IDS_MAX];
    size_t n;
};

static void add_piece(struct script *s, const char *text, size_t length, enum carat_special special)
{
    int32_t *ids;
    size_t n;
    assert_int_equal(carat_tokenize(model, text, length, special, false, &ids, &n, NULL), CARAT_OK);
    assert_true(s->n + n <= IDS_MAX);
    if (n) memcpy(s->ids + s->n, ids, n * sizeof *ids);
    s->n += n;
    carat_free(ids);
}

static const char *const marks[] = {"<|channel>",   "<channel|>", "<|tool_call>",
                                    "<tool_call|>", "<|\"|>",     NULL};

/* The mark that text begins with; 0: none. */
static size_t mark_at(const char *text)
{
    for (size_t i = 0; marks[i]; i++)
        if (strncmp(text, marks[i], strlen(marks[i])) == 0) return strlen(marks[i]);
    return 0;
}

/* Tokens of text[from, to): marks are one token each. Half a character is tokens of its bytes. */
static void add_range(struct script *s, const char *text, size_t from, size_t to)
{
    size_t begin = from;
    for (size_t i = from; i < to;) {
        size_t mark = mark_at(text + i);
        if (mark == 0 || i + mark > to) {
            i++;
            continue;
        }
        add_piece(s, text + begin, i - begin, CARAT_SPECIAL_NONE);
        add_piece(s, text + i, mark, CARAT_SPECIAL_ALL);
        begin = i += mark;
    }
    add_piece(s, text + begin, to - begin, CARAT_SPECIAL_NONE);
}

static struct script script_of(const char *text)
{
    struct script s = {.n = 0};
    add_range(&s, text, 0, strlen(text));
    return s;
}

/* ---- Replies ---------------------------------------------------------------------------- */

static struct ask asked(enum api api, bool is_stream)
{
    return (struct ask){.api = api,
                        .n = 1,
                        .model = "",
                        .session = "",
                        .is_stream = is_stream,
                        .request = {.max_tokens = -1}};
}

/* The whole reply to an ask whose answer is the script. */
static void answer(const struct ask *ask, const struct script *s, enum carat_finish finish,
                   struct buf *out)
{
    static int32_t prompt_ids[] = {2};
    const struct prompt prompt = {.ids = prompt_ids, .n = 1};
    const struct reply_facts facts = {.id = "r1", .model = "m", .fingerprint = "f", .n_prompt = 1};
    struct generation g;
    struct reply *r;
    struct carat_error err = {0};
    assert_int_equal(generation_open(&g, model, ask, &prompt, NULL, 0, &err), CARAT_OK);
    assert_int_equal(reply_open(&r, ask, &facts, &err), CARAT_OK);
    reply_begin(r, out);
    for (size_t i = 0; i < s->n; i++) {
        const struct job_event token = {.kind = JOB_TOKEN, .id = s->ids[i]};
        assert_int_equal(generation_push(&g, &token, r, out, &err), CARAT_OK);
    }
    const struct job_event done = {
        .kind = JOB_DONE, .finish = finish, .n_prompt = 1, .n_generated = (int32_t)s->n};
    assert_int_equal(generation_push(&g, &done, r, out, &err), CARAT_OK);
    assert_int_equal(generation_end(&g, r, out, &err), CARAT_OK);
    reply_finish(r, out);
    assert_false(out->failed);
    generation_close(&g);
    reply_close(r);
}

static const enum api chats[] = {API_CHAT, API_RESPONSES, API_MESSAGES, API_OLLAMA_CHAT};
enum { N_CHATS = sizeof chats / sizeof *chats };
static const enum carat_finish ends[] = {CARAT_FINISH_STOP, CARAT_FINISH_LENGTH};

static struct heard hear(enum api api, bool is_stream, const struct script *s,
                         enum carat_finish finish)
{
    const struct ask ask = asked(api, is_stream);
    struct heard heard = {0};
    struct buf out = {0};
    answer(&ask, s, finish, &out);
    heard_add(&heard, api, &out);
    buf_deinit(&out);
    return heard;
}

static void expect(const char *what, const struct buf *found, const char *expected)
{
    if (found->length != strlen(expected) || memcmp(buf_text(found), expected, found->length) != 0)
        fail_msg("%s: \"%s\" found, \"%s\" expected", what, buf_text(found), expected);
}

static void expect_heard(enum api api, bool is_stream, const struct script *s,
                         enum carat_finish finish, const char *thought, const char *text,
                         const char *calls)
{
    struct heard heard = hear(api, is_stream, s, finish);
    expect("thought", &heard.thought, thought);
    expect("text", &heard.text, text);
    expect("calls", &heard.calls, calls);
    heard_deinit(&heard);
}

/* ---- Splits ----------------------------------------------------------------------------- */

/* Marks that are cut are no marks any more, so cuts move to their ends. */
static size_t outside_marks(const char *text, size_t cut)
{
    for (size_t i = 0; i < cut; i++) {
        size_t mark = mark_at(text + i);
        if (mark && i + mark > cut) return i + mark;
    }
    return cut;
}

static void try_all_splits(const char *text, const char *thought, const char *said,
                           const char *calls)
{
    size_t length = strlen(text);
    for (size_t first = 0; first <= length; first++) {
        for (size_t second = first; second <= length; second++) {
            size_t a = outside_marks(text, first), b = outside_marks(text, second);
            struct script s = {.n = 0};
            if (a != first || b != second) continue;
            add_range(&s, text, 0, a);
            add_range(&s, text, a, b);
            add_range(&s, text, b, length);
            for (int i = 0; i < N_CHATS; i++)
                for (int is_stream = 0; is_stream < 2; is_stream++)
                    expect_heard(chats[i], is_stream, &s, CARAT_FINISH_STOP, thought, said, calls);
        }
    }
}

static void every_split_says_the_same_in_every_interface(void **state)
{
    (void)state;
    try_all_splits("<|channel>thought\nh\xC3\xA9m\n<channel|>a\xE2\x82\xAC\xF0\x9F\x98\x80.",
                   "h\xC3\xA9m", "a\xE2\x82\xAC\xF0\x9F\x98\x80.", "");
    try_all_splits("I<|tool_call>call:f{a:<|\"|>\xC3\xA9\"\n<|\"|>,b:[1,true]}<tool_call|>", "",
                   "I", "f({\"a\":\"\xC3\xA9\\\"\\n\",\"b\":[1,true]}");
}

/* ---- Marks ------------------------------------------------------------------------------ */

/* Calls are banned, or the model writes marks where none belong. */
static void marks_are_never_shown(void **state)
{
    static const struct {
        const char *script, *thought, *text;
    } cases[] = {
        {"say <|\"|>yes<|\"|>.", "", "say yes."},
        {"<|channel>thought\n<|\"|>h<|tool_call>m<channel|>Yes<channel|>.", "hm", "Yes."},
        {"a<|tool_call>b<tool_call|>c", "", "abc"},
        {"a<|tool_call>call<|\"|>", "", "acall"},
        {"<channel|><tool_call|>Yes<|\"|>", "", "Yes"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const struct script s = script_of(cases[k].script);
        for (int i = 0; i < N_CHATS; i++)
            for (int is_stream = 0; is_stream < 2; is_stream++)
                for (int e = 0; e < 2; e++)
                    expect_heard(chats[i], is_stream, &s, ends[e], cases[k].thought, cases[k].text,
                                 "");
    }
}

/* Whatever the number of tokens that it is cut after. */
static void a_cut_shows_no_mark_and_no_part_of_one(void **state)
{
    const struct script whole = script_of("<|channel>thought\nhm<channel|>I look.<|tool_call>call:f"
                                          "{a:<|\"|>x<|\"|>}<tool_call|>");
    (void)state;
    for (size_t n = 0; n <= whole.n; n++) {
        struct script s = whole;
        s.n = n;
        for (int i = 0; i < N_CHATS; i++) {
            for (int is_stream = 0; is_stream < 2; is_stream++) {
                struct heard heard = hear(chats[i], is_stream, &s, CARAT_FINISH_LENGTH);
                assert_null(strpbrk(buf_text(&heard.text), "<|>"));
                assert_null(strpbrk(buf_text(&heard.thought), "<|>"));
                assert_null(strpbrk(buf_text(&heard.calls), "<|>"));
                heard_deinit(&heard);
            }
        }
    }
}

/* What the tokens of log-probabilities say together. */
static void add_tokens(struct buf *all, const struct carat_value *value)
{
    const struct carat_value *token = json_member(value, "token");
    if (token->kind == CARAT_STRING) buf_add(all, token->as.string.data, token->as.string.length);
    for (size_t i = 0; value->kind == CARAT_ARRAY && i < value->as.array.count; i++)
        add_tokens(all, &value->as.array.items[i]);
    for (size_t i = 0; value->kind == CARAT_OBJECT && i < value->as.object.count; i++)
        add_tokens(all, &value->as.object.members[i].value);
}

static void log_probabilities_are_those_of_the_visible_text(void **state)
{
    const struct script s = script_of("<|channel>thought\nhm\n<channel|>I<|\"|> look.<|tool_call>"
                                      "call:f{a:<|\"|>x<|\"|>}<tool_call|>Done.");
    struct ask ask = asked(API_CHAT, false);
    struct buf out = {0}, said = {0};
    struct json_tree tree;
    (void)state;
    ask.request.want_logprobs = true;
    answer(&ask, &s, CARAT_FINISH_STOP, &out);
    assert_int_equal(json_tree_read(&tree, buf_text(&out), out.length, JSON_PLAIN, NULL), CARAT_OK);
    add_tokens(&said, &tree.root);
    expect("tokens", &said, "I look.Done.");
    json_tree_free(&tree);
    buf_deinit(&said);
    buf_deinit(&out);
}

/* ---- Calls that were cut ---------------------------------------------------------------- */

static void a_call_that_is_cut_in_its_name_is_not_told(void **state)
{
    static const char *const cuts[] = {"Yes<|tool_call>",
                                       "Yes<|tool_call>call:", "Yes<|tool_call>call:delete_a",
                                       "Yes<|tool_call>call:delete_all"};
    (void)state;
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
        const struct script s = script_of(cuts[k]);
        for (int i = 0; i < N_CHATS; i++)
            for (int is_stream = 0; is_stream < 2; is_stream++)
                for (int e = 0; e < 2; e++)
                    expect_heard(chats[i], is_stream, &s, ends[e], "", "Yes", "");
    }
}

/* What is made of its arguments is what came, and never an object that looks whole. Where arguments
 * are objects, there is none, or no call. */
static void a_call_that_is_cut_in_its_arguments_never_looks_complete(void **state)
{
    const struct script s = script_of("<|tool_call>call:f{a:<|\"|>one two,b:");
    (void)state;
    for (int e = 0; e < 2; e++) {
        expect_heard(API_CHAT, false, &s, ends[e], "", "", "f({\"a\":\"one two");
        expect_heard(API_CHAT, true, &s, ends[e], "", "", "f({\"a\":\"one two");
        expect_heard(API_RESPONSES, false, &s, ends[e], "", "", "f({\"a\":\"one two");
        expect_heard(API_RESPONSES, true, &s, ends[e], "", "", "f({\"a\":\"one two");
        expect_heard(API_MESSAGES, true, &s, ends[e], "", "", "f({\"a\":\"one two");
        expect_heard(API_MESSAGES, false, &s, ends[e], "", "", "f({}");
        expect_heard(API_OLLAMA_CHAT, true, &s, ends[e], "", "", "");
        expect_heard(API_OLLAMA_CHAT, false, &s, ends[e], "", "", "");
    }
}

static void expect_words(enum api api, bool is_stream, const char *text, const char *words)
{
    const struct script s = script_of(text);
    const struct ask ask = asked(api, is_stream);
    for (int e = 0; e < 2; e++) {
        struct buf out = {0};
        answer(&ask, &s, ends[e], &out);
        if (!strstr(buf_text(&out), words))
            fail_msg("%s: %s expected in %s", text, words, buf_text(&out));
        buf_deinit(&out);
    }
}

static void an_answer_with_a_cut_call_says_that_it_is_cut(void **state)
{
    static const char *const cuts[] = {"<|tool_call>call:delete_a", "<|tool_call>call:f{a:1"};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            expect_words(API_CHAT, is_stream, cuts[k], "\"finish_reason\":\"length\"");
            expect_words(API_MESSAGES, is_stream, cuts[k], "\"stop_reason\":\"max_tokens\"");
            expect_words(API_RESPONSES, is_stream, cuts[k], "\"reason\":\"max_output_tokens\"");
            expect_words(API_OLLAMA_CHAT, is_stream, cuts[k], "\"done_reason\":\"length\"");
        }
    }
    expect_words(API_RESPONSES, true, cuts[1],
                 "\"type\":\"function_call\",\"status\":\"incomplete\",\"call_id\"");
}

static void a_call_that_is_whole_at_the_limit_is_told_whole(void **state)
{
    const struct script s = script_of("<|tool_call>call:f{a:1}<tool_call|>");
    (void)state;
    for (int i = 0; i < N_CHATS; i++)
        for (int is_stream = 0; is_stream < 2; is_stream++)
            expect_heard(chats[i], is_stream, &s, CARAT_FINISH_LENGTH, "", "", "f({\"a\":1}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_says_the_same_in_every_interface),
        cmocka_unit_test(marks_are_never_shown),
        cmocka_unit_test(a_cut_shows_no_mark_and_no_part_of_one),
        cmocka_unit_test(log_probabilities_are_those_of_the_visible_text),
        cmocka_unit_test(a_call_that_is_cut_in_its_name_is_not_told),
        cmocka_unit_test(a_call_that_is_cut_in_its_arguments_never_looks_complete),
        cmocka_unit_test(an_answer_with_a_cut_call_says_that_it_is_cut),
        cmocka_unit_test(a_call_that_is_whole_at_the_limit_is_told_whole),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}

#else
#include "support/without_jansson.h"
#endif
