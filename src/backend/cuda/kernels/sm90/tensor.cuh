/* Boxes of a matrix that TMA copies, and wgmma from shared memory. */
#ifndef CUDA_SM90_TENSOR_CUH
#define CUDA_SM90_TENSOR_CUH

#include <cuda.h>
#include <stdint.h>

#include "backend/cuda/kernels/sm90/barrier.cuh"
#include "backend/cuda/kernels/sm90/wgmma_groups.cuh"

/* ---- TMA ------------------------------------------------------------------------------------- */

/* The map's box at (column, row), what is outside the matrix as zeros; `barrier` gets its bytes. */
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

/* clang-format off */
#define OUT_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define OUT_16 OUT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define OUT_24 OUT_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define OUT_32 OUT_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define OUT_40 OUT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define OUT_48 OUT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define OUT_56 OUT_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define OUT_64 OUT_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define OUT_72 OUT_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define OUT_80 OUT_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define OUT_88 OUT_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define OUT_96 OUT_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define OUT_104 OUT_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define OUT_112 OUT_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define OUT_120 OUT_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define OUT_128 OUT_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define SUM_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUM_8(i) SUM_4(i), SUM_4(i + 4)
#define SUMS_8 SUM_8(0)
#define SUMS_16 SUMS_8, SUM_8(8)
#define SUMS_24 SUMS_16, SUM_8(16)
#define SUMS_32 SUMS_24, SUM_8(24)
#define SUMS_40 SUMS_32, SUM_8(32)
#define SUMS_48 SUMS_40, SUM_8(40)
#define SUMS_56 SUMS_48, SUM_8(48)
#define SUMS_64 SUMS_56, SUM_8(56)
#define SUMS_72 SUMS_64, SUM_8(64)
#define SUMS_80 SUMS_72, SUM_8(72)
#define SUMS_88 SUMS_80, SUM_8(80)
#define SUMS_96 SUMS_88, SUM_8(88)
#define SUMS_104 SUMS_96, SUM_8(96)
#define SUMS_112 SUMS_104, SUM_8(104)
#define SUMS_120 SUMS_112, SUM_8(112)
#define SUMS_128 SUMS_120, SUM_8(120)
/* clang-format on */

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
WGMMA_SHARED(64, 32, 32, 33, 34)
WGMMA_SHARED(96, 48, 48, 49, 50)
WGMMA_SHARED(128, 64, 64, 65, 66)
WGMMA_SHARED(160, 80, 80, 81, 82)
WGMMA_SHARED(176, 88, 88, 89, 90)
WGMMA_SHARED(192, 96, 96, 97, 98)
WGMMA_SHARED(208, 104, 104, 105, 106)
WGMMA_SHARED(224, 112, 112, 113, 114)
WGMMA_SHARED(240, 120, 120, 121, 122)
WGMMA_SHARED(256, 128, 128, 129, 130)
#undef WGMMA_SHARED

#endif
