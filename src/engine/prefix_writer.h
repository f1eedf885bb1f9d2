/* Writes files of saved prefixes (prefix_file.h). What is written is called PATH.part until it is
 * whole and on the disk; then it takes the place of the old file. Until then, and after any error,
 * the old file stays as it was. One process at a time writes a file: another one gets CARAT_EBUSY.
 * A .part that a process left when it was killed is written over by the next one. */
#ifndef ENGINE_PREFIX_WRITER_H
#define ENGINE_PREFIX_WRITER_H

#include "base/buf.h"
#include "engine/prefix_file.h"

struct prefix_writer {
    struct buf target, part;
    int fd;       /* of the part */
    uint64_t sum; /* of what was written */
};

/* Begins with the header, whose magic, version, sizes and sum are set here, and the lists. The
 * caller closes the writer even after an error. CARAT_EUSAGE: PATH exists, and is something
 * else. */
int prefix_writer_open(struct prefix_writer *w, const char *path,
                       const struct prefix_header *header, const struct saved *lists,
                       struct carat_error *err);
int prefix_writer_page(struct prefix_writer *w, const void *bytes, size_t n,
                       struct carat_error *err);
/* With CARAT_OK the file takes its name; with any other status, which is passed on, it is
 * deleted. */
int prefix_writer_close(struct prefix_writer *w, int status, struct carat_error *err);

#endif
