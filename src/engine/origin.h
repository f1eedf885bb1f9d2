/* What keys and values depend on besides the tokens: the model, and how it is computed. */
#ifndef ENGINE_ORIGIN_H
#define ENGINE_ORIGIN_H

#include "engine/engine.h"
#include "engine/prefix_file.h"

/* Looks at the whole directory of the model file and at a piece of each tensor, not at all of its
 * bytes: files that differ in a tensor's middle are different models. Takes some milliseconds. */
void origin_find(struct prefix_origin *out, const carat_engine *e);

#endif
