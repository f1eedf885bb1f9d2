/* A readable list of what can compute. */
#ifndef CLI_DEVICES_H
#define CLI_DEVICES_H

#include "base/status.h"

/* One line a device to standard output, each after `indent` but the first. */
int print_devices(const char *indent, struct carat_error *err);

#endif
