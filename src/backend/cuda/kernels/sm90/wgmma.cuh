/* wgmma m64nNk16: fp16 in, fp32 sums; A in registers, B in shared memory, where its 8 x 8 core
 * matrices of 128 bytes (a row of 8 columns of K is 16 bytes) lie without a swizzle.
 *
 * A, of the lane with g = lane / 4 and t = lane % 4: a[0] is row g of the warp's 16 and columns 2t,
 * 2t + 1; a[1] row g + 8; a[2] and a[3] the same rows and columns 2t + 8, 2t + 9. Sums: d[4i],
 * d[4i + 1] are row g and columns 8i + 2t, 8i + 2t + 1; d[4i + 2], d[4i + 3] row g + 8.
 * The bits of a sum do not depend on N. */
#ifndef CUDA_SM90_WGMMA_CUH
#define CUDA_SM90_WGMMA_CUH

#include <stdint.h>

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/sm90/wgmma_groups.cuh"

enum { CORE_BYTES = 128 };

/* The descriptor of B; along_k, along_rows: bytes to the next core matrix in these directions. */
__device__ __forceinline__ uint64_t core_descriptor(uint32_t shared, uint32_t along_k,
                                                    uint32_t along_rows)
{
    return (uint64_t)(shared >> 4 & 0x3fff) | (uint64_t)(along_k >> 4) << 16 |
           (uint64_t)(along_rows >> 4) << 32;
}

/* d += a b; d has N / 2 values. */
template <int N> struct wgmma;

/* n: columns; sums: registers of d; A, B ...: the operands that follow them. */
#define WGMMA(n, sums, A, B, C, D, E)                                                              \
    template <> struct wgmma<n> {                                                                  \
        static __device__ __forceinline__ void add(float (&d)[sums], const uint32_t *a,            \
                                                   uint64_t b)                                     \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 "                 \
                         "{" OUT_##sums "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E            \
                                        ", 1, 1, 1, 0;"                                            \
                         : SUMS_##sums                                                             \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
        }                                                                                          \
    };
WGMMA(8, 4, 4, 5, 6, 7, 8)
WGMMA(16, 8, 8, 9, 10, 11, 12)
WGMMA(32, 16, 16, 17, 18, 19, 20)
WGMMA(48, 24, 24, 25, 26, 27, 28)
WGMMA(64, 32, 32, 33, 34, 35, 36)
WGMMA(80, 40, 40, 41, 42, 43, 44)
WGMMA(96, 48, 48, 49, 50, 51, 52)
WGMMA(112, 56, 56, 57, 58, 59, 60)
WGMMA(128, 64, 64, 65, 66, 67, 68)
WGMMA(144, 72, 72, 73, 74, 75, 76)
WGMMA(160, 80, 80, 81, 82, 83, 84)
#undef WGMMA

#endif
