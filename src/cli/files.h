/* Whole files in, and where models lie. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

/* Reads a file, or standard input for "-", to its end: any bytes, at most 1 GiB. */
int file_read(const char *path, struct buf *out, struct carat_error *err);

/* Finds a model by path or name. CARAT_EFORMAT names the places looked at. */
int model_find(const char *name, struct buf *path, struct carat_error *err);

/* A path below $XDG_STATE_HOME/carat (default ~/.local/state/carat), its folder made. */
int state_path(const char *name, struct buf *path, struct carat_error *err);

#endif
