/* Marks change the state; bytes between them collect in `held` until it is certain what they are.
 * Three things are held back:
 * - the beginning of a UTF-8 sequence;
 * - in a thought, the word "thought" and its newline at the beginning and one newline at the end,
 *   which belong to the syntax;
 * - at the beginning of an answer the same word, because models also write it before a stray
 *   <channel|>.
 * Everything is decided byte by byte, so the grouping of ids cannot matter. */
#include "text/parser.h"

#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"
#include "text/call_stream.h"
#include "text/call_syntax.h"
#include "text/thought.h"
#include "text/tokenizer.h"

enum state {
    IN_TEXT,
    IN_THOUGHT,
    IN_CALL,     /* after <|tool_call> */
    IN_RESPONSE, /* after <|tool_response>: the model invents the tool's answer */
};

/* A part of the current push; its texts are offsets, because `out` may still move. */
struct piece {
    enum carat_part_kind kind;
    size_t begin, length, name;
    bool is_complete;
};

struct carat_parser {
    const struct vocab *v;
    enum state state, before_call;
    bool at_start; /* of a thought or an answer: the word "thought" may come */
    struct buf held, call;
    bool streams_calls;
    struct call_stream stream; /* of the current call */
    size_t n_streamed;         /* bytes of its arguments that were handed out */
    struct buf fresh;
    struct buf out;
    struct piece *pieces;
    struct carat_part *parts;
    size_t n_pieces, capacity;
    bool failed;
};

static const char header[] = "thought\n";
enum { HEADER = sizeof header - 1 };

/* Empties a buffer without forgetting that it lost something. */
static void empty(struct carat_parser *p, struct buf *b)
{
    p->failed = p->failed || b->failed;
    buf_clear(b);
}

/* ---- Parts ------------------------------------------------------------------------------ */

static struct piece *add_piece(struct carat_parser *p, enum carat_part_kind kind)
{
    if (p->n_pieces == p->capacity) {
        size_t larger = p->capacity ? p->capacity * 2 : 16;
        void *pieces = mem_resize(p->pieces, larger, sizeof *p->pieces);
        if (pieces) p->pieces = pieces;
        void *parts = pieces ? mem_resize(p->parts, larger, sizeof *p->parts) : NULL;
        if (parts) p->parts = parts;
        if (!parts) {
            p->failed = true;
            return NULL;
        }
        p->capacity = larger;
    }
    struct piece *piece = &p->pieces[p->n_pieces++];
    *piece = (struct piece){.kind = kind, .begin = p->out.length, .is_complete = true};
    return piece;
}

static void emit_text(struct carat_parser *p, const char *text, size_t length)
{
    if (length == 0) return;
    enum carat_part_kind kind = p->state == IN_THOUGHT ? CARAT_PART_THINKING : CARAT_PART_TEXT;
    struct piece *last = p->n_pieces ? &p->pieces[p->n_pieces - 1] : NULL;
    if (!last || last->kind != kind) last = add_piece(p, kind);
    if (!last) return;
    buf_add(&p->out, text, length);
    last->length += length;
}

/* ---- Held text -------------------------------------------------------------------------- */

static void drop_held(struct carat_parser *p, size_t n)
{
    p->held.length -= n;
    if (p->held.length) memmove(p->held.data, p->held.data + n, p->held.length);
}

/* Whether held text may still become the word that is dropped at the start. */
static bool may_be_header(const struct carat_parser *p)
{
    size_t n = p->held.length < HEADER ? p->held.length : HEADER;
    return memcmp(buf_text(&p->held), header, n) == 0;
}

/* Hands out the part of the held text that is certain. */
static void release(struct carat_parser *p)
{
    if (p->at_start) {
        bool is_whole = p->held.length >= HEADER && may_be_header(p);
        if (p->state == IN_THOUGHT && is_whole) {
            drop_held(p, HEADER);
        } else if (p->held.length <= (p->state == IN_THOUGHT ? HEADER - 1 : HEADER) &&
                   may_be_header(p)) {
            return;
        }
        p->at_start = false;
    }
    const char *text = buf_text(&p->held);
    size_t length = p->held.length, ready = length - utf8_incomplete_tail(text, length);
    if (p->state == IN_THOUGHT && ready && text[ready - 1] == '\n' && ready == length) ready--;
    emit_text(p, text, ready);
    drop_held(p, ready);
}

