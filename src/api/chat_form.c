/* OpenAI's chat completions: chunks of a stream, or one body. */
#include "api/openai_words.h"
#include "api/reply_common.h"
#include "api/sse.h"

#define PREFIX "chatcmpl-"
#define CHUNK "chat.completion.chunk"

/* ---- Chunks ----------------------------------------------------------------------------- */

/* Up to the inside of "delta". */
static struct json begin_chunk(struct reply *r, int32_t answer, struct buf *out)
{
    struct json j = {.out = out};
    sse_begin(out, NULL);
    openai_begin(r, &j, PREFIX, CHUNK);
    json_begin_object(&j);
    json_key_int(&j, "index", answer);
    json_key_object(&j, "delta");
    return j;
}

/* After "delta": the log-probabilities that have come. */
static void write_logprobs(struct reply *r, int32_t answer, struct json *j)
{
    struct reply_tokens *tokens = &r->answers[answer].tokens;
    if (!r->ask->request.want_logprobs) return;
    json_key(j, "logprobs");
    reply_tokens_write_chat(tokens, j);
    reply_tokens_clear(tokens);
}

static void end_chunk(const struct reply *r, int32_t answer, bool has_timings, struct json *j)
{
    json_end_object(j);
    openai_end(r, j);
    if (has_timings) openai_write_timings(&r->answers[answer].done.usage, j);
    json_end_object(j);
    sse_end(j->out);
}

/* The end of a chunk after which the answer goes on. */
static void end_delta(const struct reply *r, int32_t answer, struct json *j)
{
    json_key_null(j, "finish_reason");
    end_chunk(r, answer, r->ask->wants_timings, j);
}

static void begin(struct reply *r, struct buf *out)
{
    for (int32_t i = 0; i < r->n_answers; i++) {
        struct json j = begin_chunk(r, i, out);
        json_key_string(&j, "role", "assistant");
        json_key_string(&j, "content", "");
        json_end_object(&j);
        json_key_null(&j, "finish_reason");
        end_chunk(r, i, false, &j);
    }
}

static void progress(struct reply *r, int32_t answer, int32_t done, int32_t total, int32_t cached,
                     struct buf *out)
{
    struct json j = begin_chunk(r, answer, out);
    json_end_object(&j);
    json_key_null(&j, "finish_reason");
    json_end_object(&j);
    openai_end(r, &j);
    openai_write_progress(done, total, cached, &j);
    json_end_object(&j);
    sse_end(out);
}

/* ---- Calls ------------------------------------------------------------------------------ */

static void write_call_head(const struct reply *r, int32_t answer, int32_t call, struct json *j)
{
    char id[REPLY_ID_MAX];
    json_key_string(j, "id", reply_item_id(r, "call_", answer, call, id));
    json_key_string(j, "type", "function");
}

/* The first delta of a call has a name and no arguments, the others have arguments alone. */
static void write_call_delta(const struct reply *r, int32_t answer, bool is_first, const char *text,
                             size_t length, struct json *j)
{
    int32_t call = r->answers[answer].n_calls - 1;
    json_key_array(j, "tool_calls");
    json_begin_object(j);
    json_key_int(j, "index", call);
    if (is_first) write_call_head(r, answer, call, j);
    json_key_object(j, "function");
    if (is_first) {
        json_key_text(j, "name", text, length);
    }
    json_key_text(j, "arguments", text, is_first ? 0 : length);
    json_end_object(j);
    json_end_object(j);
    json_end_array(j);
}

static const char *thought_key(const struct reply *r)
{
    return r->ask->says_reasoning ? "reasoning" : "reasoning_content";
}

static void piece(struct reply *r, int32_t answer, enum reply_piece kind, const char *text,
                  size_t length, struct buf *out)
{
    if (kind == PIECE_CALL_END || (kind != PIECE_CALL_BEGIN && length == 0)) return;
    struct json j = begin_chunk(r, answer, out);
    if (kind == PIECE_TEXT || kind == PIECE_THOUGHT) {
        json_key_text(&j, kind == PIECE_TEXT ? "content" : thought_key(r), text, length);
    } else {
        write_call_delta(r, answer, kind == PIECE_CALL_BEGIN, text, length, &j);
    }
    json_end_object(&j);
    if (kind == PIECE_TEXT) write_logprobs(r, answer, &j);
    end_delta(r, answer, &j);
}

static void answer_done(struct reply *r, int32_t answer, struct buf *out)
{
    struct json j = begin_chunk(r, answer, out);
    json_end_object(&j);
    write_logprobs(r, answer, &j);
    openai_write_end(&r->answers[answer], &j);
    end_chunk(r, answer, true, &j);
}

static void finish(struct reply *r, struct buf *out)
{
    openai_finish_stream(r, PREFIX, CHUNK, out);
}

/* ---- One body --------------------------------------------------------------------------- */

static void write_calls(const struct reply *r, int32_t answer, struct json *j)
{
    const struct reply_answer *a = &r->answers[answer];
    json_key_array(j, "tool_calls");
    for (int32_t k = 0; k < a->n_calls; k++) {
        const struct reply_call *call = &a->calls[k];
        json_begin_object(j);
        write_call_head(r, answer, k, j);
        json_key_object(j, "function");
        json_key_text(j, "name", buf_text(&call->name), call->name.length);
        json_key_text(j, "arguments", buf_text(&call->arguments), call->arguments.length);
        json_end_object(j);
        json_end_object(j);
    }
    json_end_array(j);
}

static void write_message(const struct reply *r, int32_t answer, struct json *j)
{
    const struct reply_answer *a = &r->answers[answer];
    json_begin_object(j);
    json_key_string(j, "role", "assistant");
    json_key(j, "content");
    if (a->n_calls > 0 && a->text.length == 0)
        json_put_null(j);
    else
        json_text(j, buf_text(&a->text), a->text.length);
    json_key_null(j, "refusal");
    if (a->thought.length) {
        json_key_text(j, thought_key(r), buf_text(&a->thought), a->thought.length);
    }
    if (a->n_calls > 0) write_calls(r, answer, j);
    json_end_object(j);
}

static void whole(struct reply *r, struct buf *out)
{
    struct json j = {.out = out};
    openai_begin(r, &j, PREFIX, "chat.completion");
    for (int32_t i = 0; i < r->n_answers; i++) {
        json_begin_object(&j);
        json_key_int(&j, "index", i);
        json_key(&j, "message");
        write_message(r, i, &j);
        json_key(&j, "logprobs");
        reply_tokens_write_chat(&r->answers[i].tokens, &j);
        openai_write_end(&r->answers[i], &j);
        json_end_object(&j);
    }
    openai_end_body(r, &j);
}

const struct reply_form chat_form = {
    .stream_type = SSE_TYPE,
    .begin = begin,
    .progress = progress,
    .piece = piece,
    .answer_done = answer_done,
    .finish = finish,
    .fail = openai_fail,
    .ping = openai_ping,
    .whole = whole,
};
