/* Blocks of the GGUF formats as 32 small unsigned codes, a scale and perhaps a minimum. Values are
 * decoded in quant/; here only the integers are taken apart. */
#include "backend/cpu/unpack.h"

#include <string.h>

#include "quant/half.h"
#include "quant/k_scales.h"

static void read_nibbles(const uint8_t *bytes, struct block32 *out)
{
    for (int i = 0; i < 16; i++) {
        out->q[i] = bytes[i] & 15;
        out->q[i + 16] = bytes[i] >> 4;
    }
}

static void add_fifth_bits(const uint8_t *bytes, struct block32 *out)
{
    uint32_t bits;
    memcpy(&bits, bytes, sizeof bits);
    for (int i = 0; i < 32; i++) out->q[i] = (uint8_t)(out->q[i] | (bits >> i & 1) << 4);
}

/* Blocks of 32 values: scale, [minimum], [4 bytes of fifth bits], signed bytes or nibbles. */
static void read_simple(const struct format_traits *traits, const uint8_t *block,
                        struct block32 *out)
{
    const struct code_facts facts = code_kind_facts(traits->codes);
    const uint8_t *codes = block + traits->codes_at;
    if (facts.bits == 8)
        for (int i = 0; i < 32; i++) out->q[i] = codes[i] ^ 0x80;
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
    bool has_fifth = code_kind_facts(traits->codes).bits == 5;
    uint8_t scales[K_GROUPS], mins[K_GROUPS];
    unpack_scales(super + 4, scales, mins);
    out->scale = load_half(super) * (float)scales[j];
    out->min = -load_half(super + 2) * (float)mins[j];
    const uint8_t *fifth = super + 16, *nibbles = super + traits->codes_at + j / 2 * 32;
    for (int i = 0; i < 32; i++) {
        unsigned low = j % 2 ? nibbles[i] >> 4 : nibbles[i] & 15;
        unsigned high = has_fifth ? fifth[i] >> j & 1u : 0;
        out->q[i] = (uint8_t)(low | high << 4);
    }
}

/* 128 bytes of low nibbles, 64 of high pairs, 16 factors, d. Of each half of 128 values the
 * blocks 0 .. 3 take: low nibbles 0-31, 32-63, high nibbles 0-31, 32-63; pairs by shift. */
static void read_q6_k(const uint8_t *super, int j, struct block32 *out)
{
    int half = j / 4, part = j % 4;
    const uint8_t *low = super + half * 64 + part % 2 * 32, *high = super + 128 + half * 32;
    for (int i = 0; i < 32; i++) {
        unsigned nibble = part < 2 ? low[i] & 15u : low[i] >> 4;
        out->q[i] = (uint8_t)(nibble | (high[i] >> 2 * part & 3u) << 4);
    }
    memcpy(out->factor, super + 192 + j * 2, 2);
    out->scale = load_half(super + 208);
}

void block32_read(enum format format, const uint8_t *row, int64_t b, struct block32 *out)
{
    const struct format_traits *traits = format_traits(format);
    int per_block = traits->block_elements / BLOCK_COLS, j = (int)(b % per_block);
    const uint8_t *block = row + b / per_block * traits->block_bytes;
    out->min = 0;
    if (per_block == 1)
        read_simple(traits, block, out);
    else if (traits->codes == CODE_S6)
        read_q6_k(block, j, out);
    else
        read_k(traits, block, j, out);
}
