/* How tiles are read on the device: what a format looks like in tiles (types.h), a lane's share of
 * a tile as operands of mma.sync m16n8k32, and the decoding of tiles.
 *
 * Several formats share a form. A value is scale * code + minus; codes are small integers, or
 * indices into a table of levels (form_has_levels). `form_fragments` gives codes (levels) times
 * 1 / unit: shifting a two's complement code to the top of its byte extends its sign for free, and
 * the finished sum is multiplied by unit. */
#ifndef CUDA_FORM_CUH
#define CUDA_FORM_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/types.h"
#include "quant/levels.h"

/* The kinds of codes of quant/format.h. Here N4 are the levels of IQ4_*, G4 those of IQ3_XXS. Odd
 * numbers, the levels of IQ3_S, need no table: O4, two's complement code + 1/2. M4 has the levels
 * of all IQ2_* and IQ1_*. */
enum form {
#define X(NAME, ...) FORM_##NAME,
    CODE_LIST(X)
#undef X
        FORM_G4,
    FORM_O4,
    FORM_COUNT
};

/* X(form) */
#define FORM_LIST(X)                                                                               \
    X(FORM_U2)                                                                                     \
    X(FORM_S3)                                                                                     \
    X(FORM_S4)                                                                                     \
    X(FORM_U4)                                                                                     \
    X(FORM_N4)                                                                                     \
    X(FORM_G4) X(FORM_O4) X(FORM_M4) X(FORM_S5) X(FORM_U5) X(FORM_S6) X(FORM_S8)

/* FORM_COUNT: the format is not quantised. */
__host__ __device__ constexpr enum form form_of(enum format format)
{
    if (format == FORMAT_IQ3_XXS) return FORM_G4;
    if (format == FORMAT_IQ3_S) return FORM_O4;
    if (format == FORMAT_IQ2_XXS || format == FORMAT_IQ1_S) return FORM_M4;
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
    case FORM_G4: return {4, 0, false, 32};
    case FORM_O4: return {4, 8, false, 32};
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
/* Scales and minima together, as whole numbers that share two halves. */
__host__ __device__ constexpr bool form_has_factors(enum form f)
{
    return f == FORM_U2;
}
__host__ __device__ constexpr int form_minus_bytes(enum form f)
{
    return form_has_minus(f) && !form_has_factors(f) ? form_scale_bytes(f) : 0;
}
__host__ __device__ constexpr float form_unit(enum form f)
{
    if (f == FORM_G4) return 0.5f;
    if (f == FORM_O4 || f == FORM_M4) return 0.125f;
    return form_facts_of(f).offset ? 1.0f / (1 << (8 - form_facts_of(f).bits)) : 1.0f;
}
__host__ __device__ constexpr bool form_has_levels(enum form f)
{
    return f == FORM_N4 || f == FORM_G4 || f == FORM_M4;
}

/* Level i of a form, times 1 / unit. Those up to 7 are below zero, the others above. M4: IQ2_* have
 * 8, 25, 43 and IQ1_* 1, 7, 9, on both sides; two are not used. */
__host__ __device__ constexpr int form_level(enum form f, int i)
{
    constexpr int iq4[16] = {LEVELS_IQ4}, iq3[16] = {LEVELS_IQ3_XXS};
    constexpr int low[8] = {1, 7, 8, 9, 25, 43, 43, 43};
    if (f == FORM_N4) return iq4[i];
    if (f == FORM_G4) return iq3[i];
    return i < 8 ? -low[7 - i] : low[i - 8];
}
/* Four levels from i on as bytes, or with their signs turned over. */
__host__ __device__ constexpr uint32_t form_levels(enum form f, int i, bool is_turned = false)
{
    uint32_t bytes = 0;
    for (int k = 0; k < 4; k++) {
        int level = form_level(f, i + k);
        bytes |= (uint32_t)((is_turned ? -level : level) & 255) << 8 * k;
    }
    return bytes;
}

/* Levels of the four nibbles in the low half of n, a byte each. */
template <enum form F> __device__ __forceinline__ uint32_t levels_of(uint32_t n)
{
    constexpr uint32_t A = form_levels(F, 0), B = form_levels(F, 4), C = form_levels(F, 8),
                       D = form_levels(F, 12);
    uint32_t below = __byte_perm(A, B, n & 0x7777u);
    uint32_t above = __byte_perm(C, D, n & 0x7777u);
    return __byte_perm(below, above, 0x3210u | (n & 0x8888u) >> 1);
}

/* The same where they are above zero, or where they are below, with their signs turned over; zeros
 * elsewhere. Where the top bit of a selector is set, a byte becomes eight copies of the sign, and
 * here no byte has a sign. */
template <enum form F, bool IS_ABOVE> __device__ __forceinline__ uint32_t levels_apart(uint32_t n)
{
    constexpr uint32_t A = form_levels(F, 0, true), B = form_levels(F, 4, true),
                       C = form_levels(F, 8), D = form_levels(F, 12);
    return IS_ABOVE ? permute_signs(C, D, n ^ 0x8888u) : permute_signs(A, B, n);
}

/* Are codes of block 1 put together of bits that bytes of block 0 leave free? */
__host__ __device__ constexpr bool form_shares_bytes(enum form f)
{
    return f == FORM_S3 || f == FORM_S5 || f == FORM_U5 || f == FORM_S6;
}

/* Of the four nibbles in 16 bits, a byte each, the bits of `mask`. */
__device__ __forceinline__ uint32_t spread_nibbles(uint32_t nibbles, uint32_t mask)
{
    uint32_t n = __byte_perm(nibbles, 0, 0x4140);
    return (n | n << 4) & mask;
}

/* `form_fragments` where blocks share bytes. Codes that lie whole in their bytes cost an
 * instruction for four. */
template <enum form F>
__device__ __forceinline__ void shared_fragments(const uint32_t *q, uint32_t high, uint32_t b[2][2])
{
    if constexpr (F == FORM_S3) {
        uint32_t n = spread_nibbles(high, 0x0f0f0f0fu);
        b[0][0] = q[0] << 5 & 0xe0e0e0e0u;
        b[0][1] = q[0] << 2 & 0xe0e0e0e0u;
        b[1][0] = (q[0] & 0xc0c0c0c0u) | (n << 2 & 0x20202020u);
        b[1][1] = n << 5 & 0xe0e0e0e0u;
    } else if constexpr (F == FORM_S6) {
        b[0][0] = q[0] & 0xfcfcfcfcu;
        b[0][1] = q[1] & 0xfcfcfcfcu;
        b[1][0] = high & 0xfcfcfcfcu;
        uint32_t upper = (q[0] << 6 & 0xc0c0c0c0u) | (q[1] << 4 & 0x3f3f3f3fu);
        b[1][1] = (upper & 0xf0f0f0f0u) | (high & 0x03030303u) << 2;
    } else {
        uint32_t n[2] = {spread_nibbles(high, 0x03030303u) << 3, spread_nibbles(high, 0x0c0c0c0cu)
                                                                     << 1};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            b[0][k] = q[k] & (F == FORM_S5 ? 0xf8f8f8f8u : 0x1f1f1f1fu);
            b[1][k] =
                F == FORM_S5 ? (q[k] << 5 & 0xe0e0e0e0u) | n[k] : (q[k] >> 5 & 0x07070707u) | n[k];
        }
    }
}

