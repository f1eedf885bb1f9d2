/* Left recursion: rules that begin with a call of themselves, directly or through others. A machine
 * with stacks would push for ever. */
#ifndef GRAMMAR_LEFT_H
#define GRAMMAR_LEFT_H

#include "grammar/program.h"

/* Gives every such rule a network that takes the same texts without it. After program_analyse.
 * CARAT_EUNSUPPORTED: a counted repetition is part of the circle, or a bound was passed. */
int left_rewrite(struct program *p, struct carat_error *err);

#endif
