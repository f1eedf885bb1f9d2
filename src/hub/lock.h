/* One process at a time loads a file: a lock on "FILE.lock" next to it, which holds the number of
 * the process. The system drops it when its owner ends, however that happens. */
#ifndef HUB_LOCK_H
#define HUB_LOCK_H

#include "base/buf.h"
#include "hub/watch.h"

struct lock { /* zeroed by lock_take */
    struct buf path;
    int fd;
};

/* Waits until it is free, and says who has it. CARAT_EBUSY: stopped; CARAT_EIO: no lock is to be
 * had here. */
int lock_take(struct lock *lock, const char *path, const struct hub_watch *watch,
              struct carat_error *err);
void lock_give(struct lock *lock); /* also after lock_take has failed */

/* Whether a process has the lock of `path` now: its number, 0 if unknown, or -1 if nobody has. */
long lock_owner(const char *path);

#endif
