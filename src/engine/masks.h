/* Grammar masks, computed before the tokens of a step are picked. */
#ifndef ENGINE_MASKS_H
#define ENGINE_MASKS_H

#include "engine/engine.h"

/* Called between runner_start and runner_wait. While the device computes, computes the masks of
 * sequences that have a grammar, as many as time allows. If the device can search within masks, it
 * looks for the best allowed logits right after the step, so that picking waits for nothing more.
 * Sets is_masked of each sequence. CARAT_EDEVICE as runner_wait. */
int masks_search(carat_engine *e, struct carat_error *err);

#endif
