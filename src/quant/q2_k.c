/* Q2_K: 256 values in sixteen groups of 16: x = d scale[g] q - dmin min[g], scales and minima of
 * four bits, in the low and high half of a byte, q of two bits. With i from 0 to 31, value 32 k + i
 * has pair k % 4 of q[i], or for the second half of 128 values of q[32 + i]. */
#include <string.h>

#include "quant/codecs.h"
#include "quant/group_search.h"
#include "quant/half.h"
#include "quant/search.h"

enum { VALUES = 256, STRIPE = 32, GROUPS = 16, GROUP = VALUES / GROUPS };
struct block {
    uint8_t scales[GROUPS];
    uint8_t q[2 * STRIPE];
    uint8_t d[2], dmin[2];
};
_Static_assert(sizeof(struct block) == 84, "layout");

void q2_k_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = load_half(block->d), dmin = load_half(block->dmin);
        for (int g = 0; g < GROUPS; g++) {
            float scale = d * (float)(block->scales[g] & 15);
            float min = dmin * (float)(block->scales[g] >> 4);
            int k = g / 2; /* stripe */
            const uint8_t *q = block->q + k / 4 * STRIPE + g % 2 * GROUP;
            for (int i = 0; i < GROUP; i++)
                dst[g * GROUP + i] = scale * (float)(q[i] >> k % 4 * 2 & 3) - min;
        }
    }
}

void q2_k_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct lined_groups facts = {
        .n_groups = GROUPS, .n_values = GROUP, .high = 3, .scale_max = 15};
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        uint8_t scales[GROUPS], mins[GROUPS], quants[VALUES];
        const float *w = importance_from(importance, b * VALUES);
        search_lined_groups(&facts, src, w, block->d, block->dmin, scales, mins, quants);
        for (int g = 0; g < GROUPS; g++) block->scales[g] = (uint8_t)(scales[g] | mins[g] << 4);
        memset(block->q, 0, sizeof block->q);
        for (int v = 0; v < VALUES; v++) {
            int k = v / STRIPE;
            block->q[k / 4 * STRIPE + v % STRIPE] |= (uint8_t)(quants[v] << k % 4 * 2);
        }
    }
}
