#ifdef CARAT_HAVE_JSON

#include "json/json_value.h"

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/status.h"

/* jansson's own reader stops at a depth of 2048, so `depth` bounds the recursion only for trees
 * that were built by hand. */
static int convert(const json_t *json, int depth, struct arena *arena, struct carat_value *out,
                   struct carat_error *err);

static int convert_array(const json_t *json, int depth, struct arena *arena,
                         struct carat_value *out, struct carat_error *err)
{
    size_t count = json_array_size(json);
    struct carat_value *items = arena_take(arena, count, sizeof *items);
    if (!items) return err_no_memory(err, "JSON array", count * sizeof *items);
    for (size_t i = 0; i < count; i++)
        TRY(convert(json_array_get(json, i), depth + 1, arena, &items[i], err));
    out->kind = CARAT_ARRAY;
    out->as.array.items = items;
    out->as.array.count = count;
    return CARAT_OK;
}

static int convert_object(const json_t *json, int depth, struct arena *arena,
                          struct carat_value *out, struct carat_error *err)
{
    size_t count = json_object_size(json), i = 0;
    struct carat_member *members = arena_take(arena, count, sizeof *members);
    if (!members) return err_no_memory(err, "JSON object", count * sizeof *members);
    /* jansson's iterators want a tree that is not const; it is not changed. */
    json_t *object = (json_t *)(uintptr_t)json;
    for (void *at = json_object_iter(object); at && i < count;
         at = json_object_iter_next(object, at), i++) {
        const char *key = json_object_iter_key(at);
        members[i].key.data = key;
        members[i].key.length = strlen(key);
        TRY(convert(json_object_iter_value(at), depth + 1, arena, &members[i].value, err));
    }
    out->kind = CARAT_OBJECT;
    out->as.object.members = members;
    out->as.object.count = i;
    return CARAT_OK;
}

static int convert(const json_t *json, int depth, struct arena *arena, struct carat_value *out,
                   struct carat_error *err)
{
    if (depth > JSON_VALUE_DEPTH_MAX)
        return err_set(err, CARAT_EUSAGE, "JSON: nesting of at most %d expected",
                       JSON_VALUE_DEPTH_MAX);
    *out = (struct carat_value){.kind = CARAT_NULL};
    switch (json_typeof(json)) {
    case JSON_NULL: break;
    case JSON_TRUE:
    case JSON_FALSE:
        out->kind = CARAT_BOOL;
        out->as.boolean = json_is_true(json);
        break;
    case JSON_INTEGER:
        out->kind = CARAT_INT;
        out->as.integer = json_integer_value(json);
        break;
    case JSON_REAL:
        out->kind = CARAT_REAL;
        out->as.real = json_real_value(json);
        break;
    case JSON_STRING:
        out->kind = CARAT_STRING;
        out->as.string.data = json_string_value(json);
        out->as.string.length = json_string_length(json);
        break;
    case JSON_ARRAY: return convert_array(json, depth, arena, out, err);
    case JSON_OBJECT: return convert_object(json, depth, arena, out, err);
    }
    return CARAT_OK;
}

int json_value_from(const json_t *json, struct arena *arena, struct carat_value *out,
                    struct carat_error *err)
{
    return convert(json, 0, arena, out, err);
}

size_t json_count_values(const char *text, size_t length)
{
    size_t n = 1;
    bool is_string = false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '"')
            is_string = !is_string;
        else if (is_string && text[i] == '\\')
            i++;
        else
            n += !is_string && text[i] == ',';
    }
    return n;
}

/* Whether a number without point and exponent is beyond int64_t. */
static bool is_beyond(const char *number, size_t length)
{
    enum { DIGITS = 19 };
    bool is_negative = *number == '-';
    const char *most = is_negative ? "9223372036854775808" : "9223372036854775807";
    number += is_negative;
    length -= is_negative;
    return length > DIGITS || (length == DIGITS && memcmp(number, most, DIGITS) > 0);
}

/* Writes the text with a point after each such number. */
static void write_large_as_real(struct buf *out, const char *text, size_t length)
{
    bool is_string = false;
    size_t written = 0;
    for (size_t i = 0; i < length;) {
        char c = text[i];
        if (is_string || !((c >= '0' && c <= '9') || c == '-')) {
            if (c == '"') is_string = !is_string;
            i += is_string && c == '\\' ? 2 : 1;
            continue;
        }
        size_t begin = i++;
        bool is_real = false;
        for (; i < length && memchr("0123456789+-.eE", text[i], 15); i++)
            is_real |= text[i] == '.' || text[i] == 'e' || text[i] == 'E';
        if (is_real || !is_beyond(text + begin, i - begin)) continue;
        buf_add(out, text + written, i - written);
        buf_add_text(out, ".0");
        written = i;
    }
    buf_add(out, text + written, length - written);
}

json_t *json_value_load(const char *text, size_t length, json_error_t *failure)
{
    json_t *json = json_loadb(text, length, JSON_ALLOW_NUL, failure);
    if (json || json_error_code(failure) != json_error_numeric_overflow) return json;
    struct buf reals = {0};
    write_large_as_real(&reals, text, length);
    if (reals.failed)
        *failure = (json_error_t){0};
    else
        json = json_loadb(reals.data, reals.length, JSON_ALLOW_NUL, failure);
    buf_deinit(&reals);
    return json;
}

static int decode_arguments(json_t *call, bool forgives, size_t *n_values, struct carat_error *err)
{
    json_t *function = json_object_get(call, "function");
    const json_t *text = json_object_get(function, "arguments");
    if (!json_is_string(text)) return CARAT_OK;
    *n_values += json_count_values(json_string_value(text), json_string_length(text));
    if (*n_values > JSON_VALUES_MAX)
        return err_set(err, CARAT_EUSAGE, "messages: at most %d values expected, %zu found",
                       JSON_VALUES_MAX, *n_values);
    json_error_t failure;
    json_t *decoded = json_value_load(json_string_value(text), json_string_length(text), &failure);
    if (!decoded && !failure.text[0]) return err_no_memory(err, "JSON", json_string_length(text));
    if (forgives && !json_is_object(decoded)) {
        json_decref(decoded);
        decoded = json_object();
    }
    if (decoded) json_object_set_new(function, "arguments", decoded);
    return CARAT_OK;
}

int json_value_from_chat(json_t *request, bool forgives, size_t *n_values, struct arena *arena,
                         struct carat_value *out, struct carat_error *err)
{
    const json_t *messages = json_object_get(request, "messages");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++)
            TRY(decode_arguments(json_array_get(calls, k), forgives, n_values, err));
    }
    return convert(request, 0, arena, out, err);
}

#else
typedef int json_value_is_empty; /* ISO C wants a declaration in every file */
#endif
