/* Blocks of the formats with grids as in a file (quant/grid_blocks.h): 256 values in eight groups
 * of 32, points of 8 or 4 values. */
#ifndef CUDA_FILE_GRIDS_CUH
#define CUDA_FILE_GRIDS_CUH

#include "backend/cuda/kernels/form.cuh"

#define GRID(NAME, N) static __device__ const uint16_t NAME[N]
#include "quant/grids_data.h"
#undef GRID

__host__ __device__ constexpr bool is_grid(int format)
{
    return format == FORMAT_IQ3_XXS || format == FORMAT_IQ3_S || format == FORMAT_IQ2_XXS ||
           format == FORMAT_IQ2_XS || format == FORMAT_IQ2_S || format == FORMAT_IQ1_S ||
           format == FORMAT_IQ1_M;
}

__device__ __forceinline__ uint32_t load_half_word(const uint8_t *p)
{
    return *reinterpret_cast<const uint16_t *>(p);
}

/* At even addresses. */
__device__ __forceinline__ uint32_t load_word(const uint8_t *p)
{
    return load_half_word(p) | load_half_word(p + 2) << 16;
}

/* ---- Codes ----------------------------------------------------------------------------------- */

/* The lowest four numbers of two or three bits as bytes. */
__device__ __forceinline__ uint32_t four_pairs(uint32_t x)
{
    return (x & 3) | (x & 12) << 6 | (x & 48) << 12 | (x & 192) << 18;
}
__device__ __forceinline__ uint32_t four_triples(uint32_t x)
{
    return (x & 7) | (x & 070) << 5 | (x & 0700) << 10 | (x & 07000) << 15;
}

/* Seven signs and their parity. */
__device__ __forceinline__ uint32_t even_signs(uint32_t seven)
{
    seven &= 127;
    return seven | (uint32_t)(__popc(seven) & 1) << 7;
}

/* Indices of levels on the sides that the lowest four bits of `signs` say: above zero they are 8
 * and more, and turned over below. */
__device__ __forceinline__ uint32_t with_signs(uint32_t above, uint32_t signs)
{
    uint32_t is_below = (signs & 15) * 0x00204081u & 0x01010101u;
    return above ^ is_below * 15;
}

/* Magnitudes 0, 1, 2 (8, 25, 43) of M4. */
__device__ __forceinline__ uint32_t iq2_indices(uint32_t pairs)
{
    return 0x0a0a0a0au + 2 * pairs - (pairs >> 1 & 0x01010101u);
}

/* 0, 1, 2 for -1, 0, 1, all plus or minus an eighth, of M4. */
__device__ __forceinline__ uint32_t iq1_indices(uint32_t pairs, bool is_minus)
{
    uint32_t is_two = pairs >> 1 & 0x01010101u;
    return is_minus ? 0x04040404u + 3 * pairs - is_two : 0x06060606u + 2 * pairs + is_two;
}

/* Columns c .. c + 3 of a block, which are the first or second four of eight. O4: signed. */
template <int FORMAT> __device__ __forceinline__ uint32_t grid_codes4(const uint8_t *block, int c)
{
    int j = c / 32, i = c % 32 / 8, second = c / 4 % 2;
    if constexpr (FORMAT == FORMAT_IQ2_XXS) {
        const uint8_t *indices = block + 2 + j * 8;
        uint32_t signs = even_signs(load_word(indices + 4) >> 7 * i) >> 4 * second;
        uint32_t pairs = four_pairs(iq2_xxs_points[indices[i]] >> 8 * second);
        return with_signs(iq2_indices(pairs), signs);
    } else if constexpr (FORMAT == FORMAT_IQ2_XS) {
        uint32_t word = load_half_word(block + 2 + j * 8 + i * 2);
        uint32_t pairs = four_pairs(iq2_xs_points[word & 511] >> 8 * second);
        return with_signs(iq2_indices(pairs), even_signs(word >> 9) >> 4 * second);
    } else if constexpr (FORMAT == FORMAT_IQ2_S) {
        int at = block[2 + j * 4 + i] | (block[66 + j] >> 2 * i & 3) << 8;
        uint32_t pairs = four_pairs(iq2_s_points[at] >> 8 * second);
        return with_signs(iq2_indices(pairs), block[34 + j * 4 + i] >> 4 * second);
    } else if constexpr (FORMAT == FORMAT_IQ3_XXS) {
        int point = block[2 + j * 8 + i * 2 + second];
        uint32_t signs = even_signs(load_word(block + 66 + j * 4) >> 7 * i) >> 4 * second;
        return with_signs(0x08080808u + four_triples(iq3_xxs_points[point]), signs);
    } else if constexpr (FORMAT == FORMAT_IQ3_S) {
        int at = i * 2 + second, point = block[2 + j * 8 + at] | (block[66 + j] >> at & 1) << 8;
        uint32_t above = 0x08080808u + four_triples(iq3_s_points[point]);
        return __vsub4(with_signs(above, block[74 + j * 4 + i] >> 4 * second), 0x08080808u);
    } else if constexpr (FORMAT == FORMAT_IQ1_S) {
        uint32_t word = load_half_word(block + 34 + j * 2);
        uint32_t point = iq1_points[block[2 + j * 4 + i] | (word >> 3 * i & 7) << 8];
        return iq1_indices(four_pairs(point >> 8 * second), word >> 15);
    } else {
        uint32_t nibble = block[32 + j * 2 + i / 2] >> i % 2 * 4;
        uint32_t point = iq1_points[block[j * 4 + i] | (nibble & 7) << 8];
        return iq1_indices(four_pairs(point >> 8 * second), nibble & 8);
    }
}

/* ---- Scales ---------------------------------------------------------------------------------- */

/* The half that a block of IQ1_M holds in the top four bits of four words. */
__device__ __forceinline__ float iq1_m_half(const uint8_t *block)
{
    uint32_t half = 0;
    for (int i = 0; i < 4; i++) half |= load_half_word(block + 48 + i * 2) >> 12 << 4 * i;
    return __half2float(__ushort_as_half((uint16_t)half));
}

/* The scale of column c of a block, times 1 / unit: its half by an odd number. */
template <int FORMAT> __device__ __forceinline__ float grid_scale(const uint8_t *block, int c)
{
    int j = c / 32, half = c / 16 % 2;
    uint32_t factor;
    if constexpr (FORMAT == FORMAT_IQ2_XXS)
        factor = load_word(block + 2 + j * 8 + 4) >> 28;
    else if constexpr (FORMAT == FORMAT_IQ2_XS)
        factor = block[66 + j] >> 4 * half & 15;
    else if constexpr (FORMAT == FORMAT_IQ2_S)
        factor = block[74 + j] >> 4 * half & 15;
    else if constexpr (FORMAT == FORMAT_IQ3_XXS)
        factor = load_word(block + 66 + j * 4) >> 28;
    else if constexpr (FORMAT == FORMAT_IQ3_S)
        factor = block[106 + j / 2] >> j % 2 * 4 & 15;
    else if constexpr (FORMAT == FORMAT_IQ1_S)
        factor = load_half_word(block + 34 + j * 2) >> 12 & 7;
    else
        factor = load_half_word(block + 48 + j / 2 * 2) >> (j % 2 * 6 + half * 3) & 7;
    float d = FORMAT == FORMAT_IQ1_M ? iq1_m_half(block) : half_at(block);
    return d * (float)(2 * factor + 1);
}

#endif
