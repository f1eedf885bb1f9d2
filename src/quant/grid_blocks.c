#include "quant/grid_blocks.h"

#include "quant/grids.h"
#include "quant/half.h"
#include "quant/levels.h"

static uint32_t load16(const uint8_t *at)
{
    uint16_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static uint32_t load32(const uint8_t *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

/* ---- Points ------------------------------------------------------------------------------ */

/* Eight magnitudes of two bits: levels 8, 9 and 10, or with a sign those on the other side of
 * zero. */
static void put_eight(uint32_t point, uint32_t signs, uint8_t q[8])
{
    for (int i = 0; i < 8; i++)
        q[i] = (uint8_t)((8 + (point >> 2 * i & 3)) ^ (signs >> i & 1 ? 15 : 0));
}

/* Four magnitudes of three bits. */
static void put_four(uint32_t point, uint32_t signs, uint8_t q[4])
{
    for (int i = 0; i < 4; i++)
        q[i] = (uint8_t)((8 + (point >> 3 * i & 7)) ^ (signs >> i & 1 ? 15 : 0));
}

/* Eight of -1, 0 and 1, minus or plus an eighth: levels 5, 7 and 9, or 6, 8 and 10. */
static void put_shifted(uint32_t point, bool is_minus, uint8_t q[8])
{
    for (int i = 0; i < 8; i++) q[i] = (uint8_t)(6 - is_minus + 2 * (point >> 2 * i & 3));
}

/* ---- Formats ----------------------------------------------------------------------------- */

static void put_factors(uint32_t first, uint32_t second, struct grid_codes *out)
{
    out->factor[0] = (uint8_t)(2 * first + 1);
    out->factor[1] = (uint8_t)(2 * second + 1);
}

/* d, eight groups of four indices of a byte and a word: four times seven signs, a factor. */
static void read_iq2_xxs(const uint8_t *block, int j, struct grid_codes *out)
{
    const uint8_t *indices = block + 2 + j * 8;
    uint32_t word = load32(indices + 4);
    for (int i = 0; i < 4; i++)
        put_eight(iq2_xxs_points[indices[i]], even_signs(word >> 7 * i & 127), out->q + i * 8);
    put_factors(word >> 28, word >> 28, out);
}

/* d, 32 times an index of nine bits and seven signs, eight pairs of factors. */
static void read_iq2_xs(const uint8_t *block, int j, struct grid_codes *out)
{
    for (int i = 0; i < 4; i++) {
        uint32_t word = load16(block + 2 + j * 8 + i * 2);
        put_eight(iq2_xs_points[word & 511], even_signs(word >> 9), out->q + i * 8);
    }
    put_factors(block[66 + j] & 15, block[66 + j] >> 4, out);
}

/* d, 32 low bytes of indices, 32 times eight signs, eight times four high pairs of indices, eight
 * pairs of factors. */
static void read_iq2_s(const uint8_t *block, int j, struct grid_codes *out)
{
    const uint8_t *low = block + 2 + j * 4, *signs = block + 34 + j * 4;
    for (int i = 0; i < 4; i++) {
        int index = low[i] | (block[66 + j] >> 2 * i & 3) << 8;
        put_eight(iq2_s_points[index], signs[i], out->q + i * 8);
    }
    put_factors(block[74 + j] & 15, block[74 + j] >> 4, out);
}

/* d, 64 indices of a byte, eight words as in IQ2_XXS. */
static void read_iq3_xxs(const uint8_t *block, int j, struct grid_codes *out)
{
    const uint8_t *indices = block + 2 + j * 8;
    uint32_t word = load32(block + 66 + j * 4);
    for (int i = 0; i < 8; i++) {
        uint32_t signs = even_signs(word >> i / 2 * 7 & 127) >> i % 2 * 4;
        put_four(iq3_xxs_points[indices[i]], signs, out->q + i * 4);
    }
    put_factors(word >> 28, word >> 28, out);
}

/* d, 64 low bytes of indices, 64 high bits, 32 times eight signs, eight factors of four bits. */
static void read_iq3_s(const uint8_t *block, int j, struct grid_codes *out)
{
    const uint8_t *low = block + 2 + j * 8, *signs = block + 74 + j * 4;
    for (int i = 0; i < 8; i++) {
        int index = low[i] | (block[66 + j] >> i & 1) << 8;
        put_four(iq3_s_points[index], (uint32_t)signs[i / 2] >> i % 2 * 4, out->q + i * 4);
    }
    uint32_t factor = block[106 + j / 2] >> j % 2 * 4 & 15;
    put_factors(factor, factor, out);
}

/* d, 32 low bytes of indices, eight words: four times three high bits, a factor of three bits,
 * whether the eighth is subtracted. */
static void read_iq1_s(const uint8_t *block, int j, struct grid_codes *out)
{
    const uint8_t *low = block + 2 + j * 4;
    uint32_t word = load16(block + 34 + j * 2);
    for (int i = 0; i < 4; i++)
        put_shifted(iq1_points[low[i] | (word >> 3 * i & 7) << 8], word >> 15, out->q + i * 8);
    put_factors(word >> 12 & 7, word >> 12 & 7, out);
}

/* 32 low bytes of indices; 32 nibbles: three high bits, whether the eighth is subtracted; four
 * words: four factors of three bits, four bits of d. */
static void read_iq1_m(const uint8_t *block, int j, struct grid_codes *out)
{
    const uint8_t *low = block + j * 4, *nibbles = block + 32 + j * 2;
    uint32_t factors = load16(block + 48 + j / 2 * 2) >> j % 2 * 6;
    for (int i = 0; i < 4; i++) {
        uint32_t nibble = (uint32_t)nibbles[i / 2] >> i % 2 * 4;
        put_shifted(iq1_points[low[i] | (nibble & 7) << 8], nibble >> 3 & 1, out->q + i * 8);
    }
    put_factors(factors & 7, factors >> 3 & 7, out);
}

static float iq1_m_half(const uint8_t *block)
{
    uint32_t half = 0;
    for (int i = 0; i < 4; i++) half |= load16(block + 48 + i * 2) >> 12 << 4 * i;
    return half_to_float((uint16_t)half);
}

float grid_unit(enum format format)
{
    switch (format) {
    case FORMAT_IQ3_S: return 1.0f;
    case FORMAT_IQ3_XXS: return 0.5f;
    default: return 0.125f;
    }
}

void grid_read(enum format format, const uint8_t *block, int j, struct grid_codes *out)
{
    switch (format) {
    case FORMAT_IQ2_XXS: read_iq2_xxs(block, j, out); break;
    case FORMAT_IQ2_XS: read_iq2_xs(block, j, out); break;
    case FORMAT_IQ2_S: read_iq2_s(block, j, out); break;
    case FORMAT_IQ3_XXS: read_iq3_xxs(block, j, out); break;
    case FORMAT_IQ3_S: read_iq3_s(block, j, out); break;
    case FORMAT_IQ1_S: read_iq1_s(block, j, out); break;
    default: read_iq1_m(block, j, out); break;
    }
    out->scale =
        grid_unit(format) * (format == FORMAT_IQ1_M ? iq1_m_half(block) : load_half(block));
}

void grid_decode(enum format format, const void *src, float *dst, int64_t n)
{
    const size_t block_bytes = (size_t)format_traits(format)->block_bytes;
    const int8_t *table = format_levels(format);
    const uint8_t *block = src;
    struct grid_codes codes;
    for (int64_t b = 0; b < n / GRID_VALUES; b++, block += block_bytes)
        for (int j = 0; j < GRID_GROUPS; j++, dst += GRID_GROUP) {
            grid_read(format, block, j, &codes);
            for (int i = 0; i < GRID_GROUP; i++)
                dst[i] = codes.scale * (float)codes.factor[i / 16] * (float)table[codes.q[i]];
        }
}
