/* OpenAI's responses: events of a stream, or one body. Thoughts are summaries of a reasoning item:
 * clients show those, and send them back while a turn goes on. */
#include "api/reply_common.h"
#include "api/responses_tools.h"
#include "api/sse.h"

/* ---- Items ------------------------------------------------------------------------------ */

static const struct ask_tool *tool_of(const struct reply *r, const struct reply_call *call)
{
    return responses_tool_find(r->ask, buf_text(&call->name), call->name.length);
}

static bool is_custom(const struct reply *r, const struct reply_call *call)
{
    const struct ask_tool *tool = tool_of(r, call);
    return tool && tool->is_custom;
}

static void write_item_id(const struct reply *r, int32_t item, struct json *j)
{
    const struct reply_answer *a = &r->answers[0];
    enum reply_item_kind kind = a->items[item].kind;
    char id[REPLY_ID_MAX];
    const char *prefix = kind == ITEM_TEXT ? "msg_" : kind == ITEM_THOUGHT ? "rs_" : "fc_";
    if (kind == ITEM_CALL && is_custom(r, &a->calls[a->items[item].call])) prefix = "ctc_";
    json_put_string(j, reply_item_id(r, prefix, 0, item, id));
}

static void write_item_text(const struct reply_answer *a, const struct reply_item *item,
                            bool is_empty, struct json *j)
{
    const struct buf *text = item->kind == ITEM_THOUGHT ? &a->thought : &a->text;
    json_text(j, is_empty ? "" : buf_text(text) + item->from, is_empty ? 0 : item->length);
}

/* The part of a message, or of a thought's summary. */
static void write_part(const struct reply *r, const struct reply_item *item, bool is_empty,
                       struct json *j)
{
    const struct reply_answer *a = &r->answers[0];
    bool is_thought = item->kind == ITEM_THOUGHT;
    json_begin_object(j);
    json_key_string(j, "type", is_thought ? "summary_text" : "output_text");
    if (!is_thought) {
        json_key_array(j, "annotations");
        json_end_array(j);
        json_key(j, "logprobs"); /* of a stream: deltas have them */
        if (r->ask->is_stream) {
            json_begin_array(j);
            json_end_array(j);
        } else {
            reply_tokens_write_rows(&a->tokens, item->first_row, item->end_row, j);
        }
    }
    json_key(j, "text");
    write_item_text(a, item, is_empty, j);
    json_end_object(j);
}

/* The text of a custom tool, as far as it came. Arguments of another kind are told as they are. */
static void write_input(const struct reply_call *call, bool is_empty, struct json *j)
{
    const char *arguments = buf_text(&call->arguments);
    size_t length = is_empty ? 0 : call->arguments.length;
    struct custom_input input = {0};
    struct buf text = {0};
    custom_input_read(&input, arguments, length, &text);
    if (input.place == INPUT_OTHER)
        json_text(j, arguments, length);
    else
        json_text(j, buf_text(&text), text.length);
    j->out->failed |= text.failed;
    buf_deinit(&text);
}

static void write_call(const struct reply *r, const struct reply_item *item, bool is_empty,
                       struct json *j)
{
    const struct reply_call *call = &r->answers[0].calls[item->call];
    const struct ask_tool *tool = tool_of(r, call);
    char id[REPLY_ID_MAX];
    json_key_string(j, "call_id", reply_item_id(r, "call_", 0, item->call, id));
    json_key(j, "name");
    if (tool)
        json_put_string(j, tool->name);
    else
        json_text(j, buf_text(&call->name), call->name.length);
    if (tool && tool->space[0]) {
        json_key_string(j, "namespace", tool->space);
    }
    json_key(j, tool && tool->is_custom ? "input" : "arguments");
    if (tool && tool->is_custom)
        write_input(call, is_empty, j);
    else
        json_text(j, buf_text(&call->arguments), is_empty ? 0 : call->arguments.length);
}

static const char *type_of(const struct reply *r, const struct reply_item *item)
{
    if (item->kind == ITEM_TEXT) return "message";
    if (item->kind == ITEM_THOUGHT) return "reasoning";
    return is_custom(r, &r->answers[0].calls[item->call]) ? "custom_tool_call" : "function_call";
}

/* Not whole: a call that was cut, and the last item of an answer that was cut. */
static bool is_cut_item(const struct reply_answer *a, int32_t i)
{
    if (a->items[i].kind == ITEM_CALL) return !a->calls[a->items[i].call].is_complete;
    return a->is_done && reply_is_cut(a) && i == a->n_items - 1;
}

