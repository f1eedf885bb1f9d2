/* What a trace says of a call: nothing unless there is a collector, and only of routes that
 * compute. */
#ifndef SERVER_CALL_SPAN_H
#define SERVER_CALL_SPAN_H

#include "server/service.h"

/* When its route is known. */
void call_span_begin(const struct service *s, struct call *c);
/* When the reply is sent, or the client has left: `status` as in the log. */
void call_span_end(const struct service *s, const struct call *c, int status);

#endif
