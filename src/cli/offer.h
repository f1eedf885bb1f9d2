/* Models for commands: one that is missing is offered to be pulled. */
#ifndef CLI_OFFER_H
#define CLI_OFFER_H

#include "base/buf.h"
#include "cli/options.h"

/* model_find; if the model is missing, can be pulled, and a person sits at the terminal, asks
 * whether to (its size, the free space) and pulls it. CARAT_EBUSY: stopped by Ctrl-C. */
int model_get(const struct options *o, const char *name, struct buf *path, struct carat_error *err);

/* Prints a question that ends with " (y/N) " on standard error and reads a line; true for "y" or
 * "yes". */
bool ask_yes(const char *form, ...) __attribute__((format(printf, 1, 2)));

#endif