/* The same at the end of a thought or text, where nothing more can come. */
static void release_all(struct carat_parser *p)
{
    release(p);
    const char *text = buf_text(&p->held);
    size_t length = p->held.length;
    if (p->state == IN_THOUGHT && p->at_start) length = 0; /* a part of the word */
    if (p->state == IN_THOUGHT && length && text[length - 1] == '\n') length--;
    emit_text(p, text, length);
    empty(p, &p->held);
    p->at_start = false;
}

static void enter(struct carat_parser *p, enum state state)
{
    p->state = state;
    p->at_start = state == IN_THOUGHT || state == IN_TEXT;
}

/* <channel|> in a text closes nothing; the word "thought" before it was no answer. */
static void drop_stray_close(struct carat_parser *p)
{
    if (p->at_start && p->held.length >= HEADER - 1 && may_be_header(p)) empty(p, &p->held);
    release_all(p);
    p->at_start = true;
}

/* ---- Calls ------------------------------------------------------------------------------ */

/* What began like a call turned out to be prose. Its marks are not shown. */
static void call_to_text(struct carat_parser *p)
{
    enter(p, p->before_call);
    p->at_start = false;
    call_add_text(&p->held, buf_text(&p->call), p->call.length);
    empty(p, &p->call);
    release(p);
}

static void emit_call_begin(struct carat_parser *p, const struct buf *name)
{
    struct piece *piece = add_piece(p, CARAT_PART_CALL_BEGIN);
    if (!piece) return;
    piece->name = p->out.length;
    buf_add(&p->out, buf_text(name), name->length + 1); /* with the NUL */
    piece->begin = p->out.length;
}

static void emit_arguments(struct carat_parser *p, const char *json, size_t length)
{
    if (length == 0) return;
    struct piece *last = p->n_pieces ? &p->pieces[p->n_pieces - 1] : NULL;
    if (!last || last->kind != CARAT_PART_CALL_ARGUMENTS)
        last = add_piece(p, CARAT_PART_CALL_ARGUMENTS);
    if (!last) return;
    buf_add(&p->out, json, length);
    last->length += length;
    p->n_streamed += length;
}

/* Hands out what has become certain of the call that is coming. */
static void stream_call(struct carat_parser *p)
{
    if (p->call.length < CALL_HEADER_BYTES) return;
    const char *text = buf_text(&p->call) + CALL_HEADER_BYTES;
    size_t length = p->call.length - CALL_HEADER_BYTES;
    bool had_name = p->stream.has_name;
    buf_clear(&p->fresh);
    call_stream_read(&p->stream, text, length, &p->fresh);
    if (p->stream.has_name && !had_name) {
        struct buf name = {0};
        call_add_name(&name, text, length);
        emit_call_begin(p, &name);
        p->failed = p->failed || name.failed;
        buf_deinit(&name);
    }
    emit_arguments(p, buf_text(&p->fresh), p->fresh.length);
}

/* The rest of a call, or all of it, as streamed parts. What was streamed is the beginning of the
 * whole, however it was repaired. */
static void emit_rest(struct carat_parser *p, const struct buf *name, const struct buf *json,
                      bool is_exact)
{
    if (!p->stream.has_name) emit_call_begin(p, name);
    carat_assert(p->n_streamed <= json->length);
    emit_arguments(p, buf_text(json) + p->n_streamed, json->length - p->n_streamed);
    struct piece *piece = add_piece(p, CARAT_PART_CALL_END);
    if (piece) piece->is_complete = is_exact;
}

static void emit_whole(struct carat_parser *p, const struct buf *name, const struct buf *json,
                       bool is_exact)
{
    struct piece *piece = add_piece(p, CARAT_PART_TOOL_CALL);
    if (!piece) return;
    piece->name = p->out.length;
    buf_add(&p->out, buf_text(name), name->length + 1); /* with the NUL */
    piece->begin = p->out.length;
    piece->length = json->length;
    piece->is_complete = is_exact;
    buf_add(&p->out, buf_text(json), json->length + 1);
}

