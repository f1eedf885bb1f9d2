/* A caller's options of an engine as this version of the library knows them. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include "carat.h"

/* Copies the options and completes those of requests: n_queue, max_itl_ms. `given` may be NULL: all
 * defaults. CARAT_EUSAGE names the range. */
int options_copy(struct carat_engine_options *out, const struct carat_engine_options *given,
                 struct carat_error *err);

#endif
