/* Instructions of Hopper for attention of prompts: TMA, wgmma. */
#ifndef CUDA_SM90_ATTENTION_INSTRUCTIONS_CUH
#define CUDA_SM90_ATTENTION_INSTRUCTIONS_CUH

#include <cuda.h>
#include <stdint.h>

#include "backend/cuda/kernels/sm90/barrier.cuh"

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

__device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Operands in rows of 128 bytes, swizzled; eight rows are 1024 bytes. `along`: bytes from 64
 * columns to the next 64, where the columns are not the sum's index. */
__device__ __forceinline__ uint64_t operand(uint32_t shared, uint32_t along)
{
    return (uint64_t)(shared >> 4 & 0x3fff) | (uint64_t)(along >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* clang-format off */
#define OUT_4 "%0, %1, %2, %3"
#define OUT_32 OUT_4 ", %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19"  \
    ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OUT_128 OUT_32                                                                             \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"             \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"             \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110"       \
    ", %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125"   \
    ", %126, %127"
#define SUM_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUM_16(i) SUM_4(i), SUM_4(i + 4), SUM_4(i + 8), SUM_4(i + 12)
#define SUM_32(i) SUM_16(i), SUM_16(i + 16)
#define SUM_128(i) SUM_32(i), SUM_32(i + 32), SUM_32(i + 64), SUM_32(i + 96)
/* clang-format on */

/* d [64][64] += a [64][16] b [64][16]': both with the sum's index along their rows. Registers:
 * d[4j], d[4j + 1] are row 16 warp + lane / 4, columns 8j + 2 (lane % 4) and the next one;
 * d[4j + 2], d[4j + 3] are the row 8 further. */
__device__ __forceinline__ void product_64(float (&d)[32], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" OUT_32
                 "}, %32, %33, 1, 1, 1, 0, 0;"
                 : SUM_32(0)
                 : "l"(a), "l"(b));
}

/* d [64][256] += a [64][16] b [16][256]: rows of b are indexed by the sum's index. */
__device__ __forceinline__ void product_256(float (&d)[128], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" OUT_128
                 "}, %128, %129, 1, 1, 1, 0, 1;"
                 : SUM_128(0)
                 : "l"(a), "l"(b));
}

/* The same with a in registers, as mma.sync has its A. */
__device__ __forceinline__ void product_256(float (&d)[128], const uint32_t (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" OUT_128
                 "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
                 : SUM_128(0)
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
