/* Which requests are refused before anybody looks at them: where two readers of the same bytes
 * could disagree about where a request ends, whom it is for, or what it is. Pure. */
#ifndef SERVER_HTTP_FRAMING_H
#define SERVER_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http_target.h"

struct framing_field {
    const char *name, *value;
    size_t name_length, value_length;
};

struct framing {
    const char *method, *version;       /* "HTTP/1.1" */
    const struct http_target *target;   /* that could be read */
    const struct framing_field *fields; /* [n] */
    size_t n;
    size_t header_bytes; /* from the method's first byte up to and with the empty line */
    /* All texts above point into the bytes that came, in which NULs have replaced what stands
     * between them. Otherwise nobody can tell what the reader has left out. */
    bool is_in_place;
};

struct framing_verdict {
    int status;      /* 0: fine; else of the refusal */
    const char *why; /* one sentence */
    bool has_body;
    uint64_t body_bytes; /* UINT64_MAX: in chunks */
    bool wants_continue; /* waits for "100 Continue" before its body */
};

void framing_check(const struct framing *f, struct framing_verdict *out);

#endif
