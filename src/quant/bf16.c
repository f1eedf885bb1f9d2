/* BF16: the upper half of a float, one value per block. */
#include "quant/codecs.h"
#include "quant/half.h"

void bf16_decode(const void *src, float *dst, int64_t n)
{
    const uint8_t *at = src;
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, at + 2 * i, sizeof bits);
        dst[i] = bfloat_to_float(bits);
    }
}

void bf16_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    (void)importance; /* each value gets the nearest */
    uint8_t *at = dst;
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits = float_to_bfloat(src[i]);
        memcpy(at + 2 * i, &bits, sizeof bits);
    }
}
