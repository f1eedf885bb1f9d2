/* wgmma m64nNk16, fp16 in and fp32 sums, for N = 8 to 256: operand A in shared memory or in
 * registers, B in shared memory, both with K running fastest and without a swizzle. */
#ifndef BENCH_HOPPER_WGMMA_CUH
#define BENCH_HOPPER_WGMMA_CUH

#include <stdint.h>

/* A matrix of 8 x 8 values is 128 bytes in one piece; the two of a step in K follow each other,
 * then the next eight rows. A step of `rows` rows takes rows * 32 bytes. */
enum { CORE_BYTES = 128, STEP_K = 16 };

/* Place of value (row, k) of a step, in bytes. */
__device__ __forceinline__ uint32_t core_place(uint32_t row, uint32_t k)
{
    return row / 8 * 2 * CORE_BYTES + k / 8 * CORE_BYTES + row % 8 * 16 + k % 8 * 2;
}

__device__ __forceinline__ uint64_t core_descriptor(uint32_t shared)
{
    uint64_t along_k = CORE_BYTES >> 4, along_rows = 2 * CORE_BYTES >> 4;
    return (uint64_t)(shared >> 4 & 0x3fff) | along_k << 16 | along_rows << 32;
}

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_finish()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::
                     : "memory");
}

/* d += a b. d[4j], d[4j + 1]: row 16 warp + lane / 4, columns 8j + 2 (lane % 4) and the next one;
 * d[4j + 2], d[4j + 3]: the row 8 further. */
template <int N> struct wgmma;

/* clang-format off */
#define REGS_4 "%0, %1, %2, %3"
#define REGS_8 REGS_4 ", %4, %5, %6, %7"
#define REGS_16 REGS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define REGS_32 REGS_16                                                                            \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS_64 REGS_32                                                                            \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"             \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGS_128 REGS_64                                                                           \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110"       \
    ", %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125"   \
    ", %126, %127"
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_8(i) SUMS_4(i), SUMS_4(i + 4)
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define SUMS_32(i) SUMS_16(i), SUMS_16(i + 16)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define SUMS_128(i) SUMS_64(i), SUMS_64(i + 64)
/* clang-format on */

/* n: columns; sums: registers of d; A, B ...: the operands that follow them. */
#define WGMMA(n, sums, A, B, C, D, E)                                                              \
    template <> struct wgmma<n> {                                                                  \
        enum { SUMS = sums };                                                                      \
        static __device__ __forceinline__ void add(float (&d)[sums], uint64_t a, uint64_t b)       \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 "                 \
                         "{" REGS_##sums "}, %" #A ", %" #B ", 1, 1, 1, 0, 0;"                     \
                         : SUMS_##sums(0)                                                          \
                         : "l"(a), "l"(b));                                                        \
        }                                                                                          \
        static __device__ __forceinline__ void add(float (&d)[sums], const uint32_t (&a)[4],       \
                                                   uint64_t b)                                     \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 "                 \
                         "{" REGS_##sums "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E           \
                                         ", 1, 1, 1, 0;"                                           \
                         : SUMS_##sums(0)                                                          \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
        }                                                                                          \
    };
WGMMA(8, 4, 4, 5, 6, 7, 8)
WGMMA(16, 8, 8, 9, 10, 11, 12)
WGMMA(32, 16, 16, 17, 18, 19, 20)
WGMMA(64, 32, 32, 33, 34, 35, 36)
WGMMA(128, 64, 64, 65, 66, 67, 68)
WGMMA(256, 128, 128, 129, 130, 131, 132)
#undef WGMMA

#endif
