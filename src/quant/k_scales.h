/* The packed scales of Q4_K and Q5_K: eight scales and eight minima of six bits in 12 bytes. Bytes
 * 0..3 hold scales 0..3 and bytes 4..7 minima 0..3 in their low six bits; bytes 8..11 hold the low
 * four bits of scales 4..7 and, in their high four bits, those of minima 4..7. The top two bits of
 * scales 4..7 are those of bytes 0..3, the top two of minima 4..7 those of bytes 4..7. */
#ifndef QUANT_K_SCALES_H
#define QUANT_K_SCALES_H

#include <stdint.h>

enum { K_VALUES = 256, K_GROUPS = 8, K_GROUP_VALUES = 32, K_SCALES_BYTES = 12 };

/* Scale and minimum of group i. */
static inline void unpack_scale(const uint8_t packed[K_SCALES_BYTES], int i, uint8_t *scale,
                                uint8_t *min)
{
    if (i < 4) {
        *scale = packed[i] & 63;
        *min = packed[i + 4] & 63;
    } else {
        *scale = (uint8_t)((packed[i + 4] & 15) | packed[i - 4] >> 6 << 4);
        *min = (uint8_t)(packed[i + 4] >> 4 | packed[i] >> 6 << 4);
    }
}

static inline void unpack_scales(const uint8_t packed[K_SCALES_BYTES], uint8_t scales[K_GROUPS],
                                 uint8_t mins[K_GROUPS])
{
    for (int i = 0; i < K_GROUPS; i++) unpack_scale(packed, i, &scales[i], &mins[i]);
}

static inline void pack_scales(const uint8_t scales[K_GROUPS], const uint8_t mins[K_GROUPS],
                               uint8_t packed[K_SCALES_BYTES])
{
    for (int i = 0; i < 4; i++) {
        packed[i] = (uint8_t)(scales[i] | scales[i + 4] >> 4 << 6);
        packed[i + 4] = (uint8_t)(mins[i] | mins[i + 4] >> 4 << 6);
        packed[i + 8] = (uint8_t)((scales[i + 4] & 15) | (mins[i + 4] & 15) << 4);
    }
}

/* Finds the scales of 256 values and their quants 0..high; stores both halves at d and dmin. */
void k_encode(const float *x, const float *importance, int high, uint8_t d[2], uint8_t dmin[2],
              uint8_t packed[K_SCALES_BYTES], uint8_t quants[K_VALUES]);

#endif