/* `form_fragments` of block i, where its words are its own. */
template <enum form F>
__device__ __forceinline__ void own_fragments(const uint32_t *q, int i, uint32_t b[2])
{
    [[maybe_unused]] uint32_t w = q[form_words(F) == 1 ? 0 : i];
    if constexpr (F == FORM_S8) {
        b[0] = q[2 * i];
        b[1] = q[2 * i + 1];
    } else if constexpr (F == FORM_U2) {
        b[0] = w >> 4 * i & 0x03030303u;
        b[1] = w >> (4 * i + 2) & 0x03030303u;
    } else if constexpr (F == FORM_S4) {
        b[0] = w << 4 & 0xf0f0f0f0u;
        b[1] = w & 0xf0f0f0f0u;
    } else if constexpr (F == FORM_U4) {
        b[0] = w & 0x0f0f0f0fu;
        b[1] = w >> 4 & 0x0f0f0f0fu;
    } else if constexpr (F == FORM_O4) {
        b[0] = (w << 4 & 0xf0f0f0f0u) | 0x08080808u;
        b[1] = (w & 0xf0f0f0f0u) | 0x08080808u;
    } else { /* levels */
        b[0] = levels_of<F>(w);
        b[1] = levels_of<F>(w >> 16);
    }
}

/* A lane's words of a tile -> b[block][half], the B operands of the tile's two 32-column blocks,
 * with values code / unit. q: form_words words; high: its bytes of that plane. */
template <enum form F>
__device__ __forceinline__ void form_fragments(const uint32_t *q, uint32_t high, uint32_t b[2][2])
{
    if constexpr (form_shares_bytes(F)) {
        shared_fragments<F>(q, high, b);
    } else {
        own_fragments<F>(q, 0, b[0]);
        own_fragments<F>(q, 1, b[1]);
    }
}

/* How many operands hold a form's codes. Products take two for levels: those above zero, and those
 * below with their signs turned over. Permutations of bytes take twice as long as other
 * instructions, and two operands need four a word, where one needs six. */
__host__ __device__ constexpr int form_parts(enum form f)
{
    return form_has_levels(f) ? 2 : 1;
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
                b[0][i][half] = levels_apart<F, true>(n);
                b[1][i][half] = levels_apart<F, false>(n);
            }
    }
}

/* ---- A lane's share of a tile ------------------------------------------------------------ */

template <enum form F> struct tile_share {
    uint32_t q[form_words(F)];
    uint32_t high;
    /* Of its row, half2: both blocks, or both halves of each block. With factors: d and -dmin, then
     * the factors. */
    uint32_t scale[form_scales(F) / 2];
    uint32_t minus;
};

