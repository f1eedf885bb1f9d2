/* HTTP/1.1, with or without TLS: one thread that owns all connections. The library below
 * (libmicrohttpd, inside a loop of our own) is known to the files that include http_internal.h, and
 * to nobody else.
 *
 * A request goes through these calls of `struct http_events`, all in the server's thread:
 *
 *   on_headers   before the body is read; may reply at once, then the body is not read
 *   on_request   the whole body is there
 *   on_room      of a stream: what was added has been sent, down to http_options.low_bytes
 *   on_closed    the last: the reply is sent, or the client has left. Then the request is gone
 *
 * The client counts as gone when it closes its side of the connection, even if it only ends what it
 * sends: one that waits for an answer does neither. This is noticed at once, also while nothing is
 * sent.
 *
 * Framing is strict. Two lengths, a length with chunks, a missing or double Host, a NUL, ".." or a
 * backslash in the decoded path, a fragment, folded headers, lines that do not end with CRLF: 400,
 * and the connection is closed (http_framing.h). Such requests are seen by on_refused alone.
 *
 * A reply in on_headers to a request with a long body closes the connection, because the body is
 * not read. A body of at most 64 KB is dropped, and the connection goes on.
 *
 * Bodies that are being read share bodies_bytes_max. One for which there is no room gets 503 before
 * it is read. Of that room bodies of more than 64 KB take three quarters at most, so that small
 * requests go on. Long bodies have to come at 16 KB a second or faster in the long run. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct http;

struct http_request {
    const char *method, *path; /* the path decoded, without the query; until on_closed */
    struct buf body;           /* from on_request on; may be taken: swap it with an empty one */
    uint64_t connection;       /* its number: requests of a connection follow each other */
    char client[64];           /* address without port, or "unix" */
    bool is_tls, is_head;
    void *user;  /* the caller's; NULL at on_headers */
    int refused; /* at on_closed: the status of a refusal sent in the caller's place; or 0 */
};

struct http_field {
    const char *name, *value;
};

/* A request or a connection that is refused before the caller sees it, or in the caller's place. */
struct http_refusal {
    const char *client; /* "": it is not certain who */
    const char *path;   /* as far as it is known, in any form, else "": nothing for a log */
    int status;         /* 0: the connection is closed without a reply */
    const char *why;    /* one sentence, without anything of the request */
    const char *id;     /* the client's x-request-id, if its headers were read; else NULL */
    const struct http_request *known; /* on_headers has been called; on_closed comes, with
                                         `refused`. Else NULL */
};

/* The reply to it. Zeroed at first; http.h frees the body. */
struct http_refusal_reply {
    struct buf body;             /* JSON */
    struct http_field fields[2]; /* besides those that belong to its status */
    size_t n_fields;
    char id[65]; /* for values of fields to point to */
};

struct http_events {
    void *user;
    /* `reply` is to be written; NULL: it has another one, or none. */
    void (*on_refused)(void *user, const struct http_refusal *refusal,
                       struct http_refusal_reply *reply);
    void (*on_headers)(void *user, struct http_request *q);
    void (*on_request)(void *user, struct http_request *q);
    void (*on_room)(void *user, struct http_request *q);
    void (*on_closed)(void *user, struct http_request *q, bool is_sent);
    void (*on_wake)(void *user); /* after http_wake, once for any number of calls */
    /* Called about every tick_seconds, whatever else happens. */
    void (*on_tick)(void *user);
    double tick_seconds;
};

struct http_options {
    const char *host, *unix_path; /* one of them; a unix socket gets mode 0660 */
    uint16_t port;                /* 0: any; http_port says which */
    int listen_fd;                /* >= 0: already listening (systemd), instead of host and port */
    const char *certificate, *private_key; /* PEM files; NULL: no TLS */
    /* Fewer when there are not as many descriptors. When all places are taken, the connection that
     * was idle for longest is closed, else newcomers wait. */
    int32_t connections_max;
    /* More: 431, 413. Each connection that has sent a request keeps memory of header_bytes_max and
     * 2 KB. */
    size_t header_bytes_max, body_bytes_max;
    size_t bodies_bytes_max; /* of all that are being read; at least what one long body needs */
    double header_seconds;   /* from the first byte to the end of the headers: 408 */
    double body_seconds, write_seconds; /* without progress; then the connection is closed */
    double idle_seconds;                /* between requests */
    size_t low_bytes;
};

/* CARAT_EADDRESS: the address is taken, or not allowed. CARAT_EUNSUPPORTED: built without the
 * library, and what to install. */
int http_open(struct http **out, const struct http_options *options,
              const struct http_events *events, struct carat_error *err);
uint16_t http_port(const struct http *h);

/* Open connections. */
struct http_counts {
    size_t idle;    /* between requests */
    size_t reading; /* of whose request a part has come */
    size_t waiting; /* for the caller: on_request was called, and there is nothing to send */
    size_t writing;
};
struct http_counts http_count(const struct http *h);

/* Serves until http_stop, which any thread may call. `is_over`: true closes connections at once,
 * false only listens no longer and goes on with what is open. */
int http_run(struct http *h, struct carat_error *err);
void http_stop(struct http *h, bool is_over);
/* Certificate and key are read again. On failure the old ones stay. */
int http_reload(struct http *h, struct carat_error *err);
void http_close(struct http *h); /* not inside an event; NULL is fine */

/* Any thread, also a signal handler: on_wake follows. */
void http_wake(struct http *h);

/* The n-th header of that name, in any case; NULL: there is none. */
const char *http_header(const struct http_request *q, const char *name, int n);
/* The value of a key of the query, decoded; NULL: it is not there. */
const char *http_query(const struct http_request *q, const char *key);

/* The whole reply. Copies everything. HEAD gets the headers alone. */
void http_reply(struct http_request *q, int status, const struct http_field *fields, size_t n,
                const char *body, size_t length);
/* A reply that comes bit by bit, in chunks (to HTTP/1.0: until the connection closes). HEAD gets
 * the headers, and the request is over. */
void http_stream(struct http_request *q, int status, const struct http_field *fields, size_t n);
void http_add(struct http_request *q, const char *bytes, size_t length);
size_t http_unsent(const struct http_request *q); /* bytes that were added and wait */
/* No more is added. `is_whole` false: the connection is cut, so that the client sees it. */
void http_end(struct http_request *q, bool is_whole);

#endif
