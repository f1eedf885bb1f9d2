#include "cli/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MAX = 1 << 30 };

static int read_to_end(int fd, const char *shown, size_t bytes_max, struct buf *out,
                       struct carat_error *err)
{
    char block[65536];
    while (out->length <= bytes_max) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(err, CARAT_EIO, "%s: %s", shown, strerror(errno));
        if (n == 0) break;
        if (out->length + (size_t)n > READ_MAX)
            return err_set(err, CARAT_EUSAGE, "%s: longer than %d bytes", shown, READ_MAX);
        buf_add(out, block, (size_t)n);
        if (out->failed) return err_no_memory(err, shown, out->length + (size_t)n);
    }
    return CARAT_OK;
}

int file_read(const char *path, struct buf *out, struct carat_error *err)
{
    return file_read_some(path, SIZE_MAX, out, err);
}

int file_read_some(const char *path, size_t bytes_max, struct buf *out, struct carat_error *err)
{
    if (strcmp(path, "-") == 0)
        return read_to_end(STDIN_FILENO, "standard input", bytes_max, out, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(err, CARAT_EUSAGE, "%s: %s", path, strerror(errno));
    int status = read_to_end(fd, path, bytes_max, out, err);
    close(fd);
    return status;
}

/* ---- Places ----------------------------------------------------------------------------- */

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

void home_folder(const char *variable, const char *fallback, struct buf *out)
{
    const char *value = environment(variable), *home = environment("HOME");
    if (value[0] == '/')
        buf_add_text(out, value);
    else if (home[0])
        buf_printf(out, "%s/%s", home, fallback);
}

static void make_folders(char *path)
{
    for (char *c = path + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        mkdir(path, 0700);
        *c = '/';
    }
}

int state_path(const char *name, struct buf *path, struct carat_error *err)
{
    buf_clear(path);
    home_folder("XDG_STATE_HOME", ".local/state", path);
    if (!path->length) return err_set(err, CARAT_EIO, "neither XDG_STATE_HOME nor HOME is set");
    buf_printf(path, "/carat/%s", name);
    if (path->failed) return err_no_memory(err, name, strlen(name));
    make_folders(path->data);
    return CARAT_OK;
}
