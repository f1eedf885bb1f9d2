#include "server/http_target.h"

#include <string.h>
#include <strings.h>

#include "base/hex.h"
#include "base/mem.h"

/* Decodes text[0, length) to `out`, which gets at most as many bytes and a NUL. Returns where it
 * ended, NULL: a broken escape or a NUL. */
static char *decode(const char *text, size_t length, bool is_query, char *out)
{
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (is_query && c == '+') {
            c = ' ';
        } else if (c == '%') {
            const int high = i + 1 < length ? hex_value(text[i + 1]) : -1;
            const int low = i + 2 < length ? hex_value(text[i + 2]) : -1;
            if (high < 0 || low < 0 || (high == 0 && low == 0)) return NULL;
            c = (char)(high * 16 + low);
            i += 2;
        }
        *out++ = c;
    }
    *out = '\0';
    return out;
}

static bool has_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return true;
    return false;
}

static bool has_dot_segment(const char *path)
{
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        const size_t length = strcspn(part, "/");
        if (length >= 1 && length <= 2 && strspn(part, ".") >= length) return true;
    }
    return false;
}

/* Pairs into t->query, which has room: no pair takes more than it has in the text, and one byte. */
static bool read_query(struct http_target *t, const char *text)
{
    char *out = t->query;
    while (*text) {
        const size_t length = strcspn(text, "&");
        const char *equals = memchr(text, '=', length);
        const size_t key = equals ? (size_t)(equals - text) : length;
        char *end = decode(text, key, true, out);
        if (!end) return false;
        out = end + 1;
        end = equals ? decode(equals + 1, length - key - 1, true, out) : out;
        if (!end) return false;
        *end = '\0';
        out = end + 1;
        t->n_query++;
        text += length;
        text += *text == '&';
    }
    return true;
}

const char *http_target_read(struct http_target *t, const char *raw)
{
    *t = (struct http_target){.path = "", .raw_length = strlen(raw)};
    if (has_control(raw) || strchr(raw, ' '))
        return "the target of the request has blanks or control characters";
    if (strchr(raw, '#')) return "the target of the request has a fragment";
    if (strncasecmp(raw, "http://", 7) == 0 || strncasecmp(raw, "https://", 8) == 0) {
        t->authority = strchr(raw, '/') + 2;
        t->authority_length = strcspn(t->authority, "/?");
    }
    const char *start = t->authority ? t->authority + t->authority_length : raw;
    if (t->authority && *start != '/') start = "/"; /* "http://host" */
    if (*start != '/') return "the target of the request does not begin with a slash";
    const size_t path = strcspn(start, "?"), all = strlen(start);
    /* A pair takes two NULs, its text one '=' or '&' or none. */
    t->memory = mem_alloc(path + 1 + 2 * (all - path) + 2, 1);
    if (!t->memory) return "";
    t->query = t->memory + path + 1;
    const char *why = NULL;
    if (!decode(start, path, false, t->memory)) {
        why = "the path has a broken escape or an encoded NUL";
    } else if (has_control(t->memory)) {
        why = "the path has encoded control characters";
    } else if (strchr(t->memory, '\\')) {
        why = "the path has a backslash";
    } else if (has_dot_segment(t->memory)) {
        why = "the path has a segment of dots";
    } else if (start[path] && !read_query(t, start + path + 1)) {
        why = "the query has a broken escape or an encoded NUL";
    }
    if (!why) t->path = t->memory;
    return why;
}

void http_target_free(struct http_target *t)
{
    mem_free(t->memory);
    *t = (struct http_target){0};
}

const char *http_target_query(const struct http_target *t, const char *key)
{
    const char *at = t->query;
    for (size_t i = 0; i < t->n_query; i++) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, key) == 0) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}
