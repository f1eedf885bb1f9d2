/* Barriers in shared memory that count threads and bytes, and registers of warpgroups. */
#ifndef CUDA_SM90_BARRIER_CUH
#define CUDA_SM90_BARRIER_CUH

#include <stdint.h>

/* A barrier (8 bytes) passes when `arrivals` threads have arrived and the bytes that some of them
 * announced are there; then it counts anew. The parity of its passes begins with 0. */
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
/* Before TMA may see new barriers. */
__device__ __forceinline__ void barriers_show()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* One arrival, and this many bytes to come. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{ .reg .pred done; again_%=: "
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
                 "@!done bra again_%=; }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* A place in a ring and the parity of its phase. */
template <int STAGES> struct ring_place {
    int at;
    uint32_t parity;
    __device__ __forceinline__ void next()
    {
        if (++at == STAGES) at = 0, parity ^= 1;
    }
};

/* How many registers each thread of a warpgroup may have; all four warps execute this. */
template <int REGISTERS> __device__ __forceinline__ void registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#endif
