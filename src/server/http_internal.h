/* What the files around libmicrohttpd share: the server and its connections. They are http.c (the
 * loop), http_entry.c (newcomers), http_exchange.c (requests and replies) and http_refusal.c. */
#ifndef SERVER_HTTP_INTERNAL_H
#define SERVER_HTTP_INTERNAL_H

#include <stdatomic.h>

#include <microhttpd.h>

#include "server/http.h"
#include "server/http_linger.h"
#include "server/http_target.h"
#include "server/http_tls.h"
#include "server/http_watch.h"

struct http {
    struct http_options options; /* texts are copies */
    struct http_events events;
    struct MHD_Daemon *daemon;
    struct watch watch;
    struct http_linger linger;
    struct tls_identity *identity; /* NULL: no TLS */
    int listen_fd, wake_fd;
    bool owns_path;
    char *texts[4]; /* of options */
    uint16_t port;
    atomic_bool is_woken, is_stopping, is_over;
    bool is_listening;
    bool is_accepting; /* the loop is told when a client connects */
    bool is_short;     /* accept() failed; until the next tick, or until a connection ends */
    struct connection *entering;    /* is being given to the library */
    bool sees_lines;                /* headers stand where they were received, see http_framing.h */
    struct connection *connections; /* a list of all */
    size_t n_connections, connections_max;
    uint64_t connections_ever;
    size_t bodies_bytes; /* reserved by all connections */
    size_t n_repeats;    /* connections that may_repeat */
    char *first_bytes;   /* [header_bytes_max + 1], for a look at them */
    double next_tick;
};

/* One connection, with the one request that it may have at a time. */
struct connection {
    struct watched watched; /* first: what the watcher gives back is the connection */
    struct http *server;
    struct MHD_Connection *mhd; /* NULL: the library has not got it yet, see http_entry.h */
    struct connection *before, *after;
    struct tls_identity *identity;
    bool is_open; /* its handshake is finished */

    struct http_request request;
    struct http_target target;
    const char *refused; /* why the target was; "": no memory; NULL: it is fine */
    bool has_target;     /* the line of a request was read */
    bool is_refused;     /* by http_refusal.h */
    bool may_repeat;     /* refused, and the library may still refuse it, too */
    bool is_known;       /* on_headers was called, on_closed is due */
    bool is_asked;       /* on_request was called */
    bool has_left;       /* the client has closed its side; what it has sent is still read */
    bool is_gone;        /* cut: nothing is sent any more */
    bool is_suspended;   /* in MHD */
    bool has_body, is_chunked;
    size_t reserved;   /* bytes of bodies_bytes_max */
    double body_began; /* os_seconds() */
    bool is_early;     /* the reply comes before the body was read */
    bool must_close;   /* after this reply */

    struct MHD_Response *response; /* not handed over yet */
    unsigned status;
    bool is_queued, is_stream, is_ended, is_whole;
    struct buf unsent; /* of a stream, or of a long reply; from `sent` on */
    size_t sent;
};

/* Of the head of its request; 0: it has not ended. */
static inline size_t header_bytes(const struct connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info ? info->header_size : 0;
}

/* Callbacks of MHD. `user` is the server. */
void *exchange_target(void *user, const char *raw, struct MHD_Connection *mhd);
enum MHD_Result exchange_access(void *user, struct MHD_Connection *mhd, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **own);
void exchange_completed(void *user, struct MHD_Connection *mhd, void **own,
                        enum MHD_RequestTerminationCode how);
void exchange_connection(void *user, struct MHD_Connection *mhd, void **context,
                         enum MHD_ConnectionNotificationCode what);

/* What the watcher says of a connection. */
void exchange_noticed(struct connection *c, uint32_t events);
void exchange_expired(struct connection *c, enum deadline deadline);
/* Ends it now, whatever it does; MHD lets go of it in its next run. */
void exchange_cut(struct connection *c);

#endif
