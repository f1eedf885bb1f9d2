/* Result files. An old file of the name stays until the result is whole: the result is written next
 * to it, flushed to the disk and then renamed. Links are followed, and the old file's mode is kept.
 *
 * Devices, pipes and /dev/fd/N are written directly; "-" and /dev/stdout are standard output.
 *
 * A signal that ends the program keeps the old file too, except with WRITE_TEXT: a text is useful
 * even when it is cut, so what was written so far, if anything, takes the name. Only SIGKILL and
 * crashes leave a file "NAME.carat-" with eight digits. One file is written at a time. */
#ifndef CLI_FILE_WRITER_H
#define CLI_FILE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

enum writer_kind {
    WRITE_WHOLE, /* useless when it is cut */
    WRITE_TEXT,
    WRITE_BINARY /* like WRITE_WHOLE, but never to a terminal */
};

struct file_writer {  /* zero: closed */
    const char *path; /* as given; borrowed */
    FILE *file;       /* NULL: closed, or standard output */
    bool is_standard;
    enum writer_kind kind;
    size_t bytes;
    char *target, *temporary; /* temporary becomes target; NULL: written directly */
};

/* Whether `path` means standard output. */
bool is_standard_output(const char *path);

/* CARAT_EIO names the file when it cannot be written, CARAT_EUSAGE when it makes no sense. */
int file_writer_open(struct file_writer *w, const char *path, enum writer_kind kind,
                     struct carat_error *err);
int file_writer_add(struct file_writer *w, const void *bytes, size_t n, struct carat_error *err);

static inline bool file_writer_is_open(const struct file_writer *w)
{
    return w->file || w->is_standard;
}

/* With CARAT_OK the file takes its name, unless that fails; with any other status, which is passed
 * on, everything stays as it was. A closed writer is fine. */
int file_writer_close(struct file_writer *w, int status, struct carat_error *err);

/* Drops the result: everything stays as it was. */
void file_writer_drop(struct file_writer *w);

#endif
