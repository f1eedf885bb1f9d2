/* Counters and histograms of a server, written in the text form of Prometheus.
 *
 * Any thread may call any of these. Names are carat_..., and again vllm:... where routers and
 * boards look for those (docs/operations.md). */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "carat.h"

struct metrics;

/* `model` is the label of all; copied. */
int metrics_open(struct metrics **out, const char *model, struct carat_error *err);
void metrics_close(struct metrics *m);

/* A reply has been sent: `route` is one of a fixed list ("/v1/chat/completions", "other",
 * "refused"), never what a client wrote. */
void metrics_reply(struct metrics *m, const char *route, int status);

enum metrics_count {
    METRICS_QUEUE_REJECTED,
    METRICS_CANCELLED_QUEUE, /* the client left while its request was ... */
    METRICS_CANCELLED_PROMPT,
    METRICS_CANCELLED_DECODE,
    METRICS_CANCELLED_WRITE, /* ... or did not read */
    METRICS_BILLING_LINES,   /* dropped from system prompts */
    METRICS_FAILED,          /* connections without a request and a reply: no TLS, too many */
    METRICS_TRACES_SENT,     /* spans that a collector has taken */
    METRICS_TRACES_DROPPED,  /* and those that none has */
    METRICS_COUNT
};
void metrics_add(struct metrics *m, enum metrics_count what, uint64_t n);

struct metrics_answer { /* one that has ended; seconds */
    const char *finish; /* "stop", "length", "tool_calls", "cancelled", "error", "deadline" */
    int32_t n_prompt, n_cached, n_generated;
    double queue, prefill, decode; /* times in the engine */
    double first_token, whole;     /* from the request's last byte on */
};
void metrics_answer(struct metrics *m, const struct metrics_answer *a);
void metrics_token_gap(struct metrics *m, double seconds); /* between two tokens of an answer */

/* What is true now; the sums over all engines. */
struct metrics_now {
    struct carat_stats engine;
    int32_t running, waiting; /* requests; waiting ones before the engine too */
    int32_t calls, streams;
    size_t idle, reading, answering, writing; /* connections */
    int64_t pages_all, page_tokens;           /* of keys and values; tokens of a page */
    int64_t cached_bytes;                     /* of pages that only the prefix cache holds */
    int32_t engines, engines_failed;
    bool is_ready;
};
void metrics_write(struct metrics *m, const struct metrics_now *now, struct buf *out);

#endif
