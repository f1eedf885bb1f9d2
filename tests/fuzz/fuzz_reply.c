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
 * Subject: src/api/custom_input.c 75
 * Subject: src/api/ollama_form.c 95
 * Subject: src/api/reply_common.c 95
 * Subject: src/api/sse.c 75 */
#include <string.h>

#include "api/reply.h"
#include "base/assert.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "fuzz/source.h"
#include "support/heard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANSWERS_MAX = 3 };

struct case_ {
    struct source in;
    struct reply *r;
    enum api api;
    struct buf out;
    struct heard said[ANSWERS_MAX], heard[ANSWERS_MAX];
    size_t ids_said;
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

/* A call, whole or in pieces; perhaps with the one argument of a custom tool. */
static void give_call(struct case_ *c, int32_t answer, struct carat_part *part)
{
    struct heard *said = &c->said[answer];
    struct buf input = {0};
    uint8_t flags = next_byte(&c->in);
    part->kind = CARAT_PART_TOOL_CALL;
    part->name = flags & 1 ? "f" : "a \"name\"\n";
    part->is_complete = flags & 2;
    if (flags & 4) {
        buf_add_text(&input, "{\"input\":\"");
        if (flags & 8)
            json_escape(&input, part->text, part->length);
        else
            buf_add(&input, part->text, part->length);
        buf_add_text(&input, "\"}");
        part->text = buf_text(&input);
        part->length = input.length;
    }
    buf_add_text(&said->calls, part->name);
    buf_add_char(&said->calls, '(');
    buf_add(&said->calls, part->text, part->length);
    if (flags & 16)
        give_pieces(c, answer, part);
    else
        reply_part(c->r, answer, part, &c->out);
    buf_deinit(&input);
}

static void give_part(struct case_ *c, int32_t answer)
{
    struct heard *said = &c->said[answer];
    size_t length;
    const char *text = draw_text(&c->in, &length);
    struct carat_part part = {.text = text, .length = length, .name = ""};
    switch (next_byte(&c->in) % 4) {
    case 0:
        part.kind = CARAT_PART_THINKING;
        buf_add(&said->thought, text, length);
        break;
    case 1: give_call(c, answer, &part); return;
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

/* ---- Hearing them ------------------------------------------------------------------------ */

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
    heard_add(c->heard, c->api, &c->out);
    bool has_calls = ask->api == API_CHAT;
    if (ask->api == API_MESSAGES || ask->api == API_RESPONSES)
        has_calls = ask->is_stream && ask->n_renamed == 0;
    for (int32_t i = 0; i < n; i++) {
        check_same(&c->said[i].text, &c->heard[i].text);
        if (ask->api == API_COMPLETIONS) continue;
        check_same(&c->said[i].thought, &c->heard[i].thought);
        if (has_calls) check_same(&c->said[i].calls, &c->heard[i].calls);
    }
    size_t n_ids = 0;
    for (int32_t i = 0; i < n; i++) n_ids += c->heard[i].n_ids;
    carat_assert(n_ids == (ask->wants_ids ? c->ids_said : 0));
    buf_clear(&c->out);
    struct api_error error = api_error_make(500, NULL, "it \"broke\"\n");
    reply_fail(c->r, &error, &c->out);
    heard_add(c->heard, c->api, &c->out);
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
        heard_deinit(&c.said[i]);
        heard_deinit(&c.heard[i]);
    }
    buf_deinit(&c.out);
    carat_assert(mem_blocks_live() == before);
    return 0;
}
