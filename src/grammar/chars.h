/* Characters of strings, in the form in which an answer has them: as they are, or as JSON writes
 * them inside of quotation marks. */
#ifndef GRAMMAR_CHARS_H
#define GRAMMAR_CHARS_H

#include "grammar/expr.h"

enum chars_form {
    CHARS_RAW, /* as they are: Gemma's call syntax, where a special token ends the string */
    CHARS_JSON,
};

/* One code point in (or outside of) the ranges. JSON: in its usual form only. */
const struct expr *chars_class(struct expr_builder *b, enum chars_form form,
                               const struct char_range *ranges, size_t n, bool is_negated);

/* Any code point. JSON: in any form; surrogates only in pairs. */
const struct expr *chars_any(struct expr_builder *b, enum chars_form form);

/* A UTF-8 text, in its usual form. JSON: with its quotation marks. */
const struct expr *chars_text(struct expr_builder *b, enum chars_form form, const char *text,
                              size_t length);

#endif
