/* Q3_K: 256 values in sixteen groups of 16: x = d scale[g] (q - 4); d a half, scales of six bits
 * with sign (signed_scales.h), q of three bits. With i from 0 to 31, value 32 k + i has its third
 * bit in bit k of top[i], and its low two in pair k % 4 of low[i], or for the second half of 128
 * values of low[32 + i]. */
#include "quant/codecs.h"
#include "quant/group_search.h"
#include "quant/half.h"
#include "quant/search.h"
#include "quant/signed_scales.h"

enum { VALUES = 256, STRIPE = 32, GROUPS = Q3_K_SCALES, GROUP = VALUES / GROUPS };
struct block {
    uint8_t top[STRIPE];
    uint8_t low[2 * STRIPE];
    uint8_t scales[Q3_K_SCALES_BYTES];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block) == 110, "layout");

void q3_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = load_half(block->d);
        for (int g = 0; g < GROUPS; g++) {
            float scale = d * (float)q3_k_scale(block->scales, g);
            int k = g / 2, first = g % 2 * GROUP; /* of stripe k */
            const uint8_t *top = block->top + first, *low = block->low + k / 4 * STRIPE + first;
            for (int i = 0; i < GROUP; i++) {
                int q = (low[i] >> k % 4 * 2 & 3) | (top[i] >> k & 1) << 2;
                dst[g * GROUP + i] = scale * (float)(q - 4);
            }
        }
    }
}

static void pack_scales(const int8_t scales[GROUPS], uint8_t packed[Q3_K_SCALES_BYTES])
{
    memset(packed, 0, Q3_K_SCALES_BYTES);
    for (int g = 0; g < GROUPS; g++) {
        int bits = scales[g] - SIGNED_SCALE_LOW;
        packed[g % 8] |= (uint8_t)((bits & 15) << g / 8 * 4);
        packed[8 + g % 4] |= (uint8_t)(bits >> 4 << g / 4 * 2);
    }
}

/* Stores the quant of value v in a block of zeros. */
static void put_quant(struct block *block, int v, int q)
{
    int k = v / STRIPE, i = v % STRIPE;
    block->low[k / 4 * STRIPE + i] |= (uint8_t)((q & 3) << k % 4 * 2);
    block->top[i] |= (uint8_t)(q >> 2 << k);
}

void q3_k_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct scaled_groups facts = {
        .n_groups = GROUPS, .n_values = GROUP, .low = -4, .high = 3, .scale_low = SIGNED_SCALE_LOW};
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        int8_t scales[GROUPS];
        const float *w = importance_from(importance, b * VALUES);
        memset(block, 0, sizeof *block);
        float d = search_scaled_groups(&facts, src, w, block->d, scales);
        pack_scales(scales, block->scales);
        for (int v = 0; v < VALUES; v++) {
            float scale = d * (float)scales[v / GROUP];
            float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
            put_quant(block, v, round_limited(src[v] * inverse, -4, 3) + 4);
        }
    }
}
