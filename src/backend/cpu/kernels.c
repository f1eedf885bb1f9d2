#include "backend/cpu/kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Asks the processor itself: clang's built-in test does not know the name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

/* Measured with a few rows at a time (docs/benchmarks.md). A Zen 5 prefetches eight bits fast
 * enough by itself, and asking only slows it down. A Sapphire Rapids has to be asked always, and
 * decodes half as fast when the second-level cache is left out. */
enum read_ahead cpu_read_ahead(enum format format)
{
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd")) return format == FORMAT_Q8_0 ? AHEAD_NONE : AHEAD_ONCE;
#endif
    (void)format;
    return AHEAD_BY_LEVEL;
}

static bool always(void)
{
    return true;
}

static const struct {
    const struct cpu_kernels *kernels;
    bool (*runs_here)(void);
} choices[] = {
/* best first */
#if defined(__x86_64__)
    {&cpu_kernels_avx512, has_avx512},
    {&cpu_kernels_avx2, has_avx2},
#elif defined(__aarch64__)
    {&cpu_kernels_neon, always},
#endif
    {&cpu_kernels_plain, always},
};

const struct cpu_kernels *cpu_kernels_named(const char *name)
{
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if ((!name || strcmp(choices[i].kernels->name, name) == 0) && choices[i].runs_here())
            return choices[i].kernels;
    return NULL;
}

const struct cpu_kernels *cpu_kernels_best(void)
{
    return cpu_kernels_named(NULL);
}
