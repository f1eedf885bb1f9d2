/* The two 16-bit floats, inline for the row loops. Conversions to float have no branches, so that
 * loops over them vectorise on any processor. All conversions are exact even where denormals are
 * flushed to zero. */
#ifndef QUANT_HALF_H
#define QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* f16: sign, 5 exponent bits biased by 15, 10 fraction bits; f32 biases by 127, hence 112.
 * Infinities and NaN need the step twice: from exponent 31 to 255. */
static inline float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    int32_t magnitude = half & 0x7fff, step = INT32_C(112) << 23;
    int32_t beyond = (0x7bff - magnitude) >> 31; /* all ones for infinity and NaN */
    int32_t below = (magnitude - 0x400) >> 31;   /* all ones for subnormals and zero */
    uint32_t normal = (uint32_t)((magnitude << 13) + step) + (uint32_t)(step & beyond);
    uint32_t subnormal = bits_of_float((float)magnitude * 0x1p-24f);
    return float_of_bits(sign | (subnormal & (uint32_t)below) | (normal & ~(uint32_t)below));
}

static inline uint16_t float_to_half(float value)
{
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu, half;
    if (magnitude > 0x7f800000u) /* NaN, made quiet */
        half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    else if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        half = 0x7c00u;
    else if (magnitude < 0x38800000u) /* below 2^-14: adding 0.5 rounds to multiples of 2^-24 */
        half = bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f);
    else /* to nearest, ties to even; a carry into the exponent is right */
        half = (magnitude - (UINT32_C(112) << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    return (uint16_t)(sign | half);
}

static inline float bfloat_to_float(uint16_t bfloat)
{
    return float_of_bits((uint32_t)bfloat << 16);
}

static inline uint16_t float_to_bfloat(float value)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Scale fields of blocks: little-endian halves at any address. */
static inline float load_half(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half_to_float(half);
}

/* Stores value rounded to a half and returns what was stored. */
static inline float store_half(uint8_t *at, float value)
{
    uint16_t half = float_to_half(value);
    memcpy(at, &half, sizeof half);
    return half_to_float(half);
}

#endif
