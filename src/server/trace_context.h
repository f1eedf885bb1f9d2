/* Where a request stands in a trace: W3C Trace Context, the header `traceparent`. Pure, except for
 * random numbers. */
#ifndef SERVER_TRACE_CONTEXT_H
#define SERVER_TRACE_CONTEXT_H

#include <stdbool.h>

enum { TRACE_ID_SIZE = 33, SPAN_ID_SIZE = 17 }; /* with the NUL */

struct trace_context { /* lower-case hexadecimal digits. Zeroed: nothing is recorded */
    char trace[TRACE_ID_SIZE], span[SPAN_ID_SIZE];
    char parent[SPAN_ID_SIZE]; /* the caller's span; "": this one is the first */
};

/* Goes on with the trace of a caller, or begins one: `traceparent` is NULL if there is no such
 * header. One that is not well formed counts as none. False: the caller does not record its trace,
 * so this request is not recorded either, and *out is zeroed. */
bool trace_context_begin(struct trace_context *out, const char *traceparent);

#endif
