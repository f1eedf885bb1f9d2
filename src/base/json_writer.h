/* Writes JSON into a buf: escaping and commas, no tree. Characters that a terminal would obey are
 * always escaped; the JSON means the same. (jansson reads JSON. No name here is one of its names,
 * so a program can link both.)
 *
 *     struct json j = {.out = &b};
 *     json_begin_object(&j); json_key(&j, "rows"); json_int(&j, 3); json_end_object(&j);
 */
#ifndef BASE_JSON_WRITER_H
#define BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct json {
    struct buf *out;
    bool need_comma;
};

void json_begin_object(struct json *j);
void json_end_object(struct json *j);
void json_begin_array(struct json *j);
void json_end_array(struct json *j);
void json_key(struct json *j, const char *key);
/* Bytes that are not valid UTF-8 are written as U+FFFD. */
void json_text(struct json *j, const char *text, size_t length);
/* What json_text writes between the quotes. A text that is cut between characters may be added in
 * pieces. */
void json_escape(struct buf *out, const char *text, size_t length);
void json_put_string(struct json *j, const char *text);
void json_int(struct json *j, int64_t value);
/* Writes the fewest digits, at least 6, that read back as the same number. NaN and infinity become
 * null. */
void json_double(struct json *j, double value);
void json_bool(struct json *j, bool value);
void json_put_null(struct json *j);

#endif
