/* What keys and values depend on besides the tokens: the model, and how it is computed. */
#ifndef ENGINE_ORIGIN_H
#define ENGINE_ORIGIN_H

#include "engine/engine.h"
#include "engine/prefix_file.h"

/* Reads the whole directory of the model file, but only a piece from the middle of each tensor:
 * files that differ there count as different models. Takes some milliseconds. */
void origin_find(struct prefix_origin *out, const carat_engine *e);

#endif