/* `is_empty`: as it begins in a stream. */
static void write_item(const struct reply *r, int32_t i, bool is_empty, struct json *j)
{
    const struct reply_answer *a = &r->answers[0];
    const struct reply_item *item = &a->items[i];
    bool is_cut = is_cut_item(a, i);
    json_begin_object(j);
    json_key(j, "id");
    write_item_id(r, i, j);
    json_key_string(j, "type", type_of(r, item));
    json_key_string(j, "status", is_empty ? "in_progress" : is_cut ? "incomplete" : "completed");
    if (item->kind == ITEM_CALL) {
        write_call(r, item, is_empty, j);
    } else {
        if (item->kind == ITEM_TEXT) {
            json_key_string(j, "role", "assistant");
        }
        json_key_array(j, item->kind == ITEM_THOUGHT ? "summary" : "content");
        if (!is_empty) write_part(r, item, false, j);
        json_end_array(j);
    }
    json_end_object(j);
}

/* ---- The response ----------------------------------------------------------------------- */

static void write_usage(const struct reply_usage *usage, struct json *j)
{
    json_begin_object(j);
    json_key_int(j, "input_tokens", usage->n_prompt);
    json_key_object(j, "input_tokens_details");
    json_key_int(j, "cached_tokens", usage->n_cached);
    json_end_object(j);
    json_key_int(j, "output_tokens", usage->n_generated);
    json_key_object(j, "output_tokens_details");
    json_key_int(j, "reasoning_tokens", usage->n_thinking);
    json_end_object(j);
    json_key_int(j, "total_tokens", (int64_t)usage->n_prompt + usage->n_generated);
    json_end_object(j);
}

static void write_null(struct json *j, const char *key)
{
    json_key_null(j, key);
}

/* What was asked for, as far as it is not the client's own text. */
static void write_request(const struct reply *r, struct json *j)
{
    const struct chat_request *q = &r->ask->request;
    const struct carat_value *choice = json_member(&q->root, "tool_choice");
    const struct carat_value *parallel = json_member(&q->root, "parallel_tool_calls");
    const struct carat_value *format = json_member(&q->root, "response_format");
    const struct carat_value *type = json_member(format, "type");
    bool is_word = choice->kind == CARAT_STRING, has_format = type->kind == CARAT_STRING;
    json_key(j, "max_output_tokens");
    if (q->max_tokens >= 0)
        json_int(j, q->max_tokens);
    else
        json_put_null(j);
    json_key_bool(j, "parallel_tool_calls", parallel->kind != CARAT_BOOL || parallel->as.boolean);
    json_key_bool(j, "store", false);
    json_key_float(j, "temperature", q->sampling.temperature);
    json_key_float(j, "top_p", q->sampling.top_p);
    json_key_text(j, "tool_choice", is_word ? choice->as.string.data : "auto",
                  is_word ? choice->as.string.length : 4);
    json_key_array(j, "tools");
    json_end_array(j);
    json_key_object(j, "text");
    json_key_object(j, "format");
    json_key_text(j, "type", has_format ? type->as.string.data : "text",
                  has_format ? type->as.string.length : 4);
    json_end_object(j);
    json_end_object(j);
    json_key_string(j, "truncation", "disabled");
}

static void write_error(const struct api_error *error, struct json *j)
{
    json_begin_object(j);
    json_key_string(j, "code", error->code ? error->code : error->type);
    json_key_string(j, "message", error->message);
    json_end_object(j);
}

/* `status`: "in_progress", "completed", "incomplete" or "failed". */
static void write_response(const struct reply *r, const char *status, const struct api_error *error,
                           struct json *j)
{
    const struct reply_answer *a = &r->answers[0];
    bool is_cut = a->is_done && reply_is_cut(a);
    struct buf id = {0};
    buf_printf(&id, "resp_%s", r->facts.id);
    json_begin_object(j);
    json_key_string(j, "id", buf_text(&id));
    json_key_string(j, "object", "response");
    json_key_int(j, "created_at", r->facts.created);
    json_key_string(j, "status", status);
    json_key(j, "error");
    if (error)
        write_error(error, j);
    else
        json_put_null(j);
    json_key(j, "incomplete_details");
    if (is_cut) {
        json_begin_object(j);
        json_key_string(j, "reason", "max_output_tokens");
        json_end_object(j);
    } else {
        json_put_null(j);
    }
    json_key_string(j, "model", r->facts.model);
    json_key_array(j, "output");
    for (int32_t i = 0; a->is_done && i < a->n_items; i++) write_item(r, i, false, j);
    json_end_array(j);
    write_null(j, "instructions");
    write_null(j, "metadata");
    write_null(j, "previous_response_id");
    write_request(r, j);
    json_key(j, "usage");
    if (a->is_done)
        write_usage(&a->done.usage, j);
    else
        json_put_null(j);
    json_end_object(j);
    j->out->failed |= id.failed;
    buf_deinit(&id);
}

