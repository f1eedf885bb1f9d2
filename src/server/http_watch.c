#include "server/http_watch.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os.h"

int watch_open(struct watch *w, struct carat_error *err)
{
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (w->epoll >= 0) return CARAT_OK;
    return err_set(err, CARAT_EIO, "server: epoll: %s", strerror(errno));
}

void watch_close(struct watch *w)
{
    if (w->epoll > 0) (void)close(w->epoll);
    w->epoll = -1;
}

int watch_also(struct watch *w, int fd, void *tag, struct carat_error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = tag}};
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) == 0) return CARAT_OK;
    return err_set(err, CARAT_EIO, "server: epoll: %s", strerror(errno));
}

bool watch_add(struct watch *w, struct watched *p)
{
    /* Each event once: the library reads later, and until then it would come at every wait. */
    const uint32_t once = EPOLLRDHUP | EPOLLET;
    struct epoll_event event = {.events = EPOLLIN | (p->is_lingering ? 0 : once),
                                .data = {.ptr = p}};
    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, p->fd, &event) == 0;
}

void watch_remove(struct watch *w, struct watched *p)
{
    watch_begin(w, p, DEADLINE_NONE);
    (void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, p->fd, NULL);
}

static void unlink_from(struct watch *w, struct watched *p)
{
    const enum deadline d = p->deadline;
    if (d == DEADLINE_NONE) return;
    *(p->before ? &p->before->after : &w->first[d]) = p->after;
    *(p->after ? &p->after->before : &w->last[d]) = p->before;
    p->before = p->after = NULL;
    p->deadline = DEADLINE_NONE;
    w->n[d]--;
}

/* A number that changes whenever the other side has taken bytes: of TCP those it has confirmed, of
 * a unix socket those that wait for it. */
static uint64_t bytes_taken(int fd)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) return info.tcpi_bytes_acked;
    int waiting = 0;
    return ioctl(fd, SIOCOUTQ, &waiting) == 0 ? (uint64_t)waiting : 0;
}

static void enqueue(struct watch *w, struct watched *p, enum deadline deadline)
{
    unlink_from(w, p);
    if (deadline == DEADLINE_NONE || w->seconds[deadline] <= 0) return;
    w->n[deadline]++;
    p->deadline = deadline;
    p->since = os_seconds();
    p->before = w->last[deadline];
    *(p->before ? &p->before->after : &w->first[deadline]) = p;
    w->last[deadline] = p;
}

void watch_begin(struct watch *w, struct watched *p, enum deadline deadline)
{
    p->was_asked = false;
    enqueue(w, p, deadline);
}

/* Most replies are taken long before anybody asks, so the first half of the time asks nothing. */
static bool takes_nothing(struct watched *p)
{
    const uint64_t taken = bytes_taken(p->fd);
    if (p->was_asked && taken == p->taken) return true;
    p->was_asked = true;
    p->taken = taken;
    return false;
}

static double seconds_of(const struct watch *w, int deadline)
{
    return deadline == DEADLINE_WRITE ? w->seconds[deadline] / 2 : w->seconds[deadline];
}

struct watched *watch_expired(struct watch *w, enum deadline *which)
{
    const double now = os_seconds();
    for (int d = DEADLINE_IDLE; d < DEADLINE_COUNT; d++) {
        struct watched *p;
        while ((p = w->first[d]) && now - p->since >= seconds_of(w, d)) {
            if (d != DEADLINE_WRITE || takes_nothing(p)) {
                *which = p->deadline;
                unlink_from(w, p);
                return p;
            }
            enqueue(w, p, DEADLINE_WRITE);
        }
    }
    return NULL;
}

double watch_next(const struct watch *w, double most)
{
    const double now = os_seconds();
    for (int d = DEADLINE_IDLE; d < DEADLINE_COUNT; d++) {
        const struct watched *p = w->first[d];
        const double left = p ? p->since + seconds_of(w, d) - now : most;
        if (left < most) most = left;
    }
    return most > 0 ? most : 0;
}
