#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum file_reading file_read_open(int fd, size_t bytes_max, struct buf *out)
{
    char block[65536];
    while (out->length <= bytes_max) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FILE_BROKEN;
        if (n == 0) return FILE_WHOLE;
        buf_add(out, block, (size_t)n);
        if (out->failed) return FILE_NO_MEMORY;
    }
    return FILE_LONGER;
}

enum file_reading file_read_bounded(const char *path, int flags, size_t bytes_max, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0) return FILE_UNOPENED;
    enum file_reading reading = file_read_open(fd, bytes_max, out);
    int why = errno;
    close(fd);
    errno = why;
    return reading;
}

bool file_has_name(int fd, const char *path, int flags)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && fstatat(AT_FDCWD, path, &named, flags) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

void file_sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    int n = slash ? (int)(slash - path) + 1 : 1;
    (void)snprintf(folder, sizeof folder, "%.*s", n, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}
