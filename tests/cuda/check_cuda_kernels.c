/* Runs the checks of GPU kernels: check-cuda-kernels [--perf | --small | --list] [--own]
 * [--hot] [family ...].
 * Without a GPU it says so and ends with success, because there is nothing to check. */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cuda/check.h"

struct family {
    const char *name;
    void (*run)(struct check *c);
};

static const struct family families[] = {
#define X(name) {#name, check_##name},
    CHECK_LIST(X)
#undef X
};

static bool is_chosen(const char *name, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        any = true;
        if (strcmp(argv[i], name) == 0) return true;
    }
    return !any;
}

/* The names of the families, one a line. */
static void list(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) puts(families[i].name);
}

int main(int argc, char **argv)
{
    int count = 0, failed = 0, n_run = 0;
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        list();
        return 0;
    }
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        puts("skipped: no CUDA device");
        return 0;
    }
    struct check c = {0};
    struct cudaDeviceProp facts;
    cudaGetDeviceProperties(&facts, 0);
    cudaStreamCreate(&c.queue.stream);
    c.queue.n_sm = facts.multiProcessorCount;
    c.queue.capability = facts.major * 10 + facts.minor;
    c.queue.has_dependent_launch = facts.major >= 9;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--perf") == 0) c.is_perf = true;
        if (strcmp(argv[i], "--small") == 0) c.is_small = true;
        if (strcmp(argv[i], "--own") == 0) c.is_own = true;
        if (strcmp(argv[i], "--hot") == 0) c.is_hot = true;
        if (strcmp(argv[i], "--plain-launch") == 0) c.queue.has_dependent_launch = false;
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (!is_chosen(families[i].name, argc, argv)) continue;
        c.n_cases = c.n_failed = 0;
        n_run++;
        families[i].run(&c);
        cudaError_t error = cudaStreamSynchronize(c.queue.stream);
        if (!error) error = cudaGetLastError();
        if (error) printf("%s: %s\n", families[i].name, cudaGetErrorString(error));
        printf("%-18s %5d cases, %d failed\n", families[i].name, c.n_cases, c.n_failed);
        fflush(stdout);
        failed += c.n_failed || error || c.n_cases == 0;
        if (error) break;
    }
    if (n_run == 0) puts("no such family: see --list");
    return failed != 0 || n_run == 0;
}
