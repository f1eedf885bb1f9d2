#include "support/devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "carat_inspect.h"

void need_device(const char *name)
{
    for (int i = 0; backend_list[i]; i++)
        if (strcmp(backend_list[i]->name, name) == 0 && backend_list[i]->count() > 0) return;
    print_message("skipped: no %s device\n", strcmp(name, "cuda") == 0 ? "CUDA" : name);
    skip();
}

const char *forced_isa(void)
{
    const char *name = getenv("CARAT_ISA");
    struct carat_error err = {0};
    if (name && carat_isa_probe(name, &err) != CARAT_OK) {
        print_message("skipped: %s\n", err.message);
        skip();
    }
    int32_t best = 0;
    while (carat_isa_probe(carat_isa_name(best), NULL) != CARAT_OK) best++;
    if (name && strcmp(name, carat_isa_name(best)) == 0) {
        print_message("skipped: %s is taken without CARAT_ISA\n", name);
        skip();
    }
    return name;
}
