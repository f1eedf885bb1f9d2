/* What happens to a request as its parts arrive: the events of http.h, and calls that come back
 * from workers and engines. */
#ifndef SERVER_DISPATCH_H
#define SERVER_DISPATCH_H

#include "server/service.h"

void dispatch_headers(struct service *s, struct http_request *q);
void dispatch_request(struct service *s, struct http_request *q);
void dispatch_room(struct service *s, struct http_request *q);
void dispatch_closed(struct service *s, struct http_request *q, bool is_sent);
/* A call that the inbox had. */
void dispatch_news(struct service *s, struct call *c);
/* Every call that runs gets its tick; then those that are over are freed. */
void dispatch_tick(struct service *s, double now);
/* Ends everything that runs, with an error. */
void dispatch_end_all(struct service *s, const struct api_error *error);

/* After the workers have ended: calls that they had not begun, or have given back. */
void dispatch_forget_work(struct service *s);

#endif