static void end_call(struct carat_parser *p, bool was_closed)
{
    const char *text = buf_text(&p->call);
    struct buf name = {0}, json = {0};
    bool is_call = p->call.length >= CALL_HEADER_BYTES, is_exact = false;
    if (is_call)
        is_exact = call_read(text + CALL_HEADER_BYTES, p->call.length - CALL_HEADER_BYTES,
                             was_closed, &name, &json);
    if (name.failed || json.failed || p->call.failed || p->fresh.failed) {
        p->failed = true;
    } else if (is_call && name.length) {
        (p->streams_calls ? emit_rest : emit_whole)(p, &name, &json, is_exact);
        empty(p, &p->call);
        p->state = p->before_call;
        p->at_start = false;
    } else {
        call_to_text(p);
    }
    buf_deinit(&name);
    buf_deinit(&json);
}

static void begin_call(struct carat_parser *p)
{
    p->before_call = p->state == IN_THOUGHT ? IN_THOUGHT : IN_TEXT;
    p->state = IN_CALL;
    p->stream = (struct call_stream){.place = CALL_NAME};
    p->n_streamed = 0;
    empty(p, &p->call);
}

/* Adds the text of an id. Only the token itself is a mark. Other bytes of this value are no UTF-8,
 * and any other such byte will do for them. */
static void add_to_call(struct carat_parser *p, int32_t id)
{
    size_t begin = p->call.length;
    if (id == vocab_special(p->v, VOCAB_QUOTE)) {
        buf_add_char(&p->call, CALL_MARK);
    } else {
        tokenizer_decode_one(p->v, id, false, &p->call);
        for (size_t i = begin; i < p->call.length; i++)
            if (p->call.data[i] == CALL_MARK) p->call.data[i] = '\xFE';
    }
    size_t n = p->call.length < CALL_HEADER_BYTES ? p->call.length : CALL_HEADER_BYTES;
    if (memcmp(buf_text(&p->call), CALL_HEADER, n) != 0) call_to_text(p);
}

/* Whether the answer ended so early in a call that it has no name yet. */
static bool is_nameless_call(const struct carat_parser *p)
{
    return p->state == IN_CALL && p->call.length <= CALL_HEADER_BYTES;
}

/* ---- Ids -------------------------------------------------------------------------------- */

/* Ends what is being collected, whatever it is, and stays in or returns to text or thought. */
static void end_current(struct carat_parser *p)
{
    if (p->state == IN_CALL) end_call(p, false);
    if (p->state != IN_RESPONSE) release_all(p);
}

/* Whether the id is a mark that was dealt with. */
static bool take_mark(struct carat_parser *p, int32_t id)
{
    const struct vocab *v = p->v;
    if (id < 0) return true;
    if (id == vocab_special(v, VOCAB_CHANNEL_BEGIN)) {
        end_current(p);
        enter(p, IN_THOUGHT);
    } else if (id == vocab_special(v, VOCAB_CHANNEL_END)) {
        if (p->state == IN_THOUGHT) {
            release_all(p);
            enter(p, IN_TEXT);
        } else if (p->state == IN_TEXT) {
            drop_stray_close(p);
        }
    } else if (id == vocab_special(v, VOCAB_CALL_BEGIN)) {
        end_current(p);
        begin_call(p);
    } else if (id == vocab_special(v, VOCAB_CALL_END)) {
        if (p->state == IN_CALL) end_call(p, true); /* else a second one */
    } else if (id == vocab_special(v, VOCAB_RESPONSE_BEGIN)) {
        end_current(p);
        p->state = IN_RESPONSE;
    } else if (id == vocab_special(v, VOCAB_RESPONSE_END)) {
        if (p->state == IN_RESPONSE) enter(p, IN_TEXT);
    } else if (vocab_is_stop(v, id)) {
        end_current(p);
    } else if (id == vocab_special(v, VOCAB_QUOTE)) {
        return p->state != IN_CALL; /* elsewhere it marks nothing */
    } else {
        return vocab_class(v, id) == TOKEN_CONTROL;
    }
    return true;
}

