/* Random steps through a grammar, for fuzz targets: at each step every bit of the mask says what
 * the check of that token says, and nothing is allowed in a dead state. */
#ifndef SUPPORT_GRAMMAR_STEPS_H
#define SUPPORT_GRAMMAR_STEPS_H

#include "support/grammars.h"

/* At most n steps from `seed`. Asserts. */
void grammar_steps(const carat_grammar *g, const struct grammar_fixture *f, uint64_t seed, int n);

#endif