/* ---- Streams ---------------------------------------------------------------------------- */

static struct json begin_event(struct reply *r, const char *type, struct buf *out)
{
    struct json j = {.out = out};
    sse_begin(out, type);
    json_begin_object(&j);
    json_key_string(&j, "type", type);
    json_key_int(&j, "sequence_number", r->n_events++);
    return j;
}

static void end_event(struct json *j)
{
    json_end_object(j);
    sse_end(j->out);
}

static void add_response_event(struct reply *r, const char *type, const char *status,
                               const struct api_error *error, struct buf *out)
{
    struct json j = begin_event(r, type, out);
    json_key(&j, "response");
    write_response(r, status, error, &j);
    end_event(&j);
}

static void begin(struct reply *r, struct buf *out)
{
    add_response_event(r, "response.created", "in_progress", NULL, out);
    add_response_event(r, "response.in_progress", "in_progress", NULL, out);
}

/* An event about the item that is open. */
static struct json begin_item_event(struct reply *r, const char *type, struct buf *out)
{
    struct json j = begin_event(r, type, out);
    json_key_int(&j, "output_index", r->open_item - 1);
    json_key(&j, "item_id");
    write_item_id(r, r->open_item - 1, &j);
    return j;
}

/* ... and about its one part. */
static struct json begin_part_event(struct reply *r, bool is_thought, const char *type,
                                    struct buf *out)
{
    struct json j = begin_item_event(r, type, out);
    json_key_int(&j, is_thought ? "summary_index" : "content_index", 0);
    return j;
}

static void add_item_event(struct reply *r, const char *type, bool is_empty, struct buf *out)
{
    struct json j = begin_event(r, type, out);
    json_key_int(&j, "output_index", r->open_item - 1);
    json_key(&j, "item");
    write_item(r, r->open_item - 1, is_empty, &j);
    end_event(&j);
}

static void add_part_event(struct reply *r, bool is_added, struct buf *out)
{
    const struct reply_item *item = &r->answers[0].items[r->open_item - 1];
    bool is_thought = item->kind == ITEM_THOUGHT;
    const char *added =
        is_thought ? "response.reasoning_summary_part.added" : "response.content_part.added";
    const char *done =
        is_thought ? "response.reasoning_summary_part.done" : "response.content_part.done";
    struct json j = begin_part_event(r, is_thought, is_added ? added : done, out);
    json_key(&j, "part");
    write_part(r, item, is_added, &j);
    end_event(&j);
}

static void close_text(struct reply *r, const struct reply_item *item, struct buf *out)
{
    const struct reply_answer *a = &r->answers[0];
    bool is_thought = item->kind == ITEM_THOUGHT;
    struct json j = begin_part_event(
        r, is_thought,
        is_thought ? "response.reasoning_summary_text.done" : "response.output_text.done", out);
    json_key(&j, "text");
    write_item_text(a, item, false, &j);
    if (!is_thought) {
        json_key_array(&j, "logprobs");
        json_end_array(&j);
    }
    end_event(&j);
    add_part_event(r, false, out);
}

static void add_input_event(struct reply *r, const char *text, size_t length, struct buf *out)
{
    struct json j = begin_item_event(r, "response.custom_tool_call_input.delta", out);
    json_key_text(&j, "delta", text, length);
    end_event(&j);
}

/* The text of a custom tool that the newest arguments have made certain. */
static void add_input_delta(struct reply *r, const struct reply_call *call, struct buf *out)
{
    struct buf text = {0};
    custom_input_read(&r->input, buf_text(&call->arguments), call->arguments.length, &text);
    if (text.length) add_input_event(r, buf_text(&text), text.length, out);
    out->failed |= text.failed;
    buf_deinit(&text);
}

static void close_custom_call(struct reply *r, const struct reply_call *call, struct buf *out)
{
    const struct buf *arguments = &call->arguments;
    if (r->input.place == INPUT_OTHER && arguments->length)
        add_input_event(r, buf_text(arguments), arguments->length, out);
    struct json j = begin_item_event(r, "response.custom_tool_call_input.done", out);
    json_key(&j, "input");
    write_input(call, false, &j);
    end_event(&j);
}

