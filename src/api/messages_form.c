/* Anthropic's messages: events of a stream, or one body. Items of an answer are blocks. */
#include "api/reply_common.h"
#include "api/sse.h"

/* Clients send thoughts back with the signature that they got. Nothing is signed here. */
#define SIGNATURE "Y2FyYXQ="

/* ---- What streams and bodies have in common --------------------------------------------- */

static const char *stop_reason(const struct reply_answer *a)
{
    if (reply_is_cut(a)) return "max_tokens";
    if (a->n_calls > 0) return "tool_use";
    return a->done.end == REPLY_STOP_TEXT ? "stop_sequence" : "end_turn";
}

static void write_stop(const struct reply_answer *a, struct json *j)
{
    bool has_text = a->is_done && a->done.end == REPLY_STOP_TEXT && a->done.stop;
    json_key_string(j, "stop_reason", a->is_done ? stop_reason(a) : NULL);
    json_key_string(j, "stop_sequence", has_text ? a->done.stop : NULL);
}

/* Tokens of the prompt are either read anew or from the cache: the sum of both is its length. */
static void write_usage(const struct reply_usage *usage, struct json *j)
{
    json_key_object(j, "usage");
    json_key_int(j, "input_tokens", usage->n_prompt - usage->n_cached);
    json_key_int(j, "cache_creation_input_tokens", 0);
    json_key_int(j, "cache_read_input_tokens", usage->n_cached);
    json_key_int(j, "output_tokens", usage->n_generated);
    json_key_object(j, "output_tokens_details");
    json_key_int(j, "thinking_tokens", usage->n_thinking);
    json_end_object(j);
    json_end_object(j);
}

/* Up to "content": [ */
static void begin_message(const struct reply *r, struct json *j)
{
    struct buf id = {0};
    buf_printf(&id, "msg_%s", r->facts.id);
    json_begin_object(j);
    json_key_string(j, "id", buf_text(&id));
    json_key_string(j, "type", "message");
    json_key_string(j, "role", "assistant");
    json_key_string(j, "model", r->facts.model);
    json_key_array(j, "content");
    j->out->failed |= id.failed;
    buf_deinit(&id);
}

static void end_message(const struct reply_answer *a, const struct reply_usage *usage,
                        struct json *j)
{
    json_end_array(j);
    write_stop(a, j);
    write_usage(usage, j);
    json_end_object(j);
}

/* A block with its content so far; `is_empty`: without content, as it begins in a stream. */
static void write_block(const struct reply *r, const struct reply_answer *a,
                        const struct reply_item *item, bool is_empty, struct json *j)
{
    char id[REPLY_ID_MAX];
    json_begin_object(j);
    json_key(j, "type");
    if (item->kind == ITEM_CALL) {
        const struct reply_call *call = &a->calls[item->call];
        static const struct buf nothing = {0};
        json_put_string(j, "tool_use");
        json_key_string(j, "id", reply_item_id(r, "toolu_", 0, item->call, id));
        json_key_text(j, "name", buf_text(&call->name), call->name.length);
        json_key(j, "input");
        reply_write_object(is_empty ? &nothing : &call->arguments, j);
    } else {
        const char *name = item->kind == ITEM_THOUGHT ? "thinking" : "text";
        const struct buf *text = item->kind == ITEM_THOUGHT ? &a->thought : &a->text;
        json_put_string(j, name);
        json_key_text(j, name, is_empty ? "" : buf_text(text) + item->from,
                      is_empty ? 0 : item->length);
    }
    if (item->kind == ITEM_THOUGHT) {
        json_key_string(j, "signature", is_empty ? "" : SIGNATURE);
    }
    json_end_object(j);
}

/* ---- Streams ---------------------------------------------------------------------------- */

/* Every event says its name twice. */
static struct json begin_event(const char *type, struct buf *out)
{
    struct json j = {.out = out};
    sse_begin(out, type);
    json_begin_object(&j);
    json_key_string(&j, "type", type);
    return j;
}

static void end_event(struct json *j)
{
    json_end_object(j);
    sse_end(j->out);
}

static void ping(const struct reply *r, struct buf *out)
{
    (void)r;
    struct json j = begin_event("ping", out);
    end_event(&j);
}

