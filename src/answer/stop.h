/* Stop strings: where a text ends, and how much of it is certain while more may come. */
#ifndef ANSWER_STOP_H
#define ANSWER_STOP_H

#include <stddef.h>

#include "carat.h"

struct stop_string {
    char *text; /* owned */
    size_t length;
};

struct stop_strings {
    struct stop_string *all; /* owned; n of them */
    size_t n;
};

/* Copies them. CARAT_EUSAGE: too many, an empty or a long one, or one that is not UTF-8. */
int stop_strings_open(struct stop_strings *s, const char *const *texts, size_t n,
                      struct carat_error *err);
void stop_strings_close(struct stop_strings *s);

/* The stop string that is complete first in text[0, length), the longest if there are several;
 * NULL: none. *certain is the number of bytes before it. Without one, it is the number of bytes
 * that cannot be part of one, whatever follows. */
const char *stop_strings_find(const struct stop_strings *s, const char *text, size_t length,
                              size_t *certain);

#endif
