/* Linked with --wrap=cpu_kernels_find: whichever kernels are asked for, those are found that
 * multiply rows of prompts in bf16, on registers of AMX in plain C. */
#include "backend/cpu/kernels.h"

extern const struct cpu_kernels cpu_kernels_amx_over_plain;
int __wrap_cpu_kernels_find(const struct cpu_kernels **out, const char *name,
                            struct carat_error *err);

int __wrap_cpu_kernels_find(const struct cpu_kernels **out, const char *name,
                            struct carat_error *err)
{
    (void)name, (void)err;
    *out = &cpu_kernels_amx_over_plain;
    return CARAT_OK;
}
