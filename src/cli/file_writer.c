#include "cli/file_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/signals.h"
#include "cli/terminal.h"

enum { LINKS_MAX = 40, NAME_KEPT = 200, PATH_SHOWN = 300, TRIES = 8 };

/* ---- Signals ---------------------------------------------------------------------------- */

/* The one file that is being written, for signal handlers; set while it has its temporary name. */
static struct {
    _Atomic(const char *) temporary;
    const char *target;
    int fd;
    volatile int keeps_part; /* leaving renames what is written so far */
} pending;

/* Async-signal-safe. */
static void leave_pending(void)
{
    const char *temporary = atomic_exchange(&pending.temporary, NULL);
    if (!temporary) return;
    bool is_kept =
        pending.keeps_part && fsync(pending.fd) == 0 && rename(temporary, pending.target) == 0;
    if (!is_kept) unlink(temporary);
}

/* ---- Where to --------------------------------------------------------------------------- */

static int failed(const struct file_writer *w, const char *what, struct carat_error *err)
{
    bool is_long = strlen(w->path) > PATH_SHOWN;
    return err_set(err, CARAT_EIO, "%.*s%s: cannot be written: %s%s", PATH_SHOWN, w->path,
                   is_long ? "..." : "", what, strerror(errno));
}

bool is_standard_output(const char *path)
{
    static const char *const names[] = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0) return true;
    return false;
}

/* The number of the open file that `path` stands for, or -1. Opening the path again would start at
 * the beginning of the file. */
static int open_file_number(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) != 0) continue;
        char *end;
        long fd = strtol(path + n, &end, 10);
        if (end > path + n && *end == '\0' && fd >= 0 && fd < 65536) return (int)fd;
    }
    return -1;
}

/* Replaces the link `path` by what it names, seen from its folder. */
static bool follow(struct buf *path)
{
    char to[4096];
    ssize_t n = readlink(buf_text(path), to, sizeof to);
    if (n < 0) return false;
    if ((size_t)n == sizeof to) {
        errno = ENAMETOOLONG;
        return false;
    }
    const char *slash = to[0] == '/' ? NULL : strrchr(buf_text(path), '/');
    path->length = slash ? (size_t)(slash - path->data) + 1 : 0;
    buf_add(path, to, (size_t)n);
    return true;
}

/* The file that `path` finally stands for; it need not exist. */
static int find_target(struct file_writer *w, struct carat_error *err)
{
    struct buf path = {0};
    struct stat facts;
    int n_links = 0;
    bool is_link = true;
    buf_add_text(&path, w->path);
    while (is_link && !path.failed) {
        is_link = lstat(buf_text(&path), &facts) == 0 && S_ISLNK(facts.st_mode);
        if (is_link && n_links++ == LINKS_MAX) errno = ELOOP;
        if (is_link && (n_links > LINKS_MAX || !follow(&path))) {
            buf_deinit(&path);
            return failed(w, "", err);
        }
    }
    if (path.failed) {
        buf_deinit(&path);
        return err_no_memory(err, w->path, strlen(w->path));
    }
    w->target = path.data;
    return CARAT_OK;
}

/* ---- Opening ---------------------------------------------------------------------------- */

static int open_directly(struct file_writer *w, int fd, struct carat_error *err)
{
    if (fd >= 0) w->file = fdopen(fd, "wb");
    if (w->file) return CARAT_OK;
    int status = failed(w, "", err);
    if (fd >= 0) close(fd);
    return status;
}

/* "FOLDER/NAME.carat-1234abcd". A name that is already long is cut. */
static char *name_beside(const char *target)
{
    struct buf name = {0};
    uint32_t random = 0;
    const char *slash = strrchr(target, '/');
    size_t folder = slash ? (size_t)(slash - target) + 1 : 0, length = strlen(target + folder);
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0) random = (uint32_t)getpid();
    buf_add(&name, target, folder + (length < NAME_KEPT ? length : NAME_KEPT));
    buf_printf(&name, ".carat-%08x", random);
    if (!name.failed) return name.data;
    buf_deinit(&name);
    return NULL;
}

/* Opens a new file of another name in the folder of the target. The signal handlers know the name
 * before the file exists. */
static int open_beside(struct file_writer *w, mode_t mode, struct carat_error *err)
{
    int fd = -1;
    errno = EEXIST;
    signals_on_leave(leave_pending);
    for (int i = 0; i < TRIES && fd < 0 && errno == EEXIST; i++) {
        mem_free(w->temporary);
        w->temporary = name_beside(w->target);
        if (!w->temporary) return err_no_memory(err, w->path, strlen(w->path));
        pending.target = w->target;
        pending.keeps_part = 0;
        atomic_store(&pending.temporary, w->temporary);
        fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0) atomic_store(&pending.temporary, NULL);
    }
    if (fd < 0) return failed(w, "no file can be made in its folder: ", err);
    pending.fd = fd;
    w->file = fdopen(fd, "wb");
    if (w->file) return CARAT_OK;
    int status = failed(w, "", err);
    close(fd);
    return status;
}

