/* Writes JSON into a buf: escaping and commas, no tree. Characters that a terminal would obey are
 * always escaped; the JSON means the same. (jansson reads JSON. No name here is one of its names,
 * so a program can link both.)
 *
 *     struct json j = {.out = &b};
 *     json_begin_object(&j); json_key_int(&j, "rows", 3); json_end_object(&j);
 */
#ifndef BASE_JSON_WRITER_H
#define BASE_JSON_WRITER_H

#include <math.h>
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
void json_uint(struct json *j, uint64_t value);
/* Writes the fewest digits, at least 6, that read back as the same number. NaN and infinity become
 * null. */
void json_double(struct json *j, double value);
void json_bool(struct json *j, bool value);
void json_put_null(struct json *j);

/* A key and its value; json_key_object and json_key_array begin one. `text` NULL becomes null. */
static inline void json_key_string(struct json *j, const char *key, const char *text)
{
    json_key(j, key);
    if (text)
        json_put_string(j, text);
    else
        json_put_null(j);
}

static inline void json_key_text(struct json *j, const char *key, const char *text, size_t length)
{
    json_key(j, key);
    json_text(j, text, length);
}

static inline void json_key_int(struct json *j, const char *key, int64_t value)
{
    json_key(j, key);
    json_int(j, value);
}

static inline void json_key_double(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_double(j, value);
}

/* A float as it was written: 0.7, and not the double next to 0.7f. */
static inline void json_key_float(struct json *j, const char *key, float value)
{
    json_key_double(j, key, round((double)value * 1e6) / 1e6);
}

static inline void json_key_bool(struct json *j, const char *key, bool value)
{
    json_key(j, key);
    json_bool(j, value);
}

static inline void json_key_null(struct json *j, const char *key)
{
    json_key(j, key);
    json_put_null(j);
}

static inline void json_key_object(struct json *j, const char *key)
{
    json_key(j, key);
    json_begin_object(j);
}

static inline void json_key_array(struct json *j, const char *key)
{
    json_key(j, key);
    json_begin_array(j);
}

#endif
