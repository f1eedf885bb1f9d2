/* What happens to a request as its parts arrive: the events of http.h, and calls that come back
 * from workers and engines. */
#ifndef SERVER_DISPATCH_H
#define SERVER_DISPATCH_H

#include "server/service.h"

void dispatch_headers(struct service *s, struct http_request *q);
void dispatch_request(struct service *s, struct http_request *q);
void dispatch_room(struct service *s, struct http_request *q);
/* What http.h refuses by itself: for counts and the log. `reply` is written; or NULL. */
void dispatch_refused(struct service *s, const struct http_refusal *r,
                      struct http_refusal_reply *reply);
void dispatch_closed(struct service *s, struct http_request *q, bool is_sent);
/* A call that the inbox had. */
void dispatch_news(struct service *s, struct call *c);
/* Every call that runs gets its tick. */
void dispatch_tick(struct service *s, double now);
/* Ends everything that runs, with an error. */
void dispatch_end_all(struct service *s, const struct api_error *error);

/* After workers and engines have ended: takes back what they had. Calls that still have a client
 * are freed when http_close says that it is gone. */
void dispatch_abandon(struct service *s);

#endif
