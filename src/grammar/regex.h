/* Regular expressions of JSON Schema's "pattern" as expressions over the characters of a string.
 * The dialect of JavaScript without lookaround, word boundaries, back references and Unicode
 * properties: no (?=, (?!, (?<=, \b, \1, \p. A pattern without ^ or $ may match anywhere in the
 * string. */
#ifndef GRAMMAR_REGEX_H
#define GRAMMAR_REGEX_H

#include "grammar/chars.h"

enum {
    REGEX_DEPTH_MAX = 100, /* groups inside each other */
    REGEX_BYTES_MAX = 1 << 16,
    REGEX_TIMES_MAX = 1 << 20,
};

struct regex {
    const struct expr *expr;
    uint32_t least, most; /* characters; most EXPR_NO_LIMIT */
    /* Where the number of one class is all that varies, or all that there is: the class (or NULL),
     * and what stands before and after it, `fixed` characters. */
    const struct expr *before, *class, *after;
    uint32_t fixed;
};

/* CARAT_EUNSUPPORTED or CARAT_EUSAGE say what and at which character; the caller adds the path. */
int regex_read(struct expr_builder *b, enum chars_form form, const char *pattern, size_t length,
               struct regex *out, struct carat_error *err);

#endif
