/* What the probes share: memory on the device, timing, medians, and rows of results. */
#ifndef BENCH_HOPPER_PROBE_CUH
#define BENCH_HOPPER_PROBE_CUH

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <vector>

#include <cuda_runtime.h>

struct probe {
    cudaStream_t stream;
    int n_sm;
    double ghz; /* of multiprocessors, at most */
    FILE *csv;  /* NULL: not wanted */
    const char *name;
};

typedef std::vector<double> samples;

void probe_l2_read(struct probe *p);
void probe_l2_keep(struct probe *p);
void probe_l2_issue(struct probe *p);
void probe_launches(struct probe *p);
void probe_clusters(struct probe *p);
void probe_wgmma_bits(struct probe *p);
void probe_wgmma_rate(struct probe *p);
void probe_step(struct probe *p);
void probe_launched(struct probe *p);

/* A probe that lost its device has nothing more to say. */
static inline void must(cudaError_t status, const char *what)
{
    if (status == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(status));
    fflush(stdout);
    exit(1);
}

static inline char *device_memory(size_t bytes, int value)
{
    char *memory;
    must(cudaMalloc((void **)&memory, bytes), "memory");
    must(cudaMemset(memory, value, bytes), "memory");
    return memory;
}

/* `share` 0: the least, 0.5: the median, 1: the most. */
static inline double quantile(samples s, double share)
{
    if (s.empty()) return 0;
    std::sort(s.begin(), s.end());
    return s[(size_t)(share * (double)(s.size() - 1) + 0.5)];
}

/* Microseconds that the device takes for what `launch` puts on the stream after `before`. */
template <typename Before, typename Launch>
static double time_us(struct probe *p, Before before, Launch launch)
{
    float ms = 0;
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    before();
    must(cudaEventRecord(begin, p->stream), "event");
    launch();
    must(cudaEventRecord(end, p->stream), "event");
    must(cudaEventSynchronize(end), "launch");
    must(cudaGetLastError(), "launch");
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms * 1e3;
}

/* One row of results: the median with the least and the most, to the file. */
static inline void tell(struct probe *p, const char *what, const char *unit, const samples &s)
{
    if (!p->csv) return;
    fprintf(p->csv, "%s,", p->name);
    for (; *what; what++) fputc(*what == ',' ? ';' : *what, p->csv);
    fprintf(p->csv, ",%s,%.6g,%.6g,%.6g,%zu\n", unit, quantile(s, 0.5), quantile(s, 0),
            quantile(s, 1), s.size());
}

static inline void tell_one(struct probe *p, const char *what, const char *unit, double value)
{
    tell(p, what, unit, samples(1, value));
}

static __device__ __forceinline__ uint64_t device_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __device__ __forceinline__ int sm_id()
{
    int id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

#endif
