/* Weights as in a file: the codes and scales of a row's blocks (src/quant has their layouts), and
 * the decoding of any weight of any layout. Blocks lie at even addresses, those of MXFP4 at any. */
#ifndef CUDA_FILE_CUH
#define CUDA_FILE_CUH

#include "backend/cuda/kernels/file_grids.cuh"

template <int FORMAT> struct file_block;
#define X(NAME, name, type, elements, bytes, budget, kind, at)                                     \
    template <> struct file_block<FORMAT_##NAME> {                                                 \
        enum { COLS = elements, BYTES = bytes, CODES = at };                                       \
        static constexpr enum form form = form_of(FORMAT_##NAME);                                  \
        static constexpr struct code_facts facts = form_facts_of(form);                            \
    };
BLOCK_FORMAT_LIST(X)
#undef X

/* At any address. */
__device__ __forceinline__ uint32_t load_bytes(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Nibbles in the low halves of bytes, side by side in the low half of a word. */
__device__ __forceinline__ uint32_t pack_nibbles(uint32_t n)
{
    return (n & 15) | (n >> 4 & 0xf0) | (n >> 8 & 0xf00) | (n >> 12 & 0xf000);
}

/* ---- Codes ----------------------------------------------------------------------------------- */

/* Of columns c .. c + 3 of a block: two bits. */
__device__ __forceinline__ uint32_t pair_codes4(const uint8_t *pairs, int c)
{
    return load_word(pairs + c / 128 * 32 + c % 32) >> (c / 32 % 4 * 2) & 0x03030303u;
}

/* Signed: two bits, and a third one. */
__device__ __forceinline__ uint32_t q3_k_codes4(const uint8_t *block, int c)
{
    uint32_t top = load_word(block + c % 32) >> (c / 32) & 0x01010101u;
    return __vsub4(pair_codes4(block + 32, c) | top << 2, 0x04040404u);
}

/* Four bits, and two more. */
__device__ __forceinline__ uint32_t q6_k_codes4(const uint8_t *block, int c)
{
    int part = c / 128, quarter = c % 128 / 32, i = c % 32;
    uint32_t low = load_word(block + part * 64 + quarter % 2 * 32 + i) >> (quarter / 2 * 4);
    uint32_t top = load_word(block + 128 + part * 32 + i) >> (quarter * 2);
    return __vsub4((low & 0x0f0f0f0fu) | (top & 0x03030303u) << 4, 0x20202020u);
}

/* Floats of four bits, doubled: 0 1 2 3, 4 6 8 12 and a sign. */
__device__ __forceinline__ uint32_t mxfp4_codes4(const uint8_t *block, int c)
{
    uint32_t n = load_bytes(block + 1 + c % 16) >> (c / 16 * 4) & 0x0f0f0f0fu;
    uint32_t magnitude = __byte_perm(0x03020100u, 0x0c080604u, pack_nibbles(n) & 0x7777u);
    uint32_t is_negative = (n >> 3 & 0x01010101u) * 0xffu;
    return __vsub4(magnitude ^ is_negative, is_negative);
}

/* The codes of columns col .. col + 3 (col a multiple of 4) of a row as in the file, a signed byte
 * each: q minus the format's offset; indices where a form has levels. */
template <int FORMAT> __device__ __forceinline__ uint32_t file_codes4(const uint8_t *row, int col)
{
    typedef file_block<FORMAT> B;
    const uint8_t *block = row + (int64_t)(col / B::COLS) * B::BYTES, *q = block + B::CODES;
    int c = col % B::COLS;
    if constexpr (B::facts.bits == 8) {
        return load_word(q + c); /* signed as they are */
    } else if constexpr (is_grid(FORMAT)) {
        return grid_codes4<FORMAT>(block, c);
    } else if constexpr (FORMAT == FORMAT_MXFP4) {
        return mxfp4_codes4(block, c);
    } else if constexpr (FORMAT == FORMAT_Q2_K) {
        return pair_codes4(q, c);
    } else if constexpr (FORMAT == FORMAT_Q3_K) {
        return q3_k_codes4(block, c);
    } else if constexpr (FORMAT == FORMAT_Q6_K) {
        return q6_k_codes4(block, c);
    } else if constexpr (B::COLS == 32 || FORMAT == FORMAT_IQ4_XS) {
        uint32_t n = load_word(q + c / 32 * 16 + c % 16) >> (c % 32 / 16 * 4) & 0x0f0f0f0fu;
        if constexpr (B::facts.bits == 5) {
            uint32_t top = load_word(q - 4) >> c & 15;
            n |= top * 0x02040810u & 0x10101010u;
        }
        return B::facts.offset ? __vsub4(n, B::facts.offset * 0x01010101u) : n;
    } else {
        int group = c / 32, i = c % 32;
        uint32_t n = load_word(q + group / 2 * 32 + i) >> (group % 2 * 4) & 0x0f0f0f0fu;
        if constexpr (B::facts.bits == 5)
            n |= (load_word(block + 16 + i) >> group & 0x01010101u) << 4;
        return n;
    }
}

/* ---- Scales ---------------------------------------------------------------------------------- */

/* Scales of six bits, as quant/signed_scales.h has them. */
__device__ __forceinline__ float q3_k_scale_at(const uint8_t *block, int g)
{
    int low = block[96 + g % 8] >> (g / 8 * 4) & 15, top = block[104 + g % 4] >> (g / 4 * 2) & 3;
    return half_at(block + 108) * (float)((low | top << 4) - 32);
}

__device__ __forceinline__ float iq4_xs_scale_at(const uint8_t *block, int g)
{
    int low = block[4 + g / 2] >> (g % 2 * 4) & 15, top = block[2 + g / 4] >> (g % 4 * 2) & 3;
    return half_at(block) * (float)((low | top << 4) - 32);
}

/* 2^(exponent - 128). */
__device__ __forceinline__ float mxfp4_scale_at(const uint8_t *block)
{
    uint32_t exponent = block[0];
    return __uint_as_float(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
}

/* Scale and minus of column col. */
template <int FORMAT> __device__ __forceinline__ float2 file_scale(const uint8_t *row, int col)
{
    typedef file_block<FORMAT> B;
    const uint8_t *block = row + (int64_t)(col / B::COLS) * B::BYTES;
    if constexpr (FORMAT == FORMAT_MXFP4) {
        return make_float2(mxfp4_scale_at(block), 0.0f);
    } else if constexpr (is_grid(FORMAT)) {
        return make_float2(grid_scale<FORMAT>(block, col % 256), 0.0f);
    } else if constexpr (FORMAT == FORMAT_IQ4_XS) {
        return make_float2(iq4_xs_scale_at(block, col % 256 / 32), 0.0f);
    } else if constexpr (FORMAT == FORMAT_Q2_K) {
        int both = block[col % 256 / 16];
        return make_float2(half_at(block + 80) * (float)(both & 15),
                           -(half_at(block + 82) * (float)(both >> 4)));
    } else if constexpr (FORMAT == FORMAT_Q3_K) {
        return make_float2(q3_k_scale_at(block, col % 256 / 16), 0.0f);
    } else if constexpr (FORMAT == FORMAT_Q6_K) {
        float d = half_at(block + 208);
        return make_float2(d * (float)(int8_t)block[192 + col % 256 / 16], 0.0f);
    } else if constexpr (B::COLS == 256) {
        int g = col % 256 / 32, scale, min;
        const uint8_t *packed = block + 4;
        if (g < 4) {
            scale = packed[g] & 63, min = packed[g + 4] & 63;
        } else {
            scale = (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
            min = packed[g + 4] >> 4 | packed[g] >> 6 << 4;
        }
        return make_float2(half_at(block) * (float)scale, -(half_at(block + 2) * (float)min));
    } else {
        return make_float2(half_at(block), B::facts.has_min ? half_at(block + 2) : 0.0f);
    }
}

/* ---- Decoding -------------------------------------------------------------------------------- */

template <int FORMAT>
__device__ __forceinline__ void file_decode4(const uint8_t *row, int col, float out[4])
{
    uint32_t codes = file_codes4<FORMAT>(row, col);
    float2 s = file_scale<FORMAT>(row, col);
    constexpr enum form F = file_block<FORMAT>::form;
    if constexpr (form_has_levels(F)) codes = levels_of<F>(pack_nibbles(codes));
    if constexpr (F == FORM_O4) codes = (codes << 4 & 0xf0f0f0f0u) | 0x08080808u;
    if constexpr (form_has_levels(F) || F == FORM_O4) s.x *= form_unit(F);
    scale4(codes, s.x, s.y, out);
}

/* Columns col .. col + 7 of a row as in the file, of any format; 0 from column `cols` on. */
__device__ __forceinline__ void file_decode8(enum format format, const uint8_t *row, int col,
                                             int cols, float out[8])
{
    switch (format) {
    case FORMAT_F32:
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = col + i < cols ? reinterpret_cast<const float *>(row)[col + i] : 0.0f;
        break;
    case FORMAT_F16:
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = col + i < cols ? half_at(row + 2 * (col + i)) : 0.0f;
        break;
    case FORMAT_BF16:
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = col + i < cols
                         ? __uint_as_float(
                               (uint32_t) reinterpret_cast<const uint16_t *>(row)[col + i] << 16)
                         : 0.0f;
        break;
#define X(NAME, ...)                                                                               \
    case FORMAT_##NAME:                                                                            \
        file_decode4<FORMAT_##NAME>(row, col, out);                                                \
        file_decode4<FORMAT_##NAME>(row, col + 4, out + 4);                                        \
        break;
        BLOCK_FORMAT_LIST(X)
#undef X
    default: break;
    }
}

/* Columns col .. col + 7 (col a multiple of 8) of a row of any weight; 0 beyond its columns. */
__device__ __forceinline__ void weight_decode8(const struct cuda_weight &w, int expert, int row,
                                               int col, float out[8])
{
    if (w.layout == LAYOUT_TILES) {
        tile_decode8(w, expert, row, col, out);
        return;
    }
    int64_t at = (int64_t)expert * w.rows + row;
    if (w.layout == LAYOUT_FLOATS)
        file_decode8(FORMAT_F32, w.quants + at * w.cols * 4, col, w.cols, out);
    else
        file_decode8(w.format, w.quants + at * w.row_bytes, col, w.cols, out);
}

#endif
