/* How tiles are read on the device: what a format looks like in tiles (types.h), a lane's share of
 * a tile as operands of mma.sync m16n8k32, and the decoding of tiles.
 *
 * Several formats share a form. A value is scale * code + minus; codes are small integers, or in
 * FORM_N4 indices into a table of levels. `form_fragments` gives codes (levels) times 1 / unit:
 * shifting a two's complement code to the top of its byte extends its sign for free, and the
 * finished sum is multiplied by unit. */
#ifndef CUDA_FORM_CUH
#define CUDA_FORM_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/types.h"

/* The kinds of codes of quant/format.h. */
enum form {
#define X(NAME, ...) FORM_##NAME,
    CODE_LIST(X)
#undef X
        FORM_COUNT
};

/* X(form) */
#define FORM_LIST(X)                                                                               \
    X(FORM_U2)                                                                                     \
    X(FORM_S3) X(FORM_S4) X(FORM_U4) X(FORM_N4) X(FORM_S5) X(FORM_U5) X(FORM_S6) X(FORM_S8)

/* FORM_COUNT: the format is not quantised. */
__host__ __device__ constexpr enum form form_of(enum format format)
{
    return
#define X(NAME, name, type, elements, bytes, budget, kind, at)                                     \
    format == FORMAT_##NAME ? FORM_##kind:
        BLOCK_FORMAT_LIST(X)
#undef X
            FORM_COUNT;
}

__host__ __device__ constexpr struct code_facts form_facts_of(enum form f)
{
    switch (f) {
#define X(NAME, ...)                                                                               \
    case FORM_##NAME: return {__VA_ARGS__};
        CODE_LIST(X)
#undef X
    default: return {};
    }
}

__host__ __device__ constexpr bool form_has_minus(enum form f)
{
    return form_facts_of(f).has_min;
}
/* Bits of a code in the plane `quants`: 2, 4 or 8. */
__host__ __device__ constexpr int form_low_bits(enum form f)
{
    return form_facts_of(f).bits == 8 ? 8 : form_facts_of(f).bits < 4 ? 2 : 4;
}
/* In the plane `high`. */
__host__ __device__ constexpr int form_high_bits(enum form f)
{
    return form_facts_of(f).bits - form_low_bits(f);
}
/* Scales of a row in a tile of 64 columns: 2 or 4. */
__host__ __device__ constexpr int form_scales(enum form f)
{
    return TILE_COLS / form_facts_of(f).scale_cols;
}
/* 32-bit words that a lane owns of a tile's quants: 1, 2 or 4. */
__host__ __device__ constexpr int form_words(enum form f)
{
    return form_low_bits(f) / 2;
}
/* Bytes of a tile in each plane. */
__host__ __device__ constexpr int form_quant_bytes(enum form f)
{
    return 128 * form_words(f);
}
__host__ __device__ constexpr int form_high_bytes(enum form f)
{
    return 64 * form_high_bits(f);
}
__host__ __device__ constexpr int form_scale_bytes(enum form f)
{
    return 16 * form_scales(f);
}
__host__ __device__ constexpr int form_minus_bytes(enum form f)
{
    return form_has_minus(f) ? form_scale_bytes(f) : 0;
}
__host__ __device__ constexpr float form_unit(enum form f)
{
    return form_facts_of(f).offset ? 1.0f / (1 << (8 - form_facts_of(f).bits)) : 1.0f;
}

/* The sixteen levels of FORM_N4 as bytes: -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38,
 * 53 69 89 113. */
enum : uint32_t {
    LEVELS_0 = 0xbfad9881u,
    LEVELS_1 = 0xf6eaddcfu,
    LEVELS_2 = 0x26190d01u,
    LEVELS_3 = 0x71594535u
};

/* Levels of the four nibbles in the low half of n, a byte each. */
__device__ __forceinline__ uint32_t levels_of(uint32_t n)
{
    uint32_t below = __byte_perm(LEVELS_0, LEVELS_1, n & 0x7777u);
    uint32_t above = __byte_perm(LEVELS_2, LEVELS_3, n & 0x7777u);
    return __byte_perm(below, above, 0x3210u | (n & 0x8888u) >> 1);
}

/* The same where they are above zero, or where they are below, with their signs turned over; zeros
 * elsewhere. Where the top bit of a selector is set, a byte becomes eight copies of the sign, and
 * here no byte has a sign. */
