/* Blocks of the formats whose values are points of grids (grids.h), as codes of N4 and M4:
 *   IQ3_XXS, IQ3_S, IQ2_XXS, IQ2_XS, IQ2_S   points of magnitudes, and signs
 *   IQ1_S, IQ1_M                             points of -1, 0 and 1, all plus or minus an eighth
 * A block has 256 values. */
#ifndef QUANT_GRID_BLOCKS_H
#define QUANT_GRID_BLOCKS_H

#include "quant/format.h"

enum { GRID_VALUES = 256, GRID_GROUPS = 8, GRID_GROUP = GRID_VALUES / GRID_GROUPS };

/* 32 values: x = scale factor[h] levels[q], h the half of 16 that they are in. */
struct grid_codes {
    uint8_t q[GRID_GROUP];
    uint8_t factor[2]; /* odd, up to 31; equal where 32 values share one */
    float scale;       /* of the block; a half times a power of two */
};

static inline bool format_has_grid(enum format format)
{
    switch (format) {
    case FORMAT_IQ3_XXS:
    case FORMAT_IQ3_S:
    case FORMAT_IQ2_XXS:
    case FORMAT_IQ2_XS:
    case FORMAT_IQ2_S:
    case FORMAT_IQ1_S:
    case FORMAT_IQ1_M: return true;
    default: return false;
    }
}

/* Stores the half of a block of IQ1_M, which has it in the top four bits of four words. */
static inline void iq1_m_put_half(uint8_t *block, uint16_t half)
{
    for (int i = 0; i < 4; i++) {
        uint8_t *top = block + 49 + i * 2;
        *top = (uint8_t)((*top & 15) | (half >> 4 * i & 15) << 4);
    }
}

/* The scale of a block is this times the half that it holds. */
float grid_unit(enum format format);

/* Group j of a block as it lies in a file. */
void grid_read(enum format format, const uint8_t *block, int j, struct grid_codes *out);

/* Rows of such blocks. */
void grid_decode(enum format format, const void *src, float *dst, int64_t n);

#endif
