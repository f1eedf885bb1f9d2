#include "engine/prefix_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { TRIES = 100 };

static int failed(const struct prefix_writer *w, struct carat_error *err)
{
    return err_set(err, CARAT_EIO, "%.300s: cannot be written: %s", buf_text(&w->target),
                   strerror(errno));
}

/* ---- Where to --------------------------------------------------------------------------- */

/* A link is followed, so that what it names is replaced and not the link. */
static int find_target(struct prefix_writer *w, const char *path, struct carat_error *err)
{
    char real[PATH_MAX];
    buf_add_text(&w->target, realpath(path, real) ? real : path);
    buf_printf(&w->part, "%s.part", buf_text(&w->target));
    if (w->target.failed || w->part.failed) return err_no_memory(err, path, strlen(path));
    int fd = open(buf_text(&w->target), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return errno == ENOENT ? CARAT_OK : failed(w, err);
    bool is_ours = prefix_file_is_ours(fd);
    close(fd);
    if (is_ours) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE,
                   "%.300s: is no file of saved prefixes, and is not written over",
                   buf_text(&w->target));
}

/* Whether the open file still has its name: whoever held the lock before may have renamed it. */
static bool has_name(const struct prefix_writer *w)
{
    return file_has_name(w->fd, buf_text(&w->part), AT_SYMLINK_NOFOLLOW);
}

static int open_part(struct prefix_writer *w, struct carat_error *err)
{
    struct stat facts;
    for (int i = 0; i < TRIES; i++) {
        w->fd =
            open(buf_text(&w->part), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (w->fd < 0) return failed(w, err);
        int reason = flock(w->fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (!reason && has_name(w)) break;
        close(w->fd);
        w->fd = -1;
        errno = reason; /* not that of close */
        if (reason && reason != EWOULDBLOCK) return failed(w, err);
        if (reason || i == TRIES - 1)
            return err_set(err, CARAT_EBUSY, "%.300s: another process is writing it",
                           buf_text(&w->target));
    }
    if (fstat(w->fd, &facts) != 0) return failed(w, err);
    bool is_own = S_ISREG(facts.st_mode) && facts.st_uid == geteuid() && facts.st_nlink == 1;
    if (is_own && fchmod(w->fd, 0600) == 0 && ftruncate(w->fd, 0) == 0) return CARAT_OK;
    if (!is_own) errno = EPERM;
    int status = failed(w, err);
    close(w->fd);
    w->fd = -1;
    return status;
}

/* ---- Writing ---------------------------------------------------------------------------- */

static int write_all(struct prefix_writer *w, const void *bytes, size_t n, struct carat_error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t wrote = write(w->fd, (const char *)bytes + done, n - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return failed(w, err);
        done += (size_t)wrote;
    }
    w->sum = prefix_sum(w->sum, bytes, n);
    return CARAT_OK;
}

static struct prefix_header complete(const struct prefix_header *header, const struct saved *lists)
{
    struct prefix_header h = *header;
    memcpy(h.magic, PREFIX_MAGIC, sizeof h.magic);
    h.version = PREFIX_VERSION;
    h.bytes = sizeof h;
    h.n_blocks = lists->n_blocks;
    h.n_locals = lists->n_locals;
    h.n_anchors = lists->n_anchors;
    h.n_refs = lists->n_refs;
    h.file_bytes = prefix_file_bytes(&h);
    h.sum = prefix_sum(0, &h, offsetof(struct prefix_header, sum));
    return h;
}

int prefix_writer_open(struct prefix_writer *w, const char *path,
                       const struct prefix_header *header, const struct saved *s,
                       struct carat_error *err)
{
    const size_t blocks = (size_t)s->n_blocks, anchors = (size_t)s->n_anchors, id = sizeof(int32_t);
    const struct prefix_header h = complete(header, s);
    *w = (struct prefix_writer){.fd = -1};
    TRY(find_target(w, path, err));
    TRY(open_part(w, err));
    TRY(write_all(w, &h, sizeof h, err));
    TRY(write_all(w, s->blocks, blocks * sizeof *s->blocks, err));
    TRY(write_all(w, s->ids, blocks * (size_t)s->page * id, err));
    TRY(write_all(w, s->anchors, anchors * sizeof *s->anchors, err));
    return write_all(w, s->refs, anchors * (size_t)s->n_refs * id, err);
}

int prefix_writer_page(struct prefix_writer *w, const void *bytes, size_t n,
                       struct carat_error *err)
{
    return write_all(w, bytes, n, err);
}

static int finish(struct prefix_writer *w, struct carat_error *err)
{
    const uint64_t sum = w->sum;
    TRY(write_all(w, &sum, sizeof sum, err));
    if (fsync(w->fd) != 0 || rename(buf_text(&w->part), buf_text(&w->target)) != 0)
        return failed(w, err);
    file_sync_folder(buf_text(&w->target));
    return CARAT_OK;
}

int prefix_writer_close(struct prefix_writer *w, int status, struct carat_error *err)
{
    if (status == CARAT_OK) status = finish(w, err);
    if (status != CARAT_OK && w->fd >= 0) unlink(buf_text(&w->part));
    if (w->fd >= 0) close(w->fd);
    buf_deinit(&w->target);
    buf_deinit(&w->part);
    *w = (struct prefix_writer){.fd = -1};
    return status;
}
