/* A request's way through the engine: from the queue to a slot, back to make room, to its end. */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include "engine/engine.h"

/* Ends a request in any state: adds its last event, with `message` if not NULL, and gives back
 * everything that it holds. What it has read stays in the prefix cache, unless it ends by an
 * error. */
void request_end(carat_engine *e, struct sequence *s, enum carat_finish finish,
                 const char *message);

/* Gives a queued request this free slot. Its pages are what the look-up has found. */
void request_start(carat_engine *e, struct sequence *s, int32_t slot, const struct prefix_hit *hit);

/* Takes the slot of a running request away: back into the queue, where it is the first of its
 * priority. */
void request_stop(carat_engine *e, struct sequence *s);

/* The request as the scheduler sees it. `least`: fairness_least. */
struct schedule_item request_item(const carat_engine *e, const struct sequence *s, uint64_t least);

#endif
