/* Expressions as networks of positions (program.h). */
#ifndef GRAMMAR_LOWER_H
#define GRAMMAR_LOWER_H

#include "grammar/expr.h"
#include "grammar/program.h"

/* Fills an empty program with the root rule and what it needs. CARAT_EUSAGE: a rule has no body.
 * CARAT_EUNSUPPORTED: a bound was passed. The program is the caller's to free in any case. */
int lower_rules(struct program *p, const struct expr_builder *b, int32_t root,
                struct carat_error *err);

#endif
