/* What grammars allow, in front of the picks of a step. */
#ifndef ENGINE_MASKS_H
#define ENGINE_MASKS_H

#include "engine/engine.h"

/* Between runner_start and runner_wait: while the device computes, masks of all sequences that are
 * held to a grammar are computed. A device that can then looks for the best allowed logits, right
 * after the step, so that picking waits for nothing more. Sets is_masked of each sequence.
 * CARAT_EDEVICE as runner_wait. */
int masks_search(carat_engine *e, struct carat_error *err);

#endif
