/* 32 values as nibbles that stand for sixteen levels: x = d level[q]. The low nibbles of 16 bytes
 * are values 0 to 15, the high ones 16 to 31. IQ4_NL and IQ4_XS. */
#ifndef QUANT_LEVELS_H
#define QUANT_LEVELS_H

#include <stdint.h>

enum { LEVELS = 16, LEVEL_VALUES = 32, LEVEL_BYTES = LEVEL_VALUES / 2 };

/* They lie closer together near zero, where weights are. */
static const int8_t levels[LEVELS] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

static inline void levels_decode(const uint8_t q[LEVEL_BYTES], float d, float x[LEVEL_VALUES])
{
    for (int i = 0; i < LEVEL_BYTES; i++) {
        x[i] = d * (float)levels[q[i] & 15];
        x[i + LEVEL_BYTES] = d * (float)levels[q[i] >> 4];
    }
}

/* The nearest levels. d may be negative; 0 gives those nearest to zero. */
void levels_encode(const float x[LEVEL_VALUES], float d, uint8_t q[LEVEL_BYTES]);

/* Like search_scale (search.h), with levels instead of integers. */
float search_levels(const float x[LEVEL_VALUES]);

#endif
