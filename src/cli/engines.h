/* The engines of a server: one, one on each of several GPUs, or several on the same device. */
#ifndef CLI_ENGINES_H
#define CLI_ENGINES_H

#include "carat.h"
#include "cli/options.h"

enum { ENGINES_MAX = 16 };

struct engines {
    struct carat_engine_options all[ENGINES_MAX];
    size_t n;
};

/* Engines like `first`, as --gpus and --replicas say. CARAT_EUSAGE; CARAT_EDEVICE: --gpus all, and
 * there is none. */
int engines_read(struct engines *out, const struct options *o,
                 const struct carat_engine_options *first, struct carat_error *err);

#endif
