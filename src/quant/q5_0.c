/* Q5_0: 32 values x = d (q - 16); d a half. The low four bits of q lie as in Q4_0; bit i of
 * `top`, a little-endian word, is the fifth bit of q[i]. */
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/search.h"

enum { VALUES = 32, HALF = VALUES / 2 };
struct block {
    uint8_t d[2];
    uint8_t top[4];
    uint8_t q[HALF];
};
_Static_assert(sizeof(struct block) == 22, "layout");

void q5_0_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = load_half(block->d);
        uint32_t top;
        memcpy(&top, block->top, sizeof top);
        for (int i = 0; i < HALF; i++) {
            int low = (block->q[i] & 15) | (int)(top >> i & 1) << 4;
            int high = block->q[i] >> 4 | (int)(top >> (i + HALF) & 1) << 4;
            dst[i] = d * (float)(low - 16);
            dst[i + HALF] = d * (float)(high - 16);
        }
    }
}

void q5_0_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        float d = store_half(
            block->d, search_scale(src, importance_from(importance, b * VALUES), VALUES, -16, 15));
        float inverse = d != 0.0f ? 1.0f / d : 0.0f;
        uint32_t top = 0;
        for (int i = 0; i < HALF; i++) {
            uint32_t low = (uint32_t)(round_limited(src[i] * inverse, -16, 15) + 16);
            uint32_t high = (uint32_t)(round_limited(src[i + HALF] * inverse, -16, 15) + 16);
            block->q[i] = (uint8_t)((low & 15) | (high & 15) << 4);
            top |= low >> 4 << i | high >> 4 << (i + HALF);
        }
        memcpy(block->top, &top, sizeof top);
    }
}
