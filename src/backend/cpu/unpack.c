/* Blocks of the GGUF formats as 32 small unsigned numbers, a scale and perhaps a minimum. The
 * values are those of quant/; here only the integers are taken apart. */
#include <string.h>

#include "backend/cpu/tile.h"
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

/* d, dmin, 12 bytes of scales, [32 bytes of fifth bits], 128 bytes of nibbles: sub-blocks 2 i and
 * 2 i + 1 are the low and high halves of bytes 32 i .. 32 i + 31. */
static void read_k(const uint8_t *super, int j, bool has_fifth, struct block32 *out)
{
    uint8_t scales[K_GROUPS], mins[K_GROUPS];
    unpack_scales(super + 4, scales, mins);
    out->scale = load_half(super) * (float)scales[j];
    out->min = -load_half(super + 2) * (float)mins[j];
    const uint8_t *fifth = super + 16, *nibbles = super + (has_fifth ? 48 : 16) + j / 2 * 32;
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
    const struct format_traits *traits = format_of(format);
    int per_block = traits->block_elements / BLOCK_COLS, j = (int)(b % per_block);
    const uint8_t *p = row + b / per_block * traits->block_bytes;
    out->min = 0;
    switch (format) {
    case FORMAT_Q8_0:
        for (int i = 0; i < 32; i++) out->q[i] = p[2 + i] ^ 0x80;
        break;
    case FORMAT_Q4_0:
    case FORMAT_IQ4_NL: read_nibbles(p + 2, out); break;
    case FORMAT_Q4_1: read_nibbles(p + 4, out); break;
    case FORMAT_Q5_0:
        read_nibbles(p + 6, out);
        add_fifth_bits(p + 2, out);
        break;
    case FORMAT_Q5_1:
        read_nibbles(p + 8, out);
        add_fifth_bits(p + 4, out);
        break;
    case FORMAT_Q4_K:
    case FORMAT_Q5_K: read_k(p, j, format == FORMAT_Q5_K, out); return;
    case FORMAT_Q6_K: read_q6_k(p, j, out); return;
    default: break;
    }
    out->scale = load_half(p);
    if (format == FORMAT_Q4_1 || format == FORMAT_Q5_1) out->min = load_half(p + 2);
}
