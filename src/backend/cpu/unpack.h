/* The codes of 32 values, taken out of the blocks of a file. */
#ifndef BACKEND_CPU_UNPACK_H
#define BACKEND_CPU_UNPACK_H

#include "quant/format.h"

enum { BLOCK_COLS = 32 };

/* The row of a kind in CODE_LIST. Kernels call it with a constant. */
static inline struct code_facts code_kind_facts(enum code_kind kind)
{
    static const struct code_facts facts[CODE_COUNT] = {
#define X(NAME, ...) {__VA_ARGS__},
        CODE_LIST(X)
#undef X
    };
    return facts[kind];
}

/* Whether both halves of a block of 32 columns have scales of their own: factors times the scale of
 * 256 columns. */
static inline bool code_kind_has_halves(enum code_kind kind)
{
    return code_kind_facts(kind).scale_cols < BLOCK_COLS;
}

/* The lowest four, two and one bits of the four codes of a word. */
enum { NIBBLES = 0x0f0f0f0f, PAIRS = 0x03030303, BITS = 0x01010101 };

/* 32 values of one row, of any format with codes. */
struct block32 {
    uint32_t q[BLOCK_COLS / 4]; /* four codes per word, the first one in its lowest byte */
    float scale, min;
    /* Of both halves, in kinds that have these: a signed byte, or with minima that of `scale` in
     * the low four bits and that of `min` in the high ones. */
    uint8_t factor[2];
};

/* Reads values 32 j .. 32 j + 31 of a block that has the layout of the file. */
void block32_read(enum format format, const uint8_t *block, int j, struct block32 *out);

#endif
