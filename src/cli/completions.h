/* Words that Tab may put into a line. */
#ifndef CLI_COMPLETIONS_H
#define CLI_COMPLETIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { COMPLETIONS_MAX = 256 };

/* Zeroed is empty. */
struct completions {
    bool is_text;   /* nothing can be completed: Tab is a tab */
    bool has_blank; /* a blank follows a whole word */
    size_t begin;   /* where in the line the word begins */
    size_t n;
    struct buf words[COMPLETIONS_MAX];
};
void completions_deinit(struct completions *c);

/* Adds `word` if it begins with the `length` bytes typed. */
void completions_add(struct completions *c, const char *typed, size_t length, const char *word);

/* Adds the files that begin with a path; folders end with a slash. Names that a terminal cannot
 * show are left out. */
void completions_add_files(struct completions *c, const char *typed, size_t length);

/* Bytes that all words begin with, whole characters. */
size_t completions_common(const struct completions *c);

/* Fills in the words that may complete the first `length` bytes of a line. */
typedef void (*complete_fn)(void *user, const char *line, size_t length, struct completions *out);

#endif
