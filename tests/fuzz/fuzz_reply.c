/* Replies from random parts: in every API each event of a stream, and every body, is JSON without
 * raw line ends; what is said together is the parts: texts and thoughts in every API, calls
 * where they are said as they are.
 *
 * Subject: src/api/reply.c 95
 * Subject: src/api/reply_tokens.c 95
 * Subject: src/api/chat_form.c 95
 * Subject: src/api/completions_form.c 95
 * Subject: src/api/openai_words.c 95
 * Subject: src/api/messages_form.c 95
 * Subject: src/api/responses_form.c 95
 * Subject: src/api/ollama_form.c 95
 * Subject: src/api/reply_common.c 95
 * Subject: src/api/sse.c 75 */
#include <string.h>

#include "api/reply.h"
#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "fuzz/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANSWERS_MAX = 3 };

/* What each answer said: text, thoughts, and calls as NAME(arguments). */
struct told {
    struct buf text, thought, calls;
};

struct case_ {
    struct source in;
    struct reply *r;
    enum api api;
    struct buf out;
    struct told said[ANSWERS_MAX], heard[ANSWERS_MAX];
    size_t ids_said, ids_heard;
};

/* ---- Giving parts ----------------------------------------------------------------------- */

/* Some bytes of the input, as far as they are text. */
static const char *draw_text(struct source *in, size_t *length)
{
    *length = next_byte(in) % 40;
    const char *text = next_bytes(in, length);
    *length = utf8_valid_prefix(text, *length);
    return text;
}

/* The same call as give_part's, in two pieces. */
static void give_pieces(struct case_ *c, int32_t answer, const struct carat_part *call)
{
    struct carat_part piece = *call;
    size_t cut = utf8_valid_prefix(call->text, call->length / 2);
    piece.kind = CARAT_PART_CALL_BEGIN;
    reply_part(c->r, answer, &piece, &c->out);
    piece.kind = CARAT_PART_CALL_ARGUMENTS;
    piece.length = cut;
    reply_part(c->r, answer, &piece, &c->out);
    piece.text = call->text + cut;
    piece.length = call->length - cut;
    reply_part(c->r, answer, &piece, &c->out);
    piece.kind = CARAT_PART_CALL_END;
    reply_part(c->r, answer, &piece, &c->out);
}

static void give_part(struct case_ *c, int32_t answer)
{
    struct told *said = &c->said[answer];
    size_t length;
    const char *text = draw_text(&c->in, &length);
    struct carat_part part = {.text = text, .length = length, .name = ""};
    switch (next_byte(&c->in) % 4) {
    case 0:
        part.kind = CARAT_PART_THINKING;
        buf_add(&said->thought, text, length);
        break;
    case 1:
        part.kind = CARAT_PART_TOOL_CALL;
        part.name = next_byte(&c->in) % 2 ? "f" : "a \"name\"\n";
        part.is_complete = next_byte(&c->in) % 2;
        buf_add_text(&said->calls, part.name);
        buf_add_char(&said->calls, '(');
        buf_add(&said->calls, text, length);
        if (next_byte(&c->in) % 2) {
            give_pieces(c, answer, &part);
            return;
        }
        break;
    default: part.kind = CARAT_PART_TEXT; buf_add(&said->text, text, length);
    }
    reply_part(c->r, answer, &part, &c->out);
}

static void give_token(struct case_ *c, int32_t answer)
{
    struct reply_token token = {.logprob = -(float)next_byte(&c->in), .is_text = true};
    size_t length = next_byte(&c->in) % 4;
    token.bytes = next_bytes(&c->in, &length); /* any bytes */
    token.length = length;
    struct reply_top top = {.bytes = token.bytes, .length = length, .logprob = token.logprob};
    token.top = &top;
    token.n_top = next_byte(&c->in) % 2;
    reply_token(c->r, answer, &token, &c->out);
}

/* A token that is told by its id, with or without text. */
static void give_id(struct case_ *c, int32_t answer)
{
    reply_id(c->r, answer, next_byte(&c->in), &c->out);
    c->ids_said++;
    if (next_byte(&c->in) % 2) give_part(c, answer);
    reply_ids_end(c->r, answer, &c->out);
}

