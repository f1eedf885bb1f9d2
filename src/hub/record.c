#include "hub/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_writer.h"
#include "json/json_tree.h"

enum { RECORD_BYTES_MAX = 1 << 16 };

static bool read_file(const char *path, struct buf *out)
{
    return file_read_bounded(path, O_NONBLOCK, RECORD_BYTES_MAX, out) == FILE_WHOLE &&
           out->length > 0;
}

/* Texts that are too long or have control characters count as missing. */
static void take_text(const struct carat_value *root, const char *key, char *out, size_t size)
{
    const struct carat_value *v = json_member(root, key);
    out[0] = '\0';
    if (v->kind != CARAT_STRING || v->as.string.length >= size) return;
    for (size_t i = 0; i < v->as.string.length; i++)
        if ((unsigned char)v->as.string.data[i] < ' ') return;
    memcpy(out, v->as.string.data, v->as.string.length);
    out[v->as.string.length] = '\0';
}

bool record_read(const char *path, struct record *out)
{
    struct buf name = {0}, text = {0};
    struct json_tree tree = {0};
    buf_printf(&name, "%s.json", path);
    bool is_read =
        !name.failed && read_file(buf_text(&name), &text) &&
        json_tree_read(&tree, buf_text(&text), text.length, JSON_PLAIN, NULL) == CARAT_OK;
    *out = (struct record){0};
    if (is_read) {
        const struct carat_value *size = json_member(&tree.root, "size");
        take_text(&tree.root, "source", out->source, sizeof out->source);
        take_text(&tree.root, "revision", out->revision, sizeof out->revision);
        take_text(&tree.root, "sha256", out->sha256, sizeof out->sha256);
        take_text(&tree.root, "etag", out->etag, sizeof out->etag);
        take_text(&tree.root, "date", out->date, sizeof out->date);
        if (size->kind == CARAT_INT && size->as.integer > 0) out->size = (uint64_t)size->as.integer;
        is_read = out->source[0] != '\0';
    }
    json_tree_free(&tree);
    buf_deinit(&name);
    buf_deinit(&text);
    return is_read;
}

static void put(struct json *j, const char *key, const char *text)
{
    if (!text[0]) return;
    json_key_string(j, key, text);
}

static bool write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return fsync(fd) == 0;
}

int record_write(const char *path, const struct record *record, struct carat_error *err)
{
    struct buf name = {0}, other = {0}, text = {0};
    struct json j = {.out = &text};
    json_begin_object(&j);
    put(&j, "source", record->source);
    put(&j, "revision", record->revision);
    put(&j, "sha256", record->sha256);
    put(&j, "etag", record->etag);
    put(&j, "date", record->date);
    if (record->size) {
        json_key_int(&j, "size", (int64_t)record->size);
    }
    json_end_object(&j);
    buf_add_char(&text, '\n');
    buf_printf(&name, "%s.json", path);
    buf_printf(&other, "%s.json.new", path);
    int status = CARAT_OK;
    if (text.failed || name.failed || other.failed) {
        status = err_no_memory(err, path, text.length);
    } else {
        int fd = open(buf_text(&other), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        bool is_written = fd >= 0 && write_all(fd, buf_text(&text), text.length);
        if (!is_written || rename(buf_text(&other), buf_text(&name)) != 0)
            status = err_set(err, CARAT_EIO, "%.300s: cannot be written: %s", buf_text(&name),
                             strerror(errno));
        if (fd >= 0) close(fd);
        if (status != CARAT_OK) unlink(buf_text(&other));
    }
    buf_deinit(&name);
    buf_deinit(&other);
    buf_deinit(&text);
    return status;
}
