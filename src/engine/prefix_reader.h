/* Reads files of saved prefixes (prefix_file.h) from beginning to end. Takes from memory what the
 * lists of the file need, never more than the file is long. */
#ifndef ENGINE_PREFIX_READER_H
#define ENGINE_PREFIX_READER_H

#include "engine/prefix_file.h"

struct prefix_reader {
    const char *path; /* borrowed */
    int fd;           /* -1: there is no such file; nothing else can be done with it */
    uint64_t sum;     /* of what was read */
    struct prefix_header header;
};

/* Opens a file and checks its header. A missing file is no error: fd is -1. The caller closes the
 * reader even after an error. */
int prefix_reader_open(struct prefix_reader *r, const char *path, struct carat_error *err);
void prefix_reader_close(struct prefix_reader *r);

/* Whether the file was saved for this model and these settings. CARAT_EUNSUPPORTED. */
int prefix_reader_match(const struct prefix_reader *r, const struct prefix_origin *origin,
                        struct carat_error *err);

/* Reads the lists and checks them. prefix_reader_match has succeeded before. The caller closes
 * `out` (saved_close), unless this fails. */
int prefix_reader_lists(struct prefix_reader *r, const struct prefix_cache *c, int32_t n_vocab,
                        struct saved *out, struct carat_error *err);
/* The next page. */
int prefix_reader_page(struct prefix_reader *r, void *out, size_t bytes, struct carat_error *err);
/* After the last page: whether the checksum is right and nothing follows. */
int prefix_reader_end(struct prefix_reader *r, struct carat_error *err);

#endif
