/* A tool call in the model's syntax, NAME{key:value,...}, as a name and JSON. What a model gets
 * wrong is repaired as well as possible: a missing brace or string mark, JSON or Python quotes,
 * parentheses, stray brackets.
 *
 * Strings stand between marks, which are a token of their own. In the text that is read here the
 * token is the byte CALL_MARK, which no UTF-8 text has. So a string may spell the mark. */
#ifndef TEXT_CALL_SYNTAX_H
#define TEXT_CALL_SYNTAX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json_writer.h"

#define CALL_MARK '\xFF'

/* Adds text without its marks. */
void call_add_text(struct buf *out, const char *text, size_t length);

/* Adds the name: text before the first bracket, without marks, and without blanks around it. */
void call_add_name(struct buf *out, const char *text, size_t length);

/* `text` is what follows "call:". `was_closed`: <tool_call|> came, so that closing brackets at
 * the end of an open string are brackets. Returns whether the text was well-formed. The name is
 * empty when there is none; then this is no call. Appends to both buffers. */
bool call_read(const char *text, size_t length, bool was_closed, struct buf *name,
               struct buf *json);

/* ---- Parts of call_read that call_stream.c uses too ----------------------------------------- */

enum {
    CALL_DEPTH_MAX = 64, /* of containers; values deeper down are null */
    CALL_WORD_MAX = 64   /* characters of a key that a string is cut before */
};

static inline bool call_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Characters that a name may begin and end with. */
static inline bool call_is_of_name(char c)
{
    return !call_is_blank(c) && c != CALL_MARK;
}

static inline bool call_is_closer(char c)
{
    return c == '}' || c == ']' || c == ')';
}

/* Characters of a key that a string is cut before. */
static inline bool call_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '@';
}

/* true, 3.5, null, and not exact, Python's spellings. False if the text is none of them. */
bool call_write_literal(struct json *json, const char *text, size_t length, bool *is_exact);

#endif
