/* Q4_1: 32 values x = d q + m; d and m halves. Byte i holds q[i] in its low four bits and q[i + 16]
 * in its high ones. */
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/search.h"

enum { VALUES = 32, HALF = VALUES / 2 };
struct block {
    uint8_t d[2], m[2];
    uint8_t q[HALF];
};
_Static_assert(sizeof(struct block) == 20, "layout");

void q4_1_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = load_half(block->d), m = load_half(block->m);
        for (int i = 0; i < HALF; i++) {
            dst[i] = d * (float)(block->q[i] & 15) + m;
            dst[i + HALF] = d * (float)(block->q[i] >> 4) + m;
        }
    }
}

void q4_1_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        float d, m;
        search_scale_and_offset(src, importance_from(importance, b * VALUES), VALUES, 15, &d, &m);
        d = store_half(block->d, d);
        m = store_half(block->m, m);
        float inverse = d > 0.0f ? 1.0f / d : 0.0f;
        for (int i = 0; i < HALF; i++) {
            int low = round_limited((src[i] - m) * inverse, 0, 15);
            int high = round_limited((src[i + HALF] - m) * inverse, 0, 15);
            block->q[i] = (uint8_t)(low | high << 4);
        }
    }
}
