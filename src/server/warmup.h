/* A first request for each engine before anybody's: it brings weights into memory and lets the
 * engine learn how long its steps take, so that the first client waits no longer than others. */
#ifndef SERVER_WARMUP_H
#define SERVER_WARMUP_H

#include "server/replicas.h"

/* Returns when all are through, with the error of an engine that fails at it. The jobs have no
 * user. */
int warmup_run(struct replicas *r, const carat_model *model, size_t n_engines,
               struct carat_error *err);

#endif
