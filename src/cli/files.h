/* Reading whole files, the environment, and the user's folders. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

/* Reads a file, or standard input for "-", to its end: any bytes, at most 1 GiB. */
int file_read(const char *path, struct buf *out, struct carat_error *err);
/* The same, but stops soon after *out has more than bytes_max bytes. */
int file_read_some(const char *path, size_t bytes_max, struct buf *out, struct carat_error *err);

const char *environment(const char *name); /* a variable's text; "" if it is not set */

/* Appends the folder that an environment variable names, else `fallback` below the home folder;
 * nothing when neither is known. */
void home_folder(const char *variable, const char *fallback, struct buf *out);

/* A path below $XDG_STATE_HOME/carat (default ~/.local/state/carat). Makes its folder. CARAT_EIO:
 * there is no such place, or a folder cannot be made. */
int state_path(const char *name, struct buf *path, struct carat_error *err);

#endif
