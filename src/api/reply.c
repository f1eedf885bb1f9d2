#include "api/reply.h"

#include <string.h>

#include "api/reply_form.h"
#include "api/sse.h"
#include "base/mem.h"
#include "base/status.h"

static const struct reply_form *const forms[API_COUNT] = {
    [API_CHAT] = &chat_form,           [API_COMPLETIONS] = &completions_form,
    [API_RESPONSES] = &responses_form, [API_MESSAGES] = &messages_form,
    [API_OLLAMA_CHAT] = &ollama_form,  [API_OLLAMA_GENERATE] = &ollama_form,
};

int reply_open(struct reply **out, const struct ask *ask, const struct reply_facts *facts,
               struct carat_error *err)
{
    size_t n = (size_t)ask->n * (ask->n_prompts ? ask->n_prompts : 1);
    *out = NULL;
    struct reply *r = mem_alloc(1, sizeof *r);
    if (!r) return err_no_memory(err, "reply", sizeof *r);
    *r = (struct reply){
        .ask = ask, .facts = *facts, .form = forms[ask->api], .n_answers = (int32_t)n};
    r->answers = mem_alloc(n, sizeof *r->answers);
    if (!r->answers) {
        reply_close(r);
        return err_no_memory(err, "reply", n * sizeof *r->answers);
    }
    *out = r;
    return CARAT_OK;
}

static void close_answer(struct reply_answer *a)
{
    buf_deinit(&a->text);
    buf_deinit(&a->thought);
    for (int32_t i = 0; i < a->n_calls; i++) {
        buf_deinit(&a->calls[i].name);
        buf_deinit(&a->calls[i].arguments);
    }
    mem_free(a->calls);
    mem_free(a->items);
    reply_tokens_deinit(&a->tokens);
    buf_deinit(&a->ids);
}

void reply_close(struct reply *r)
{
    if (!r) return;
    for (int32_t i = 0; r->answers && i < r->n_answers; i++) close_answer(&r->answers[i]);
    mem_free(r->answers);
    buf_deinit(&r->head);
    mem_free(r);
}

const char *reply_content_type(const struct reply *r)
{
    return r->ask->is_stream ? r->form->stream_type : "application/json";
}

/* What did not fit into memory is missing, and whoever reads `out` must know. */
static void tell_failure(const struct reply *r, struct buf *out)
{
    out->failed |= r->failed;
}

/* ---- Pieces ----------------------------------------------------------------------------- */

static bool keeps_all(const struct reply *r)
{
    return !r->ask->is_stream || r->form->keeps_all;
}

static void add_call(struct reply *r, struct reply_answer *a, const char *name, size_t length)
{
    if (a->n_calls == a->capacity) {
        int32_t more = a->capacity ? 2 * a->capacity : 4;
        struct reply_call *calls = mem_resize(a->calls, (size_t)more, sizeof *calls);
        if (!calls) {
            r->failed = true;
            return;
        }
        a->calls = calls;
        a->capacity = more;
    }
    struct reply_call *call = &a->calls[a->n_calls++];
    *call = (struct reply_call){0};
    buf_add(&call->name, name, length);
    a->has_cut_call = true; /* until its end has come */
    r->failed |= call->name.failed;
}

/* Makes a piece part of the newest item, or the beginning of a new one. */
static void add_to_item(struct reply *r, struct reply_answer *a, enum reply_item_kind kind,
                        size_t from, size_t length)
{
    struct reply_item *last = a->n_items ? &a->items[a->n_items - 1] : NULL;
    size_t first_row = last ? last->end_row : 0, end_row = a->tokens.n_rows;
    if (last && last->kind == kind && kind != ITEM_CALL) {
        last->length += length;
        last->end_row = end_row;
        return;
    }
    if (a->n_items == a->items_capacity) {
        int32_t more = a->items_capacity ? 2 * a->items_capacity : 4;
        struct reply_item *items = mem_resize(a->items, (size_t)more, sizeof *items);
        if (!items) {
            r->failed = true;
            return;
        }
        a->items = items;
        a->items_capacity = more;
    }
    a->items[a->n_items++] =
        (struct reply_item){kind, from, length, a->n_calls - 1, first_row, end_row};
}

static void keep(struct reply *r, struct buf *kept, const char *text, size_t length)
{
    if (!keeps_all(r)) return;
    buf_add(kept, text, length);
    r->failed |= kept->failed;
}

