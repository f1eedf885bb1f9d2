/* What a command reads, so that no result goes over it. */
#ifndef CLI_INPUTS_H
#define CLI_INPUTS_H

#include "base/status.h"
#include "cli/options.h"

/* CARAT_EUSAGE when the file `target` is, also by way of a link, the model (a path; NULL: none),
 * a part of it when it is split, a file that an option names to be read, or standard input. */
int inputs_protect(const struct options *o, const char *model, const char *target,
                   struct carat_error *err);

#endif
