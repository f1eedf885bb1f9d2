#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/ref/ref.h"

const struct backend *const backend_list[] = {&cuda_backend, &cpu_backend, &ref_backend, NULL};

int backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    char names[128] = "";
    size_t used = 0;
    for (int i = 0; backend_list[i]; i++) {
        *out = backend_list[i];
        if (strcmp(backend_list[i]->name, name) == 0) return CARAT_OK;
        int n = snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                         backend_list[i]->name);
        if (n > 0 && used + (size_t)n < sizeof names) used += (size_t)n;
    }
    err_set(err, CARAT_EDEVICE, "backend \"%s\" is not in this build", name);
    err_hint(err, "this build has: %s", names);
    return CARAT_EDEVICE;
}

const struct backend *backend_default(void)
{
    int i = 0;
    while (backend_list[i + 1] && backend_list[i]->count() == 0) i++;
    return backend_list[i];
}