template <bool IS_ABOVE> __device__ __forceinline__ uint32_t levels_apart(uint32_t n)
{
    return IS_ABOVE ? permute_signs(LEVELS_2, LEVELS_3, n ^ 0x8888u)
                    : permute_signs(0x4153687fu, 0x0a162331u, n);
}

/* A lane's words of a tile -> b[block][half], the B operands of the tile's two 32-column blocks,
 * with values code / unit. q: form_words words; high: its bytes of that plane. */
template <enum form F>
__device__ __forceinline__ void form_fragments(const uint32_t *q, uint32_t high, uint32_t b[2][2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        [[maybe_unused]] uint32_t w = q[form_words(F) == 1 ? 0 : i];
        if constexpr (F == FORM_S8) {
            b[i][0] = q[2 * i];
            b[i][1] = q[2 * i + 1];
        } else if constexpr (F == FORM_U2) {
            b[i][0] = w >> 4 * i & 0x03030303u;
            b[i][1] = w >> (4 * i + 2) & 0x03030303u;
        } else if constexpr (F ==
                             FORM_S3) { /* pair f to bits 5 and 6, bit k of a nibble to bit 7 */
            uint32_t h = high >> 8 * i, low0 = i == 0 ? w << 5 : w << 1,
                     low1 = i == 0 ? w << 3 : w >> 1;
            b[i][0] = (low0 & 0x60606060u) | ((h & 15) * 0x10204080u & 0x80808080u);
            b[i][1] = (low1 & 0x60606060u) | ((h & 0xf0) * 0x01020408u & 0x80808080u);
        } else if constexpr (F == FORM_S4) {
            b[i][0] = w << 4 & 0xf0f0f0f0u;
            b[i][1] = w & 0xf0f0f0f0u;
        } else if constexpr (F == FORM_U4) {
            b[i][0] = w & 0x0f0f0f0fu;
            b[i][1] = w >> 4 & 0x0f0f0f0fu;
        } else if constexpr (F == FORM_N4) {
            b[i][0] = levels_of(w);
            b[i][1] = levels_of(w >> 16);
        } else if constexpr (F == FORM_S5) { /* bit k of a nibble to bit 7 of byte k */
            uint32_t h = high >> 8 * i;
            b[i][0] = (w << 3 & 0x78787878u) | ((h & 15) * 0x10204080u & 0x80808080u);
            b[i][1] = (w >> 1 & 0x78787878u) | ((h & 0xf0) * 0x01020408u & 0x80808080u);
        } else if constexpr (F == FORM_U5) {
            uint32_t h = high >> 8 * i;
            b[i][0] = (w & 0x0f0f0f0fu) | ((h & 15) * 0x02040810u & 0x10101010u);
            b[i][1] = (w >> 4 & 0x0f0f0f0fu) | ((h & 0xf0) * 0x00204081u & 0x10101010u);
        } else { /* FORM_S6 */
            uint32_t h0 = i == 0 ? high << 6 : high << 2, h1 = i == 0 ? high << 4 : high;
            b[i][0] = (w << 2 & 0x3c3c3c3cu) | (h0 & 0xc0c0c0c0u);
            b[i][1] = (w >> 2 & 0x3c3c3c3cu) | (h1 & 0xc0c0c0c0u);
        }
    }
}

/* How many operands hold a form's codes. Products take two for FORM_N4: the levels above zero, and
 * those below with their signs turned over. Permutations of bytes take twice as long as other
 * instructions, and two operands need four a word, where one needs six. */
__host__ __device__ constexpr int form_parts(enum form f)
{
    return f == FORM_N4 ? 2 : 1;
}

/* A lane's words of a tile -> the operands b[part] as above; part 1 is to be subtracted. */
template <enum form F>
__device__ __forceinline__ void form_operands(const uint32_t *q, uint32_t high,
                                              uint32_t (&b)[form_parts(F)][2][2])
{
    if constexpr (form_parts(F) == 1) {
        form_fragments<F>(q, high, b[0]);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t n = q[i] >> 16 * half;
                b[0][i][half] = levels_apart<true>(n);
                b[1][i][half] = levels_apart<false>(n);
            }
    }
}

