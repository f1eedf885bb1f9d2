#include "server/notify.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "server/http_listener.h"

enum { LISTEN_FD_FIRST = 3 }; /* by the rules of systemd */

/* A path, or with '@' in front a name in the abstract namespace. */
static bool address_of(const char *name, struct sockaddr_un *address, socklen_t *length)
{
    size_t n = strlen(name);
    if (n < 2 || n >= sizeof address->sun_path || (name[0] != '/' && name[0] != '@')) return false;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, name, n);
    if (name[0] == '@') address->sun_path[0] = '\0';
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] == '/'));
    return true;
}

static bool send_text(const char *text)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address;
    socklen_t length;
    if (!name || !address_of(name, &address, &length)) return false;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    ssize_t n = sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                       (const struct sockaddr *)&address, length);
    close(fd);
    return n >= 0;
}

/* `state` lines, then STATUS= with a text in which no other line can hide. */
static bool send_state(const char *state, const char *status)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%sSTATUS=%s", state, status);
    for (size_t i = strlen(state); n > 0 && text[i]; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7F) text[i] = ' ';
    return send_text(text);
}

bool notify_ready(const char *status)
{
    return send_state("READY=1\n", status);
}

bool notify_status(const char *status)
{
    return send_state("", status);
}

bool notify_reloading(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    char text[64];
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    return send_text(text);
}

bool notify_stopping(const char *status)
{
    return send_state("STOPPING=1\n", status);
}

bool notify_alive(void)
{
    return send_text("WATCHDOG=1");
}

/* A whole number of the environment, or -1. */
static long long number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !text[0]) return -1;
    long long number = strtoll(text, &end, 10);
    return *end ? -1 : number;
}

/* Whether a variable with a process id is meant for this process. */
static bool is_for_us(const char *name)
{
    return number_of(name) == (long long)getpid();
}

double notify_alive_seconds(void)
{
    long long usec = number_of("WATCHDOG_USEC");
    if (getenv("WATCHDOG_PID") && !is_for_us("WATCHDOG_PID")) return 0;
    return usec > 0 ? (double)usec * 1e-6 / 2 : 0;
}

int notify_listen_fd(int *fd, struct carat_error *err)
{
    *fd = -1;
    long long n = number_of("LISTEN_FDS");
    if (n <= 0 || !is_for_us("LISTEN_PID")) return CARAT_OK;
    if (n > 1) {
        err_set(err, CARAT_EUSAGE, "the service manager passed %lld sockets, one expected", n);
        err_hint(err, "one ListenStream= in the socket unit");
        return CARAT_EUSAGE;
    }
    if (!listen_is_open(LISTEN_FD_FIRST)) {
        err_set(err, CARAT_EUSAGE, "the service manager passed a descriptor that does not listen");
        err_hint(err, "ListenStream= and Accept=no in the socket unit");
        return CARAT_EUSAGE;
    }
    fcntl(LISTEN_FD_FIRST, F_SETFD, FD_CLOEXEC);
    *fd = LISTEN_FD_FIRST;
    return CARAT_OK;
}
