/* The parts of attention_prefill.cu that know nothing of softmax: instructions, and the
 * way of keys and values from the cache to shared memory. */
#ifndef CUDA_ATTENTION_PREFILL_CUH
#define CUDA_ATTENTION_PREFILL_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/types.h"

/* Keys of a tile: the smallest number of which four warps still own one n-tile (8 keys) each. */
enum { TILE_KEYS = 32 };

/* ---- Instructions ---------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* c += a b; a: 16 x 16, b: 16 x 8, both fp16. */
__device__ __forceinline__ void mma_16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices of fp16; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_matrices_turned(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ uint32_t pack_halves(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* ---- Tiles of keys or values ----------------------------------------------------------------- */

/* Row `key` of a tile has D halves in chunks of 16 bytes; chunk c lies at place c ^ key % 8, so
 * that eight rows at the same chunk, which is what ldmatrix reads, are in different banks. */
template <int D> __device__ __forceinline__ uint32_t chunk_at(int key, int chunk)
{
    return (uint32_t)(key * D * 2 + ((chunk ^ (key & 7)) << 4));
}

/* `bytes`: 16, or 0 for zeros. */
__device__ __forceinline__ void copy_chunk(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until all but the last N committed groups of this thread's copies have landed. */
template <int N> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Eight values of a row that is not fp16, as halves. Large values saturate instead of becoming
 * infinite, as infinity times a share of zero would be NaN. */
__device__ __forceinline__ uint4 chunk_of(enum format format, const char *row, int chunk)
{
    float x[8];
    if (format == FORMAT_F32) {
        const float4 *from = reinterpret_cast<const float4 *>(row) + 2 * chunk;
        float4 a = from[0], b = from[1];
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
        x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    } else if (format == FORMAT_BF16) {
        uint4 from = reinterpret_cast<const uint4 *>(row)[chunk];
        uint32_t w[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = __uint_as_float(i % 2 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16);
    } else { /* Q8_0: a half d, then 32 bytes, only 2-byte aligned */
        const uint16_t *block = reinterpret_cast<const uint16_t *>(row + chunk / 4 * 34);
        float d = __half2float(__ushort_as_half(block[0]));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t two = block[1 + chunk % 4 * 4 + i / 2];
            x[i] = d * (float)(int8_t)(i % 2 ? two >> 8 : two);
        }
    }
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        h[i] = pack_halves(fminf(fmaxf(x[2 * i], -65504.0f), 65504.0f),
                           fminf(fmaxf(x[2 * i + 1], -65504.0f), 65504.0f));
    return make_uint4(h[0], h[1], h[2], h[3]);
}

/* One chunk of a row that is not fp16. */
__device__ __forceinline__ void store_chunk(uint32_t to, const uint4 &h)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(h.x), "r"(h.y), "r"(h.z),
                 "r"(h.w)
                 : "memory");
}

/* Starts copying TILE_KEYS rows of one head, from the first-th position of the run on. `base` is
 * the head's part of the cache's first cell. Only n_there rows are wanted; the others become zeros,
 * so that a share of zero times what is there is zero. Eight threads share a row: what a thread
 * copies of it is 128 bytes apart on both sides, so that addresses are made once a row. Complete
 * after copies_wait and a barrier. */
template <int D, int THREADS, bool IS_HALF>
__device__ __forceinline__ void fetch_tile(uint32_t tile, const char *base,
                                           const struct kv_run &keys, enum format format, int first,
                                           int n_there)
{
#pragma unroll
    for (int pass = 0; pass < TILE_KEYS * 8 / THREADS; pass++) {
        int key = (int)threadIdx.x / 8 + pass * (THREADS / 8), chunk = (int)threadIdx.x % 8;
        bool is_there = key < n_there;
        const char *row = base + kv_run_offset(&keys, is_there ? first + key : 0);
        uint32_t to = tile + chunk_at<D>(key, chunk);
        if constexpr (IS_HALF) {
            row += chunk * 16;
            int bytes = is_there ? 16 : 0;
#pragma unroll
            for (int i = 0; i < D / 64; i++) copy_chunk(to + i * 128, row + i * 128, bytes);
        } else {
#pragma unroll 2
            for (int i = 0; i < D / 64; i++)
                store_chunk(to + i * 128, is_there ? chunk_of(format, row, chunk + i * 8)
                                                   : make_uint4(0, 0, 0, 0));
        }
    }
    if constexpr (IS_HALF) copies_commit();
}

#endif
