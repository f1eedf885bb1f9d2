/* What a launch costs in a chain of kernels that each wait for the one before: plain or as
 * programmatic dependents, in a graph or without one, with few or many blocks, in clusters. */
#include "probe.cuh"

#include "backend/cuda/kernels/launch.cuh"

namespace {

enum { LAUNCHES = 400, RUNS = 9, THREADS = 256, MOST_SHARED = 200 << 10 };

/* As today's kernels do it. */
__global__ void waits_then_releases(int *)
{
    grid_wait();
    grid_release();
}

/* The next kernel's blocks come while this one waits, as far as there is room. */
__global__ void releases_then_waits(int *)
{
    grid_release();
    grid_wait();
}

/* Each launch reads what the one before has written, in another multiprocessor. */
__global__ void passes_on(int *value)
{
    grid_wait();
    grid_release();
    if (threadIdx.x == 0) atomicAdd(value + (blockIdx.x + 1) % gridDim.x, 1);
}

struct shape {
    const char *name;
    void (*kernel)(int *);
    int blocks, cluster;
    int shared_bytes;
    bool is_dependent;
};

void start(struct probe *p, const shape &s, int *value)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};
    config.gridDim = dim3((unsigned)s.blocks);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = (size_t)s.shared_bytes;
    config.stream = p->stream;
    config.attrs = attributes;
    if (s.is_dependent) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (s.cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = (unsigned)s.cluster;
        attributes[config.numAttrs].val.clusterDim.y = 1;
        attributes[config.numAttrs++].val.clusterDim.z = 1;
    }
    must(cudaLaunchKernelEx(&config, s.kernel, value), s.name);
}

double stream_us(struct probe *p, const shape &s, int *value)
{
    return time_us(
               p, [] {},
               [&] {
                   for (int i = 0; i < LAUNCHES; i++) start(p, s, value);
               }) /
           LAUNCHES;
}

samples graph_us(struct probe *p, const shape &s, int *value)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    samples us;
    must(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < LAUNCHES; i++) start(p, s, value);
    must(cudaStreamEndCapture(p->stream, &graph), "capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    for (int i = -2; i < RUNS; i++) {
        double all = time_us(
            p, [] {}, [&] { must(cudaGraphLaunch(exec, p->stream), "graph"); });
        if (i >= 0) us.push_back(all / LAUNCHES);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return us;
}

} // namespace

void probe_launches(struct probe *p)
{
    const shape shapes[] = {
        {"1 block, plain", waits_then_releases, 1, 1, 0, false},
        {"1 block, wait then release", waits_then_releases, 1, 1, 0, true},
        {"1 block, release then wait", releases_then_waits, 1, 1, 0, true},
        {"1 block, wait, release, atomic add", passes_on, 1, 1, 0, true},
        {"132 blocks, plain", waits_then_releases, 132, 1, 0, false},
        {"132 blocks, wait then release", waits_then_releases, 132, 1, 0, true},
        {"132 blocks, release then wait", releases_then_waits, 132, 1, 0, true},
        {"132 blocks, wait, release, atomic add", passes_on, 132, 1, 0, true},
        {"132 blocks of 100 KB, wait then release", waits_then_releases, 132, 1, 100 << 10, true},
        {"132 blocks of 200 KB, wait then release", waits_then_releases, 132, 1, MOST_SHARED, true},
        {"132 blocks of 200 KB, release then wait", releases_then_waits, 132, 1, MOST_SHARED, true},
        {"264 blocks, wait then release", waits_then_releases, 264, 1, 0, true},
        {"1 cluster of 8, wait then release", waits_then_releases, 8, 8, 0, true},
        {"1 cluster of 16, wait then release", waits_then_releases, 16, 16, 0, true},
        {"16 clusters of 8, wait then release", waits_then_releases, 128, 8, 0, true},
        {"16 clusters of 8, plain", waits_then_releases, 128, 8, 0, false},
    };
    int *value = (int *)device_memory(1 << 20, 0);
    for (auto kernel : {waits_then_releases, releases_then_waits, passes_on}) {
        must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_SHARED),
             "shared memory");
        must(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
             "clusters of 16");
    }
    printf("us a launch, %d in a chain\n%-42s %10s %22s\n", LAUNCHES, "", "stream", "graph");
    for (const shape &s : shapes) {
        samples stream, graph;
        char what[80];
        for (int i = 0; i < RUNS; i++) stream.push_back(stream_us(p, s, value));
        graph = graph_us(p, s, value);
        printf("%-42s %10.2f %10.2f (%.2f to %.2f)\n", s.name, quantile(stream, 0.5),
               quantile(graph, 0.5), quantile(graph, 0), quantile(graph, 1));
        snprintf(what, sizeof what, "stream: %s", s.name);
        tell(p, what, "us", stream);
        snprintf(what, sizeof what, "graph: %s", s.name);
        tell(p, what, "us", graph);
    }
    cudaFree(value);
}