static void close_call(struct reply *r, const struct reply_item *item, struct buf *out)
{
    const struct reply_call *call = &r->answers[0].calls[item->call];
    const struct ask_tool *tool = tool_of(r, call);
    if (tool && tool->is_custom) {
        close_custom_call(r, call, out);
        return;
    }
    struct json j = begin_item_event(r, "response.function_call_arguments.done", out);
    json_key_string(&j, "name", tool ? tool->name : buf_text(&call->name));
    json_key_text(&j, "arguments", buf_text(&call->arguments), call->arguments.length);
    end_event(&j);
}

static void close_item(struct reply *r, struct buf *out)
{
    if (r->open_item == 0) return;
    const struct reply_item *item = &r->answers[0].items[r->open_item - 1];
    if (item->kind == ITEM_CALL)
        close_call(r, item, out);
    else
        close_text(r, item, out);
    add_item_event(r, "response.output_item.done", false, out);
    r->open_item = 0;
}

static void open_item(struct reply *r, struct buf *out)
{
    const struct reply_answer *a = &r->answers[0];
    if (r->open_item == a->n_items) return;
    close_item(r, out);
    r->open_item = a->n_items;
    r->input = (struct custom_input){0};
    add_item_event(r, "response.output_item.added", true, out);
    if (a->items[r->open_item - 1].kind != ITEM_CALL) add_part_event(r, true, out);
}

static void add_text_delta(struct reply *r, bool is_thought, const char *text, size_t length,
                           struct buf *out)
{
    struct reply_tokens *tokens = &r->answers[0].tokens;
    struct json j = begin_part_event(
        r, is_thought,
        is_thought ? "response.reasoning_summary_text.delta" : "response.output_text.delta", out);
    json_key_text(&j, "delta", text, length);
    if (!is_thought) {
        json_key(&j, "logprobs");
        reply_tokens_write_list(tokens, &j);
        reply_tokens_clear(tokens);
    }
    end_event(&j);
}

static void add_arguments_delta(struct reply *r, const char *text, size_t length, struct buf *out)
{
    const struct reply_answer *a = &r->answers[0];
    const struct reply_call *call = &a->calls[a->n_calls - 1];
    if (length == 0) return;
    if (is_custom(r, call)) {
        add_input_delta(r, call, out);
        return;
    }
    struct json j = begin_item_event(r, "response.function_call_arguments.delta", out);
    json_key_text(&j, "delta", text, length);
    end_event(&j);
}

static void piece(struct reply *r, int32_t answer, enum reply_piece kind, const char *text,
                  size_t length, struct buf *out)
{
    (void)answer;
    if (kind != PIECE_CALL_END) open_item(r, out);
    switch (kind) {
    case PIECE_TEXT:
    case PIECE_THOUGHT: add_text_delta(r, kind == PIECE_THOUGHT, text, length, out); break;
    case PIECE_CALL_BEGIN: break;
    case PIECE_CALL_ARGUMENTS: add_arguments_delta(r, text, length, out); break;
    case PIECE_CALL_END: close_item(r, out); break;
    }
}

static const char *status_of(const struct reply *r)
{
    return reply_is_cut(&r->answers[0]) ? "incomplete" : "completed";
}

static void answer_done(struct reply *r, int32_t answer, struct buf *out)
{
    (void)answer;
    close_item(r, out);
}

static void finish(struct reply *r, struct buf *out)
{
    bool is_cut = reply_is_cut(&r->answers[0]);
    add_response_event(r, is_cut ? "response.incomplete" : "response.completed", status_of(r), NULL,
                       out);
}

/* Some clients look for the one event, some for the other. */
static void fail(struct reply *r, const struct api_error *error, struct buf *out)
{
    struct json j = begin_event(r, "error", out);
    json_key_string(&j, "code", error->code ? error->code : error->type);
    json_key_string(&j, "message", error->message);
    write_null(&j, "param");
    end_event(&j);
    add_response_event(r, "response.failed", "failed", error, out);
}

static void ping(const struct reply *r, struct buf *out)
{
    (void)r;
    sse_ping(out);
}

/* ---- One body --------------------------------------------------------------------------- */

static void whole(struct reply *r, struct buf *out)
{
    struct json j = {.out = out};
    write_response(r, status_of(r), NULL, &j);
    buf_add_char(out, '\n');
}

const struct reply_form responses_form = {
    .stream_type = SSE_TYPE,
    .keeps_all = true,
    .begin = begin,
    .piece = piece,
    .answer_done = answer_done,
    .finish = finish,
    .fail = fail,
    .ping = ping,
    .whole = whole,
};
