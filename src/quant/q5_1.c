/* Q5_1: 32 values x = d q + m; d and m halves; q as in Q5_0, from 0 to 31. */
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/search.h"

enum { VALUES = 32, HALF = VALUES / 2 };
struct block {
    uint8_t d[2], m[2];
    uint8_t top[4];
    uint8_t q[HALF];
};
_Static_assert(sizeof(struct block) == 24, "layout");

void q5_1_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = load_half(block->d), m = load_half(block->m);
        uint32_t top;
        memcpy(&top, block->top, sizeof top);
        for (int i = 0; i < HALF; i++) {
            int low = (block->q[i] & 15) | (int)(top >> i & 1) << 4;
            int high = block->q[i] >> 4 | (int)(top >> (i + HALF) & 1) << 4;
            dst[i] = d * (float)low + m;
            dst[i + HALF] = d * (float)high + m;
        }
    }
}

void q5_1_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        float d, m;
        search_scale_and_offset(src, importance_from(importance, b * VALUES), VALUES, 31, &d, &m);
        d = store_half(block->d, d);
        m = store_half(block->m, m);
        float inverse = d > 0.0f ? 1.0f / d : 0.0f;
        uint32_t top = 0;
        for (int i = 0; i < HALF; i++) {
            uint32_t low = (uint32_t)round_limited((src[i] - m) * inverse, 0, 31);
            uint32_t high = (uint32_t)round_limited((src[i + HALF] - m) * inverse, 0, 31);
            block->q[i] = (uint8_t)((low & 15) | (high & 15) << 4);
            top |= low >> 4 << i | high >> 4 << (i + HALF);
        }
        memcpy(block->top, &top, sizeof top);
    }
}
