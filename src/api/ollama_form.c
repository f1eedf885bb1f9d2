/* ollama's chat and generate: a line of JSON for each piece, or one for all. */
#include "api/reply_common.h"
#include "base/calendar.h"

/* ---- Lines ------------------------------------------------------------------------------ */

static struct json begin_line(const struct reply *r, struct buf *out)
{
    struct json j = {.out = out};
    char created[CALENDAR_TEXT];
    calendar_utc(r->facts.created, created);
    json_begin_object(&j);
    json_key_string(&j, "model", r->facts.model);
    json_key_string(&j, "created_at", created);
    return j;
}

static void end_line(bool is_done, struct json *j)
{
    json_key_bool(j, "done", is_done);
    json_end_object(j);
    buf_add_char(j->out, '\n');
}

/* Calls from `first` on, those that came whole. */
static void write_calls(const struct reply *r, int32_t first, struct json *j)
{
    const struct reply_answer *a = &r->answers[0];
    char id[REPLY_ID_MAX];
    json_key_array(j, "tool_calls");
    for (int32_t i = first; i < a->n_calls; i++) {
        const struct reply_call *call = &a->calls[i];
        if (i == a->n_calls - 1 && a->has_cut_call) break;
        json_begin_object(j);
        json_key_string(j, "id", reply_item_id(r, "call_", 0, i, id));
        json_key_object(j, "function");
        json_key_int(j, "index", i);
        json_key_text(j, "name", buf_text(&call->name), call->name.length);
        json_key(j, "arguments");
        reply_write_object(&call->arguments, j);
        json_end_object(j);
        json_end_object(j);
    }
    json_end_array(j);
}

struct said { /* in a line */
    const char *text, *thought;
    size_t length, thought_length;
    int32_t first_call; /* and those after it; n_calls: none */
};

static void write_said(const struct reply *r, const struct said *said, struct json *j)
{
    bool is_chat = r->ask->api == API_OLLAMA_CHAT;
    if (is_chat) {
        json_key_object(j, "message");
        json_key_string(j, "role", "assistant");
    }
    json_key_text(j, is_chat ? "content" : "response", said->text, said->length);
    if (said->thought_length) {
        json_key_text(j, "thinking", said->thought, said->thought_length);
    }
    if (said->first_call < r->answers[0].n_calls) write_calls(r, said->first_call, j);
    if (is_chat) json_end_object(j);
}

static void write_tokens(struct reply *r, struct json *j)
{
    struct reply_tokens *tokens = &r->answers[0].tokens;
    if (!r->ask->request.want_logprobs || tokens->n_rows == 0) return;
    json_key(j, "logprobs");
    reply_tokens_write_list(tokens, j);
    reply_tokens_clear(tokens);
}

static int64_t nanoseconds(double seconds)
{
    return (int64_t)(seconds * 1e9);
}

static void write_end(const struct reply *r, struct json *j)
{
    const struct reply_answer *a = &r->answers[0];
    const struct reply_usage *u = &a->done.usage;
    const char *reason = r->ask->is_unload ? "unload"
                         : r->ask->is_load ? "load"
                         : reply_is_cut(a) ? "length"
                                           : "stop";
    json_key_string(j, "done_reason", reason);
    if (!a->is_done) return;
    json_key_int(j, "total_duration",
                 nanoseconds(u->queue_seconds + u->prefill_seconds + u->decode_seconds));
    json_key_int(j, "load_duration", 0);
    json_key_int(j, "prompt_eval_count", u->n_prompt);
    json_key_int(j, "prompt_eval_duration", nanoseconds(u->prefill_seconds));
    json_key_int(j, "eval_count", u->n_generated);
    json_key_int(j, "eval_duration", nanoseconds(u->decode_seconds));
}

/* ---- Streams ---------------------------------------------------------------------------- */

static void add_line(struct reply *r, const struct said *said, struct buf *out)
{
    struct json j = begin_line(r, out);
    write_said(r, said, &j);
    write_tokens(r, &j);
    end_line(false, &j);
}

static void piece(struct reply *r, int32_t answer, enum reply_piece kind, const char *text,
                  size_t length, struct buf *out)
{
    const struct reply_answer *a = &r->answers[answer];
    struct said said = {.text = "", .first_call = a->n_calls};
    if (kind == PIECE_TEXT) {
        said.text = text;
        said.length = length;
    } else if (kind == PIECE_THOUGHT) {
        said.thought = text;
        said.thought_length = length;
    } else if (kind == PIECE_CALL_END && !a->has_cut_call) {
        said.first_call = a->n_calls - 1;
    } else {
        return;
    }
    add_line(r, &said, out);
}

static void add_end(struct reply *r, struct buf *out)
{
    struct said nothing = {.text = "", .first_call = r->answers[0].n_calls};
    struct json j = begin_line(r, out);
    write_said(r, &nothing, &j);
    write_tokens(r, &j);
    write_end(r, &j);
    end_line(true, &j);
}

static void answer_done(struct reply *r, int32_t answer, struct buf *out)
{
    (void)answer;
    add_end(r, out);
}

/* If nothing had to be computed, no line was written yet. */
static void finish(struct reply *r, struct buf *out)
{
    if (r->ask->is_unload || r->ask->is_load) add_end(r, out);
}

static void fail(struct reply *r, const struct api_error *error, struct buf *out)
{
    reply_write_error(r, error, out);
    buf_add_char(out, '\n');
}

/* Clients take every line for a part of the answer, so a ping is a part without text. */
static void ping(const struct reply *r, struct buf *out)
{
    struct said nothing = {.text = "", .first_call = r->answers[0].n_calls};
    struct json j = begin_line(r, out);
    write_said(r, &nothing, &j);
    end_line(false, &j);
}

/* ---- One body --------------------------------------------------------------------------- */

static void whole(struct reply *r, struct buf *out)
{
    const struct reply_answer *a = &r->answers[0];
    struct said all = {.text = buf_text(&a->text),
                       .length = a->text.length,
                       .thought = buf_text(&a->thought),
                       .thought_length = a->thought.length};
    struct json j = begin_line(r, out);
    write_said(r, &all, &j);
    write_tokens(r, &j);
    write_end(r, &j);
    end_line(true, &j);
}

/* Calls are written whole, so their arguments are kept. */
const struct reply_form ollama_form = {
    .stream_type = "application/x-ndjson",
    .keeps_all = true,
    .piece = piece,
    .answer_done = answer_done,
    .finish = finish,
    .fail = fail,
    .ping = ping,
    .whole = whole,
};
