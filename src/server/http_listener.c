#include "server/http_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"

enum { BACKLOG = 1024 };

static int open_address(const struct addrinfo *a)
{
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int saved = errno;
    (void)close(fd);
    errno = saved;
    return -1;
}

/* A name may have several addresses, as "localhost" has: those of IPv4 come first. The next one is
 * tried only if one is not of this machine. If an address is in use, no other one is tried: clients
 * that use the name would reach the other program. */
static int open_first(const struct addrinfo *found)
{
    errno = EADDRNOTAVAIL;
    for (int pass = 0; pass < 2; pass++) {
        for (const struct addrinfo *a = found; a; a = a->ai_next) {
            if ((a->ai_family == AF_INET) != (pass == 0)) continue;
            const int fd = open_address(a);
            if (fd >= 0 || errno == EADDRINUSE || errno == EACCES) return fd;
        }
    }
    return -1;
}

static int address_failed(struct carat_error *err, const char *where, int number)
{
    (void)err_set(err, CARAT_EADDRESS, "server: cannot listen on %s: %s", where, strerror(number));
    if (number == EADDRINUSE)
        err_hint(err, "another program listens there: stop it, or choose another --port");
    if (number == EACCES) err_hint(err, "ports below 1024 are for root: choose another --port");
    if (number == EADDRNOTAVAIL)
        err_hint(err, "--host must be an address of this machine, e.g. 127.0.0.1 or 0.0.0.0");
    return CARAT_EADDRESS;
}

int listen_tcp(const char *host, uint16_t port, int *fd, struct carat_error *err)
{
    struct buf where = {0};
    buf_printf(&where, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
    char service[8] = {0};
    for (unsigned rest = port, i = 5; i-- > 0; rest /= 10) service[i] = (char)('0' + rest % 10);
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM,
                                  .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const int failed = getaddrinfo(host, service, &want, &found);
    int status = CARAT_OK;
    *fd = -1;
    if (failed) {
        status = err_set(err, CARAT_EADDRESS, "server: cannot listen on %s: %s", buf_text(&where),
                         gai_strerror(failed));
        err_hint(err, "--host must be an address of this machine, e.g. 127.0.0.1 or 0.0.0.0");
    }
    if (!failed) *fd = open_first(found);
    if (!failed && *fd < 0) status = address_failed(err, buf_text(&where), errno);
    if (found) freeaddrinfo(found);
    buf_deinit(&where);
    return status;
}

/* A server that ended without closing leaves its socket in the folder. */
static bool is_left_over(const struct sockaddr_un *name)
{
    struct stat s;
    if (lstat(name->sun_path, &s) != 0 || !S_ISSOCK(s.st_mode)) return false;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    const bool is_refused =
        connect(fd, (const struct sockaddr *)name, sizeof *name) != 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return is_refused;
}

int listen_unix(const char *path, int *fd, struct carat_error *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    *fd = -1;
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof name.sun_path)
        return err_set(err, CARAT_EUSAGE, "--unix: a path of 1 to %zu bytes expected, %zu found",
                       sizeof name.sun_path - 1, length);
    memcpy(name.sun_path, path, length);
    if (is_left_over(&name)) (void)unlink(path);
    const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0) {
        /* Nobody can connect before listen(), so the mode is in time. */
        if (bind(made, (const struct sockaddr *)&name, sizeof name) == 0 &&
            chmod(path, 0660) == 0 && listen(made, BACKLOG) == 0) {
            *fd = made;
            return CARAT_OK;
        }
    }
    const int number = errno;
    if (made >= 0) (void)close(made);
    (void)err_set(err, CARAT_EADDRESS, "server: cannot listen on %s: %s", path, strerror(number));
    if (number == EADDRINUSE)
        err_hint(err, "another program listens there, or it is a file of another kind");
    return CARAT_EADDRESS;
}

bool listen_is_open(int fd)
{
    int listens = 0, type = 0;
    socklen_t length = sizeof listens;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && listens &&
           type == SOCK_STREAM;
}

int listen_given(int fd, struct carat_error *err)
{
    if (!listen_is_open(fd)) {
        (void)err_set(err, CARAT_EADDRESS, "server: descriptor %d is not a listening socket", fd);
        err_hint(err, "it is given by LISTEN_FDS, see the unit of the socket");
        return CARAT_EADDRESS;
    }
    const int flags = fcntl(fd, F_GETFL);
    (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return CARAT_OK;
}

uint16_t listen_port(int fd)
{
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof name;
    if (getsockname(fd, (struct sockaddr *)&name, &length) != 0) return 0;
    if (name.ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)&name)->sin_port);
    if (name.ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)&name)->sin6_port);
    return 0;
}
