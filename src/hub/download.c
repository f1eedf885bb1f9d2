#include "hub/download.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "hub/lock.h"
#include "hub/ranges.h"
#include "hub/sha256.h"

enum {
    RESTARTS_MAX = 6,
    ALONE = 1 << 20 /* bytes that one connection loads before others join */
};

struct loading {
    const struct download *what;
    const struct hub_watch *watch;
    struct buf part;     /* its path */
    struct record side;  /* what the bytes of the part belong to */
    struct sha256 *sum;  /* of all bytes of the part */
    int fd;              /* of the part */
    uint64_t done, size; /* bytes in the part and of the whole; size 0: unknown */
    uint64_t asked;      /* where the request begins */
    int restarts;
    bool is_changed; /* the server has another file now: start over */
    bool may_split;  /* the server sends parts, and it can be told whether they are of one file */
    bool splits;     /* several connections go on */
    bool is_single;  /* several connections did not work */
    uint64_t ahead;  /* bytes that wait in memory for those before them */
};

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int io_failed(const char *path, const char *what, struct carat_error *err)
{
    return err_set(err, CARAT_EIO, "%.300s: %s: %s", path, what, strerror(errno));
}

/* ---- Room ------------------------------------------------------------------------------- */

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

uint64_t download_room(const char *path, struct buf *folder)
{
    struct statvfs facts;
    buf_clear(folder);
    buf_add_text(folder, path);
    bool is_found = false;
    for (bool is_last = false; !is_found && !is_last && folder->data && !folder->failed;) {
        char *slash = memrchr(folder->data, '/', folder->length);
        is_last = !slash || slash == folder->data;
        if (is_last) {
            buf_clear(folder);
            buf_add_text(folder, slash ? "/" : ".");
        } else {
            folder->length = (size_t)(slash - folder->data);
            folder->data[folder->length] = '\0';
        }
        is_found = statvfs(buf_text(folder), &facts) == 0;
    }
    return is_found ? (uint64_t)facts.f_bavail * facts.f_frsize : BYTES_MAX;
}

int download_check_room(const char *path, uint64_t bytes, struct carat_error *err)
{
    struct buf folder = {0};
    uint64_t room = download_room(path, &folder);
    int status = CARAT_OK;
    if (room < bytes) {
        status =
            err_set(err, CARAT_EIO,
                    "%.200s: %.2f GiB are free, %.2f GiB needed (%" PRIu64 " of %" PRIu64 " bytes)",
                    buf_text(&folder), gib(room), gib(bytes), room, bytes);
        err_hint(err, "free space, or choose another folder with --dir");
    }
    buf_deinit(&folder);
    return status;
}

uint64_t download_left(const struct download *what)
{
    struct stat facts;
    struct buf part = {0};
    uint64_t size = what->record.size, have = 0;
    buf_printf(&part, "%s.part", what->path);
    if (stat(what->path, &facts) == 0 || stat(buf_text(&part), &facts) == 0)
        have = (uint64_t)facts.st_size;
    buf_deinit(&part);
    return have < size ? size - have : 0;
}

/* ---- The part --------------------------------------------------------------------------- */

static int make_folders(const char *path, struct carat_error *err)
{
    char *copy = mem_copy_text(path, strlen(path));
    if (!copy) return err_no_memory(err, path, strlen(path));
    int status = CARAT_OK;
    for (char *c = copy + 1; *c && status == CARAT_OK; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            status = io_failed(copy, "the folder cannot be made", err);
        *c = '/';
    }
    mem_free(copy);
    return status;
}

/* Forgets the part's bytes. */
static int start_over(struct loading *l, struct carat_error *err)
{
    if (l->done > 0 && l->restarts++ == RESTARTS_MAX)
        return err_set(err, CARAT_ENETWORK, "%.200s: the download had to begin again too often",
                       name_of(l->what->path));
    if (ftruncate(l->fd, 0) != 0) return io_failed(buf_text(&l->part), "cannot be emptied", err);
    sha256_restart(l->sum);
    l->done = 0;
    l->size = l->what->record.size;
    return CARAT_OK;
}

