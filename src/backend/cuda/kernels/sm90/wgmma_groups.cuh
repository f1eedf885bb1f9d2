/* The order of wgmma: products of a warpgroup are committed in groups, and waited for by group;
 * and how its text names sums. */
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

/* The first registers of an instruction's text, and the values d[] that they are. */
/* clang-format off */
#define OUT_4 "%0, %1, %2, %3"
#define OUT_8 OUT_4 ", %4, %5, %6, %7"
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
#define SUMS_4 SUM_4(0)
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

#endif
