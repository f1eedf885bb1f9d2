/* Connections whose reply was sent while they still sent a body. Closing them at once would make
 * the system reset them, and a reset may overtake the reply. So what comes is dropped for a moment,
 * until the client has closed. */
#ifndef SERVER_HTTP_LINGER_H
#define SERVER_HTTP_LINGER_H

#include "server/http_watch.h"

enum { LINGER_MAX = 128 }; /* at a time; more are closed at once */

struct lingering {
    struct watched watched; /* first; is_lingering */
    uint64_t dropped;       /* bytes */
};

struct http_linger {
    struct lingering place[LINGER_MAX]; /* fd 0: free */
    int places;                         /* that may be used */
};

/* Keeps a copy of `fd`, which may be closed then. */
void linger_begin(struct http_linger *l, struct watch *w, int fd);
/* It is readable, or closed by the client. */
void linger_read(struct watch *w, struct watched *p);
void linger_end(struct watch *w, struct watched *p);
void linger_end_all(struct http_linger *l, struct watch *w);

#endif
