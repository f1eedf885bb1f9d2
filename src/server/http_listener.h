/* The socket that a server listens on. */
#ifndef SERVER_HTTP_LISTENER_H
#define SERVER_HTTP_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* TCP, on one address of `host` (IPv4 first) and `port`, 0 for any. CARAT_EADDRESS: taken, not
 * allowed, or no address of this machine. Returns the status; *fd is the caller's. */
int listen_tcp(const char *host, uint16_t port, int *fd, struct carat_error *err);
/* A unix socket at `path` with mode 0660. A socket that nobody listens on any more is replaced.
 * CARAT_EUSAGE: the path is empty or too long. CARAT_EADDRESS: as above. */
int listen_unix(const char *path, int *fd, struct carat_error *err);
/* Whether it is a stream socket that listens. */
bool listen_is_open(int fd);
/* Takes such a socket, e.g. of systemd. CARAT_EADDRESS: it is none. */
int listen_given(int fd, struct carat_error *err);
/* The port of a TCP socket; 0: it is another one. */
uint16_t listen_port(int fd);

#endif
