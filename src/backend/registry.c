#include <string.h>

#include "backend/backend.h"
#include "backend/ref/ref.h"

const struct backend *const backend_list[] = {&ref_backend, NULL};

int backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    char names[128] = "";
    for (int i = 0; backend_list[i]; i++) {
        *out = backend_list[i];
        if (strcmp(backend_list[i]->name, name) == 0) return CARAT_OK;
        if (strlen(names) + strlen(backend_list[i]->name) + 3 < sizeof names) {
            if (i) strcat(names, ", ");
            strcat(names, backend_list[i]->name);
        }
    }
    err_set(err, CARAT_EDEVICE, "backend \"%s\" is not in this build", name);
    err_hint(err, "this build has: %s", names);
    return CARAT_EDEVICE;
}
