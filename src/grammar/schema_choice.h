/* Whether texts that are written for one schema can fit another one: what oneOf needs to know. */
#ifndef GRAMMAR_SCHEMA_CHOICE_H
#define GRAMMAR_SCHEMA_CHOICE_H

#include "grammar/schema_view.h"

/* *out: no value that is written for one of the two fits the other. `is_alone`: nothing else is
 * said about the value, so that objects have no other properties. */
int schema_is_disjoint(struct schema_reader *r, const struct schema_view *a,
                       const struct schema_view *b, bool is_alone, bool *out);

#endif
