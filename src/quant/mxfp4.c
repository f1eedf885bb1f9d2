/* MXFP4: 32 floats of four bits times a power of two (fp4.h): x = 2^(exponent - 128) doubled[q];
 * q as in Q4_0. Blocks have 17 bytes, so that every other one lies at an odd address.
 *
 * Tiles of CPUs and GPUs have their scales in fp16: there one below 2^-24 is 0, and one above 2^15
 * infinite. No weights come near either. */
#include "quant/codecs.h"
#include "quant/fp4.h"
#include "quant/search.h"

#include <math.h>

enum { VALUES = 32, HALF = VALUES / 2 };
struct block {
    uint8_t exponent;
    uint8_t q[HALF];
};
_Static_assert(sizeof(struct block) == 17, "layout");

void mxfp4_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = fp4_half_scale(block->exponent);
        for (int i = 0; i < HALF; i++) {
            dst[i] = d * (float)fp4_doubled[block->q[i] & 15];
            dst[i + HALF] = d * (float)fp4_doubled[block->q[i] >> 4];
        }
    }
}

/* The float nearest to value / 2. */
static uint8_t nearest(float value)
{
    int q = 0;
    float magnitude = fabsf(value);
    for (int i = 1; i < 8; i++)
        q += magnitude > 0.5f * (float)(fp4_doubled[i - 1] + fp4_doubled[i]);
    return (uint8_t)(value < 0.0f ? q | 8 : q);
}

static float squared_error(const float *x, const float *importance, uint8_t exponent)
{
    float d = fp4_half_scale(exponent), inverse = 1.0f / d, sum = 0.0f;
    for (int i = 0; i < VALUES; i++) {
        float error = x[i] - d * (float)fp4_doubled[nearest(x[i] * inverse)];
        sum += importance_at(importance, i) * error * error;
    }
    return sum;
}

/* The power of two with which nothing is cut off, or half of it if that has a smaller error. */
static uint8_t search_exponent(const float *x, const float *importance)
{
    int power;
    float largest = 0.0f;
    for (int i = 0; i < VALUES; i++) largest = fmaxf(largest, fabsf(x[i]));
    if (!(largest > 1e-30f) || isinf(largest)) return 0;
    frexpf(largest / 12.0f, &power); /* largest <= 12 * 2^power, power <= 125 */
    uint8_t exponent = (uint8_t)(power + 128), half = (uint8_t)(power + 127);
    float cut = squared_error(x, importance, half), whole = squared_error(x, importance, exponent);
    return cut < whole ? half : exponent;
}

void mxfp4_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        block->exponent = search_exponent(src, importance_from(importance, b * VALUES));
        float inverse = block->exponent ? 1.0f / fp4_half_scale(block->exponent) : 0.0f;
        for (int i = 0; i < HALF; i++)
            block->q[i] =
                (uint8_t)(nearest(src[i] * inverse) | nearest(src[i + HALF] * inverse) << 4);
    }
}
