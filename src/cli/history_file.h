/* The file of lines typed in chats. All chats share it, even at the same time.
 *
 * Rules
 * 1. A line is appended when it is sent, by one write under a lock; nothing else is touched.
 * 2. A file that has grown too long is rewritten next to it and renamed, under the lock.
 * 3. The form is libedit's: a first line "_HiStOrY_V2_", then a line an entry, in which control
 *    characters and backslashes are written as \ooo and \\. What libedit wrote itself is read
 *    (\040, \M-C, \^[), and it reads what we write. */
#ifndef CLI_HISTORY_FILE_H
#define CLI_HISTORY_FILE_H

#include <stddef.h>

#include "base/status.h"

typedef void (*history_take_fn)(void *user, const char *text, size_t length);

/* Hands over every entry, the oldest first; of a file of more than 16 MiB only its end. A missing
 * file and a device have none. */
int history_file_read(const char *path, history_take_fn take, void *user, struct carat_error *err);

/* Adds an entry of any bytes; makes the file, for its owner alone. On failure the old entries
 * stay as they were. */
int history_file_add(const char *path, const char *text, size_t length, struct carat_error *err);

/* Keeps the newest `entries`, once there are more than twice as many or 16 MiB. */
int history_file_trim(const char *path, size_t entries, struct carat_error *err);

#endif
