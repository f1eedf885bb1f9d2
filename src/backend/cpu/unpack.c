/* Blocks of the GGUF formats as 32 small unsigned codes, a scale and perhaps a minimum. Values are
 * decoded in quant/; here only the integers are taken apart. */
#include "backend/cpu/unpack.h"

#include <string.h>

#include "quant/fp4.h"
#include "quant/grid_blocks.h"
#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/levels.h"
#include "quant/signed_scales.h"

static uint32_t word_at(const uint8_t *bytes, int i)
{
    uint32_t word;
    memcpy(&word, bytes + (size_t)i * sizeof word, sizeof word);
    return word;
}

static void read_nibbles(const uint8_t *bytes, struct block32 *out)
{
    for (int g = 0; g < 4; g++) {
        out->q[g] = word_at(bytes, g) & NIBBLES;
        out->q[g + 4] = word_at(bytes, g) >> 4 & NIBBLES;
    }
}

/* A bit for each code, in order. The product has copies of four bits 7 bits apart, so that bit i of
 * copy i begins a byte. */
static void add_fifth_bits(const uint8_t *bytes, struct block32 *out)
{
    uint32_t bits = word_at(bytes, 0);
    for (int g = 0; g < 8; g++) out->q[g] |= ((bits >> 4 * g & 15) * 0x204081u & BITS) << 4;
}

/* Blocks of 32 values: scale, [minimum], [4 bytes of fifth bits], signed bytes or nibbles. */
static void read_simple(const struct format_traits *traits, const uint8_t *block,
                        struct block32 *out)
{
    const struct code_facts facts = code_kind_facts(traits->codes);
    const uint8_t *codes = block + traits->codes_at;
    if (facts.bits == 8)
        for (int g = 0; g < 8; g++) out->q[g] = word_at(codes, g) ^ 0x80808080u;
    else
        read_nibbles(codes, out);
    if (facts.bits == 5) add_fifth_bits(codes - 4, out);
    out->scale = load_half(block);
    if (facts.has_min) out->min = load_half(block + 2);
}

/* d, dmin, 12 bytes of scales, [32 bytes of fifth bits], 128 bytes of nibbles: sub-blocks 2 i and
 * 2 i + 1 are the low and high halves of bytes 32 i .. 32 i + 31. */
static void read_k(const struct format_traits *traits, const uint8_t *super, int j,
                   struct block32 *out)
{
    uint8_t scale, min;
    unpack_scale(super + 4, j, &scale, &min);
    out->scale = load_half(super) * (float)scale;
    out->min = -load_half(super + 2) * (float)min;
    const uint8_t *fifth = super + 16, *nibbles = super + traits->codes_at + j / 2 * 32;
    for (int g = 0; g < 8; g++) out->q[g] = word_at(nibbles, g) >> j % 2 * 4 & NIBBLES;
    if (code_kind_facts(traits->codes).bits == 5)
        for (int g = 0; g < 8; g++) out->q[g] |= (word_at(fifth, g) >> j & BITS) << 4;
}

/* 128 bytes of low nibbles, 64 of high pairs, 16 factors, d. Of each half of 128 values the
 * blocks 0 .. 3 take: low nibbles 0-31, 32-63, high nibbles 0-31, 32-63; pairs by shift. */
static void read_q6_k(const uint8_t *super, int j, struct block32 *out)
{
    int half = j / 4, part = j % 4;
    const uint8_t *low = super + half * 64 + part % 2 * 32, *high = super + 128 + half * 32;
    for (int g = 0; g < 8; g++)
        out->q[g] = (word_at(low, g) >> part / 2 * 4 & NIBBLES) |
                    (word_at(high, g) >> 2 * part & PAIRS) << 4;
    memcpy(out->factor, super + 192 + j * 2, 2);
    out->scale = load_half(super + 208);
}

/* Pairs of bits: block j takes pair j % 4 of the first 32 bytes or of the next. */
static void read_pairs(const uint8_t *bytes, int j, struct block32 *out)
{
    for (int g = 0; g < 8; g++) out->q[g] = word_at(bytes + j / 4 * 32, g) >> j % 4 * 2 & PAIRS;
}

/* Factors, 64 bytes of pairs, d, dmin. */
static void read_q2_k(const uint8_t *super, int j, struct block32 *out)
{
    read_pairs(super + 16, j, out);
    memcpy(out->factor, super + 2 * j, 2);
    out->scale = load_half(super + 80);
    out->min = -load_half(super + 82);
}

/* 32 bytes of third bits, 64 of pairs, scales, d. Block j takes bit j. */
static void read_q3_k(const uint8_t *super, int j, struct block32 *out)
{
    read_pairs(super + 32, j, out);
    for (int g = 0; g < 8; g++) out->q[g] |= (word_at(super, g) >> j & BITS) << 2;
    for (int half = 0; half < 2; half++)
        out->factor[half] = (uint8_t)q3_k_scale(super + 96, 2 * j + half);
    out->scale = load_half(super + 108);
}

/* d, scales, eight times the nibbles of IQ4_NL. */
static void read_iq4_xs(const uint8_t *super, int j, struct block32 *out)
{
    read_nibbles(super + 8 + j * LEVEL_BYTES, out);
    out->scale = load_half(super) * (float)iq4_xs_scale(super + 2, j);
}

/* Exponent, nibbles. Floats of four bits become codes of five bits. */
static void read_mxfp4(const uint8_t *block, struct block32 *out)
{
    read_nibbles(block + 1, out);
    for (int g = 0; g < 8; g++) {
        uint32_t nibbles = out->q[g];
        out->q[g] = 16 * BITS;
        for (int i = 0; i < 32; i += 8) out->q[g] += (uint32_t)fp4_doubled[nibbles >> i & 15] << i;
    }
    out->scale = fp4_half_scale(block[0]);
}

/* Points of grids, as nibbles. Bytes are in the order of columns. */
static void read_grid(enum format format, const uint8_t *super, int j, struct block32 *out)
{
    struct grid_codes codes;
    grid_read(format, super, j, &codes);
    memcpy(out->q, codes.q, sizeof out->q);
    for (int half = 0; half < 2; half++) out->factor[half] = codes.factor[half];
    bool has_halves = code_kind_has_halves(format_traits(format)->codes);
    out->scale = codes.scale * (has_halves ? 1.0f : (float)codes.factor[0]);
}

void block32_read(enum format format, const uint8_t *block, int j, struct block32 *out)
{
    out->min = 0;
    switch (format) {
    case FORMAT_Q2_K: read_q2_k(block, j, out); break;
    case FORMAT_Q3_K: read_q3_k(block, j, out); break;
    case FORMAT_Q4_K:
    case FORMAT_Q5_K: read_k(format_traits(format), block, j, out); break;
    case FORMAT_Q6_K: read_q6_k(block, j, out); break;
    case FORMAT_IQ4_XS: read_iq4_xs(block, j, out); break;
    case FORMAT_MXFP4: read_mxfp4(block, out); break;
    default:
        if (format_has_grid(format))
            read_grid(format, block, j, out);
        else
            read_simple(format_traits(format), block, out);
    }
}
