#include "engine/prefix_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Opening ---------------------------------------------------------------------------- */

static int failed(const struct prefix_reader *r, const char *what, struct carat_error *err)
{
    return err_set(err, CARAT_EIO, "%.300s: %s: %s", r->path, what, strerror(errno));
}

static int damaged(const struct prefix_reader *r, const char *what, struct carat_error *err)
{
    err_set(err, CARAT_ECHECKSUM, "%.300s: saved prefixes are damaged: %s", r->path, what);
    err_hint(err, "the next save replaces the file");
    return CARAT_ECHECKSUM;
}

static int check_owner(const struct prefix_reader *r, const struct stat *facts,
                       struct carat_error *err)
{
    if (!S_ISREG(facts->st_mode) || !prefix_file_is_ours(r->fd))
        return err_set(err, CARAT_EUSAGE,
                       "%.300s: a file of saved prefixes expected, something "
                       "else found",
                       r->path);
    bool is_foreign = facts->st_uid != geteuid() && facts->st_uid != 0;
    if (!is_foreign && !(facts->st_mode & (S_IWGRP | S_IWOTH))) return CARAT_OK;
    err_set(err, CARAT_EUSAGE,
            "%.300s: saved prefixes decide what is answered, but others may "
            "write this file",
            r->path);
    err_hint(err, "chmod 600, and chown it to the user that carat runs as");
    return CARAT_EUSAGE;
}

/* At most n bytes; fewer: the file has ended. -1: failed. */
static ssize_t read_some(const struct prefix_reader *r, void *out, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = read(r->fd, (char *)out + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static int read_all(struct prefix_reader *r, void *out, size_t n, struct carat_error *err)
{
    ssize_t got = read_some(r, out, n);
    if (got < 0) return failed(r, "cannot be read", err);
    if ((size_t)got < n) return damaged(r, "the file is cut", err);
    r->sum = prefix_sum(r->sum, out, n);
    return CARAT_OK;
}

static bool is_count(int32_t n)
{
    return n >= 0 && n <= SAVED_MAX;
}

/* Counts are read only after the header's checksum was found right, and are checked even then. */
static int check_header(const struct prefix_reader *r, uint64_t file_bytes, struct carat_error *err)
{
    const struct prefix_header *h = &r->header;
    if (h->version != PREFIX_VERSION) {
        err_set(err, CARAT_EUNSUPPORTED, "%.300s: saved prefixes of version %d expected, %u found",
                r->path, PREFIX_VERSION, h->version);
        return CARAT_EUNSUPPORTED;
    }
    if (h->bytes != sizeof *h || h->sum != prefix_sum(0, h, offsetof(struct prefix_header, sum)))
        return damaged(r, "the header's checksum is wrong", err);
    if (!is_count(h->n_blocks) || !is_count(h->n_locals) || !is_count(h->n_anchors) ||
        !is_count(h->n_refs) || !is_count(h->origin.page))
        return damaged(r, "the header is wrong", err);
    if (h->file_bytes != prefix_file_bytes(h) || h->file_bytes != file_bytes)
        return damaged(r,
                       file_bytes < h->file_bytes ? "the file is cut"
                                                  : "the file is not as long as its header says",
                       err);
    return CARAT_OK;
}

int prefix_reader_open(struct prefix_reader *r, const char *path, struct carat_error *err)
{
    struct stat facts;
    *r = (struct prefix_reader){.path = path};
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (r->fd < 0) return errno == ENOENT ? CARAT_OK : failed(r, "cannot be opened", err);
    if (fstat(r->fd, &facts) != 0) return failed(r, "cannot be opened", err);
    TRY(check_owner(r, &facts, err));
    TRY(read_all(r, &r->header, sizeof r->header, err));
    return check_header(r, (uint64_t)facts.st_size, err);
}

void prefix_reader_close(struct prefix_reader *r)
{
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
}

/* ---- Reading ---------------------------------------------------------------------------- */

int prefix_reader_match(const struct prefix_reader *r, const struct prefix_origin *origin,
                        struct carat_error *err)
{
    const struct prefix_origin *found = &r->header.origin;
    if (memcmp(found->model, origin->model, sizeof found->model) != 0)
        return err_set(err, CARAT_EUNSUPPORTED, "%.300s: prefixes were saved for another model",
                       r->path);
    if (memcmp(found, origin, sizeof *found) == 0) return CARAT_OK;
    err_set(err, CARAT_EUNSUPPORTED, "%.300s: prefixes were saved with other settings", r->path);
    err_hint(err, "they depend on devices, --gpu-layers, --kv-type, --precision and "
                  "--deterministic");
    return CARAT_EUNSUPPORTED;
}

int prefix_reader_lists(struct prefix_reader *r, const struct prefix_cache *c, int32_t n_vocab,
                        struct saved *out, struct carat_error *err)
{
    const struct prefix_header *h = &r->header;
    TRY(saved_open(out, c, h->n_blocks, h->n_locals, h->n_anchors, err));
    const size_t blocks = (size_t)h->n_blocks, anchors = (size_t)h->n_anchors, id = sizeof(int32_t);
    int status = CARAT_OK;
    if (out->page != h->origin.page || out->n_refs != h->n_refs)
        status = damaged(r, "the header is wrong", err);
    if (!status) status = read_all(r, out->blocks, blocks * sizeof *out->blocks, err);
    if (!status) status = read_all(r, out->ids, blocks * (size_t)out->page * id, err);
    if (!status) status = read_all(r, out->anchors, anchors * sizeof *out->anchors, err);
    if (!status) status = read_all(r, out->refs, anchors * (size_t)out->n_refs * id, err);
    const char *problem = status ? NULL : saved_problem(out, c, n_vocab);
    if (problem) status = damaged(r, problem, err);
    if (status) saved_close(out);
    return status;
}

int prefix_reader_page(struct prefix_reader *r, void *out, size_t bytes, struct carat_error *err)
{
    return read_all(r, out, bytes, err);
}

int prefix_reader_end(struct prefix_reader *r, struct carat_error *err)
{
    const uint64_t sum = r->sum;
    uint64_t found;
    char more;
    TRY(read_all(r, &found, sizeof found, err));
    if (found != sum) return damaged(r, "the checksum is wrong", err);
    if (read_some(r, &more, 1) != 0) return damaged(r, "something follows the checksum", err);
    return CARAT_OK;
}
