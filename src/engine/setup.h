/* What was decided, and why, in the words of the public header. */
#ifndef ENGINE_SETUP_H
#define ENGINE_SETUP_H

#include "engine/layout.h"

/* Fills in y->setup. */
void setup_describe(struct layout *y, const struct carat_engine_options *o);

#endif
