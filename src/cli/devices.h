/* A readable list of what can compute. */
#ifndef CLI_DEVICES_H
#define CLI_DEVICES_H

#include "base/status.h"

/* Prints one line for each device; all but the first begin with `indent`. */
int print_devices(const char *indent, struct carat_error *err);

#endif
