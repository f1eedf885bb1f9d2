#include "cli/history_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"

#define FIRST_LINE "_HiStOrY_V2_\n"

enum { BYTES_MAX = 16 << 20, LOCK_TRIES = 200, LOCK_PAUSE_NS = 10000000 };

/* ---- One entry -------------------------------------------------------------------------- */

static void encode(struct buf *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\\')
            buf_add_text(out, "\\\\");
        else if (c < 0x20 || c == 0x7F)
            buf_printf(out, "\\%03o", c);
        else
            buf_add_char(out, (char)c);
    }
    buf_add_char(out, '\n');
}

static unsigned char control_of(char c)
{
    return c == '?' ? 0x7F : (unsigned char)(c & 0x1F);
}

/* Reads what follows a backslash; 0 when it is nothing that libedit writes. */
static size_t decode_one(const char *at, size_t length, char *out)
{
    size_t n = 0;
    unsigned value = 0;
    while (n < 3 && n < length && at[n] >= '0' && at[n] <= '7')
        value = value * 8 + (unsigned)(at[n++] - '0');
    if (n > 0 && value < 256) {
        *out = (char)value;
        return n;
    }
    if (length >= 1 && at[0] == '\\') {
        *out = '\\';
        return 1;
    }
    if (length >= 2 && at[0] == '^') {
        *out = (char)control_of(at[1]);
        return 2;
    }
    if (length >= 3 && at[0] == 'M' && (at[1] == '-' || at[1] == '^')) {
        unsigned char low = at[1] == '-' ? (unsigned char)at[2] : control_of(at[2]);
        *out = (char)(low | 0x80);
        return 3;
    }
    return 0;
}

static void decode(struct buf *out, const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = line[i];
        if (c == '\\') i += decode_one(line + i + 1, length - i - 1, &c);
        buf_add_char(out, c);
    }
}

/* ---- The file --------------------------------------------------------------------------- */

static int failed(const char *path, const char *what, struct carat_error *err)
{
    return err_set(err, CARAT_EIO, "%s: %s: %s", path, what, strerror(errno));
}

/* *fd is -1 where there is nothing to read or write: no file, or a device (people link the file to
 * /dev/null when they want no history). */
static int open_regular(const char *path, int flags, int *fd, struct carat_error *err)
{
    struct stat facts;
    *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0600);
    if (*fd < 0) {
        bool is_missing = errno == ENOENT && !(flags & O_CREAT);
        return is_missing ? CARAT_OK : failed(path, "cannot be opened", err);
    }
    bool is_regular = fstat(*fd, &facts) == 0 && S_ISREG(facts.st_mode);
    if (is_regular) return CARAT_OK;
    close(*fd);
    *fd = -1;
    if (S_ISCHR(facts.st_mode)) return CARAT_OK;
    return err_set(err, CARAT_EIO, "%s: is not a regular file", path);
}

/* Waits two seconds at most. False: locked for longer, or a file system without locks. */
static bool lock(int fd)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    return false;
}

/* Opens and locks the file of this name, even if it is replaced by a rename meanwhile. */
static int open_locked(const char *path, int flags, int *fd, bool *is_locked,
                       struct carat_error *err)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        struct stat mine, named;
        TRY(open_regular(path, flags, fd, err));
        if (*fd < 0) return CARAT_OK;
        *is_locked = lock(*fd);
        bool is_named = fstat(*fd, &mine) == 0 && stat(path, &named) == 0 &&
                        mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
        if (is_named) return CARAT_OK;
        close(*fd);
    }
    return err_set(err, CARAT_EIO, "%s: other programs keep replacing it", path);
}

/* Reads the last lines of a file, at most BYTES_MAX. */
static int read_end(int fd, const char *path, struct buf *out, struct carat_error *err)
{
    char block[65536];
    off_t size = lseek(fd, 0, SEEK_END), from = size > BYTES_MAX ? size - BYTES_MAX : 0;
    ssize_t n = 1;
    while (n > 0) {
        n = pread(fd, block, sizeof block, from);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n < 0)
            return failed(path, "cannot be read", err);
        else
            buf_add(out, block, (size_t)n);
        if (n > 0) from += n;
    }
    if (out->failed) return err_no_memory(err, path, out->length);
    if (size > BYTES_MAX) { /* the first line may be the rest of one */
        char *end = memchr(out->data, '\n', out->length);
        size_t cut = end ? (size_t)(end + 1 - out->data) : out->length;
        memmove(out->data, out->data + cut, out->length - cut + 1);
        out->length -= cut;
    }
    return CARAT_OK;
}

static const char *end_of_line(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return newline ? newline : end;
}

static bool is_entry(const char *at, const char *end)
{
    size_t length = sizeof FIRST_LINE - 2;
    bool is_first_line = (size_t)(end - at) == length && memcmp(at, FIRST_LINE, length) == 0;
    return end > at && !is_first_line;
}

