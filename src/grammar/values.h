/* Values without a schema as expressions, and the pieces that values are made of. */
#ifndef GRAMMAR_VALUES_H
#define GRAMMAR_VALUES_H

#include "grammar/chars.h"
#include "grammar/json_schema.h"

struct value_writer {
    struct expr_builder *b;
    struct value_syntax syntax;
    int32_t any_rule, string_rule; /* -1: not made yet */
};

static inline bool writes_json(const struct value_writer *w)
{
    return w->syntax.quote < 0;
}

static inline enum chars_form chars_form(const struct value_writer *w)
{
    return writes_json(w) ? CHARS_JSON : CHARS_RAW;
}

/* One of , : [ ] { } with the blanks that may stand next to it; next to brackets, on the inside. */
const struct expr *write_mark(struct value_writer *w, char mark);
/* `content` in quotation marks, or between two marks of Gemma's call syntax. */
const struct expr *write_quoted(struct value_writer *w, const struct expr *content);
/* A key and its colon. */
const struct expr *write_key(struct value_writer *w, const char *key, size_t length);
/* { members } or [ items ]; `content` may be NULL. The empty form is allowed only if
 * `may_be_empty`. */
const struct expr *write_container(struct value_writer *w, char open, const struct expr *content,
                                   bool may_be_empty);

const struct expr *write_any_string(struct value_writer *w);
/* At most 18 digits before the point, 18 after it, and an exponent of two: any reader takes it. */
const struct expr *write_any_number(struct value_writer *w);
const struct expr *write_any_object(struct value_writer *w);
const struct expr *write_any(struct value_writer *w);

/* A given value. */
const struct expr *write_value(struct value_writer *w, const struct carat_value *v);

/* A key with its colon that is none of keys[0..n), and is written without escapes. */
const struct expr *write_other_key(struct value_writer *w, const char *const *keys,
                                   const size_t *lengths, size_t n);

#endif
