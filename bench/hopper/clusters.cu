/* What blocks of a cluster pay to meet and to read each other's shared memory, and what the whole
 * grid pays to meet. */
#include "probe.cuh"

namespace {

enum { THREADS = 256, SHARED_BYTES = 64 << 10, RUNS = 7, ROUNDS = 2000, MOST_SHARED = 200 << 10 };

__device__ __forceinline__ void cluster_meet()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

__device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ uint32_t cluster_size()
{
    uint32_t size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

/* The address of the same place in another block's shared memory. */
__device__ __forceinline__ uint32_t address_in(const void *p, uint32_t rank)
{
    uint32_t own = (uint32_t)__cvta_generic_to_shared(p), other;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
    return other;
}

__global__ void __launch_bounds__(THREADS) meet(int rounds, uint32_t *)
{
    cluster_meet();
    for (int i = 0; i < rounds; i++) cluster_meet();
}

/* Each thread gives four bytes to the next block before all meet: an exchange of partial sums. */
__global__ void __launch_bounds__(THREADS) give_and_meet(int rounds, uint32_t *out)
{
    __shared__ uint32_t box[2][THREADS];
    uint32_t next = (cluster_rank() + 1) % cluster_size(), value = threadIdx.x;
    box[0][threadIdx.x] = box[1][threadIdx.x] = 0;
    cluster_meet();
    for (int i = 0; i < rounds; i++) {
        asm volatile(
            "st.shared::cluster.u32 [%0], %1;" ::"r"(address_in(&box[i % 2][threadIdx.x], next)),
            "r"(value)
            : "memory");
        cluster_meet();
        value += box[i % 2][threadIdx.x];
    }
    if (value == 0x12345678) *out = value;
    cluster_meet(); /* nobody leaves while others still write here */
}

/* One thread walks through another block's memory, each load giving the place of the next one.
 * rank 0 only; `far`: blocks further; 0: its own memory by the same instruction. */
__global__ void __launch_bounds__(THREADS) walk(int rounds, uint32_t *out, uint32_t far)
{
    __shared__ uint32_t next[1024];
    for (uint32_t i = threadIdx.x; i < 1024; i += THREADS) next[i] = (i + 33) % 1024 * 4;
    cluster_meet();
    if (cluster_rank() == 0 && threadIdx.x == 0) {
        uint32_t base = address_in(next, far), at = 0;
        for (int i = 0; i < rounds; i++)
            asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(at) : "r"(base + at) : "memory");
        if (at == 0x12345678) *out = at;
    }
    cluster_meet();
}

/* All threads read the memory of the block `far` further, 16 bytes a load. */
__global__ void __launch_bounds__(THREADS) read_other(int rounds, uint32_t *out, uint32_t far)
{
    extern __shared__ uint4 memory[];
    for (int i = threadIdx.x; i < SHARED_BYTES / 16; i += THREADS)
        memory[i] = make_uint4(i, i, i, i);
    cluster_meet();
    uint32_t base = address_in(memory, (cluster_rank() + far) % cluster_size()), sum = 0;
    for (int i = 0; i < rounds; i++)
#pragma unroll 8
        for (int j = 0; j < SHARED_BYTES / 16; j += THREADS) {
            uint4 v;
            asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(base + (j + threadIdx.x) * 16)
                         : "memory");
            sum ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    if (sum == 0x12345678) *out = sum;
    cluster_meet();
}

/* All blocks of the grid; they must all be resident. `arrived` is 0 before. */
__global__ void __launch_bounds__(THREADS) grid_meet(int rounds, uint32_t *arrived)
{
    for (int i = 1; i <= rounds; i++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t seen, goal = (uint32_t)i * gridDim.x;
            asm volatile("red.add.release.gpu.global.u32 [%0], 1;" ::"l"(arrived) : "memory");
            do
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(seen)
                             : "l"(arrived)
                             : "memory");
            while (seen < goal);
        }
        __syncthreads();
    }
}

