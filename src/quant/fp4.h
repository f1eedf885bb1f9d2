/* The parts of MXFP4: floats of four bits (a sign, two bits of exponent, one of fraction; up to 6)
 * and scales that are powers of two. Doubled, the floats are integers; scales are halved for it. */
#ifndef QUANT_FP4_H
#define QUANT_FP4_H

#include <stdint.h>

#include "quant/half.h"

static const int8_t fp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(exponent - 128), exactly; the first two are subnormal. */
static inline float fp4_half_scale(uint8_t exponent)
{
    return float_of_bits(exponent < 2 ? UINT32_C(0x200000) << exponent
                                      : (uint32_t)(exponent - 1) << 23);
}

#endif
