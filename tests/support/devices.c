#include "support/devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"

void need_device(const char *name)
{
    for (int i = 0; backend_list[i]; i++)
        if (strcmp(backend_list[i]->name, name) == 0 && backend_list[i]->count() > 0) return;
    print_message("skipped: no %s device\n", strcmp(name, "cuda") == 0 ? "CUDA" : name);
    skip();
}
