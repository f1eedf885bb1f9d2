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

/* Where the rows of one head of one sequence lie. */
struct key_source {
    const char *base; /* the head's part of the sequence's first cell */
    int32_t cell_bytes;
    int32_t capacity;
};

/* Starts copying TILE_KEYS rows from cell `first` on. Only n_there rows are wanted; the others
 * become zeros, so that a share of zero times what is there is zero. Eight threads share a row:
 * what a thread copies of it is 128 bytes apart on both sides, so that addresses are made once a
 * row. Complete after copies_wait and a barrier. */
template <int D, int THREADS, bool IS_HALF>
__device__ __forceinline__ void fetch_tile(uint32_t tile, const struct key_source &from,
                                           enum format format, int first, int n_there)
{
#pragma unroll
    for (int pass = 0; pass < TILE_KEYS * 8 / THREADS; pass++) {
        int key = (int)threadIdx.x / 8 + pass * (THREADS / 8), chunk = (int)threadIdx.x % 8;
        int cell = first + key;
        bool is_there = key < n_there;
        cell = kv_ring_wrap(cell, from.capacity);
        if (!is_there) cell = 0;
        const char *row = from.base + kv_ring_cell_offset(from.cell_bytes, cell);
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
