/* A temporary folder for a test's files, removed with all that is in it. */
#ifndef SUPPORT_SCRATCH_H
#define SUPPORT_SCRATCH_H

#include <stddef.h>

struct scratch {
    char path[256];
};

/* Under $TMPDIR or /tmp. Ends the program when that fails: tests cannot go on. */
void scratch_open(struct scratch *s);
void scratch_close(struct scratch *s);

/* Path of a file in it, written to `out`, which is returned. */
const char *scratch_file(const struct scratch *s, const char *name, char out[512]);

/* Writes a whole file there. */
void scratch_write(const struct scratch *s, const char *name, const void *data, size_t n);

/* Writes a text to a file at a path below it, with the folders above the file. */
void scratch_put(const struct scratch *s, const char *path, const char *text);

#endif