/* How much of the prompt the cache has is not known yet: message_delta says it. */
static void begin(struct reply *r, struct buf *out)
{
    struct reply_usage usage = {.n_prompt = r->facts.n_prompt > 0 ? r->facts.n_prompt : 0};
    struct json j = begin_event("message_start", out);
    json_key(&j, "message");
    begin_message(r, &j);
    end_message(&r->answers[0], &usage, &j);
    end_event(&j);
    ping(r, out);
}

static struct json begin_delta(const struct reply *r, const char *type, struct buf *out)
{
    struct json j = begin_event("content_block_delta", out);
    json_key_int(&j, "index", r->open_item - 1);
    json_key_object(&j, "delta");
    json_key_string(&j, "type", type);
    return j;
}

static void end_delta(struct json *j)
{
    json_end_object(j);
    end_event(j);
}

static void close_block(struct reply *r, struct buf *out)
{
    if (r->open_item == 0) return;
    if (r->answers[0].items[r->open_item - 1].kind == ITEM_THOUGHT) {
        struct json j = begin_delta(r, "signature_delta", out);
        json_key_string(&j, "signature", SIGNATURE);
        end_delta(&j);
    }
    struct json j = begin_event("content_block_stop", out);
    json_key_int(&j, "index", r->open_item - 1);
    end_event(&j);
    r->open_item = 0;
}

static void open_block(struct reply *r, struct buf *out)
{
    const struct reply_answer *a = &r->answers[0];
    if (r->open_item == a->n_items) return;
    close_block(r, out);
    r->open_item = a->n_items;
    struct json j = begin_event("content_block_start", out);
    json_key_int(&j, "index", r->open_item - 1);
    json_key(&j, "content_block");
    write_block(r, a, &a->items[r->open_item - 1], true, &j);
    end_event(&j);
}

static void piece(struct reply *r, int32_t answer, enum reply_piece kind, const char *text,
                  size_t length, struct buf *out)
{
    static const char *const types[] = {[PIECE_TEXT] = "text_delta",
                                        [PIECE_THOUGHT] = "thinking_delta",
                                        [PIECE_CALL_ARGUMENTS] = "input_json_delta"};
    static const char *const keys[] = {[PIECE_TEXT] = "text",
                                       [PIECE_THOUGHT] = "thinking",
                                       [PIECE_CALL_ARGUMENTS] = "partial_json"};
    (void)answer;
    if (kind == PIECE_CALL_END) {
        close_block(r, out);
        return;
    }
    open_block(r, out);
    if (kind == PIECE_CALL_BEGIN || length == 0) return;
    struct json j = begin_delta(r, types[kind], out);
    json_key_text(&j, keys[kind], text, length);
    end_delta(&j);
}

static void answer_done(struct reply *r, int32_t answer, struct buf *out)
{
    const struct reply_answer *a = &r->answers[answer];
    close_block(r, out);
    struct json j = begin_event("message_delta", out);
    json_key_object(&j, "delta");
    write_stop(a, &j);
    json_end_object(&j);
    write_usage(&a->done.usage, &j);
    end_event(&j);
}

static void finish(struct reply *r, struct buf *out)
{
    (void)r;
    struct json j = begin_event("message_stop", out);
    end_event(&j);
}

static void fail(struct reply *r, const struct api_error *error, struct buf *out)
{
    sse_begin(out, "error");
    reply_write_error(r, error, out);
    sse_end(out);
}

/* ---- One body --------------------------------------------------------------------------- */

static void whole(struct reply *r, struct buf *out)
{
    const struct reply_answer *a = &r->answers[0];
    struct json j = {.out = out};
    begin_message(r, &j);
    for (int32_t i = 0; i < a->n_items; i++) write_block(r, a, &a->items[i], false, &j);
    end_message(a, &a->done.usage, &j);
    buf_add_char(out, '\n');
}

const struct reply_form messages_form = {
    .stream_type = SSE_TYPE,
    .begin = begin,
    .piece = piece,
    .answer_done = answer_done,
    .finish = finish,
    .fail = fail,
    .ping = ping,
    .whole = whole,
};
