/* What a trace says of one request, and many of them as OTLP has them in JSON: ids in hexadecimal
 * digits, whole numbers of 64 bits as decimal texts. Names of attributes are those of
 * OpenTelemetry's conventions for HTTP and for generative AI; times of the engine have the names
 * that vLLM gave them. No prompt, answer or key is part of it. Pure. */
#ifndef SERVER_SPAN_H
#define SERVER_SPAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/request_id.h"
#include "server/trace_context.h"

enum { SPAN_FINISHES_MAX = 16, SPAN_MODEL_MAX = 128 };

struct span {
    struct trace_context context;
    int64_t begin_ns, end_ns; /* since 1970 */
    /* Constant texts. */
    const char *method, *route, *scheme;
    const char *operation;                   /* "chat", "text_completion"; NULL: no answer was
                                                wanted, and nothing of what follows holds */
    const char *finishes[SPAN_FINISHES_MAX]; /* of each answer, as far as they have ended */
    const char *failure;                     /* of an answer that failed; NULL: none */
    size_t n_finishes;
    int status; /* of HTTP; 499: the client left */
    char id[REQUEST_ID_MAX];
    char model[SPAN_MODEL_MAX]; /* as the client named it, cut; "": not at all */
    int32_t n_answers;          /* 0: none was begun, and nothing of what follows holds */
    int32_t n_prompt, n_cached, n_generated, max_tokens; /* max_tokens 0: no limit */
    double temperature, top_p;
    double first_token; /* seconds from the request's last byte on; 0: there was none */
    double queue, prefill, decode, whole; /* seconds */
};

struct span_source {
    const char *service, *version, *model;
    const char *attributes; /* more of them (pairs.h), well formed; "" */
};

/* Appends the body of one request to a collector. */
void spans_write(struct buf *out, const struct span_source *source, const struct span *spans,
                 size_t n);

#endif
