/* Q4_0: 32 values x = d (q - 8); d a half. Byte i holds q[i] in its low four bits and q[i + 16] in
 * its high ones. */
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/search.h"

enum { VALUES = 32, HALF = VALUES / 2 };
struct block {
    uint8_t d[2];
    uint8_t q[HALF];
};
_Static_assert(sizeof(struct block) == 18, "layout");

void q4_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = load_half(block->d);
        for (int i = 0; i < HALF; i++) {
            dst[i] = d * (float)((block->q[i] & 15) - 8);
            dst[i + HALF] = d * (float)((block->q[i] >> 4) - 8);
        }
    }
}

void q4_0_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        float d = store_half(
            block->d, search_scale(src, importance_from(importance, b * VALUES), VALUES, -8, 7));
        float inverse = d != 0.0f ? 1.0f / d : 0.0f;
        for (int i = 0; i < HALF; i++) {
            int low = round_limited(src[i] * inverse, -8, 7) + 8;
            int high = round_limited(src[i + HALF] * inverse, -8, 7) + 8;
            block->q[i] = (uint8_t)(low | high << 4);
        }
    }
}
