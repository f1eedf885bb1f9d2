/* Instructions of Hopper for attention of prompts: TMA, wgmma. */
#ifndef CUDA_SM90_ATTENTION_INSTRUCTIONS_CUH
#define CUDA_SM90_ATTENTION_INSTRUCTIONS_CUH

#include <cuda.h>
#include <stdint.h>

#include "backend/cuda/kernels/sm90/barrier.cuh"
#include "backend/cuda/kernels/sm90/wgmma_groups.cuh"

/* THREADS of the block meet. */
template <int THREADS> __device__ __forceinline__ void meet(int number)
{
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
}

/* Makes what this thread wrote to shared memory visible to TMA and wgmma. */
__device__ __forceinline__ void show_to_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- TMA ------------------------------------------------------------------------------------- */

/* A box of a tensor of five dimensions, at column 0; the barrier counts its bytes. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                                         int c1, int c2, int c3, int c4)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

/* ---- wgmma ----------------------------------------------------------------------------------- */

/* Operands in rows of 128 bytes, swizzled; eight rows are 1024 bytes. `along`: bytes from 64
 * columns to the next 64, where the columns are not the sum's index. */
__device__ __forceinline__ uint64_t operand(uint32_t shared, uint32_t along)
{
    return (uint64_t)(shared >> 4 & 0x3fff) | (uint64_t)(along >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* d [64][64] += a [64][16] b [64][16]': both with the sum's index along their rows. Registers:
 * d[4j], d[4j + 1] are row 16 warp + lane / 4, columns 8j + 2 (lane % 4) and the next one;
 * d[4j + 2], d[4j + 3] are the row 8 further. */
__device__ __forceinline__ void product_64(float (&d)[32], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" OUT_32
                 "}, %32, %33, 1, 1, 1, 0, 0;"
                 : SUMS_32
                 : "l"(a), "l"(b));
}

/* d [64][256] += a [64][16] b [16][256]: rows of b are indexed by the sum's index. */
__device__ __forceinline__ void product_256(float (&d)[128], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" OUT_128
                 "}, %128, %129, 1, 1, 1, 0, 1;"
                 : SUMS_128
                 : "l"(a), "l"(b));
}

/* The same with a in registers, as mma.sync has its A. */
__device__ __forceinline__ void product_256(float (&d)[128], const uint32_t (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" OUT_128
                 "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
                 : SUMS_128
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void store_shared2(uint32_t shared, uint32_t a, uint32_t b)
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(shared), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ uint4 load_shared4(uint32_t shared)
{
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(shared)
                 : "memory");
    return x;
}

/* Four 8 x 8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void store_matrices(uint32_t shared, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

#endif