/* ---- A lane's share of a tile ------------------------------------------------------------ */

template <enum form F> struct tile_share {
    uint32_t q[form_words(F)];
    uint32_t high;
    uint32_t scale[form_scales(F)]; /* half2: rows 2t, 2t + 1; by block, or by block and half */
    uint32_t minus[form_scales(F)];
};

/* Where a lane's share of a tile lies in each plane; tiles of a row of tiles follow each other. */
struct share_place {
    const uint8_t *quants, *high, *scale, *minus;
};

/* `tile` counted as in types.h. `pair`: which two rows' scales the lane takes. */
template <enum form F>
__device__ __forceinline__ share_place share_place_at(const struct cuda_weight &w, int64_t tile,
                                                      int lane, int pair)
{
    share_place at;
    at.quants = w.quants + tile * form_quant_bytes(F) + lane * (form_quant_bytes(F) / 32);
    at.scale = reinterpret_cast<const uint8_t *>(w.scale) + tile * form_scale_bytes(F) +
               pair * (form_scale_bytes(F) / 4);
    at.high = at.minus = nullptr;
    if (form_high_bits(F))
        at.high = w.high + tile * form_high_bytes(F) + lane * (form_high_bytes(F) / 32);
    if (form_has_minus(F))
        at.minus = reinterpret_cast<const uint8_t *>(w.minus) + tile * form_minus_bytes(F) +
                   pair * (form_minus_bytes(F) / 4);
    return at;
}

/* The share of the k-th tile from `at` on, from device memory, where it is read once. */
template <enum form F>
__device__ __forceinline__ void read_share(tile_share<F> &s, const share_place &at, int k)
{
    if constexpr (F == FORM_S8) {
        uint4 v = load_once4(at.quants + k * form_quant_bytes(F));
        s.q[0] = v.x, s.q[1] = v.y, s.q[2] = v.z, s.q[3] = v.w;
    } else if constexpr (form_words(F) == 1) {
        s.q[0] = load_once1(at.quants + k * form_quant_bytes(F));
    } else {
        uint2 v = load_once2(at.quants + k * form_quant_bytes(F));
        s.q[0] = v.x, s.q[1] = v.y;
    }
    if constexpr (form_high_bits(F) == 1)
        s.high = __ldg(reinterpret_cast<const uint16_t *>(at.high + k * form_high_bytes(F)));
    if constexpr (form_high_bits(F) == 2)
        s.high = __ldg(reinterpret_cast<const uint32_t *>(at.high + k * form_high_bytes(F)));
    if constexpr (form_scales(F) == 4) {
        uint4 v = load_once4(at.scale + k * form_scale_bytes(F));
        s.scale[0] = v.x, s.scale[1] = v.y, s.scale[2] = v.z, s.scale[3] = v.w;
    } else {
        uint2 v = load_once2(at.scale + k * form_scale_bytes(F));
        s.scale[0] = v.x, s.scale[1] = v.y;
    }
    if constexpr (form_minus_bytes(F) == 64) {
        uint4 v = load_once4(at.minus + k * 64);
        s.minus[0] = v.x, s.minus[1] = v.y, s.minus[2] = v.z, s.minus[3] = v.w;
    } else if constexpr (form_has_minus(F)) {
        uint2 v = load_once2(at.minus + k * 32);
        s.minus[0] = v.x, s.minus[1] = v.y;
    }
}

