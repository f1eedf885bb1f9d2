/* Instructions that CUDA C++ has no name for, one wrapper each; every kernel takes them from here.
 * (griddepcontrol is in launch.cuh, with its rules.)
 *
 * Fragments of mma.sync, with g = lane / 4 and t = lane % 4:
 *   A, 16 rows: a[0] belongs to row g, a[1] to row g + 8, a[2] and a[3] to the same rows and the
 *               upper half of k;
 *   B, 8 columns: b[0] and b[1] belong to column g, lower and upper half of k;
 *   C: c[0], c[1] are row g, columns 2t and 2t + 1; c[2], c[3] the same columns of row g + 8. */
#ifndef CUDA_INSTRUCTIONS_CUH
#define CUDA_INSTRUCTIONS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* An address as instructions on shared memory take it. */
__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four bytes of low and high, selected by four nibbles. Where a nibble's top bit is set, the byte
 * is eight copies of the selected one's sign. */
__device__ __forceinline__ uint32_t permute_signs(uint32_t low, uint32_t high, uint32_t nibbles)
{
    uint32_t out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(nibbles));
    return out;
}

/* ---- cp.async: from global to shared memory while the thread goes on ------------------------ */

/* 16 bytes through L1, for what other warps of the multiprocessor read too. */
__device__ __forceinline__ void copy16_through_l1(void *shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
                 "l"(global)
                 : "memory");
}

/* 16 bytes past L1. */
__device__ __forceinline__ void copy16(uint32_t shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

/* The same; with bytes = 0 nothing is read and 16 zeros are written. */
__device__ __forceinline__ void copy16_or_zeros(uint32_t shared, const void *global, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(bytes)
                 : "memory");
}

/* Ends a group of this thread's copies. */
__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most the last PENDING groups of this thread's copies are not done. */
template <int PENDING> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Waits for all of this thread's copies, committed or not. */
__device__ __forceinline__ void copies_wait_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* ---- Loads, stores, prefetch ---------------------------------------------------------------- */

/* What only this thread reads, and only once: past L1, so that other data stays there. */
__device__ __forceinline__ uint4 load_once4(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
__device__ __forceinline__ uint32_t load_once1(const void *p)
{
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
__device__ __forceinline__ uint2 load_once2(const void *p)
{
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(p));
    return v;
}

/* The same; zeros, and no access, when it is not wanted. */
__device__ __forceinline__ uint4 load_once4_if(const void *p, bool is_wanted)
{
    uint4 v;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; mov.u32 %0, 0; mov.u32 %1, 0; "
                 "mov.u32 %2, 0; mov.u32 %3, 0; "
                 "@p ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4]; }"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "r"((uint32_t)is_wanted));
    return v;
}

/* Volatile: the compiler keeps their order, so that all of a thread's loads are issued
 * together. */
__device__ __forceinline__ float2 load_volatile2(const float2 *p)
{
    float2 v;
    asm volatile("ld.volatile.global.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
    return v;
}

/* Zeros, and no access, when it is not wanted. */
__device__ __forceinline__ float4 load_volatile4_if(const float *p, bool is_wanted)
{
    float4 v;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; mov.f32 %0, 0f00000000; "
                 "mov.f32 %1, 0f00000000; mov.f32 %2, 0f00000000; mov.f32 %3, 0f00000000; "
                 "@p ld.volatile.global.v4.f32 {%0,%1,%2,%3}, [%4]; }"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p), "r"((uint32_t)is_wanted));
    return v;
}

__device__ __forceinline__ void store_shared(uint32_t shared, uint32_t x)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(x) : "memory");
}
__device__ __forceinline__ void store_shared4(uint32_t shared, const uint4 &x)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w)
                 : "memory");
}

__device__ __forceinline__ void prefetch_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* ---- ldmatrix -------------------------------------------------------------------------------- */

/* Four 8 x 8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void load_matrices(uint32_t r[4], uint32_t shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

/* Each matrix transposed. */
__device__ __forceinline__ void load_matrices_turned(uint32_t r[4], uint32_t shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

/* ---- mma.sync -------------------------------------------------------------------------------- */

/* d += a b in fp16 with fp32 sums; a: 16 x 16, b: 16 x 8. */
__device__ __forceinline__ void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c = a b in 8 bits with 32-bit sums; a: 16 x 32, b: 32 x 8. */
__device__ __forceinline__ void mma_i8_k32(int c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}

/* a: 16 x 16, b: 16 x 8. */
__device__ __forceinline__ void mma_i8_k16(int c[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%7, %7, %7, %7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

/* The same with results in registers that no operand has. Where `a` serves several products the
 * compiler would otherwise copy it for each. */
__device__ __forceinline__ void mma_i8_k32_apart(int c[4], const uint32_t a[4], uint32_t b0,
                                                 uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=&r"(c[0]), "=&r"(c[1]), "=&r"(c[2]), "=&r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}
__device__ __forceinline__ void mma_i8_k16_apart(int c[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%7, %7, %7, %7};"
        : "=&r"(c[0]), "=&r"(c[1]), "=&r"(c[2]), "=&r"(c[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

/* c += a b. */
__device__ __forceinline__ void mma_i8_k32_add(int c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_i8_k16_add(int c[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
}

/* ---- Arithmetic ------------------------------------------------------------------------------ */

/* 2^x, within 2 ulp; results below the normal range are 0. NaN gives NaN. */
__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
