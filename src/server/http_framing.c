#include "server/http_framing.h"

#include <string.h>
#include <strings.h>

static bool is_named(const struct framing_field *f, const char *name)
{
    return f->name_length == strlen(name) && strncasecmp(f->name, name, f->name_length) == 0;
}

static const struct framing_field *find(const struct framing *f, const char *name, int *count)
{
    const struct framing_field *found = NULL;
    *count = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (!is_named(&f->fields[i], name)) continue;
        if (!found) found = &f->fields[i];
        (*count)++;
    }
    return found;
}

static bool is_value(const struct framing_field *f, const char *value)
{
    return f->value_length == strlen(value) && strncasecmp(f->value, value, f->value_length) == 0;
}

static void refuse(struct framing_verdict *out, int status, const char *why)
{
    if (out->status) return; /* the first reason counts */
    out->status = status;
    out->why = why;
}

static bool is_token(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c <= 0x20 || c >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", c)) return false;
    }
    return length > 0;
}

static void check_fields(const struct framing *f, struct framing_verdict *out)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct framing_field *field = &f->fields[i];
        if (!is_token(field->name, field->name_length))
            refuse(out, 400, "a header has characters in its name that are not allowed");
        for (size_t k = 0; k < field->value_length; k++) {
            const unsigned char c = (unsigned char)field->value[k];
            if ((c < 0x20 && c != '\t') || c == 0x7f)
                refuse(out, 400, "a header has control characters in its value");
        }
    }
}

/* A line's text ends at `from`: blanks and the two bytes of its end must follow, and then `to`. */
static bool is_line_end(const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t')) from++;
    return to - from == 2 && from[0] == '\0' && from[1] == '\0';
}

static bool is_separator(const char *from, const char *to)
{
    if (from >= to || *from++ != '\0') return false; /* the colon */
    while (from < to && (*from == ' ' || *from == '\t')) from++;
    return from == to;
}

/* A reader may cut a value at a NUL, put a folded line anywhere, or take a line without a name for
 * the empty one (libmicrohttpd 0.9.75 does all three). So between the texts that it found there
 * must be nothing else. */
static bool are_lines_plain(const struct framing *f)
{
    const char *const begin = f->method, *const end = begin + f->header_bytes;
    const char *at = f->version + strlen(f->version);
    if (f->version != begin + strlen(begin) + 1 + f->target->raw_length + 1) return false;
    for (size_t i = 0; i < f->n; i++) {
        const struct framing_field *field = &f->fields[i];
        if (field->name < at || field->name > end || field->value > end) return false;
        if (!is_line_end(at, field->name)) return false;
        if (!is_separator(field->name + field->name_length, field->value)) return false;
        at = field->value + field->value_length;
    }
    return end - at >= 4 && is_line_end(at, end - 2);
}

static void check_method(const struct framing *f, struct framing_verdict *out)
{
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(f->method, known[i]) == 0) return;
    if (strcmp(f->method, "TRACE") == 0 || strcmp(f->method, "CONNECT") == 0)
        refuse(out, 405, "this method is not allowed here");
    refuse(out, 501, "the method is not known");
}

/* The usual ones by their names: what a client wrote stands in no reply. */
static void refuse_packed(const struct framing_field *content, struct framing_verdict *out)
{
    static const struct {
        const char *name, *why;
    } known[] = {
        {"gzip", "a body packed by gzip is not understood: send it plain"},
        {"x-gzip", "a body packed by gzip is not understood: send it plain"},
        {"deflate", "a body packed by deflate is not understood: send it plain"},
        {"br", "a body packed by brotli (br) is not understood: send it plain"},
        {"zstd", "a body packed by zstd is not understood: send it plain"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_value(content, known[i].name)) refuse(out, 415, known[i].why);
    refuse(out, 415, "packed bodies are not understood (Content-Encoding): send it plain");
}

static void check_length(const struct framing *f, struct framing_verdict *out)
{
    int lengths, encodings, contents;
    const struct framing_field *length = find(f, "Content-Length", &lengths);
    const struct framing_field *encoding = find(f, "Transfer-Encoding", &encodings);
    const struct framing_field *content = find(f, "Content-Encoding", &contents);
    if (lengths > 1) refuse(out, 400, "the request has two lengths");
    if (lengths && encodings) refuse(out, 400, "the request has a length and is sent in chunks");
    if (encodings > 1 || (encodings && !is_value(encoding, "chunked")))
        refuse(out, 400, "the only Transfer-Encoding that is understood is \"chunked\"");
    if (encodings && strcmp(f->version, "HTTP/1.1") != 0) refuse(out, 400, "chunks need HTTP/1.1");
    if (contents > 1 || (contents && !is_value(content, "identity"))) refuse_packed(content, out);
    out->body_bytes = encodings ? UINT64_MAX : 0;
    for (size_t i = 0; length && i < length->value_length; i++) {
        const char c = length->value[i];
        if (c < '0' || c > '9' || i >= 18) refuse(out, 400, "the length is not a number");
        out->body_bytes = out->body_bytes * 10 + (uint64_t)(c - '0');
    }
    if (length && length->value_length == 0) refuse(out, 400, "the length is not a number");
    out->has_body = encodings || out->body_bytes > 0;
}

static void check_host(const struct framing *f, struct framing_verdict *out)
{
    int hosts;
    const struct framing_field *host = find(f, "Host", &hosts);
    if (hosts > 1) refuse(out, 400, "the request has two Host headers");
    if (hosts == 0 && strcmp(f->version, "HTTP/1.1") == 0)
        refuse(out, 400, "the request has no Host header");
    if (host && memchr(host->value, '@', host->value_length))
        refuse(out, 400, "the Host header names a user");
    const struct http_target *t = f->target;
    if (t->authority && host &&
        (t->authority_length != host->value_length ||
         strncasecmp(t->authority, host->value, host->value_length) != 0))
        refuse(out, 400, "the target of the request and its Host header name different hosts");
}

static void check_expectation(const struct framing *f, struct framing_verdict *out)
{
    int count;
    const struct framing_field *expect = find(f, "Expect", &count);
    if (count == 0) return;
    out->wants_continue = is_value(expect, "100-continue");
    if (count > 1 || !out->wants_continue)
        refuse(out, 417, "the only expectation that can be met is \"100-continue\"");
}

void framing_check(const struct framing *f, struct framing_verdict *out)
{
    *out = (struct framing_verdict){0};
    if (strcmp(f->version, "HTTP/1.1") != 0 && strcmp(f->version, "HTTP/1.0") != 0)
        refuse(out, 505, "only HTTP/1.1 and HTTP/1.0 are understood");
    if (f->is_in_place && !are_lines_plain(f))
        refuse(out, 400,
               "the headers have folded lines, NULs, lines without a name or ends of "
               "lines that are not CRLF");
    check_fields(f, out);
    check_host(f, out);
    check_length(f, out);
    check_method(f, out);
    check_expectation(f, out);
}
