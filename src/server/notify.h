/* What a service manager (systemd) is told, and what it gives: states through $NOTIFY_SOCKET, a
 * watchdog, and sockets that are listening already. Without a manager nothing happens.
 *
 * Any thread. Nothing waits: a datagram that the manager does not take is dropped. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include <stdbool.h>

#include "base/status.h"

/* Each returns whether the manager was told. `status` is one line for people. */
bool notify_ready(const char *status); /* after the start, and after a reload */
bool notify_status(const char *status);
bool notify_reloading(void);
bool notify_stopping(const char *status);
bool notify_alive(void); /* for the watchdog */

/* How often notify_alive is to be called: half of the watchdog's time. 0: there is none. */
double notify_alive_seconds(void);

/* The socket that is listening already; -1: none was given. CARAT_EUSAGE: several were given, or
 * one that does not listen. */
int notify_listen_fd(int *fd, struct carat_error *err);

#endif
