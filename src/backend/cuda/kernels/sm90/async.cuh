/* Bulk copies that arrive at barriers, and clusters of blocks. */
#ifndef CUDA_SM90_ASYNC_CUH
#define CUDA_SM90_ASYNC_CUH

#include <stdint.h>

#include "backend/cuda/kernels/sm90/barrier.cuh"

/* Makes initial values visible to bulk copies and to the other blocks of the cluster. */
__device__ __forceinline__ void barriers_ready()
{
    barriers_show();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* An arrival of this thread once all its cp.async so far are done. */
__device__ __forceinline__ void barrier_arrive_after_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/* barrier_wait for arrivals from other blocks of the cluster. */
__device__ __forceinline__ void barrier_wait_cluster(uint32_t barrier, uint32_t parity)
{
    asm volatile(
        "{ .reg .pred p;\n\t"
        "again%=: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n\t"
        "@!p bra again%=; }" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
/* `barrier` as cluster_address gives it. */
__device__ __forceinline__ void barrier_arrive_cluster(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}

/* `bytes` (a multiple of 16) from global to shared memory, counted by `barrier`. */
__device__ __forceinline__ void copy_bulk(uint32_t shared, const void *global, uint32_t bytes,
                                          uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* ---- Clusters: all threads of all blocks take part ------------------------------------------- */

__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
/* The same place in the shared memory of block `rank`. */
__device__ __forceinline__ uint32_t cluster_address(uint32_t shared, uint32_t rank)
{
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
    return address;
}
__device__ __forceinline__ float4 cluster_load4(uint32_t address)
{
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}
__device__ __forceinline__ void cluster_store(uint32_t address, float x)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
__device__ __forceinline__ void cluster_store4(uint32_t address, float4 x)
{
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x.x),
                 "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}

#endif