static void give_all(struct case_ *c, int32_t n)
{
    reply_begin(c->r, &c->out);
    while (c->in.at < c->in.size) {
        int32_t answer = next_byte(&c->in) % n;
        struct reply_usage usage = {.n_prompt = 3, .n_generated = next_byte(&c->in)};
        switch (next_byte(&c->in) % 8) {
        case 0: give_token(c, answer); break;
        case 1: reply_ping(c->r, &c->out); break;
        case 2: reply_progress(c->r, answer, 1, 3, 0, &c->out); break;
        case 3: reply_usage_now(c->r, answer, &usage); break;
        case 4: give_id(c, answer); break;
        default: give_part(c, answer);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        struct reply_done done = {.end = (enum reply_end)((c->in.size + (size_t)i) % 3),
                                  .stop = "\"\n",
                                  .is_cut_in_thought = i == 1};
        reply_answer_done(c->r, i, &done, &c->out);
    }
    reply_finish(c->r, &c->out);
}

/* ---- Reading them back ------------------------------------------------------------------ */

static void hear_text(struct buf *out, const struct carat_value *value)
{
    if (value->kind == CARAT_STRING) buf_add(out, value->as.string.data, value->as.string.length);
}

static void hear_choice(struct case_ *c, const struct carat_value *choice)
{
    struct told *heard = &c->heard[json_member(choice, "index")->as.integer];
    const struct carat_value *delta = json_member(choice, "delta");
    if (delta->kind == CARAT_NULL) delta = json_member(choice, "message");
    const struct carat_value *ids = json_member(choice, "token_ids");
    if (ids->kind == CARAT_ARRAY) c->ids_heard += ids->as.array.count;
    hear_text(&heard->text, json_member(choice, "text"));
    hear_text(&heard->text, json_member(delta, "content"));
    hear_text(&heard->thought, json_member(delta, "reasoning_content"));
    const struct carat_value *calls = json_member(delta, "tool_calls");
    for (size_t i = 0; calls->kind == CARAT_ARRAY && i < calls->as.array.count; i++) {
        const struct carat_value *function = json_member(&calls->as.array.items[i], "function");
        const struct carat_value *name = json_member(function, "name");
        hear_text(&heard->calls, name);
        if (name->kind == CARAT_STRING) buf_add_char(&heard->calls, '(');
        hear_text(&heard->calls, json_member(function, "arguments"));
    }
}

/* Items of a whole body, and what a delta or a line says. */
static void hear_said(struct told *heard, const struct carat_value *said)
{
    static const char *const texts[] = {"text", "content", "response"};
    for (size_t i = 0; i < 3; i++) hear_text(&heard->text, json_member(said, texts[i]));
    hear_text(&heard->thought, json_member(said, "thinking"));
}

static void hear_call(struct told *heard, const struct carat_value *call)
{
    const struct carat_value *name = json_member(call, "name");
    hear_text(&heard->calls, name);
    if (name->kind == CARAT_STRING) buf_add_char(&heard->calls, '(');
}

static void hear_messages(struct told *heard, const struct carat_value *root)
{
    const struct carat_value *delta = json_member(root, "delta");
    const struct carat_value *blocks = json_member(root, "content");
    hear_said(heard, delta);
    hear_text(&heard->calls, json_member(delta, "partial_json"));
    hear_call(heard, json_member(root, "content_block"));
    for (size_t i = 0; blocks->kind == CARAT_ARRAY && i < blocks->as.array.count; i++)
        hear_said(heard, &blocks->as.array.items[i]);
}

static void hear_parts(struct buf *out, const struct carat_value *parts)
{
    for (size_t i = 0; parts->kind == CARAT_ARRAY && i < parts->as.array.count; i++)
        hear_text(out, json_member(&parts->as.array.items[i], "text"));
}

static void hear_responses(struct told *heard, const struct carat_value *root)
{
    const struct carat_value *type = json_member(root, "type"), *output;
    const struct carat_value *delta = json_member(root, "delta");
    output = json_member(root, "output"); /* of a whole body */
    if (json_text_is(type, "response.output_text.delta")) hear_text(&heard->text, delta);
    if (json_text_is(type, "response.reasoning_summary_text.delta"))
        hear_text(&heard->thought, delta);
    if (json_text_is(type, "response.function_call_arguments.delta"))
        hear_text(&heard->calls, delta);
    if (json_text_is(type, "response.output_item.added"))
        hear_call(heard, json_member(root, "item"));
    for (size_t i = 0; output->kind == CARAT_ARRAY && i < output->as.array.count; i++) {
        hear_parts(&heard->text, json_member(&output->as.array.items[i], "content"));
        hear_parts(&heard->thought, json_member(&output->as.array.items[i], "summary"));
    }
}

static void hear_root(struct case_ *c, const struct carat_value *root)
{
    const struct carat_value *choices = json_member(root, "choices");
    for (size_t i = 0; choices->kind == CARAT_ARRAY && i < choices->as.array.count; i++)
        hear_choice(c, &choices->as.array.items[i]);
    if (c->api == API_MESSAGES) hear_messages(&c->heard[0], root);
    if (c->api == API_RESPONSES) hear_responses(&c->heard[0], root);
    if (c->api == API_OLLAMA_CHAT) hear_said(&c->heard[0], json_member(root, "message"));
    if (c->api == API_OLLAMA_GENERATE) hear_said(&c->heard[0], root);
}

static void hear_json(struct case_ *c, const char *text, size_t length)
{
    struct json_tree tree;
    carat_assert(!memchr(text, '\n', length) && !memchr(text, '\r', length));
    carat_assert(json_tree_read(&tree, text, length, JSON_PLAIN, NULL) == CARAT_OK);
    hear_root(c, &tree.root);
    json_tree_free(&tree);
}

/* Lines of a stream, or the one line of a body. */
static void hear_all(struct case_ *c)
{
    const char *at = buf_text(&c->out), *end = at + c->out.length;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        carat_assert(line_end);
        size_t length = (size_t)(line_end - at);
        if (length > 6 && memcmp(at, "data: ", 6) == 0) {
            if (length != 12 || memcmp(at, "data: [DONE]", 12) != 0)
                hear_json(c, at + 6, length - 6);
        } else if (*at == '{') {
            hear_json(c, at, length);
        } else {
            carat_assert(length == 0 || *at == ':' || memcmp(at, "event: ", 7) == 0);
        }
        at = line_end + 1;
    }
}

