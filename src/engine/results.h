/* What a step gives to a sequence: its next token, or its end. */
#ifndef ENGINE_RESULTS_H
#define ENGINE_RESULTS_H

#include "engine/engine.h"

/* After a step with rows of s: takes its token from the logits, if there are any, publishes what
 * was read, and adds the events. CARAT_EDEVICE when the device is lost. */
int results_take(carat_engine *e, struct sequence *s, struct carat_error *err);

#endif
