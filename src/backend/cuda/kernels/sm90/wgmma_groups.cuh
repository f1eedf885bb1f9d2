/* The order of wgmma: products of a warpgroup are committed in groups, and waited for by group. */
#ifndef CUDA_SM90_WGMMA_GROUPS_CUH
#define CUDA_SM90_WGMMA_GROUPS_CUH

/* Before the first wgmma that reads registers which other instructions wrote. */
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most PENDING groups are not done. */
template <int PENDING> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#endif
