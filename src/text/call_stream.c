#include "text/call_stream.h"

#include "base/json_writer.h"
#include "base/utf8.h"
#include "text/call_syntax.h"

/* What follows a comma in a string, as far as it may be a key whose opening mark is missing. */
enum tail { TAIL_NONE, TAIL_COMMA, TAIL_WORD, TAIL_COLON };

static void put_char(struct call_stream *s, struct buf *json, char c)
{
    if (s->need_comma) buf_add_char(json, ',');
    buf_add_char(json, c);
    s->need_comma = false;
}

static bool in_array(const struct call_stream *s)
{
    return s->arrays & 1;
}

static void open_container(struct call_stream *s, struct buf *json, char bracket)
{
    put_char(s, json, bracket);
    s->arrays = s->arrays << 1 | (bracket == '[');
    s->depth++;
    s->at++;
    s->place = CALL_BETWEEN;
}

static void close_container(struct call_stream *s, struct buf *json)
{
    buf_add_char(json, in_array(s) ? ']' : '}');
    s->arrays >>= 1;
    s->depth--;
    s->need_comma = true;
    s->at++;
    s->place = s->depth ? CALL_BETWEEN : CALL_OVER;
}

/* ---- Strings ---------------------------------------------------------------------------- */

/* key_before (call_syntax.c) finds the same tail. */
static void follow_tail(struct call_stream *s, char c)
{
    if (c == ',') {
        s->comma = s->at;
        s->n_word = 0;
        s->tail = TAIL_COMMA;
    } else if (s->tail == TAIL_COMMA && c == ' ') {
    } else if ((s->tail == TAIL_COMMA || s->tail == TAIL_WORD) && call_is_word(c) &&
               s->n_word < CALL_WORD_MAX) {
        s->n_word++;
        s->tail = TAIL_WORD;
    } else if (s->tail == TAIL_WORD && c == ':') {
        s->tail = TAIL_COLON;
    } else if (s->tail != TAIL_COLON || !(call_is_blank(c) || c == '[')) {
        s->tail = TAIL_NONE;
    }
}

static void read_string(struct call_stream *s, char c)
{
    if (c == CALL_MARK) {
        s->mark = s->at;
        s->place = CALL_STRING_END;
    } else {
        bool is_end = call_is_blank(c) || call_is_closer(c);
        if (is_end && !s->in_run) s->run = s->at;
        s->in_run = is_end;
        follow_tail(s, c);
    }
    s->at++;
}

/* Hands out what is certain of the string that has not ended. */
static void flush_string(struct call_stream *s, const char *text, struct buf *json)
{
    size_t end = s->at;
    if (s->in_run && s->run < end) end = s->run;
    if (s->tail != TAIL_NONE && s->comma < end) end = s->comma;
    end -= utf8_incomplete_tail(text + s->begin, end - s->begin);
    json_escape(json, text + s->begin, end - s->begin);
    s->begin = end;
}

/* If the end of a value does not follow a mark, it is uncertain whether the mark closes the
 * string. */
static void read_string_end(struct call_stream *s, const char *text, char c, struct buf *json)
{
    if (call_is_blank(c)) {
        s->at++;
    } else if (c == ',' || call_is_closer(c)) {
        json_escape(json, text + s->begin, s->mark - s->begin);
        buf_add_char(json, '"');
        s->need_comma = true;
        s->place = CALL_BETWEEN;
    } else {
        s->place = CALL_UNCERTAIN;
    }
}

static void begin_string(struct call_stream *s, struct buf *json)
{
    put_char(s, json, '"');
    s->at++;
    s->begin = s->at;
    s->tail = TAIL_NONE;
    s->in_run = false;
    s->place = CALL_STRING;
}

/* ---- The rest --------------------------------------------------------------------------- */

static void read_name(struct call_stream *s, const char *text, char c, struct buf *json)
{
    if (c == '(') {
        s->place = CALL_UNCERTAIN;
    } else if (c == '{') {
        size_t i = 0;
        while (i < s->at && !call_is_of_name(text[i])) i++;
        s->has_name = i < s->at;
        if (s->has_name)
            open_container(s, json, c);
        else
            s->place = CALL_UNCERTAIN; /* no call */
    } else {
        s->at++;
    }
}

static void read_between(struct call_stream *s, char c, struct buf *json)
{
    if (c == (in_array(s) ? ']' : '}')) {
        close_container(s, json);
    } else if (call_is_blank(c) || c == ',' || call_is_closer(c)) {
        s->at++; /* a stray bracket is skipped by call_read, too */
    } else if (in_array(s)) {
        s->place = CALL_VALUE;
    } else {
        s->begin = s->at;
        s->place = c == CALL_MARK || c == '"' || c == '\'' ? CALL_UNCERTAIN : CALL_KEY;
    }
}

static void read_key(struct call_stream *s, const char *text, char c, struct buf *json)
{
    if (c == ':') {
        size_t end = s->at;
        while (end > s->begin && call_is_blank(text[end - 1])) end--;
        put_char(s, json, '"');
        json_escape(json, text + s->begin, end - s->begin);
        buf_add_text(json, "\":");
        s->place = CALL_VALUE;
    } else if (c == ',' || c == CALL_MARK || call_is_closer(c)) {
        s->place = CALL_UNCERTAIN;
    }
    s->at++;
}

static void read_value(struct call_stream *s, char c, struct buf *json)
{
    if (call_is_blank(c)) {
        s->at++;
    } else if (c == '"' || c == '\'' || s->depth >= CALL_DEPTH_MAX) {
        s->place = CALL_UNCERTAIN;
    } else if (c == CALL_MARK) {
        begin_string(s, json);
    } else if (c == '{' || c == '[') {
        open_container(s, json, c);
    } else {
        s->begin = s->at;
        s->place = CALL_BARE;
    }
}

static void read_bare(struct call_stream *s, const char *text, char c, struct buf *json)
{
    if (c == CALL_MARK) {
        s->place = CALL_UNCERTAIN;
    } else if (c == ',' || call_is_closer(c)) {
        size_t end = s->at;
        while (end > s->begin && call_is_blank(text[end - 1])) end--;
        struct json out = {.out = json, .need_comma = s->need_comma};
        bool is_empty = end == s->begin, is_exact;
        if (is_empty) json_put_null(&out);
        bool is_literal =
            is_empty || call_write_literal(&out, text + s->begin, end - s->begin, &is_exact);
        s->need_comma = out.need_comma;
        s->place = is_literal ? CALL_BETWEEN : CALL_UNCERTAIN;
    } else {
        s->at++;
    }
}

void call_stream_read(struct call_stream *s, const char *text, size_t length, struct buf *json)
{
    while (s->at < length && s->place < CALL_OVER) {
        char c = text[s->at];
        switch (s->place) {
        case CALL_NAME: read_name(s, text, c, json); break;
        case CALL_BETWEEN: read_between(s, c, json); break;
        case CALL_KEY: read_key(s, text, c, json); break;
        case CALL_VALUE: read_value(s, c, json); break;
        case CALL_BARE: read_bare(s, text, c, json); break;
        case CALL_STRING: read_string(s, c); break;
        default: read_string_end(s, text, c, json);
        }
    }
    if (s->place == CALL_STRING) flush_string(s, text, json);
}
