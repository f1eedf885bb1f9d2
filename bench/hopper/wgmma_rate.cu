/* How long a tile of 64 x 64 weights takes: four steps of wgmma with operand A in registers or in
 * shared memory, or of mma.sync, for N = 8 to 128 and one to four teams of four warps.
 *
 * Nothing is loaded and no sum is read in between, so this is what the tensor cores allow. */
#include "probe.cuh"
#include "wgmma.cuh"

#include "backend/cuda/kernels/instructions.cuh"

namespace {

enum { TILES = 256, TEAM = 128, STEPS = 4, LAUNCHES = 5 };

enum way { REGISTERS, SHARED, MMA };
const char *const way_names[] = {"wgmma, A in registers", "wgmma, A in shared memory", "mma.sync"};

__device__ __forceinline__ void commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> __device__ __forceinline__ void wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

template <int N> __device__ __forceinline__ void add_mma(float *d, const uint32_t (&a)[4])
{
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float sums[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
        mma_f16(sums, a, a[j % 4], a[(j + 1) % 4]);
        for (int i = 0; i < 4; i++) d[4 * j + i] = sums[i];
    }
}

/* One tile; `a`: what registers hold of it, which nothing changes. */
template <int N, way WAY>
__device__ __forceinline__ void multiply(float (&d)[N / 2], const uint32_t (&a)[STEPS][4],
                                         uint32_t shared)
{
    if (WAY != MMA) wgmma_fence();
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        uint64_t b = core_descriptor(shared + i * 4096);
        if constexpr (WAY == REGISTERS)
            wgmma<N>::add(d, a[i], b);
        else if constexpr (WAY == SHARED)
            wgmma<N>::add(d, core_descriptor(shared + 16384 + i * 2048), b);
        else
            add_mma<N>(d, a[i]);
    }
    if (WAY != MMA) commit(), wait<1>();
}

template <int N, way WAY>
__global__ void __launch_bounds__(512) tiles(float *out, long long *clocks)
{
    __shared__ __align__(128) char memory[32768];
    uint32_t a[STEPS][4];
    float d[N / 2] = {}, sum = 0;
    for (int i = 0; i < STEPS * 4; i++) a[i / 4][i % 4] = (threadIdx.x * 77 + i) & 0x03ff03ff;
    for (uint32_t i = threadIdx.x; i < sizeof memory / 4; i += blockDim.x) ((int *)memory)[i] = 0;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    long long begin = clock64();
#pragma unroll 1
    for (int i = 0; i < TILES; i++) multiply<N, WAY>(d, a, shared_address(memory));
    if (WAY != MMA) wait<0>();
    __syncthreads();
    if (threadIdx.x == 0) clocks[blockIdx.x] = clock64() - begin;
    for (int i = 0; i < N / 2; i++) sum += d[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/* Clocks of a multiprocessor for a tile of each team. */
template <int N, way WAY> double clocks_of(struct probe *p, int teams)
{
    float *out = (float *)device_memory(sizeof(float) * 512 * p->n_sm, 0);
    long long *clocks = (long long *)device_memory(sizeof(long long) * p->n_sm, 0);
    std::vector<long long> found(p->n_sm);
    samples all;
    for (int i = 0; i < LAUNCHES; i++) {
        tiles<N, WAY><<<p->n_sm, teams * TEAM, 0, p->stream>>>(out, clocks);
        must(cudaMemcpyAsync(found.data(), clocks, sizeof(long long) * p->n_sm,
                             cudaMemcpyDeviceToHost, p->stream),
             "clocks");
        must(cudaStreamSynchronize(p->stream), "tiles");
        for (long long c : found) all.push_back((double)c / TILES);
    }
    char what[96];
    snprintf(what, sizeof what, "%s, N = %d, %d teams", way_names[WAY], N, teams);
    tell(p, what, "clocks", all);
    cudaFree(out), cudaFree(clocks);
    return quantile(all, 0.5);
}

template <int N, way WAY> void row(struct probe *p)
{
    printf("  %-26s N = %3d", way_names[WAY], N);
    for (int teams = 1; teams <= 4; teams++) printf("  %6.0f", clocks_of<N, WAY>(p, teams));
    puts("");
}

template <way WAY> void rows(struct probe *p)
{
    row<8, WAY>(p), row<16, WAY>(p), row<32, WAY>(p), row<64, WAY>(p), row<128, WAY>(p);
}

} // namespace

void probe_wgmma_rate(struct probe *p)
{
    puts("  clocks for a tile of 64 x 64 weights each of 1, 2, 3 and 4 teams");
    rows<REGISTERS>(p), rows<SHARED>(p), rows<MMA>(p);
}
