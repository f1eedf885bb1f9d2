#include "server/http_entry.h"

#ifdef CARAT_HAVE_HTTP
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "server/http_first.h"
#include "server/http_refusal.h"

enum { ACCEPTS_AT_ONCE = 64, DROPS_AT_ONCE = 16 };

bool entry_has(const struct connection *c)
{
    return !c->mhd;
}

/* --- coming and going --- */

static void name_client(const struct sockaddr_storage *a, char *out, size_t size)
{
    if (a->ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, out, (socklen_t)size);
    } else if (a->ss_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;
        const bool is_four = IN6_IS_ADDR_V4MAPPED(six);
        (void)inet_ntop(is_four ? AF_INET : AF_INET6,
                        is_four ? (const void *)&six->s6_addr[12] : six, out, (socklen_t)size);
    } else {
        memcpy(out, "unix", sizeof "unix");
    }
}

static void admit(struct http *h, int fd, const struct sockaddr_storage *address)
{
    struct connection *c = mem_alloc(1, sizeof *c);
    if (!c) {
        (void)close(fd);
        return;
    }
    c->server = h;
    c->watched.fd = fd;
    c->request.connection = ++h->connections_ever;
    c->request.is_tls = h->identity != NULL;
    name_client(address, c->request.client, sizeof c->request.client);
    c->after = h->connections;
    if (c->after) c->after->before = c;
    h->connections = c;
    h->n_connections++;
    if (watch_add(&h->watch, &c->watched)) {
        watch_begin(&h->watch, &c->watched, DEADLINE_IDLE);
    } else {
        entry_close(c);
    }
}

void entry_leave(struct connection *c)
{
    struct http *h = c->server;
    refusal_forget(c);
    watch_remove(&h->watch, &c->watched);
    *(c->before ? &c->before->after : &h->connections) = c->after;
    if (c->after) c->after->before = c->before;
    h->n_connections--;
    h->is_short = false;
    if (h->entering == c) h->entering = NULL;
    tls_identity_release(c->identity);
    mem_free(c);
}

void entry_close(struct connection *c)
{
    const int fd = c->watched.fd;
    entry_leave(c);
    (void)close(fd);
}

void entry_listen(struct http *h, bool is_wanted)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = &h->listen_fd}};
    if (is_wanted == h->is_accepting || h->listen_fd < 0) return;
    if (epoll_ctl(h->watch.epoll, is_wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, h->listen_fd,
                  &event) == 0)
        h->is_accepting = is_wanted;
}

void entry_accept(struct http *h)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE && h->n_connections < h->connections_max; i++) {
        struct sockaddr_storage address = {0};
        socklen_t length = sizeof address;
        const int fd = accept4(h->listen_fd, (struct sockaddr *)&address, &length,
                               SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            admit(h, fd, &address);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR) continue;
        /* Perhaps no descriptors or no memory are left: asking again at once would fail again. */
        h->is_short = errno != EAGAIN;
        return;
    }
}

/* --- first bytes --- */

enum first { FIRST_WAITS, FIRST_ENTERS, FIRST_IS_WRONG };

/* What has come so far is looked at again with every packet; http_options.header_bytes_max bounds
 * it. */
static enum first look(struct connection *c, struct first_look *out)
{
    const struct http *h = c->server;
    const size_t head_max = h->options.header_bytes_max;
    const ssize_t n = recv(c->watched.fd, h->first_bytes, head_max + 1, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0) return FIRST_WAITS;
    first_look(h->first_bytes, (size_t)n, head_max, out);
    if (c->request.is_tls && !out->is_words) return FIRST_ENTERS;
    if (c->request.is_tls) {
        out->status = 400;
        out->why = "this port speaks TLS: use https://";
    }
    if (out->status) return FIRST_IS_WRONG;
    return out->is_whole ? FIRST_ENTERS : FIRST_WAITS;
}

static void refuse(struct connection *c, int status, const char *why, const struct first_look *look)
{
    const size_t head_max = c->server->options.header_bytes_max;
    c->request.path = look->path;
    refusal_say_plainly(c, status, why);
    /* Closing it with unread bytes would reset it, see http_linger.h. */
    for (int i = 0; i < DROPS_AT_ONCE; i++)
        if (recv(c->watched.fd, c->server->first_bytes, head_max, MSG_DONTWAIT) <= 0) break;
    entry_close(c);
}

/* The library takes it, or closes it. */
static void enter(struct connection *c)
{
    struct http *h = c->server;
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    h->entering = c;
    (void)getpeername(c->watched.fd, (struct sockaddr *)&address, &length);
    const enum MHD_Result result =
        MHD_add_connection(h->daemon, c->watched.fd, (struct sockaddr *)&address, length);
    /* If it took the connection and failed then, it has said so, and `entering` is NULL. */
    if (result != MHD_YES && h->entering) entry_leave(c);
    h->entering = NULL;
}

struct connection *entry_taken(struct http *h, struct MHD_Connection *mhd)
{
    if (h->entering) h->entering->mhd = mhd;
    return h->entering;
}

/* Does what the bytes that have come ask for. True: it did, and c may be gone. */
static bool settle(struct connection *c, struct first_look *l)
{
    const enum first what = look(c, l);
    if (what == FIRST_IS_WRONG) {
        refuse(c, l->status, l->why, l);
    } else if (what == FIRST_ENTERS) {
        watch_begin(&c->server->watch, &c->watched, c->has_left ? DEADLINE_LEFT : DEADLINE_HEADERS);
        enter(c);
    }
    return what != FIRST_WAITS;
}

void entry_noticed(struct connection *c, uint32_t events)
{
    struct first_look l = {0};
    c->has_left = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (settle(c, &l)) return;
    if (c->has_left) {
        entry_close(c);
    } else if (c->watched.deadline != DEADLINE_HEADERS) {
        watch_begin(&c->server->watch, &c->watched, DEADLINE_HEADERS);
    }
}

void entry_expired(struct connection *c, enum deadline deadline)
{
    struct first_look l = {0};
    if (settle(c, &l)) return; /* it came in time, while this process could not run */
    if (deadline == DEADLINE_HEADERS)
        refuse(c, 408, "the headers took too long", &l);
    else
        entry_close(c);
}
#endif
