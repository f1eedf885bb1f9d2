/* A worker's part of a call: from the bytes of the body to jobs that can be submitted. */
#ifndef SERVER_PREPARE_H
#define SERVER_PREPARE_H

#include "server/service.h"

/* Any thread that has the call. On failure the call has_failed, with `error`. */
void prepare_call(struct service *s, struct call *c);

#endif
