/* A policy of L2, and what reads under it. A step reads the whole model before it reads a weight
 * again, so lines of weights are the first to leave; the vectors of norms, caches, code and what a
 * step writes stay instead (H200: E4B decodes 5 % faster). Chips before Hopper have no policy here:
 * it was not measured there. */
#ifndef CUDA_POLICY_CUH
#define CUDA_POLICY_CUH

#include "backend/cuda/kernels/instructions.cuh"

struct l2_policy {
    uint64_t bits;
};
__device__ __forceinline__ struct l2_policy policy_of(bool is_read_once)
{
    struct l2_policy policy = {0};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (is_read_once)
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy.bits));
    else
        asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy.bits));
#endif
    return policy;
}

/* 16 bytes past L1, under a policy. */
__device__ __forceinline__ void copy16_under(struct l2_policy policy, uint32_t shared,
                                             const void *global)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(global), "l"(policy.bits)
                 : "memory");
#else
    (void)policy;
    copy16(shared, global);
#endif
}

/* load_once4 under a policy. */
__device__ __forceinline__ uint4 load_once4_under(struct l2_policy policy, const void *p)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "l"(policy.bits));
    return v;
#else
    (void)policy;
    return load_once4(p);
#endif
}

#endif
