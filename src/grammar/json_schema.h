/* JSON Schema as expressions: the text of a value that fits, as JSON or in Gemma's call syntax.
 *
 * A text always fits the schema, but not every text that fits is possible: properties come in their
 * order, "properties" without "additionalProperties" means no others, and a value without "type" is
 * of the type that its keywords are about. What cannot be enforced is refused with its path. */
#ifndef GRAMMAR_JSON_SCHEMA_H
#define GRAMMAR_JSON_SCHEMA_H

#include "grammar/expr.h"

/* How values are written. */
struct value_syntax {
    /* < 0: JSON, with at most one blank between two tokens of it. Else the id of <|"|> of Gemma's
     * call syntax: it stands around strings, keys are bare and sorted, and there are no blanks. */
    int32_t quote;
};

/* CARAT_EUSAGE: the schema is wrong. CARAT_EUNSUPPORTED: it cannot be enforced. Both with the
 * path. */
int json_schema_expr(struct expr_builder *b, const struct carat_value *schema,
                     const struct value_syntax *syntax, const struct expr **out,
                     struct carat_error *err);

#endif