static void check_same(const struct buf *a, const struct buf *b)
{
    carat_assert(a->length == b->length);
    carat_assert(memcmp(buf_text(a), buf_text(b), a->length) == 0);
}

static void run(struct case_ *c, const struct ask *ask, int32_t n)
{
    const struct reply_facts facts = {
        .id = "r1", .model = "a \"model\"\n", .fingerprint = "f", .n_prompt = 3};
    struct carat_error err = {0};
    if (reply_open(&c->r, ask, &facts, &err) != CARAT_OK) return;
    carat_assert(reply_content_type(c->r)[0]);
    give_all(c, n);
    hear_all(c);
    bool has_calls = ask->api == API_CHAT;
    if (ask->api == API_MESSAGES || ask->api == API_RESPONSES)
        has_calls = ask->is_stream && ask->n_renamed == 0;
    for (int32_t i = 0; i < n; i++) {
        check_same(&c->said[i].text, &c->heard[i].text);
        if (ask->api == API_COMPLETIONS) continue;
        check_same(&c->said[i].thought, &c->heard[i].thought);
        if (has_calls) check_same(&c->said[i].calls, &c->heard[i].calls);
    }
    buf_clear(&c->out);
    struct api_error error = api_error_make(500, NULL, "it \"broke\"\n");
    reply_fail(c->r, &error, &c->out);
    hear_all(c);
    reply_close(c->r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct case_ c = {.in = {.data = data, .size = size}};
    struct ask_prompt prompt = {.text = "a\n", .length = 2};
    uint8_t flags = next_byte(&c.in), more = next_byte(&c.in);
    long before = mem_blocks_live();
    int32_t n = 1 + more % ANSWERS_MAX;
    struct ask ask = {.api = (enum api)(next_byte(&c.in) % API_COUNT),
                      .n = n,
                      .model = "",
                      .session = "",
                      .is_stream = flags & 1,
                      .wants_usage = flags & 2,
                      .wants_progress = flags & 4,
                      .wants_timings = flags & 8};
    ask.request.want_logprobs = flags & 16;
    if (ask.api == API_COMPLETIONS) {
        ask.prompts = &prompt;
        ask.n_prompts = 1;
        ask.wants_echo = flags & 32;
        ask.wants_ids = flags & 64;
    }
    struct ask_tool custom = {.shown = "f", .name = "f", .space = "s", .is_custom = true};
    if (ask.api > API_COMPLETIONS) ask.n = n = 1;
    if (ask.api == API_RESPONSES && (flags & 64)) {
        ask.renamed = &custom;
        ask.n_renamed = 1;
    }
    c.api = ask.api;
    for (int32_t i = 0; i < n && ask.wants_echo; i++) buf_add_text(&c.said[i].text, "a\n");
    run(&c, &ask, n);
    for (int32_t i = 0; i < ANSWERS_MAX; i++) {
        struct told *both[2] = {&c.said[i], &c.heard[i]};
        for (int k = 0; k < 2; k++) {
            buf_deinit(&both[k]->text);
            buf_deinit(&both[k]->thought);
            buf_deinit(&both[k]->calls);
        }
    }
    buf_deinit(&c.out);
    carat_assert(mem_blocks_live() == before);
    return 0;
}