template <typename... Params, typename... Args>
cudaError_t start(struct probe *p, void (*kernel)(Params...), int blocks, int cluster,
                  size_t shared, Args... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = shared;
    config.stream = p->stream;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = cluster > 1 ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

/* Nanoseconds of a round, from launches with many and with few. */
template <typename Launch> samples round_ns(struct probe *p, Launch launch)
{
    samples ns;
    must(launch(10), "launch");
    for (int i = 0; i < RUNS; i++) {
        double few = time_us(
            p, [] {}, [&] { must(launch(ROUNDS / 10), "launch"); });
        double many = time_us(
            p, [] {}, [&] { must(launch(ROUNDS), "launch"); });
        ns.push_back((many - few) * 1e3 / (ROUNDS - ROUNDS / 10));
    }
    return ns;
}

void print_row(struct probe *p, const char *what, const char *unit, const samples &s)
{
    printf("%-56s %9.1f %s (%.1f to %.1f)\n", what, quantile(s, 0.5), unit, quantile(s, 0),
           quantile(s, 1));
    tell(p, what, unit, s);
}

template <typename Kernel> int clusters_at_once(Kernel *kernel, int cluster, size_t shared)
{
    int n = 0;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = dim3((unsigned)cluster);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = shared;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess) cudaGetLastError();
    return n;
}

void probe_size(struct probe *p, int cluster, uint32_t *out)
{
    char what[96];
    int most = clusters_at_once(read_other, cluster, MOST_SHARED);
    snprintf(what, sizeof what, "clusters of %d with 200 KB a block at once", cluster);
    print_row(p, what, "", samples(1, most));
    snprintf(what, sizeof what, "barrier of one cluster of %d", cluster);
    print_row(p, what, "ns", round_ns(p, [&](int rounds) {
                  return start(p, meet, cluster, cluster, 0, rounds, out);
              }));
    snprintf(what, sizeof what, "store into the next block and barrier of %d", cluster);
    print_row(p, what, "ns", round_ns(p, [&](int rounds) {
                  return start(p, give_and_meet, cluster, cluster, 0, rounds, out);
              }));
    for (uint32_t far = 0; far < (uint32_t)cluster; far = far ? far * 2 : 1) {
        snprintf(what, sizeof what, "load from block %u of %d", far, cluster);
        print_row(p, what, "ns", round_ns(p, [&](int rounds) {
                      return start(p, walk, cluster, cluster, 0, rounds, out, far);
                  }));
    }
    for (uint32_t far = 0; far < 2 && most > 0; far++) {
        samples ns = round_ns(p, [&](int rounds) {
            return start(p, read_other, most * cluster, cluster, MOST_SHARED, rounds / 10, out,
                         far);
        });
        samples rate;
        for (double t : ns) rate.push_back(SHARED_BYTES / (t * 10));
        snprintf(what, sizeof what, "%s read by each of %d blocks, clusters of %d",
                 far ? "next block's memory" : "own memory", most * cluster, cluster);
        print_row(p, what, "GB/s", rate);
    }
}

} // namespace

void probe_clusters(struct probe *p)
{
    uint32_t *out = (uint32_t *)device_memory(256, 0);
    must(cudaFuncSetAttribute(read_other, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_SHARED),
         "shared memory");
    must(cudaFuncSetAttribute(read_other, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "16");
    must(cudaFuncSetAttribute(meet, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "16");
    must(cudaFuncSetAttribute(give_and_meet, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
         "16");
    must(cudaFuncSetAttribute(walk, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "16");
    for (int cluster = 2; cluster <= 16; cluster *= 2) probe_size(p, cluster, out);
    for (int blocks : {8, 16, 132}) {
        char what[64];
        snprintf(what, sizeof what, "barrier of a grid of %d blocks", blocks);
        print_row(p, what, "ns", round_ns(p, [&](int rounds) {
                      cudaMemsetAsync(out, 0, sizeof *out, p->stream);
                      return start(p, grid_meet, blocks, 1, 0, rounds, out);
                  }));
    }
    cudaFree(out);
}