int history_file_read(const char *path, history_take_fn take, void *user, struct carat_error *err)
{
    int fd;
    struct buf text = {0}, entry = {0};
    TRY(open_regular(path, O_RDONLY, &fd, err));
    if (fd < 0) return CARAT_OK;
    int status = read_end(fd, path, &text, err);
    close(fd);
    const char *at = buf_text(&text), *end = at + text.length;
    while (status == CARAT_OK && at < end) {
        const char *stop = end_of_line(at, end);
        buf_clear(&entry);
        if (is_entry(at, stop)) {
            decode(&entry, at, (size_t)(stop - at));
            if (!entry.failed) take(user, buf_text(&entry), entry.length);
        }
        at = stop + (stop < end);
    }
    buf_deinit(&text);
    buf_deinit(&entry);
    return status;
}

static ssize_t write_once(int fd, const struct buf *b)
{
    ssize_t n;
    do n = write(fd, b->data, b->length);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Appends to an open file. If a full disk cuts the line, it is removed again. Without a lock it
 * stays, because another program may have appended since; the next line then begins after it. */
static int append(int fd, bool is_locked, const char *path, struct buf *line,
                  struct carat_error *err)
{
    struct buf whole = {0};
    char last = '\n';
    off_t size = lseek(fd, 0, SEEK_END);
    if (size > 0 && pread(fd, &last, 1, size - 1) != 1) last = '\n';
    buf_add_text(&whole, size == 0 ? FIRST_LINE : last == '\n' ? "" : "\n");
    buf_add(&whole, buf_text(line), line->length);
    int status = whole.failed ? err_no_memory(err, path, line->length) : CARAT_OK;
    if (status == CARAT_OK) {
        ssize_t n = write_once(fd, &whole);
        bool is_short = n < 0 || (size_t)n < whole.length;
        if (n >= 0 && is_short) errno = ENOSPC;
        if (is_short) status = failed(path, "cannot be written", err);
        if (n > 0 && is_short && is_locked && ftruncate(fd, size) != 0)
            status = failed(path, "cannot be written", err);
    }
    buf_deinit(&whole);
    return status;
}

int history_file_add(const char *path, const char *text, size_t length, struct carat_error *err)
{
    int fd;
    bool is_locked = false;
    struct buf line = {0};
    struct stat facts;
    TRY(open_locked(path, O_RDWR | O_APPEND | O_CREAT, &fd, &is_locked, err));
    if (fd < 0) return CARAT_OK;
    bool is_open_to_others = fstat(fd, &facts) == 0 && (facts.st_mode & 077);
    if (is_open_to_others) (void)!fchmod(fd, 0600); /* fails for another owner's file */
    encode(&line, text, length);
    int status =
        line.failed ? err_no_memory(err, path, length) : append(fd, is_locked, path, &line, err);
    buf_deinit(&line);
    close(fd);
    return status;
}

/* ---- Trimming --------------------------------------------------------------------------- */

/* Where the newest `entries` begin; NULL when there are at most `limit`. */
static const char *newest(const struct buf *text, size_t entries, size_t limit)
{
    const char *at = buf_text(text), *end = at + text->length;
    size_t n = 0;
    for (const char *c = at; c < end; c = end_of_line(c, end) + 1)
        n += is_entry(c, end_of_line(c, end));
    if (n <= limit) return NULL;
    while (n > entries) {
        n -= is_entry(at, end_of_line(at, end));
        at = end_of_line(at, end) + 1;
    }
    return at;
}

static int replace(const char *path, const char *from, size_t length, struct carat_error *err)
{
    struct buf name = {0}, text = {0};
    buf_printf(&name, "%s.XXXXXX", path);
    buf_add_text(&text, FIRST_LINE);
    buf_add(&text, from, length);
    int status = name.failed || text.failed ? err_no_memory(err, path, length) : CARAT_OK;
    int fd = status == CARAT_OK ? mkostemp(name.data, O_CLOEXEC) : -1; /* mode 0600 */
    if (status == CARAT_OK && fd < 0) status = failed(path, "cannot be shortened", err);
    if (fd >= 0) {
        bool is_written = write_once(fd, &text) == (ssize_t)text.length && fsync(fd) == 0;
        is_written = close(fd) == 0 && is_written;
        if (!is_written || rename(name.data, path) != 0) {
            status = failed(path, "cannot be shortened", err);
            unlink(name.data);
        }
    }
    buf_deinit(&name);
    buf_deinit(&text);
    return status;
}

int history_file_trim(const char *path, size_t entries, struct carat_error *err)
{
    int fd;
    bool is_locked = false;
    struct buf text = {0};
    struct stat facts;
    TRY(open_locked(path, O_RDONLY, &fd, &is_locked, err));
    if (fd < 0) return CARAT_OK;
    bool is_large = fstat(fd, &facts) == 0 && facts.st_size > BYTES_MAX;
    int status = is_locked ? read_end(fd, path, &text, err) : CARAT_OK;
    const char *from = newest(&text, entries, is_large ? 0 : 2 * entries);
    char real[PATH_MAX]; /* a link stays one */
    if (status == CARAT_OK && from && realpath(path, real))
        status = replace(real, from, (size_t)(buf_text(&text) + text.length - from), err);
    buf_deinit(&text);
    close(fd);
    return status;
}
