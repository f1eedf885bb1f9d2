/* The sockets of all connections as the server's loop sees them: who sends a first byte, who has
 * left, and who takes too long. One epoll for all of them, one thread.
 *
 * All that wait for the same thing have the same time for it, so the deadlines of a kind are a
 * queue: nothing is sorted, and nothing grows with the connections that are idle. */
#ifndef SERVER_HTTP_WATCH_H
#define SERVER_HTTP_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/status.h"

enum deadline {
    DEADLINE_NONE,
    DEADLINE_IDLE,    /* between requests */
    DEADLINE_HEADERS, /* from the first byte of a request to the end of its headers */
    DEADLINE_BODY,    /* since the last bytes of a body */
    DEADLINE_WRITE,   /* since the last bytes that the client took */
    DEADLINE_LEFT,    /* the client has closed; what it has sent before is still read */
    DEADLINE_LINGER   /* dropping what comes, see http_linger.h */
};
enum { DEADLINE_COUNT = DEADLINE_LINGER + 1 };

struct watched {
    int fd;
    bool is_lingering; /* part of a struct lingering, not of a connection */
    enum deadline deadline;
    double since;
    bool was_asked; /* its time was over once; DEADLINE_WRITE: half of its time */
    uint64_t taken; /* DEADLINE_WRITE: what the client had taken when half of the time was over */
    struct watched *before, *after;
};

struct watch {
    int epoll;
    double seconds[DEADLINE_COUNT]; /* 0: for ever */
    struct watched *first[DEADLINE_COUNT], *last[DEADLINE_COUNT];
    size_t n[DEADLINE_COUNT]; /* how many have it; [DEADLINE_NONE] is not counted */
};

/* CARAT_EIO: no descriptors are left. Zeroed is closed. */
int watch_open(struct watch *w, struct carat_error *err);
void watch_close(struct watch *w);
/* Another descriptor of the loop, whose `tag` comes back while it is readable. */
int watch_also(struct watch *w, int fd, void *tag, struct carat_error *err);

/* Watches p->fd: an event whenever bytes come, and one when the other side closes its half, or all.
 * p stays where it is until watch_remove. */
bool watch_add(struct watch *w, struct watched *p);
void watch_remove(struct watch *w, struct watched *p);

/* Begins a deadline, or the same one anew. */
void watch_begin(struct watch *w, struct watched *p, enum deadline deadline);
/* Takes out one whose time is over, and says which deadline it was; NULL: nobody. A client that has
 * taken bytes meanwhile gets new time to write. */
struct watched *watch_expired(struct watch *w, enum deadline *which);
/* Seconds until the next deadline, at most `most`. */
double watch_next(const struct watch *w, double most);

#endif
