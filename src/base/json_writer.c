#include "base/json_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static void begin_value(struct json *j)
{
    if (j->need_comma) buf_add_char(j->out, ',');
    j->need_comma = true;
}

static void begin_group(struct json *j, char c)
{
    begin_value(j);
    buf_add_char(j->out, c);
    j->need_comma = false;
}

static void end_group(struct json *j, char c)
{
    buf_add_char(j->out, c);
    j->need_comma = true;
}

void json_begin_object(struct json *j)
{
    begin_group(j, '{');
}

void json_end_object(struct json *j)
{
    end_group(j, '}');
}

void json_begin_array(struct json *j)
{
    begin_group(j, '[');
}

void json_end_array(struct json *j)
{
    end_group(j, ']');
}

static void add_ascii(struct buf *out, unsigned char c)
{
    const char *short_form = NULL;
    switch (c) {
    case '"': short_form = "\\\""; break;
    case '\\': short_form = "\\\\"; break;
    case '\n': short_form = "\\n"; break;
    case '\r': short_form = "\\r"; break;
    case '\t': short_form = "\\t"; break;
    default: break;
    }
    if (short_form)
        buf_add_text(out, short_form);
    else if (c < 0x20 || c == 0x7F)
        buf_printf(out, "\\u%04x", c);
    else
        buf_add_char(out, (char)c);
}

/* What a terminal obeys, or shows in another order than it is written: C1 controls, embeddings,
 * overrides and isolates of direction. */
static bool is_for_terminals(uint32_t c)
{
    return (c >= 0x80 && c < 0xA0) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

void json_escape(struct buf *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        uint32_t code_point = 0;
        int n = utf8_read(text + i, length - i, &code_point);
        if (n == 1)
            add_ascii(out, (unsigned char)text[i]);
        else if (n > 1 && is_for_terminals(code_point))
            buf_printf(out, "\\u%04x", (unsigned)code_point);
        else if (n > 1)
            buf_add(out, text + i, (size_t)n);
        else
            buf_add_text(out, "\xEF\xBF\xBD");
        i += n > 0 ? (size_t)n : 1;
    }
}

static void add_quoted(struct buf *out, const char *text, size_t length)
{
    buf_add_char(out, '"');
    json_escape(out, text, length);
    buf_add_char(out, '"');
}

void json_key(struct json *j, const char *key)
{
    begin_value(j);
    add_quoted(j->out, key, strlen(key));
    buf_add_char(j->out, ':');
    j->need_comma = false;
}

void json_text(struct json *j, const char *text, size_t length)
{
    begin_value(j);
    add_quoted(j->out, text, length);
}

void json_put_string(struct json *j, const char *text)
{
    json_text(j, text, strlen(text));
}

static void add_whole(struct json *j, uint64_t magnitude, bool is_negative)
{
    char digits[20], *end = digits + sizeof digits, *at = end;
    begin_value(j);
    do *--at = (char)('0' + magnitude % 10);
    while (magnitude /= 10);
    if (is_negative) *--at = '-';
    buf_add(j->out, at, (size_t)(end - at));
}

void json_int(struct json *j, int64_t value)
{
    add_whole(j, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
}

void json_uint(struct json *j, uint64_t value)
{
    add_whole(j, value, false);
}

void json_double(struct json *j, double value)
{
    if (!isfinite(value)) {
        json_put_null(j);
        return;
    }
    begin_value(j);
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    buf_add_text(j->out, text);
}

void json_bool(struct json *j, bool value)
{
    begin_value(j);
    buf_add_text(j->out, value ? "true" : "false");
}

void json_put_null(struct json *j)
{
    begin_value(j);
    buf_add_text(j->out, "null");
}
