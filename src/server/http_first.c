#include "server/http_first.h"

#include <string.h>

static void refuse(struct first_look *out, int status, const char *why)
{
    out->status = status;
    out->why = why;
}

/* TLS begins with a record of type 22 and version 3. */
static bool is_tls(const char *bytes, size_t n)
{
    return n >= 2 && bytes[0] == 0x16 && bytes[1] == 0x03;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void look_at_version(const char *version, size_t length, struct first_look *out)
{
    const bool is_one = length == 8 && memcmp(version, "HTTP/", 5) == 0 && is_digit(version[5]) &&
                        version[6] == '.' && is_digit(version[7]);
    if (!is_one) {
        refuse(out, 400, "the first line does not end with a version of HTTP");
    } else if (version[5] == '2') {
        refuse(out, 505, "HTTP/2 is not understood here: use HTTP/1.1");
    } else if (version[5] != '1') {
        refuse(out, 505, "only HTTP/1.1 and HTTP/1.0 are understood");
    }
}

/* "GET /health HTTP/1.1", as the library takes it apart: at the first blank and at the last. */
static void look_at_line(const char *line, size_t length, struct first_look *out)
{
    while (length > 0 && (line[length - 1] == '\r' || line[length - 1] == ' ')) length--;
    const char *end = line + length, *blank = memchr(line, ' ', length);
    if (!blank) {
        refuse(out, 400, "the first line is not one of HTTP/1.1");
        return;
    }
    const char *target = blank, *version = end;
    while (target < end && *target == ' ') target++;
    for (size_t i = 0; i + 1 < sizeof out->path && target + i < end; i++) {
        if (target[i] == ' ' || target[i] == '?') break;
        out->path[i] = target[i];
    }
    while (version > target && version[-1] != ' ') version--;
    if (version == target)
        refuse(out, 400, "the first line does not end with a version of HTTP");
    else
        look_at_version(version, (size_t)(end - version), out);
}

void first_look(const char *bytes, size_t n, size_t head_max, struct first_look *out)
{
    const char *at = bytes, *const end = bytes + n;
    *out = (struct first_look){.is_words = n > 0 && bytes[0] >= 'A' && bytes[0] <= 'Z'};
    if (is_tls(bytes, n)) {
        refuse(out, 400, "this port does not speak TLS: use http://, or start it with --tls-cert");
        return;
    }
    while (at < end && (*at == '\r' || *at == '\n')) at++; /* empty lines before it are fine */
    bool is_first = true;
    for (const char *next; at < end && out->status == 0; at = next) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) break;
        next = line_end + 1;
        const size_t length = (size_t)(line_end - at);
        if (memchr(at, '\0', length)) {
            refuse(out, 400, "the head of the request has a NUL");
        } else if (is_first) {
            look_at_line(at, length, out);
        } else if (length == 0 || (length == 1 && *at == '\r')) {
            out->is_whole = true;
            return;
        } else if (*at != ' ' && *at != '\t' && !memchr(at, ':', length)) {
            refuse(out, 400, "a line of the headers has no colon");
        }
        is_first = false;
    }
    if (out->status || n <= head_max) return;
    if (is_first)
        refuse(out, 414, "the target of the request is longer than this server takes");
    else
        refuse(out, 431, "the headers are longer than this server takes");
}
