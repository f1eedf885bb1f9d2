/* Replies to requests that nobody above http.h is asked about: one head, JSON, and the end of the
 * connection. Also in place of the library's own refusals, which are in HTML, and some of which
 * have two heads. */
#ifndef SERVER_HTTP_REFUSAL_H
#define SERVER_HTTP_REFUSAL_H

#include "server/http.h"

#ifdef CARAT_HAVE_HTTP
#include <stdarg.h>

#include "server/http_internal.h"

/* A refusal in the words of who uses the server (http_events.on_refused). `id` is the client's
 * x-request-id, or NULL. The body is the caller's. */
void refusal_write(struct connection *c, int status, const char *why, const char *id,
                   struct http_refusal_reply *reply);
/* A connection ends without a reply. */
void refusal_note(struct http *h, const char *client, const char *why);

/* For places where the library takes no reply, in a head or in a body: this one goes to the socket
 * past the library. After it nothing is sent on the connection, and what still comes is dropped. If
 * the library does not let go of the connection in a moment, it is cut. */
void refusal_say(struct connection *c, int status, const char *why);
/* Not encrypted, also where TLS was expected. */
void refusal_say_plainly(struct connection *c, int status, const char *why);

/* The library refuses it no more: it has done so, or has let go of it. */
void refusal_forget(struct connection *c);

/* The library's log. It has a line before each refusal of the library's own, which is then replaced
 * wherever it is certain which connection it is for. `user` is the server. */
void refusal_of_library(void *user, const char *form, va_list arguments);
#endif

#endif
