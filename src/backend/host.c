#include "backend/host.h"

#include <stdio.h>

#include "base/allowance.h"

void host_describe(const char *name, struct device_facts *out)
{
    struct memory_allowance memory = allowance_memory("");
    *out =
        (struct device_facts){.memory_total = memory.total, .memory_available = memory.available};
    snprintf(out->name, sizeof out->name, "%s", name);
}
