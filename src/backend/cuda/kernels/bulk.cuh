/* Bulk copies into shared memory and the barriers that count their bytes, for kernels that are
 * compiled for all chips: before Hopper they are traps, and what needs them is not launched. */
#ifndef CUDA_BULK_CUH
#define CUDA_BULK_CUH

#include "backend/cuda/kernels/instructions.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BULK_ASM(...) asm volatile(__VA_ARGS__)
#else
#define BULK_ASM(...) __trap()
#endif

/* A phase ends when `arrivals` threads have arrived and all announced bytes are there. */
__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    BULK_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
             : "memory");
}

/* Makes initial values visible to bulk copies. */
__device__ __forceinline__ void barriers_ready()
{
    BULK_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    BULK_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and announces bytes. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    BULK_ASM(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

/* Until the phase with this parity (0, 1, 0 ...) has ended. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    BULK_ASM("{ .reg .pred p;\n\t"
             "again%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
             "@!p bra again%=; }" ::"r"(shared_address(barrier)),
             "r"(parity)
             : "memory");
}

/* `bytes`, a multiple of 16, to shared memory, counted by `barrier`. */
__device__ __forceinline__ void copy_bulk(void *shared, const void *global, uint32_t bytes,
                                          uint64_t *barrier)
{
    BULK_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
             "[%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
             "l"(global), "r"(bytes), "r"(shared_address(barrier))
             : "memory");
}

#endif
