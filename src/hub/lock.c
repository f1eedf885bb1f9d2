#include "hub/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"

/* Whoever had the lock removes the file, so what was locked may no longer be what has the name. */
static bool has_name(const struct lock *lock)
{
    return file_has_name(lock->fd, buf_text(&lock->path), 0);
}

/* What the lock's file says; 0: nothing. */
static long read_owner(int fd)
{
    char text[24] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    long owner = n > 0 ? strtol(text, NULL, 10) : 0;
    return owner > 0 ? owner : 0;
}

static void say_owner(const struct lock *lock, const struct hub_watch *watch)
{
    long owner = read_owner(lock->fd);
    if (owner > 0)
        watch_say(watch, "process %ld is downloading the same file; waiting for it", owner);
    else
        watch_say(watch, "another process is downloading the same file; waiting for it");
}

static void write_owner(const struct lock *lock)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    /* Only for people to read, so a failure does not matter. */
    if (ftruncate(lock->fd, 0) != 0 || pwrite(lock->fd, text, (size_t)n, 0) != n) return;
}

static int failed(const struct lock *lock, struct carat_error *err)
{
    return err_set(err, CARAT_EIO, "%.300s: cannot be locked: %s", buf_text(&lock->path),
                   strerror(errno));
}

int lock_take(struct lock *lock, const char *path, const struct hub_watch *watch,
              struct carat_error *err)
{
    *lock = (struct lock){.fd = -1};
    buf_printf(&lock->path, "%s.lock", path);
    if (lock->path.failed) return err_no_memory(err, path, strlen(path));
    bool is_told = false;
    for (;;) {
        lock->fd = open(buf_text(&lock->path), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (lock->fd < 0) return failed(lock, err);
        while (flock(lock->fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR) return failed(lock, err);
            if (!is_told) say_owner(lock, watch);
            is_told = true;
            TRY(watch_sleep(watch, 0.2, err));
        }
        if (has_name(lock)) break;
        close(lock->fd);
    }
    write_owner(lock);
    return CARAT_OK;
}

void lock_give(struct lock *lock)
{
    if (lock->fd >= 0) {
        if (flock(lock->fd, LOCK_EX | LOCK_NB) == 0 && has_name(lock))
            unlink(buf_text(&lock->path));
        close(lock->fd);
    }
    buf_deinit(&lock->path);
    lock->fd = -1;
}

long lock_owner(const char *path)
{
    struct buf name = {0};
    buf_printf(&name, "%s.lock", path);
    int fd = name.failed ? -1 : open(buf_text(&name), O_RDWR | O_CLOEXEC);
    long owner = -1;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        owner = read_owner(fd);
    if (fd >= 0) close(fd);
    buf_deinit(&name);
    return owner;
}
