/* A growable byte buffer. Zeroed is empty. A failed growth sets `failed` and drops what
 * follows, so that a writer checks once at its end. Owned by whoever calls buf_deinit. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* NUL-terminated whenever not NULL; `length` does not count the NUL */
    size_t length, capacity;
    bool failed;
};

void buf_add(struct buf *b, const void *bytes, size_t n);
void buf_add_text(struct buf *b, const char *text);
void buf_add_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *form, ...) __attribute__((format(printf, 2, 3)));
void buf_clear(struct buf *b); /* empties, keeps the memory */
void buf_deinit(struct buf *b);

/* The text so far, "" when empty. Borrowed. */
const char *buf_text(const struct buf *b);

#endif
