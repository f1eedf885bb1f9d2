/* The files that a command reads, so that no result overwrites one. */
#ifndef CLI_INPUTS_H
#define CLI_INPUTS_H

#include "base/status.h"
#include "cli/options.h"

/* CARAT_EUSAGE when the file `target` is, even through a link, the model (a path; NULL: none), a
 * part of a split model, a file that an option reads, or standard input. */
int inputs_protect(const struct options *o, const char *model, const char *target,
                   struct carat_error *err);

#endif
