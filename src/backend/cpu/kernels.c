#include "backend/cpu/kernels.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Each *_problem function returns why a set cannot run here, or NULL. The compiler's test also
 * checks that the system saves the registers. */
#define NEEDS(feature)                                                                             \
    if (!__builtin_cpu_supports(feature)) return "this processor has no " feature

static const char *avx2_problem(void)
{
    unsigned a, b, c, d;
    NEEDS("avx2");
    NEEDS("fma");
    /* Asks the processor itself: clang's built-in test does not know the name. */
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C)) return "this processor has no f16c";
    return NULL;
}

#if CARAT_HAVE_AVXVNNI
static const char *avxvnni_problem(void)
{
    const char *problem = avx2_problem();
    unsigned a, b, c, d;
    if (problem) return problem;
    bool has_more = __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1; /* a: the last subleaf */
    if (!has_more || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a >> 4 & 1))
        return "this processor has no avx_vnni";
    return NULL;
}
#endif

static const char *avx512_problem(void)
{
    NEEDS("avx512f");
    NEEDS("avx512bw");
    NEEDS("avx512dq");
    NEEDS("avx512vl");
    NEEDS("avx512vnni");
    return NULL;
}

#if CARAT_HAVE_AMX
/* The system keeps the 8 KB of tile registers only for programs that ask for them. */
static const char *amx_problem(void)
{
    enum { TILE = 1 << 24, BF16 = 1 << 22, AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d;
    const char *problem = avx512_problem();
    if (problem) return problem;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & TILE)) return "this processor has no amx";
    if (!(d & BF16)) return "this processor has no amx_bf16";
    if (a < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & AVX512_BF16))
        return "this processor has no avx512_bf16";
    return os_permit_amx() ? NULL : "the system does not permit it; Linux 5.16 or later may";
}
#endif
#endif

#if defined(__aarch64__)
#include <sys/auxv.h>

static const char *neon_problem(void)
{
    enum { HAS_DOT_PRODUCT = 1 << 20 }; /* HWCAP_ASIMDDP */
    return getauxval(AT_HWCAP) & HAS_DOT_PRODUCT ? NULL : "this processor has no asimddp";
}

#if CARAT_HAVE_I8MM
static const char *i8mm_problem(void)
{
    enum { HAS_MATRICES = 1 << 13 };      /* HWCAP2_I8MM */
    const char *problem = neon_problem(); /* a few rows take dot products */
    if (problem) return problem;
    return getauxval(AT_HWCAP2) & HAS_MATRICES ? NULL : "this processor has no i8mm";
}
#endif
#endif

#if defined(__x86_64__)
/* Zen 3 and Zen 4. */
static bool is_family_19h(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & 15) == 15 && (a >> 20 & 255) == 0x19 - 15;
}
#endif

/* Measured with a few rows at a time (docs/benchmarks.md). With AVX-512, a Zen 4 and a Zen 5
 * prefetch 8-bit weights fast enough by themselves; with slower kernels they do not. Otherwise a
 * core of family 19h is fastest if kernels prefetch early into both levels. A Sapphire Rapids
 * always needs prefetching, and decodes half as fast when the second-level cache is left out. */
enum read_ahead cpu_read_ahead(const struct cpu_kernels *kernels, enum format format)
{
#if defined(__x86_64__)
    const bool is_avx512 = kernels == &cpu_kernels_avx512;
    if (__builtin_cpu_is("amd") && format == FORMAT_Q8_0 && is_avx512) return AHEAD_NONE;
    if (__builtin_cpu_is("amd")) return is_family_19h() ? AHEAD_FAR : AHEAD_ONCE;
#endif
    (void)kernels;
    (void)format;
    return AHEAD_BY_LEVEL;
}

static const char *no_problem(void)
{
    return NULL;
}

#if defined(__x86_64__) && !(CARAT_HAVE_AMX && CARAT_HAVE_AVXVNNI) ||                              \
    defined(__aarch64__) && !CARAT_HAVE_I8MM
static const char *not_built(void)
{
    return "carat was built by a compiler that does not know it";
}

#if defined(__aarch64__)
static const struct cpu_kernels no_i8mm = {.name = "i8mm"};
#elif !CARAT_HAVE_AMX
static const struct cpu_kernels no_amx = {.name = "amx"};
#endif
#if defined(__x86_64__) && !CARAT_HAVE_AVXVNNI
static const struct cpu_kernels no_avxvnni = {.name = "avxvnni"};
#endif
#endif

static const struct {
    const struct cpu_kernels *kernels;
    const char *(*problem)(void); /* why this machine cannot run them, or NULL */
} sets[] = {
/* The first that runs is taken. */
#if defined(__x86_64__)
#if CARAT_HAVE_AMX
    {&cpu_kernels_amx, amx_problem},
#else
    {&no_amx, not_built},
#endif
    {&cpu_kernels_avx512, avx512_problem},
#if CARAT_HAVE_AVXVNNI
    {&cpu_kernels_avxvnni, avxvnni_problem},
#else
    {&no_avxvnni, not_built},
#endif
    {&cpu_kernels_avx2, avx2_problem},
#elif defined(__aarch64__)
#if CARAT_HAVE_I8MM
    {&cpu_kernels_i8mm, i8mm_problem},
#else
    {&no_i8mm, not_built},
#endif
    {&cpu_kernels_neon, neon_problem},
    {&cpu_kernels_asimd, no_problem},
#endif
    {&cpu_kernels_plain, no_problem},
};
enum { SETS = sizeof sets / sizeof *sets };

const char *cpu_isa_name(int index)
{
    return index >= 0 && index < SETS ? sets[index].kernels->name : NULL;
}

/* "avx512, avx2, plain" */
static void add_hint(struct carat_error *err)
{
    char names[128] = "";
    size_t used = 0;
    for (int i = 0; i < SETS; i++) {
        if (sets[i].problem()) continue;
        int n = snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                         sets[i].kernels->name);
        if (n > 0 && used + (size_t)n < sizeof names) used += (size_t)n;
    }
    err_hint(err, "this machine runs: %s", names);
}

int cpu_kernels_find(const struct cpu_kernels **out, const char *name, struct carat_error *err)
{
    bool is_best = !name || strcmp(name, "auto") == 0;
    const char *problem = "this build has no such instruction set";
    for (int i = 0; i < SETS; i++) {
        if (!is_best && strcmp(sets[i].kernels->name, name) != 0) continue;
        *out = sets[i].kernels;
        problem = sets[i].problem();
        if (!problem) return CARAT_OK;
        if (!is_best) break;
    }
    err_set(err, CARAT_EUSAGE, "isa %.32s: %s", name ? name : "auto", problem);
    add_hint(err);
    return CARAT_EUSAGE;
}
