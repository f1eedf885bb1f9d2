/* Q6_K: 256 values in sixteen groups of 16: x = d scale[g] (q - 32), scales signed bytes, q of
 * six bits. Each half of 128 values takes 64 bytes of low nibbles and 32 bytes of top bits;
 * with i from 0 to 31 its four quarters of 32 values are
 *     q[i]      = low[i] & 15        top[i] bits 0, 1
 *     q[i + 32] = low[i + 32] & 15   top[i] bits 2, 3
 *     q[i + 64] = low[i] >> 4        top[i] bits 4, 5
 *     q[i + 96] = low[i + 32] >> 4   top[i] bits 6, 7 */
#include "quant/codecs.h"
#include "quant/group_search.h"
#include "quant/half.h"
#include "quant/search.h"

enum { VALUES = 256, PART = 128, QUARTER = 32, GROUP = 16, GROUPS = VALUES / GROUP };
struct block {
    uint8_t low[VALUES / 2];
    uint8_t top[VALUES / 4];
    int8_t scales[GROUPS];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block) == 210, "layout");

void q6_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++) {
        float d = load_half(block->d);
        for (int part = 0; part < 2; part++, dst += PART) {
            const uint8_t *low = block->low + part * 64, *top = block->top + part * 32;
            const int8_t *scales = block->scales + part * 8;
            for (int g = 0; g < 2; g++) {
                float d0 = d * scales[g], d1 = d * scales[g + 2];
                float d2 = d * scales[g + 4], d3 = d * scales[g + 6];
                for (int i = g * GROUP; i < (g + 1) * GROUP; i++) {
                    int q0 = (low[i] & 15) | (top[i] & 3) << 4;
                    int q1 = (low[i + QUARTER] & 15) | (top[i] >> 2 & 3) << 4;
                    int q2 = low[i] >> 4 | (top[i] >> 4 & 3) << 4;
                    int q3 = low[i + QUARTER] >> 4 | top[i] >> 6 << 4;
                    dst[i] = d0 * (float)(q0 - 32);
                    dst[i + QUARTER] = d1 * (float)(q1 - 32);
                    dst[i + 2 * QUARTER] = d2 * (float)(q2 - 32);
                    dst[i + 3 * QUARTER] = d3 * (float)(q3 - 32);
                }
            }
        }
    }
}

/* Scales of the groups in units of d, the quants 0..63 for them. */
static void quantise(const float *x, const float *w, struct block *block, uint8_t quants[VALUES])
{
    static const struct scaled_groups facts = {
        .n_groups = GROUPS, .n_values = GROUP, .low = -32, .high = 31, .scale_low = -128};
    float d = search_scaled_groups(&facts, x, w, block->d, block->scales);
    for (int g = 0; g < GROUPS; g++) {
        float scale = d * block->scales[g];
        float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
        for (int i = g * GROUP; i < (g + 1) * GROUP; i++)
            quants[i] = (uint8_t)(round_limited(x[i] * inverse, -32, 31) + 32);
    }
}

void q6_k_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        uint8_t quants[VALUES];
        quantise(src, importance_from(importance, b * VALUES), block, quants);
        for (int part = 0; part < 2; part++) {
            const uint8_t *q = quants + part * PART;
            uint8_t *low = block->low + part * 64, *top = block->top + part * 32;
            for (int i = 0; i < QUARTER; i++) {
                const uint8_t *q0 = q + i, *q1 = q0 + QUARTER, *q2 = q1 + QUARTER;
                const uint8_t *q3 = q2 + QUARTER;
                low[i] = (uint8_t)((*q0 & 15) | (*q2 & 15) << 4);
                low[i + QUARTER] = (uint8_t)((*q1 & 15) | (*q3 & 15) << 4);
                top[i] = (uint8_t)(*q0 >> 4 | *q1 >> 4 << 2 | *q2 >> 4 << 4 | *q3 >> 4 << 6);
            }
        }
    }
}
