/* How tiles of keys or values come from the cache to shared memory, for attention_prefill.cu. */
#ifndef CUDA_ATTENTION_PREFILL_TILE_CUH
#define CUDA_ATTENTION_PREFILL_TILE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/round.cuh"
#include "backend/cuda/types.h"

/* Keys of a tile: the smallest number of which four warps still own one n-tile (8 keys) each. */
enum { TILE_KEYS = 32 };
static_assert(KV_PAGE % TILE_KEYS == 0, "a tile lies in one page");

/* ---- Tiles of keys or values ----------------------------------------------------------------- */

/* Row `key` of a tile has D halves in chunks of 16 bytes; chunk c lies at place c ^ key % 8, so
 * that eight rows at the same chunk, which is what ldmatrix reads, are in different banks. */
template <int D> __device__ __forceinline__ uint32_t chunk_at(int key, int chunk)
{
    return (uint32_t)(key * D * 2 + ((chunk ^ (key & 7)) << 4));
}

/* Eight values of a row that is not fp16, as halves. Large values saturate: infinity times a
 * share of zero would be NaN. NaN stays NaN. */
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
    for (int i = 0; i < 4; i++) h[i] = pack_halves_saturated(x[2 * i], x[2 * i + 1]);
    return make_uint4(h[0], h[1], h[2], h[3]);
}

/* Where the rows of a tile of one head lie. */
struct key_source {
    const char *base; /* the head's part of the first cell of page 0 */
    uint32_t cell_bytes, page_bytes;
};

__device__ __forceinline__ struct key_source source_of(const struct kv_cache &cache,
                                                       const void *base)
{
    struct key_source from;
    from.cell_bytes = (uint32_t)kv_cell_bytes(&cache);
    from.page_bytes = (uint32_t)cache.page_bytes;
    from.base = static_cast<const char *>(base) + blockIdx.x * (uint32_t)cache.head_bytes;
    return from;
}

/* threadIdx.x. With large heads it is read anew each time, so that what follows from it is not kept
 * in registers from tile to tile: there are none left. */
template <int D> __device__ __forceinline__ int thread_of_block()
{
    if constexpr (D <= 256) return (int)threadIdx.x;
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

/* This thread's first row of the tile that begins at a position. */
template <int D>
__device__ __forceinline__ const char *row_in(const struct key_source &from, int page, int position)
{
    const char *tile = from.base + (uint64_t)(uint32_t)page * from.page_bytes;
    return tile +
           ((uint32_t)(position % KV_PAGE) + (uint32_t)thread_of_block<D>() / 8) * from.cell_bytes;
}

/* Starts copying TILE_KEYS rows, cell_bytes apart; `first_row`: this thread's first one, row
 * threadIdx.x / 8 of the tile. The tile's row 0 is row `at` of n rows that are wanted; the others
 * become zeros, so that a share of zero times what is there is zero. Eight threads share a row:
 * what a thread copies of it is 128 bytes apart on both sides, so that addresses are made once a
 * row. Complete after copies_wait and a barrier. */
template <int D, int THREADS, bool IS_HALF>
__device__ __forceinline__ void fetch_tile(uint32_t tile, const char *first_row,
                                           uint32_t cell_bytes, enum format format, int at,
                                           uint32_t n)
{
    int thread = thread_of_block<D>();
#pragma unroll
    for (int pass = 0; pass < TILE_KEYS * 8 / THREADS; pass++) {
        int key = thread / 8 + pass * (THREADS / 8), chunk = thread % 8;
        const char *row = first_row + pass * (THREADS / 8) * cell_bytes;
        bool is_there = (uint32_t)(at + key) < n;
        uint32_t to = tile + chunk_at<D>(key, chunk);
        if constexpr (IS_HALF) {
            row += chunk * 16;
            int bytes = is_there ? 16 : 0;
#pragma unroll
            for (int i = 0; i < D / 64; i++) copy16_or_zeros(to + i * 128, row + i * 128, bytes);
        } else {
#pragma unroll 2
            for (int i = 0; i < D / 64; i++)
                store_shared4(to + i * 128, is_there ? chunk_of(format, row, chunk + i * 8)
                                                     : make_uint4(0, 0, 0, 0));
        }
    }
    if constexpr (IS_HALF) copies_commit();
}

#endif