/* Where a lane's share of a tile lies in each plane; tiles of a row of tiles follow each other. */
struct share_place {
    const uint8_t *quants, *high, *scale, *minus;
};

/* `tile` counted as in types.h. */
template <enum form F>
__device__ __forceinline__ share_place share_place_at(const struct cuda_weight &w, int64_t tile,
                                                      int lane)
{
    share_place at;
    at.quants = w.quants + tile * form_quant_bytes(F) + lane * (form_quant_bytes(F) / 32);
    at.scale = reinterpret_cast<const uint8_t *>(w.scale) + tile * form_scale_bytes(F) +
               lane / 4 * (form_scale_bytes(F) / TILE_ROWS);
    at.high = at.minus = nullptr;
    if (form_high_bits(F))
        at.high = w.high + tile * form_high_bytes(F) + lane * (form_high_bytes(F) / 32);
    if (form_minus_bytes(F))
        at.minus = reinterpret_cast<const uint8_t *>(w.minus) + tile * 32 + lane / 4 * 4;
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
        uint2 v = load_once2(at.scale + k * form_scale_bytes(F));
        s.scale[0] = v.x, s.scale[1] = v.y;
    } else {
        s.scale[0] = load_once1(at.scale + k * form_scale_bytes(F));
    }
    if constexpr (form_minus_bytes(F) != 0)
        s.minus = load_once1(at.minus + k * form_minus_bytes(F));
}

/* The share of a tile whose planes were copied to shared memory. */
template <enum form F>
__device__ __forceinline__ void read_tile(tile_share<F> &s, const uint8_t *quants,
                                          const uint8_t *scale, const uint8_t *high,
                                          const uint8_t *minus)
{
    int lane = threadIdx.x % 32, row = lane / 4;
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
        uint2 v = reinterpret_cast<const uint2 *>(scale)[row];
        s.scale[0] = v.x, s.scale[1] = v.y;
    } else {
        s.scale[0] = reinterpret_cast<const uint32_t *>(scale)[row];
    }
    if constexpr (form_high_bits(F) == 1) s.high = reinterpret_cast<const uint16_t *>(high)[lane];
    if constexpr (form_high_bits(F) == 2) s.high = reinterpret_cast<const uint32_t *>(high)[lane];
    if constexpr (form_minus_bytes(F) != 0)
        s.minus = reinterpret_cast<const uint32_t *>(minus)[row];
}

__device__ __forceinline__ float2 half2_at(uint32_t bits)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&bits));
}

/* The i-th of a row's scales (minima). */
__device__ __forceinline__ float half_of(const uint32_t *row, int i)
{
    float2 both = half2_at(row[i / 2]);
    return i % 2 ? both.y : both.x;
}

/* ---- Factors ------------------------------------------------------------------------------- */

/* A row's words: {d, -dmin}, and bytes [block][half] with the factors of d in their low halves and
 * those of -dmin in the high ones. */
enum { UNITS, FACTORS };

/* Sums of both halves of a block, times their factors: bytes 2 block and 2 block + 1. IS_SHORT: the
 * sums have 16 bits. */
template <bool IS_SHORT>
__device__ __forceinline__ int factored(uint32_t factors, int block, int first, int second)
{
    if (!IS_SHORT) {
        factors >>= 16 * block;
        return (int)(factors & 15) * first + (int)(factors >> 8 & 15) * second;
    }
    int both = (int)__byte_perm((uint32_t)first, (uint32_t)second, 0x5410);
    return block ? __dp2a_hi(both, (int)factors, 0) : __dp2a_lo(both, (int)factors, 0);
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
    constexpr int WORDS = form_words(F);
    constexpr bool IS_WHOLE = WORDS == 1 || form_shares_bytes(F); /* else this block's words */
    constexpr int OF_BLOCK = IS_WHOLE ? WORDS : WORDS / 2;
    int at = IS_WHOLE ? 0 : block * OF_BLOCK;
    for (int i = 0; i < OF_BLOCK; i++) q[at + i] = quants[(tile * 32 + lane) * WORDS + at + i];
    if (form_high_bits(F) == 1) high = reinterpret_cast<uint16_t *>(w.high)[tile * 32 + lane];
    if (form_high_bits(F) == 2) high = reinterpret_cast<uint32_t *>(w.high)[tile * 32 + lane];
    form_fragments<F>(q, high, b);
    if constexpr (form_has_factors(F)) {
        const uint16_t *halves = w.scale + (tile * 8 + row % 8) * 4;
        uint32_t both = reinterpret_cast<const uint8_t *>(halves + 2)[block * 2 + half];
        scale4(b[block][half], half_at(halves) * (float)(both & 15),
               half_at(halves + 1) * (float)(both >> 4), out);
        return;
    }
    int64_t at_scale = (tile * TILE_ROWS + row % TILE_ROWS) * form_scales(F) +
                       (form_scales(F) == 4 ? block * 2 + half : block);
    float scale = half_at(w.scale + at_scale);
    float minus = form_has_minus(F) ? half_at(w.minus + at_scale) : 0.0f;
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
