/* Q8_0: 32 values x[i] = d q[i]; d a half, q signed bytes. */
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/search.h"

#include <math.h>

enum { VALUES = 32 };
struct block {
    uint8_t d[2];
    int8_t q[VALUES];
};
_Static_assert(sizeof(struct block) == 34, "layout");

void q8_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = load_half(block->d);
        for (int i = 0; i < VALUES; i++) dst[i] = d * (float)block->q[i];
    }
}

/* The largest value gets 127; with 255 levels a search for a better scale would gain less than 1 %,
 * unless the largest value is of little importance.
 * A value that is not finite makes the scale NaN, so that a cache does not hide it. */
void q8_0_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        float largest = 0.0f, not_finite = 0.0f;
        for (int i = 0; i < VALUES; i++) {
            largest = fmaxf(largest, fabsf(src[i]));
            not_finite += src[i] - src[i];
        }
        if (importance)
            largest = 127.0f * fabsf(search_scale(src, importance + b * VALUES, VALUES, -127, 127));
        float d = store_half(block->d, largest / 127.0f + not_finite);
        float inverse = d > 0.0f ? 1.0f / d : 0.0f;
        for (int i = 0; i < VALUES; i++)
            block->q[i] = (int8_t)round_limited(src[i] * inverse, -127, 127);
    }
}
