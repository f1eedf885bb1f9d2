/* Spans of requests on their way to a collector: a ring that nobody waits for, and a thread that
 * sends what is in it once a second, or as soon as 256 are there. A collector that is gone, slow
 * or hostile costs spans, which are counted (metrics.h), and nothing else. */
#ifndef SERVER_TRACES_H
#define SERVER_TRACES_H

#include "server/metrics.h"
#include "server/otlp_client.h"
#include "server/span.h"

struct traces;

enum { TRACES_END_SECONDS = 2 }; /* that traces_close takes at most */

struct traces_options {
    struct otlp_options collector;
    struct span_source source; /* its texts are borrowed until traces_close */
};

/* As otlp_open. `metrics` is borrowed until traces_close. */
int traces_open(struct traces **out, const struct traces_options *options, struct metrics *metrics,
                struct carat_error *err);
/* Sends what is left. NULL is fine. */
void traces_close(struct traces *t);

const char *traces_url(const struct traces *t); /* borrowed */

/* Any thread; takes no longer than a copy. */
void traces_add(struct traces *t, const struct span *span);

#endif
