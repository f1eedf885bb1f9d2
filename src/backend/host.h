/* What backends that compute in the host's memory have in common. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H

#include "backend/backend.h"

/* Describes a device of that name, whose memory is what this process may take of the machine's. */
void host_describe(const char *name, struct device_facts *out);

#endif
