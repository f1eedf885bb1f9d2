/* Line breaks between words, for text that comes in pieces.
 *
 * A word is held until it is whole, so nothing on the terminal has to be taken back: no cursor is
 * moved, and a new window size spoils one line at most. A line may break between any two wide
 * characters (Chinese, Japanese, Korean). A word wider than a line is not broken, so that a long
 * address can be clicked.
 *
 * The drawback: text copied from the terminal has these line breaks instead of blanks. */
#ifndef CLI_WRAP_H
#define CLI_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Zeroed: at the beginning of a line. */
struct wrap {
    int column;              /* where the cursor is */
    struct buf blanks, word; /* held */
    int blank_width, word_width;
    uint32_t last; /* character of the word */
    bool is_long;  /* within a word that is wider than a line */
};

/* Adds to `out` what may be shown of `text` (valid UTF-8) in lines of `columns` (1 or more). */
void wrap_add(struct wrap *w, int columns, const char *text, size_t length, struct buf *out);

/* Adds what is held. */
void wrap_flush(struct wrap *w, int columns, struct buf *out);

/* Notes that something else was written to the terminal. */
void wrap_note(struct wrap *w, const char *text, size_t length);

void wrap_deinit(struct wrap *w);

#endif
