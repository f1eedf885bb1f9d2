/* What a Hopper GPU gives to kernels, measured: second-level cache and prefetches into it,
 * launches, clusters, barriers, and the bits of wgmma.
 *
 *   hopper-probes [--csv FILE] [PROBE ...]     all of them take less than a minute
 *   hopper-probes --list                       their names
 *
 * Each prints a table of medians; the file gets the least and the most too. docs/benchmarks.md says
 * what came of it. */
#include <string.h>

#include "hopper/weights.h"
#include "probe.cuh"

static void probe_weights(struct probe *p)
{
    weights_run(p->stream, p->n_sm, false, p->csv);
}

static void probe_rows(struct probe *p)
{
    weights_run(p->stream, p->n_sm, true, p->csv);
}

static const struct {
    const char *name;
    void (*run)(struct probe *p);
} probes[] = {
    {"l2-read", probe_l2_read},
    {"l2-keep", probe_l2_keep},
    {"l2-issue", probe_l2_issue},
    {"launches", probe_launches},
    {"clusters", probe_clusters},
    {"wgmma-bits", probe_wgmma_bits},
    {"wgmma-rate", probe_wgmma_rate},
    {"weights", probe_weights},
    {"rows", probe_rows},
    {"step", probe_step},
    {"launched", probe_launched},
};

static bool is_chosen(const char *name, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--csv") == 0) {
            i++;
            continue;
        }
        any = true;
        if (strcmp(argv[i], name) == 0) return true;
    }
    return !any;
}

int main(int argc, char **argv)
{
    int count = 0, khz = 0, n_run = 0;
    struct probe p = {};
    struct cudaDeviceProp facts;
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (auto &probe : probes) puts(probe.name);
        return 0;
    }
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        puts("skipped: no CUDA device");
        return 0;
    }
    must(cudaGetDeviceProperties(&facts, 0), "device");
    if (facts.major != 9) {
        printf("skipped: %s is no Hopper GPU\n", facts.name);
        return 0;
    }
    must(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0), "clock");
    must(cudaStreamCreate(&p.stream), "stream");
    p.n_sm = facts.multiProcessorCount;
    p.ghz = khz / 1e6;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--csv") == 0) p.csv = fopen(argv[i + 1], "w");
    if (p.csv) fputs("probe,what,unit,median,least,most,n\n", p.csv);
    printf("%s, %d multiprocessors, L2 %.1f MB, %.2f GHz at most\n", facts.name, p.n_sm,
           facts.l2CacheSize / 1e6, p.ghz);
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        if (!is_chosen(probes[i].name, argc, argv)) continue;
        p.name = probes[i].name;
        printf("\n%s\n", p.name);
        probes[i].run(&p);
        must(cudaDeviceSynchronize(), p.name);
        fflush(stdout);
        if (p.csv) fflush(p.csv);
        n_run++;
    }
    if (p.csv) fclose(p.csv);
    if (n_run == 0) puts("no such probe");
    return n_run == 0;
}