static void take_id(struct carat_parser *p, int32_t id)
{
    if (take_mark(p, id) || p->state == IN_RESPONSE) return;
    if (p->state == IN_CALL) {
        add_to_call(p, id);
        if (p->streams_calls && p->state == IN_CALL) stream_call(p);
    } else {
        tokenizer_decode_one(p->v, id, false, &p->held);
        release(p);
    }
}

static void begin_push(struct carat_parser *p)
{
    empty(p, &p->out);
    p->n_pieces = 0;
}

static int hand_out(struct carat_parser *p, const struct carat_part **parts, size_t *n_parts,
                    struct carat_error *err)
{
    *parts = NULL;
    *n_parts = 0;
    if (p->failed || p->out.failed || p->held.failed || p->call.failed || p->fresh.failed) {
        p->failed = true; /* text was lost: no further push can be right */
        return err_no_memory(err, "model output", p->out.length);
    }
    const char *text = buf_text(&p->out);
    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct piece *piece = &p->pieces[i];
        bool is_call = piece->kind == CARAT_PART_TOOL_CALL || piece->kind == CARAT_PART_CALL_BEGIN;
        p->parts[i] = (struct carat_part){.kind = piece->kind,
                                          .text = text + piece->begin,
                                          .length = piece->length,
                                          .name = is_call ? text + piece->name : "",
                                          .is_complete = piece->is_complete};
    }
    *parts = p->parts;
    *n_parts = p->n_pieces;
    return CARAT_OK;
}

/* The ids after the last mark are read too, so that the word "thought" or a call may be cut
 * anywhere. */
static void read_prompt(struct carat_parser *p, const int32_t *prompt, size_t n_prompt)
{
    bool is_opening;
    size_t i = thought_last_mark(p->v, prompt, n_prompt, &is_opening);
    if (!is_opening) return;
    for (; i < n_prompt; i++) take_id(p, prompt[i]);
    begin_push(p); /* the prompt's own text is not output */
    if (p->state == IN_THOUGHT && !p->at_start) empty(p, &p->held);
}

int parser_open(struct carat_parser **out, const struct vocab *v, const int32_t *prompt,
                size_t n_prompt, struct carat_error *err)
{
    *out = NULL;
    struct carat_parser *p = mem_alloc(1, sizeof *p);
    if (!p) return err_no_memory(err, "parser", sizeof *p);
    p->v = v;
    enter(p, IN_TEXT);
    read_prompt(p, prompt, n_prompt);
    if (p->failed || p->out.failed || p->held.failed || p->call.failed) {
        parser_close(p);
        return err_no_memory(err, "parser", n_prompt);
    }
    *out = p;
    return CARAT_OK;
}

void parser_stream_calls(struct carat_parser *p)
{
    p->streams_calls = true;
}

int parser_push(struct carat_parser *p, const int32_t *ids, size_t count,
                const struct carat_part **parts, size_t *n_parts, struct carat_error *err)
{
    begin_push(p);
    for (size_t i = 0; i < count; i++) take_id(p, ids[i]);
    return hand_out(p, parts, n_parts, err);
}

int parser_finish(struct carat_parser *p, const struct carat_part **parts, size_t *n_parts,
                  struct carat_error *err)
{
    begin_push(p);
    /* Cut off there, the mark is not prose, and nobody is to see it. */
    if (is_nameless_call(p)) {
        empty(p, &p->call);
        p->state = p->before_call;
        p->at_start = false;
    }
    end_current(p);
    return hand_out(p, parts, n_parts, err);
}

bool parser_is_thinking(const struct carat_parser *p)
{
    return p->state == IN_THOUGHT;
}

void parser_close(struct carat_parser *p)
{
    if (!p) return;
    buf_deinit(&p->held);
    buf_deinit(&p->call);
    buf_deinit(&p->fresh);
    buf_deinit(&p->out);
    mem_free(p->pieces);
    mem_free(p->parts);
    mem_free(p);
}
