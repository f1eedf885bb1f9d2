/* Boxes of a matrix that TMA copies, and wgmma from shared memory. */
#ifndef CUDA_SM90_TENSOR_CUH
#define CUDA_SM90_TENSOR_CUH

#include <cuda.h>
#include <stdint.h>

#include "backend/cuda/kernels/sm90/barrier.cuh"
#include "backend/cuda/kernels/sm90/wgmma_groups.cuh"

/* ---- TMA ------------------------------------------------------------------------------------- */

/* The map's box at (column, row), what is outside the matrix as zeros; `barrier` counts its
 * bytes. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, int col, int row,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(col), "r"(row), "r"(barrier)
                 : "memory");
}

/* ---- wgmma ----------------------------------------------------------------------------------- */

/* An operand as TMA lays it out with the swizzle of 128 bytes: rows of 64 values, eight of them in
 * 1024 bytes from a multiple of 1024 on. The next 16 columns are OPERAND_STEP further. */
enum { OPERAND_STEP = 32 >> 4 };
__device__ __forceinline__ uint64_t operand_at(uint32_t shared)
{
    return (uint64_t)(shared >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* d = a b, or d += a b with `is_sum`; a: 64 x 16, b: N x 16. d[4j], d[4j + 1] are row
 * 16 warp + lane / 4, columns 8j + 2 (lane % 4) and the next; d[4j + 2], d[4j + 3] the row 8
 * further. */
template <int N> struct wgmma_shared;

/* n: columns; sums: registers of d; A, B, C: the operands that follow them. */
#define WGMMA_SHARED(n, sums, A, B, C)                                                             \
    template <> struct wgmma_shared<n> {                                                           \
        static __device__ __forceinline__ void add(float (&d)[sums], uint64_t a, uint64_t b,       \
                                                   int is_sum)                                     \
        {                                                                                          \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #C ", 0; "                             \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 "                 \
                         "{" OUT_##sums "}, %" #A ", %" #B ", p, 1, 1, 0, 0; }"                    \
                         : SUMS_##sums                                                             \
                         : "l"(a), "l"(b), "r"(is_sum));                                           \
        }                                                                                          \
    };
WGMMA_SHARED(8, 4, 4, 5, 6)
WGMMA_SHARED(64, 32, 32, 33, 34)
WGMMA_SHARED(80, 40, 40, 41, 42)
WGMMA_SHARED(96, 48, 48, 49, 50)
WGMMA_SHARED(112, 56, 56, 57, 58)
WGMMA_SHARED(128, 64, 64, 65, 66)
WGMMA_SHARED(144, 72, 72, 73, 74)
WGMMA_SHARED(160, 80, 80, 81, 82)
WGMMA_SHARED(176, 88, 88, 89, 90)
WGMMA_SHARED(192, 96, 96, 97, 98)
WGMMA_SHARED(208, 104, 104, 105, 106)
WGMMA_SHARED(224, 112, 112, 113, 114)
WGMMA_SHARED(240, 120, 120, 121, 122)
WGMMA_SHARED(256, 128, 128, 129, 130)
#undef WGMMA_SHARED

#endif