/* The share of a tile whose planes were copied to shared memory. */
template <enum form F>
__device__ __forceinline__ void read_tile(tile_share<F> &s, const uint8_t *quants,
                                          const uint8_t *scale, const uint8_t *high,
                                          const uint8_t *minus, int pair)
{
    int lane = threadIdx.x % 32;
    if constexpr (F == FORM_S8) {
        uint4 v = reinterpret_cast<const uint4 *>(quants)[lane];
        s.q[0] = v.x, s.q[1] = v.y, s.q[2] = v.z, s.q[3] = v.w;
    } else if constexpr (form_words(F) == 1) {
        s.q[0] = reinterpret_cast<const uint32_t *>(quants)[lane];
    } else {
        uint2 v = reinterpret_cast<const uint2 *>(quants)[lane];
        s.q[0] = v.x, s.q[1] = v.y;
    }
    if constexpr (form_scales(F) == 4) {
        uint4 v = reinterpret_cast<const uint4 *>(scale)[pair];
        s.scale[0] = v.x, s.scale[1] = v.y, s.scale[2] = v.z, s.scale[3] = v.w;
    } else {
        uint2 v = reinterpret_cast<const uint2 *>(scale)[pair];
        s.scale[0] = v.x, s.scale[1] = v.y;
    }
    if constexpr (form_high_bits(F) == 1) s.high = reinterpret_cast<const uint16_t *>(high)[lane];
    if constexpr (form_high_bits(F) == 2) s.high = reinterpret_cast<const uint32_t *>(high)[lane];
    if constexpr (form_minus_bytes(F) == 64) {
        uint4 v = reinterpret_cast<const uint4 *>(minus)[pair];
        s.minus[0] = v.x, s.minus[1] = v.y, s.minus[2] = v.z, s.minus[3] = v.w;
    } else if constexpr (form_has_minus(F)) {
        uint2 v = reinterpret_cast<const uint2 *>(minus)[pair];
        s.minus[0] = v.x, s.minus[1] = v.y;
    }
}

__device__ __forceinline__ float2 half2_at(uint32_t bits)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&bits));
}

/* ---- Decoding ------------------------------------------------------------------------------ */

__device__ __forceinline__ float half_at(const void *p)
{
    return __half2float(__ushort_as_half(*static_cast<const uint16_t *>(p)));
}

/* Four signed bytes times scale, plus minus. Products are exact in fp32 or round once, so that
 * the result has the bits of quant's own decoders. */
__device__ __forceinline__ void scale4(uint32_t codes, float scale, float minus, float out[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = scale * (float)(int8_t)(codes >> 8 * i) + minus;
}

/* Four consecutive columns of a row in tiles: those of half (column / 16) and t (column / 4) of a
 * block. */
template <enum form F>
__device__ __forceinline__ void tile_decode4(const struct cuda_weight &w, int64_t tile, int row,
                                             int block, int half, int t, float out[4])
{
    int lane = row % 8 * 4 + t;
    uint32_t q[4] = {}, b[2][2], high = 0;
    const uint32_t *quants = reinterpret_cast<const uint32_t *>(w.quants);
    constexpr int WORDS = form_words(F), OF_BLOCK = WORDS == 1 ? 1 : WORDS / 2;
    int at = WORDS == 1 ? 0 : block * OF_BLOCK; /* only this block's words */
    for (int i = 0; i < OF_BLOCK; i++) q[at + i] = quants[(tile * 32 + lane) * WORDS + at + i];
    if (form_high_bits(F) == 1) high = reinterpret_cast<uint16_t *>(w.high)[tile * 32 + lane];
    if (form_high_bits(F) == 2) high = reinterpret_cast<uint32_t *>(w.high)[tile * 32 + lane];
    form_fragments<F>(q, high, b);
    int pair = row % 8 / 2, j = row % 2;
    int at_scale =
        form_scales(F) == 4 ? ((pair * 2 + block) * 2 + half) * 2 + j : (pair * 2 + block) * 2 + j;
    float scale = half_at(w.scale + tile * (form_scales(F) * 8) + at_scale);
    float minus =
        form_has_minus(F) ? half_at(w.minus + tile * (form_scales(F) * 8) + at_scale) : 0.0f;
    scale4(b[block][half], scale * form_unit(F), minus, out);
}

/* Columns col .. col + 7 (col a multiple of 8) of a row of a LAYOUT_TILES weight. */
template <enum form F>
__device__ __forceinline__ void tile_decode8_as(const struct cuda_weight &w, int expert, int row,
                                                int col, float out[8])
{
    int64_t tile = ((int64_t)expert * w.n_groups + row / 8) * w.n_ktiles + col / 64;
    int block = col % 64 / 32, half = col % 32 / 16, t = col % 16 / 4;
    tile_decode4<F>(w, tile, row, block, half, t, out);
    tile_decode4<F>(w, tile, row, block, half, t + 1, out + 4);
}

__device__ __forceinline__ void tile_decode8(const struct cuda_weight &w, int expert, int row,
                                             int col, float out[8])
{
    switch (form_of(w.format)) {
#define X(F)                                                                                       \
    case F: tile_decode8_as<F>(w, expert, row, col, out); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

#endif
