/* Q5_K: like Q4_K, with quants of five bits; bit g of top[i] is the fifth bit of value i of group
 * g. */
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/search.h"

struct block {
    uint8_t d[2], dmin[2];
    uint8_t scales[K_SCALES_BYTES];
    uint8_t top[K_GROUP_VALUES];
    uint8_t q[K_VALUES / 2];
};
_Static_assert(sizeof(struct block) == 176, "layout");

void q5_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / K_VALUES; b++, block++) {
        float d = load_half(block->d), dmin = load_half(block->dmin);
        uint8_t scales[K_GROUPS], mins[K_GROUPS];
        unpack_scales(block->scales, scales, mins);
        for (int g = 0; g < K_GROUPS; g += 2, dst += 2 * K_GROUP_VALUES) {
            const uint8_t *q = block->q + g / 2 * K_GROUP_VALUES;
            float d0 = d * scales[g], m0 = dmin * mins[g];
            float d1 = d * scales[g + 1], m1 = dmin * mins[g + 1];
            for (int i = 0; i < K_GROUP_VALUES; i++) {
                int top = block->top[i] >> g & 1;
                dst[i] = d0 * (float)((q[i] & 15) | top << 4) - m0;
            }
            for (int i = 0; i < K_GROUP_VALUES; i++) {
                int top = block->top[i] >> (g + 1) & 1;
                dst[i + K_GROUP_VALUES] = d1 * (float)(q[i] >> 4 | top << 4) - m1;
            }
        }
    }
}

void q5_k_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / K_VALUES; b++, block++, src += K_VALUES) {
        uint8_t quants[K_VALUES];
        k_encode(src, importance_from(importance, b * K_VALUES), 31, block->d, block->dmin,
                 block->scales, quants);
        memset(block->top, 0, sizeof block->top);
        for (int i = 0; i < K_VALUES; i++)
            block->top[i % K_GROUP_VALUES] |= (uint8_t)(quants[i] >> 4 << i / K_GROUP_VALUES);
        for (int i = 0; i < K_VALUES / 2; i++) {
            const uint8_t *pair = quants + i / K_GROUP_VALUES * 2 * K_GROUP_VALUES;
            int low = pair[i % K_GROUP_VALUES] & 15;
            int high = pair[i % K_GROUP_VALUES + K_GROUP_VALUES] & 15;
            block->q[i] = (uint8_t)(low | high << 4);
        }
    }
}
