/* OpenAI's completions: chunks of a stream, or one body. Calls and thoughts do not exist here: the
 * caller opens raw answers. */
#include <string.h>

#include "api/openai_words.h"
#include "api/sse.h"

#define PREFIX "cmpl-"
#define OBJECT "text_completion"

static const struct ask_prompt *prompt_of(const struct reply *r, int32_t answer)
{
    return &r->ask->prompts[answer / r->ask->n];
}

static void write_logprobs(struct reply *r, int32_t answer, struct json *j)
{
    struct reply_tokens *tokens = &r->answers[answer].tokens;
    json_key(j, "logprobs");
    reply_tokens_write_completion(tokens, j);
    reply_tokens_clear(tokens);
}

static void write_ids(struct reply *r, int32_t answer, struct json *j)
{
    struct buf *ids = &r->answers[answer].ids;
    if (!r->ask->wants_ids) return;
    json_key_array(j, "token_ids");
    for (size_t i = 0; i < ids->length; i += sizeof(int32_t)) {
        int32_t id;
        memcpy(&id, ids->data + i, sizeof id);
        json_int(j, id);
    }
    json_end_array(j);
    buf_clear(ids);
}

/* ---- Chunks ----------------------------------------------------------------------------- */

static void chunk(struct reply *r, int32_t answer, const char *text, size_t length, bool is_last,
                  struct buf *out)
{
    struct json j = {.out = out};
    sse_begin(out, NULL);
    openai_begin(r, &j, PREFIX, OBJECT);
    json_begin_object(&j);
    json_key_text(&j, "text", text, length);
    json_key_int(&j, "index", answer);
    write_logprobs(r, answer, &j);
    write_ids(r, answer, &j);
    if (is_last) {
        openai_write_end(&r->answers[answer], &j);
    } else {
        json_key_null(&j, "finish_reason");
    }
    json_end_object(&j);
    openai_end(r, &j);
    if (is_last || r->ask->wants_timings) openai_write_timings(&r->answers[answer].done.usage, &j);
    json_end_object(&j);
    sse_end(out);
}

static void begin(struct reply *r, struct buf *out)
{
    for (int32_t i = 0; r->ask->wants_echo && i < r->n_answers; i++)
        chunk(r, i, prompt_of(r, i)->text, prompt_of(r, i)->length, false, out);
}

static void progress(struct reply *r, int32_t answer, int32_t done, int32_t total, int32_t cached,
                     struct buf *out)
{
    struct json j = {.out = out};
    sse_begin(out, NULL);
    openai_begin(r, &j, PREFIX, OBJECT);
    json_begin_object(&j);
    json_key_string(&j, "text", "");
    json_key_int(&j, "index", answer);
    json_key_null(&j, "finish_reason");
    json_end_object(&j);
    openai_end(r, &j);
    openai_write_progress(done, total, cached, &j);
    json_end_object(&j);
    sse_end(out);
}

static void piece(struct reply *r, int32_t answer, enum reply_piece kind, const char *text,
                  size_t length, struct buf *out)
{
    bool has_ids = r->answers[answer].ids.length > 0;
    if (kind == PIECE_TEXT && (length || has_ids)) chunk(r, answer, text, length, false, out);
}

static void answer_done(struct reply *r, int32_t answer, struct buf *out)
{
    chunk(r, answer, "", 0, true, out);
}

static void finish(struct reply *r, struct buf *out)
{
    openai_finish_stream(r, PREFIX, OBJECT, out);
}

/* ---- One body --------------------------------------------------------------------------- */

static void write_text(const struct reply *r, int32_t answer, struct json *j)
{
    const struct buf *text = &r->answers[answer].text;
    const struct ask_prompt *prompt = prompt_of(r, answer);
    struct buf both = {0};
    if (!r->ask->wants_echo) {
        json_text(j, buf_text(text), text->length);
        return;
    }
    buf_add(&both, prompt->text, prompt->length);
    buf_add(&both, buf_text(text), text->length);
    json_text(j, buf_text(&both), both.length);
    j->out->failed |= both.failed;
    buf_deinit(&both);
}

static void whole(struct reply *r, struct buf *out)
{
    struct json j = {.out = out};
    openai_begin(r, &j, PREFIX, OBJECT);
    for (int32_t i = 0; i < r->n_answers; i++) {
        json_begin_object(&j);
        json_key(&j, "text");
        write_text(r, i, &j);
        json_key_int(&j, "index", i);
        write_logprobs(r, i, &j);
        write_ids(r, i, &j);
        openai_write_end(&r->answers[i], &j);
        json_end_object(&j);
    }
    openai_end_body(r, &j);
}

const struct reply_form completions_form = {
    .stream_type = SSE_TYPE,
    .begin = begin,
    .progress = progress,
    .has_ids = true,
    .piece = piece,
    .answer_done = answer_done,
    .finish = finish,
    .fail = openai_fail,
    .ping = openai_ping,
    .whole = whole,
};