/* Gives the new file the owner and the mode of the old one, as far as we are allowed to. */
static void keep_facts(const struct file_writer *w, const struct stat *old)
{
    int fd = fileno(w->file);
    if (fchown(fd, old->st_uid, old->st_gid) != 0) errno = 0; /* then it stays ours */
    fchmod(fd, old->st_mode & 07777);
}

static int open_target(struct file_writer *w, struct carat_error *err)
{
    struct stat old;
    int number = open_file_number(w->path);
    if (number >= 0) return open_directly(w, fcntl(number, F_DUPFD_CLOEXEC, 3), err);
    bool is_there = stat(w->path, &old) == 0;
    if (!is_there && errno != ENOENT) return failed(w, "", err);
    if (is_there && S_ISDIR(old.st_mode))
        return err_set(err, CARAT_EIO, "%s: cannot be written: it is a folder", w->path);
    if (is_there && !S_ISREG(old.st_mode))
        return open_directly(w, open(w->path, O_WRONLY | O_CLOEXEC | O_NOCTTY), err);
    if (is_there && access(w->path, W_OK) != 0) return failed(w, "", err);
    TRY(find_target(w, err));
    TRY(open_beside(w, is_there ? 0600 : 0666, err));
    if (is_there) keep_facts(w, &old);
    return CARAT_OK;
}

int file_writer_open(struct file_writer *w, const char *path, enum writer_kind kind,
                     struct carat_error *err)
{
    *w = (struct file_writer){.path = path, .kind = kind};
    if (!path[0]) return err_set(err, CARAT_EUSAGE, "the name of the file to write is empty");
    if (is_standard_output(path)) {
        if (kind == WRITE_BINARY && out_is_terminal()) {
            err_set(err, CARAT_EUSAGE, "%s: binary data is not written to a terminal", path);
            err_hint(err, "give a file, or send standard output to a program");
            return CARAT_EUSAGE;
        }
        w->is_standard = true;
        return CARAT_OK;
    }
    int status = open_target(w, err);
    if (status != CARAT_OK) file_writer_drop(w);
    return status;
}

/* ---- Writing ---------------------------------------------------------------------------- */

int file_writer_add(struct file_writer *w, const void *bytes, size_t n, struct carat_error *err)
{
    if (n == 0) return CARAT_OK;
    if (w->is_standard && !out_write(bytes, n))
        return err_set(err, CARAT_EIO, "standard output cannot be written: %s", strerror(errno));
    w->bytes += n;
    if (w->is_standard) return CARAT_OK;
    bool is_written = fwrite(bytes, 1, n, w->file) == n;
    if (w->kind == WRITE_TEXT) is_written = is_written && fflush(w->file) == 0;
    if (!is_written) return failed(w, "", err);
    pending.keeps_part = w->temporary && w->kind == WRITE_TEXT;
    return CARAT_OK;
}

static void forget(struct file_writer *w)
{
    if (w->temporary) atomic_store(&pending.temporary, NULL);
    mem_free(w->target);
    mem_free(w->temporary);
    *w = (struct file_writer){0};
}

void file_writer_drop(struct file_writer *w)
{
    if (w->file) fclose(w->file);
    if (w->temporary) unlink(w->temporary);
    forget(w);
}

/* Writes everything to the disk, then gives the file its name. */
static bool finish(struct file_writer *w)
{
    struct stat old;
    if (fflush(w->file) != 0) return false;
    if (!w->temporary) return true;
    if (fsync(fileno(w->file)) != 0 && errno != EINVAL) return false;
    /* Meanwhile we may have lost the right to write the old file. */
    if (stat(w->target, &old) == 0 && access(w->target, W_OK) != 0) return false;
    return rename(w->temporary, w->target) == 0;
}

int file_writer_close(struct file_writer *w, int status, struct carat_error *err)
{
    if (status == CARAT_OK && w->file) {
        bool is_whole = finish(w), is_direct = !w->temporary;
        if (!is_whole) status = failed(w, "", err);
        FILE *file = w->file;
        w->file = NULL;
        if (fclose(file) != 0 && is_whole && is_direct) status = failed(w, "", err);
    }
    if (status != CARAT_OK)
        file_writer_drop(w);
    else
        forget(w);
    return status;
}
