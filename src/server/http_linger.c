#include "server/http_linger.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READS_AT_ONCE = 16, DROPPED_MAX = 1 << 28 };

void linger_begin(struct http_linger *l, struct watch *w, int fd)
{
    struct lingering *place = NULL;
    for (int i = 0; i < l->places && !place; i++)
        if (l->place[i].watched.fd == 0) place = &l->place[i];
    const int copy = place ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (copy < 0) return;
    *place = (struct lingering){.watched = {.fd = copy, .is_lingering = true}};
    (void)shutdown(copy, SHUT_WR);
    if (watch_add(w, &place->watched)) {
        watch_begin(w, &place->watched, DEADLINE_LINGER);
    } else {
        linger_end(w, &place->watched);
    }
}

void linger_read(struct watch *w, struct watched *p)
{
    struct lingering *l = (struct lingering *)p;
    char bytes[16384];
    ssize_t n = 1;
    for (int i = 0; i < READS_AT_ONCE && n > 0; i++) {
        n = recv(p->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0) l->dropped += (uint64_t)n;
        const bool is_reset = n < 0 && errno != EAGAIN && errno != EINTR;
        if (n == 0 || is_reset || l->dropped > DROPPED_MAX) {
            linger_end(w, p);
            return;
        }
    }
}

void linger_end(struct watch *w, struct watched *p)
{
    watch_remove(w, p);
    (void)close(p->fd);
    p->fd = 0;
}

void linger_end_all(struct http_linger *l, struct watch *w)
{
    for (int i = 0; i < LINGER_MAX; i++)
        if (l->place[i].watched.fd > 0) linger_end(w, &l->place[i].watched);
}