static bool move_hash(void *user, uint64_t done)
{
    struct loading *l = user;
    struct hub_progress progress = {"checking", name_of(l->what->path), done, l->done};
    watch_move(l->watch, &progress);
    return watch_goes_on(l->watch);
}

/* Whether the part's bytes belong to the file that is wanted now. */
static bool is_same_file(const struct loading *l)
{
    const struct record *wanted = &l->what->record, *side = &l->side;
    if (wanted->size && side->size != wanted->size) return false;
    if (wanted->sha256[0]) return strcmp(side->sha256, wanted->sha256) == 0;
    return strcmp(side->source, wanted->source) == 0 && side->etag[0];
}

/* Opens the part and takes what it has: its bytes are hashed. */
static int open_part(struct loading *l, struct carat_error *err)
{
    struct stat facts;
    l->fd = open(buf_text(&l->part), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (l->fd < 0 || fstat(l->fd, &facts) != 0)
        return io_failed(buf_text(&l->part), "cannot be opened", err);
    TRY(sha256_open(&l->sum, err));
    bool is_known = record_read(buf_text(&l->part), &l->side) && is_same_file(l);
    l->size = l->what->record.size;
    if (is_known && !l->size) l->size = l->side.size;
    bool is_useful = is_known && (!l->size || (uint64_t)facts.st_size <= l->size);
    if (!is_useful || facts.st_size == 0) {
        if (facts.st_size > 0)
            watch_say(l->watch, "%s has changed on the server; starting over",
                      name_of(l->what->path));
        l->side = l->what->record;
        return start_over(l, err);
    }
    l->done = (uint64_t)facts.st_size;
    watch_say(l->watch, "going on with %s after %.1f MiB", name_of(l->what->path),
              (double)l->done / (1 << 20));
    TRY(sha256_add_file(l->sum, l->fd, l->done, buf_text(&l->part), move_hash, l, err));
    return lseek(l->fd, 0, SEEK_END) < 0 ? io_failed(buf_text(&l->part), "cannot be read", err)
                                         : CARAT_OK;
}

/* ---- A response ------------------------------------------------------------------------- */

static int lies(const struct loading *l, const char *what, uint64_t found, uint64_t expected,
                struct carat_error *err)
{
    return err_set(err, CARAT_ENETWORK,
                   "%.200s: the server's %s is wrong: %" PRIu64 " expected, %" PRIu64 " found",
                   name_of(l->what->path), what, expected, found);
}

/* Whether other connections may load what follows. */
static bool may_split(const struct loading *l, const struct fetch_head *head)
{
    return (head->status == 206 || head->accepts_ranges) && !l->is_single &&
           (l->side.etag[0] == '"' || l->what->record.sha256[0]);
}

/* A body from the beginning. */
static int begin_whole(struct loading *l, const struct fetch_head *head, struct carat_error *err)
{
    if (l->done > 0) {
        bool is_same = strcmp(head->etag, l->side.etag) == 0;
        watch_say(l->watch,
                  is_same ? "%s: the server sends no part; starting over"
                          : "%s has changed on the server; starting over",
                  name_of(l->what->path));
        TRY(start_over(l, err));
    }
    if (lseek(l->fd, 0, SEEK_SET) < 0) return io_failed(buf_text(&l->part), "seek", err);
    if (head->has_length && l->size && head->length != l->size)
        return lies(l, "Content-Length", head->length, l->size, err);
    if (!l->size && head->has_length) {
        l->size = head->length;
        TRY(download_check_room(l->what->path, l->size, err));
    }
    l->side = l->what->record;
    l->side.size = l->size;
    memcpy(l->side.etag, head->etag, sizeof head->etag);
    l->may_split = may_split(l, head);
    return record_write(buf_text(&l->part), &l->side, err);
}

/* A body that goes on after the part. */
static int begin_rest(struct loading *l, const struct fetch_head *head, struct carat_error *err)
{
    bool is_other = l->side.etag[0] && head->etag[0] && strcmp(l->side.etag, head->etag) != 0;
    if (l->asked == 0 || !head->has_range)
        return err_set(err, CARAT_ENETWORK, "%.200s: the server sends a part that %s",
                       name_of(l->what->path),
                       l->asked ? "does not say which" : "nobody asked for");
    if (is_other || (!head->etag[0] && !l->what->record.sha256[0])) {
        l->is_changed = true;
        return err_set(err, CARAT_ENETWORK, "%.200s has changed on the server",
                       name_of(l->what->path));
    }
    if (head->first != l->asked) return lies(l, "Content-Range", head->first, l->asked, err);
    if (l->size && head->total && head->total != l->size)
        return lies(l, "Content-Range", head->total, l->size, err);
    if (head->last < head->first || (l->size && head->last >= l->size))
        return lies(l, "Content-Range", head->last, l->size - 1, err);
    uint64_t length = head->last - head->first + 1;
    if (head->has_length && head->length != length)
        return lies(l, "Content-Length", head->length, length, err);
    if (!l->size) l->size = head->total;
    l->may_split = may_split(l, head);
    return CARAT_OK;
}

static int begin(void *user, const struct fetch_head *head, struct carat_error *err)
{
    struct loading *l = user;
    if (head->status == 200) return begin_whole(l, head, err);
    if (head->status == 206) return begin_rest(l, head, err);
    if (l->asked == 0)
        return err_set(err, CARAT_ENETWORK, "%.200s: status 200 expected, 416 found",
                       name_of(l->what->path));
    l->is_changed = true; /* the server has fewer bytes than the part */
    return err_set(err, CARAT_ENETWORK, "%.200s has changed on the server", name_of(l->what->path));
}

static int write_failed(const struct loading *l, struct carat_error *err)
{
    bool is_limit = errno == EFBIG;
    io_failed(buf_text(&l->part), "cannot be written", err);
    err_hint(err, "what is there stays; %s, and the same command goes on",
             is_limit ? "raise the limit on file sizes (ulimit -f)" : "free space");
    return CARAT_EIO;
}

static void show(const struct loading *l)
{
    struct hub_progress progress = {"loading", name_of(l->what->path), l->done + l->ahead, l->size};
    watch_move(l->watch, &progress);
}

/* The bytes that follow those of the part. */
static int add_next(void *user, const void *bytes, size_t n, struct carat_error *err)
{
    enum { FLUSHED = 1 << 25 };
    struct loading *l = user;
    const char *at = bytes;
    if (l->done == 0 && n >= 4 && memcmp(bytes, "GGUF", 4) != 0)
        return err_set(err, CARAT_ENETWORK, "%.200s: what the server sends is no GGUF file",
                       name_of(l->what->path));
    if (l->size && n > l->size - l->done)
        return err_set(err, CARAT_ENETWORK,
                       "%.200s: the server sends more than the %" PRIu64 " bytes of the file",
                       name_of(l->what->path), l->size);
    for (size_t left = n; left > 0;) {
        ssize_t done = write(l->fd, at, left);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return write_failed(l, err);
        at += done;
        left -= (size_t)done;
    }
    sha256_add(l->sum, bytes, n);
    uint64_t flushed = l->done / FLUSHED, now = (l->done + n) / FLUSHED;
    l->done += n;
    /* Writing begins now, so that little is left for the end. */
    if (now > flushed)
        sync_file_range(l->fd, (off_t)(flushed * FLUSHED), (off_t)((now - flushed) * FLUSHED),
                        SYNC_FILE_RANGE_WRITE);
    l->ahead = l->ahead > n ? l->ahead - n : 0;
    show(l);
    return CARAT_OK;
}

static int add(void *user, const void *bytes, size_t n, struct carat_error *err)
{
    struct loading *l = user;
    TRY(add_next(l, bytes, n, err));
    l->splits = l->may_split && l->done - l->asked >= ALONE && l->size > l->done &&
                ranges_pay(l->size - l->done, l->what->connections);
    return l->splits ? err_set(err, CARAT_EBUSY, "others join") : CARAT_OK;
}

/* ---- From request to request ------------------------------------------------------------ */

static int ask_once(struct loading *l, struct fetch *f, struct fetch_head *head, bool *may_retry,
                    struct carat_error *err)
{
    struct fetch_sink sink = {l, begin, add};
    bool is_strong = l->side.etag[0] == '"';
    struct fetch_question question = {.url = l->what->url,
                                      .accept = "*/*",
                                      .first = l->done,
                                      .if_range = is_strong ? l->side.etag : ""};
    l->asked = l->done;
    l->is_changed = l->may_split = l->splits = false;
    return fetch_get(f, &question, &sink, head, may_retry, err);
}

static void show_ahead(void *user, uint64_t ahead)
{
    struct loading *l = user;
    l->ahead = ahead;
    show(l);
}

/* Several connections load the rest. What they do not understand is left to a single one. */
static int load_rest(struct loading *l, const struct fetch *f, struct carat_error *err)
{
    struct ranges_sink sink = {l, add_next, show_ahead};
    struct ranges_want want = {.url = l->what->url,
                               .etag = l->side.etag,
                               .needs_etag = !l->what->record.sha256[0],
                               .first = l->done,
                               .size = l->size,
                               .connections = l->what->connections};
    struct carat_error why = {0};
    bool is_odd = false;
    int status = ranges_load(f, &want, &sink, l->watch, &is_odd, &why);
    l->splits = false;
    l->ahead = 0;
    l->is_single = is_odd;
    if (is_odd) watch_say(l->watch, "%s; going on with one connection", why.message);
    if (is_odd || status == CARAT_OK) return CARAT_OK;
    if (err) *err = why;
    return status;
}

static int load(struct loading *l, struct fetch *f, struct carat_error *err)
{
    enum { PROGRESS = 1 << 20 };
    int n = 0;
    while (!l->size || l->done < l->size) {
        struct fetch_head head;
        struct carat_error why = {0};
        bool may_retry = false;
        int status = ask_once(l, f, &head, &may_retry, &why);
        if (l->is_changed) {
            watch_say(l->watch, "%s; starting over", why.message);
            TRY(start_over(l, err));
            continue;
        }
        if (l->splits) {
            TRY(load_rest(l, f, err));
            continue;
        }
        bool has_moved = l->done > l->asked;
        if (status == CARAT_OK && !l->size) break; /* it had no length, so this is all */
        if (status == CARAT_OK && (has_moved || l->done == l->size)) continue;
        if (status == CARAT_OK) {
            status = err_set(&why, CARAT_ENETWORK, "%.200s: the server sends nothing more",
                             name_of(l->what->path));
            may_retry = true;
        }
        if (l->done >= l->asked + PROGRESS) n = 0;
        if (!may_retry || n == l->watch->retries) {
            if (err) *err = why;
            return status;
        }
        TRY(watch_wait(l->watch, n++, head.retry_after_s, &why, err));
    }
    return CARAT_OK;
}

/* ---- The end ---------------------------------------------------------------------------- */

static void add_other(const struct loading *l, const char *ending, struct buf *out)
{
    buf_printf(out, "%s%s", l->what->path, ending);
}

static void drop_side(const struct loading *l)
{
    struct buf side = {0};
    add_other(l, ".part.json", &side);
    if (!side.failed) unlink(buf_text(&side));
    buf_deinit(&side);
}

static int keep_bad(const struct loading *l, const char *sum, struct carat_error *err)
{
    struct buf bad = {0};
    add_other(l, ".bad", &bad);
    if (!bad.failed && rename(buf_text(&l->part), buf_text(&bad)) == 0) drop_side(l);
    err_set(err, CARAT_ECHECKSUM, "%.200s: sha256 %s expected, %s found", name_of(l->what->path),
            l->what->record.sha256, sum);
    err_hint(err, "kept as %.150s; the same command downloads it again", buf_text(&bad));
    buf_deinit(&bad);
    return CARAT_ECHECKSUM;
}

/* The record is there before the file has its name, so that no file is without one. */
static int finish(struct loading *l, struct carat_error *err)
{
    char sum[HUB_SHA256_HEX + 1];
    struct record record = l->what->record;
    sha256_end(l->sum, sum);
    if (record.sha256[0] && strcmp(record.sha256, sum) != 0) return keep_bad(l, sum, err);
    if (!record.sha256[0])
        watch_say(l->watch, "%s: the server knows no checksum; sha256 is %s",
                  name_of(l->what->path), sum);
    memcpy(record.sha256, sum, sizeof sum);
    memcpy(record.etag, l->side.etag, sizeof record.etag);
    record.size = l->done;
    calendar_utc(time(NULL), record.date);
    if (fsync(l->fd) != 0) return io_failed(buf_text(&l->part), "cannot be written", err);
    if (!file_has_name(l->fd, buf_text(&l->part), 0))
        return err_set(err, CARAT_EIO, "%.300s: was removed during the download",
                       buf_text(&l->part));
    TRY(record_write(l->what->path, &record, err));
    if (rename(buf_text(&l->part), l->what->path) != 0)
        return io_failed(l->what->path, "cannot be renamed to", err);
    file_sync_folder(l->what->path);
    drop_side(l);
    return CARAT_OK;
}

static int load_and_finish(struct loading *l, struct fetch *f, struct carat_error *err)
{
    TRY(open_part(l, err));
    TRY(load(l, f, err));
    return finish(l, err);
}

/* Whether the file is there. CARAT_EIO: something else is. */
static int look_for(const struct download *what, bool *is_there, struct carat_error *err)
{
    struct stat facts;
    struct record record;
    *is_there = stat(what->path, &facts) == 0;
    if (!*is_there) return CARAT_OK;
    uint64_t size = (uint64_t)facts.st_size, wanted = what->record.size;
    bool is_same_size = !wanted || size == wanted;
    bool is_same =
        is_same_size && (!what->record.sha256[0] || !record_read(what->path, &record) ||
                         !record.sha256[0] || strcmp(record.sha256, what->record.sha256) == 0);
    if (is_same) return CARAT_OK;
    err_set(err, CARAT_EIO,
            "%.300s: other bytes are there: %" PRIu64 ", and %" PRIu64 " expected%s", what->path,
            size, wanted, is_same_size ? ", of another sha256" : "");
    err_hint(err, "move the file away, or `carat rm` it; nothing whole is deleted by itself");
    return CARAT_EIO;
}

int download_file(struct fetch *f, const struct download *what, const struct hub_watch *watch,
                  struct carat_error *err)
{
    struct loading l = {.what = what, .watch = watch, .fd = -1};
    struct lock lock;
    bool is_there = false;
    TRY(look_for(what, &is_there, err));
    if (is_there) return CARAT_OK;
    TRY(make_folders(what->path, err));
    int status = lock_take(&lock, what->path, watch, err);
    if (status == CARAT_OK) status = look_for(what, &is_there, err);
    buf_printf(&l.part, "%s.part", what->path);
    if (l.part.failed) status = err_no_memory(err, what->path, strlen(what->path));
    if (status == CARAT_OK && !is_there) status = load_and_finish(&l, f, err);
    if (l.fd >= 0) close(l.fd);
    sha256_close(l.sum);
    lock_give(&lock);
    buf_deinit(&l.part);
    return status;
}
