/* Pages for the rows of a step. When none are left, the youngest running request of the lowest
 * priority is stopped, so that the others go on: lack of memory never ends a request. */
#ifndef ENGINE_ROOM_H
#define ENGINE_ROOM_H

#include "engine/engine.h"

/* The sequence that would be stopped; NULL: none runs. */
struct sequence *room_victim(const carat_engine *e);

/* Takes pages for n_rows of every running sequence. A prompt for which nobody makes room gets fewer
 * rows or none; a decoding sequence is stopped itself. */
void room_take(carat_engine *e);

#endif
