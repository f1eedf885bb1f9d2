/* Calls that ask the model: from their jobs to the last byte of the reply. */
#ifndef SERVER_ANSWERING_H
#define SERVER_ANSWERING_H

#include "server/service.h"

/* Submits the jobs of a prepared call; a stream begins at once. */
void answering_begin(struct service *s, struct call *c);
/* Takes what the engines have reported, as far as the client keeps up. */
void answering_pump(struct service *s, struct call *c);
/* Ends it with an error, as a reply or as the last event of a stream. */
void answering_fail(struct service *s, struct call *c, const struct api_error *error);
/* The client is gone: nothing more is computed for it. */
void answering_cancel(struct service *s, struct call *c);
/* Keeps a silent stream alive, and ends what takes too long. */
void answering_tick(struct service *s, struct call *c, double now);
/* All of its jobs are done. */
bool answering_is_over(const struct call *c);

#endif
