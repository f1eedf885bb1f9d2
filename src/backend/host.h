/* What backends that compute in the host's memory have in common. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H

#include "backend/backend.h"

/* A device of that name, which may take what this process may take of the machine. */
void host_describe(const char *name, struct device_facts *out);

#endif