static void take_piece(struct reply *r, int32_t answer, enum reply_piece kind, const char *text,
                       size_t length, bool is_complete, struct buf *out)
{
    struct reply_answer *a = &r->answers[answer];
    struct reply_call *call = a->n_calls ? &a->calls[a->n_calls - 1] : NULL;
    switch (kind) {
    case PIECE_TEXT:
        if (length == 0) return;
        add_to_item(r, a, ITEM_TEXT, a->text.length, length);
        keep(r, &a->text, text, length);
        break;
    case PIECE_THOUGHT:
        if (length == 0) return;
        add_to_item(r, a, ITEM_THOUGHT, a->thought.length, length);
        keep(r, &a->thought, text, length);
        break;
    case PIECE_CALL_BEGIN:
        add_call(r, a, text, length);
        if (!r->failed) add_to_item(r, a, ITEM_CALL, 0, 0);
        break;
    case PIECE_CALL_ARGUMENTS:
        if (call) keep(r, &call->arguments, text, length);
        break;
    case PIECE_CALL_END:
        if (call) call->is_complete = is_complete;
        a->has_cut_call = !is_complete;
        break;
    }
    bool is_known = kind <= PIECE_THOUGHT || a->n_calls > 0;
    if (r->ask->is_stream && r->form->piece && is_known && !r->failed)
        r->form->piece(r, answer, kind, text, length, out);
}

void reply_part(struct reply *r, int32_t answer, const struct carat_part *part, struct buf *out)
{
    switch (part->kind) {
    case CARAT_PART_TEXT:
        take_piece(r, answer, PIECE_TEXT, part->text, part->length, false, out);
        break;
    case CARAT_PART_THINKING:
        take_piece(r, answer, PIECE_THOUGHT, part->text, part->length, false, out);
        break;
    case CARAT_PART_TOOL_CALL:
        take_piece(r, answer, PIECE_CALL_BEGIN, part->name, strlen(part->name), false, out);
        take_piece(r, answer, PIECE_CALL_ARGUMENTS, part->text, part->length, false, out);
        take_piece(r, answer, PIECE_CALL_END, "", 0, part->is_complete, out);
        break;
    case CARAT_PART_CALL_BEGIN:
        take_piece(r, answer, PIECE_CALL_BEGIN, part->name, strlen(part->name), false, out);
        break;
    case CARAT_PART_CALL_ARGUMENTS:
        take_piece(r, answer, PIECE_CALL_ARGUMENTS, part->text, part->length, false, out);
        break;
    case CARAT_PART_CALL_END:
        take_piece(r, answer, PIECE_CALL_END, "", 0, part->is_complete, out);
        break;
    }
    tell_failure(r, out);
}

/* ---- The rest --------------------------------------------------------------------------- */

void reply_begin(struct reply *r, struct buf *out)
{
    if (r->ask->is_stream && r->form->begin) r->form->begin(r, out);
}

void reply_progress(struct reply *r, int32_t answer, int32_t done, int32_t total, int32_t cached,
                    struct buf *out)
{
    if (r->ask->is_stream && r->ask->wants_progress && r->form->progress)
        r->form->progress(r, answer, done, total, cached, out);
}

void reply_usage_now(struct reply *r, int32_t answer, const struct reply_usage *usage)
{
    r->answers[answer].done.usage = *usage;
}

void reply_token(struct reply *r, int32_t answer, const struct reply_token *token, struct buf *out)
{
    struct reply_tokens *tokens = &r->answers[answer].tokens;
    if (!token->is_text) return;
    reply_tokens_add(tokens, token);
    r->failed |= tokens->failed;
    tell_failure(r, out);
}

void reply_id(struct reply *r, int32_t answer, int32_t id, struct buf *out)
{
    struct buf *ids = &r->answers[answer].ids;
    if (!r->form->has_ids) return;
    buf_add(ids, &id, sizeof id);
    r->failed |= ids->failed;
    tell_failure(r, out);
}

void reply_ids_end(struct reply *r, int32_t answer, struct buf *out)
{
    bool is_left = r->ask->is_stream && r->answers[answer].ids.length > 0;
    if (is_left && r->form->has_ids) r->form->piece(r, answer, PIECE_TEXT, "", 0, out);
}

void reply_answer_done(struct reply *r, int32_t answer, const struct reply_done *done,
                       struct buf *out)
{
    struct reply_answer *a = &r->answers[answer];
    a->done = *done;
    a->is_done = true;
    if (r->ask->is_stream && r->form->answer_done) r->form->answer_done(r, answer, out);
    tell_failure(r, out);
}

void reply_comment(const struct reply *r, const char *text, struct buf *out)
{
    bool is_sse = strcmp(reply_content_type(r), SSE_TYPE) == 0;
    if (is_sse) sse_comment(out, text);
}

void reply_finish(struct reply *r, struct buf *out)
{
    if (!r->ask->is_stream)
        r->form->whole(r, out);
    else if (r->form->finish)
        r->form->finish(r, out);
    tell_failure(r, out);
}

void reply_fail(struct reply *r, const struct api_error *error, struct buf *out)
{
    if (r->ask->is_stream && r->form->fail)
        r->form->fail(r, error, out);
    else
        api_error_body(error, api_family(r->ask->api), r->facts.id, out);
}

void reply_ping(const struct reply *r, struct buf *out)
{
    if (r->ask->is_stream && r->form->ping) r->form->ping(r, out);
}
