/* The packed scales of Q3_K and IQ4_XS: signed numbers of six bits, stored plus 32. */
#ifndef QUANT_SIGNED_SCALES_H
#define QUANT_SIGNED_SCALES_H

#include <stdint.h>

enum { SIGNED_SCALE_LOW = -32 };

/* Q3_K, sixteen scales in 12 bytes: byte i holds the low four bits of scales i and i + 8, the first
 * in its low half; pair k of byte 8 + i the top two of scale 4 k + i. */
enum { Q3_K_SCALES = 16, Q3_K_SCALES_BYTES = 12 };

static inline int q3_k_scale(const uint8_t packed[Q3_K_SCALES_BYTES], int g)
{
    int low = packed[g % 8] >> g / 8 * 4 & 15, top = packed[8 + g % 4] >> g / 4 * 2 & 3;
    return (low | top << 4) + SIGNED_SCALE_LOW;
}

/* IQ4_XS, eight scales in 6 bytes: the first two hold the top two bits of each, in order; then
 * come their low four bits. */
enum { IQ4_XS_SCALES = 8, IQ4_XS_SCALES_BYTES = 6 };

static inline int iq4_xs_scale(const uint8_t packed[IQ4_XS_SCALES_BYTES], int g)
{
    int low = packed[2 + g / 2] >> g % 2 * 4 & 15, top = packed[g / 4] >> g % 4 * 2 & 3;
    return (low | top << 4) + SIGNED_SCALE_LOW;
}

#endif
