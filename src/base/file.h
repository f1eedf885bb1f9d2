/* Files by their names: whole ones up to a bound, and what a loss of power or another process may
 * have changed. Any thread. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum file_reading {
    FILE_WHOLE,
    FILE_UNOPENED, /* errno says why */
    FILE_BROKEN,   /* errno says why it cannot be read to its end */
    FILE_LONGER,   /* than bytes_max */
    FILE_NO_MEMORY,
};

/* Appends a file to *out. Stops soon after *out has more than bytes_max bytes. `flags` of open are
 * added: without O_NONBLOCK a FIFO is waited for. */
enum file_reading file_read_bounded(const char *path, int flags, size_t bytes_max, struct buf *out);
/* The same for an open file, from its current position. */
enum file_reading file_read_open(int fd, size_t bytes_max, struct buf *out);

/* Whether `path` still names the open file: another process may have removed or replaced it.
 * `flags` of fstatat: with AT_SYMLINK_NOFOLLOW a link to the file is not its name. */
bool file_has_name(int fd, const char *path, int flags);

/* Writes the folder of a file to the disk: else a new name may be gone after a loss of power. */
void file_sync_folder(const char *path);

#endif
