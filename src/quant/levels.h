/* 32 values as nibbles that stand for sixteen levels: x = d level[q]. The low nibbles of 16 bytes
 * are values 0 to 15, the high ones 16 to 31. IQ4_NL and IQ4_XS. */
#ifndef QUANT_LEVELS_H
#define QUANT_LEVELS_H

#include "quant/format.h"

enum { LEVELS = 16, LEVEL_VALUES = 32, LEVEL_BYTES = LEVEL_VALUES / 2 };

/* clang-format off */
/* The levels of IQ4_NL and IQ4_XS lie closer together near zero, where weights are. */
#define LEVELS_IQ4 -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

/* Those of formats with grids (grid_blocks.h) are below zero up to index 7, else above. IQ2 and IQ1
 * have three on each side, at indices 5 to 10; the others are not used, and repeat the last one. */
#define LEVELS_IQ3_XXS -31, -26, -22, -18, -14, -10, -6, -2, 2, 6, 10, 14, 18, 22, 26, 31
#define LEVELS_IQ3_S -15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15
#define LEVELS_IQ2 -43, -43, -43, -43, -43, -43, -25, -8, 8, 25, 43, 43, 43, 43, 43, 43
#define LEVELS_IQ1 -9, -9, -9, -9, -9, -9, -7, -1, 1, 7, 9, 9, 9, 9, 9, 9
/* clang-format on */

static const int8_t levels[LEVELS] = {LEVELS_IQ4};

/* The sixteen levels of a format whose codes are N4 or M4; of others NULL. */
const int8_t *format_levels(enum format format);

static inline void levels_decode(const uint8_t q[LEVEL_BYTES], float d, float x[LEVEL_VALUES])
{
    for (int i = 0; i < LEVEL_BYTES; i++) {
        x[i] = d * (float)levels[q[i] & 15];
        x[i + LEVEL_BYTES] = d * (float)levels[q[i] >> 4];
    }
}

/* The index of the nearest level. */
static inline uint8_t nearest_level(float value)
{
    int q = 0;
    for (int i = 1; i < LEVELS; i++) q += value > 0.5f * (float)(levels[i - 1] + levels[i]);
    return (uint8_t)q;
}

/* The nearest levels. d may be negative; 0 gives those nearest to zero. */
void levels_encode(const float x[LEVEL_VALUES], float d, uint8_t q[LEVEL_BYTES]);

/* Like search_scale (search.h), with levels instead of integers. */
float search_levels(const float x[LEVEL_VALUES], const float *importance);

#endif
