/* Newcomers: connections from accept() until the library gets them. It gets one when the head of
 * its first request has come whole and is fit for it (http_first.h), or the first bytes of TLS.
 * So no byte of a connection can reach the library before somebody has looked at it, however the
 * bytes come, and who sends nothing costs no memory of the library's. */
#ifndef SERVER_HTTP_ENTRY_H
#define SERVER_HTTP_ENTRY_H

#include "server/http.h"

#ifdef CARAT_HAVE_HTTP
#include "server/http_internal.h"

/* Whether a connection is still here: the functions below are for these alone, and may free it. */
bool entry_has(const struct connection *c);

/* The listening socket has newcomers. */
void entry_accept(struct http *h);
/* Begins to listen for newcomers, or stops. Nothing happens when it is so already. */
void entry_listen(struct http *h, bool is_wanted);

void entry_noticed(struct connection *c, uint32_t events);
void entry_expired(struct connection *c, enum deadline deadline);
/* Closes it without a reply. */
void entry_close(struct connection *c);

/* The library has taken the connection that it is being given. NULL: it was given none. */
struct connection *entry_taken(struct http *h, struct MHD_Connection *mhd);
/* The library has closed a connection. It is freed. */
void entry_leave(struct connection *c);
#endif

#endif
