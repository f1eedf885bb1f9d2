/* The guesses of a step: for each sequence those that its own text suggests, or those of a drafter.
 * A drafter makes one guess a pass for every sequence that asks, as long as passes pay. */
#ifndef ENGINE_DRAFTING_H
#define ENGINE_DRAFTING_H

#include "engine/engine.h"

/* Adds rows (n_rows) of guesses to a step that has `rows`, if it has none of prompts. CARAT_EDEVICE
 * when a device is lost. */
int drafting_add(carat_engine *e, const struct pace_step *rows, struct carat_error *err);

#endif
