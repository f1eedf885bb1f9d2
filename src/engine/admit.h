/* Who gets a slot: the scheduler's next request, if the pools have room for its prompt. A request
 * that shares the beginning of its prompt with one that is being read waits until that part is
 * read. */
#ifndef ENGINE_ADMIT_H
#define ENGINE_ADMIT_H

#include "engine/engine.h"

/* Gives slots to queued requests, as many as there is room for. A request of higher priority takes
 * the slot of one of lower priority. */
void admit_requests(carat_engine *e);

#endif
