/* The arguments of a tool call while they come: the beginning of the JSON that call_read
 * (call_syntax.h) is going to give for the whole call, as far as no further text can change it. So
 * what was handed out is never contradicted, not even by a repair.
 *
 * Of a string everything is certain except what a repair may cut off: a tail like ",key:" as long
 * as a mark may follow, and brackets and blanks at the end. Other values are certain when they end.
 * If anything but stray commas and brackets is malformed, all that follows is uncertain: then the
 * rest comes when call_read has seen the whole call. */
#ifndef TEXT_CALL_STREAM_H
#define TEXT_CALL_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum call_stream_place {
    CALL_NAME,
    CALL_BETWEEN, /* in a container: a member, a comma or the end may come */
    CALL_KEY,
    CALL_VALUE, /* where one begins */
    CALL_BARE,
    CALL_STRING,
    CALL_STRING_END, /* after a mark that may close it */
    CALL_OVER,       /* nothing that follows counts */
    CALL_UNCERTAIN
};

/* Zeroed is the beginning of a call. */
struct call_stream {
    enum call_stream_place place;
    bool has_name; /* before the first brace, with blanks and marks around it */
    size_t at;
    uint64_t arrays; /* a bit for each open container: the lowest is the innermost */
    int depth;
    bool need_comma;
    size_t begin;     /* of a key or value; in a string, of what was not handed out */
    size_t mark;      /* STRING_END */
    size_t comma;     /* of a tail that may be a key, see enum tail */
    int tail, n_word; /* its characters so far */
    size_t run;       /* of brackets and blanks at the end, if in_run */
    bool in_run;
};

/* Goes on to the end of `text`, which is what follows "call:" and only grows. Appends the JSON that
 * has become certain. */
void call_stream_read(struct call_stream *s, const char *text, size_t length, struct buf *json);

#endif
