/* Q2_K: 256 values in sixteen groups of 16: x = d scale[g] q - dmin min[g], scales and minima of
 * four bits, in the low and high half of a byte, q of two bits. With i from 0 to 31, value 32 k + i
 * has pair k % 4 of q[i], or for the second half of 128 values of q[32 + i]. */
#include <math.h>
#include <string.h>

#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/search.h"

enum { VALUES = 256, STRIPE = 32, GROUPS = 16, GROUP = VALUES / GROUPS, SCALE_MAX = 15 };
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

/* d and dmin from scales and minima of groups, these as numbers of four bits. */
static void store_units(const float *x, const float *importance, const float d[GROUPS],
                        const float m[GROUPS], struct block *block)
{
    float d_max = 0.0f, m_max = 0.0f;
    for (int g = 0; g < GROUPS; g++) {
        d_max = fmaxf(d_max, d[g]);
        m_max = fmaxf(m_max, m[g]);
    }
    float d_unit = store_half(block->d, d_max / SCALE_MAX);
    float m_unit = store_half(block->dmin, m_max / SCALE_MAX);
    for (int g = 0; g < GROUPS; g++) {
        uint8_t scale = (uint8_t)round_limited(d_unit > 0.0f ? d[g] / d_unit : 0.0f, 0, SCALE_MAX);
        uint8_t min = (uint8_t)round_limited(m_unit > 0.0f ? m[g] / m_unit : 0.0f, 0, SCALE_MAX);
        const struct line_units units = {d_unit, m_unit, SCALE_MAX};
        if (importance)
            search_units(x + g * GROUP, importance + g * GROUP, GROUP, 3, &units, &scale, &min);
        block->scales[g] = (uint8_t)(scale | min << 4);
    }
}

void q2_k_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        float d[GROUPS], m[GROUPS];
        memset(block, 0, sizeof *block);
        for (int g = 0; g < GROUPS; g++)
            search_scale_and_min(src + g * GROUP,
                                 importance_from(importance, b * VALUES + g * GROUP), GROUP, 3,
                                 &d[g], &m[g]);
        store_units(src, importance_from(importance, b * VALUES), d, m, block);
        float d_unit = load_half(block->d), m_unit = load_half(block->dmin);
        for (int v = 0; v < VALUES; v++) {
            uint8_t units = block->scales[v / GROUP];
            float scale = d_unit * (float)(units & 15), min = m_unit * (float)(units >> 4);
            float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
            int q = round_limited((src[v] + min) * inverse, 0, 3), k = v / STRIPE;
            block->q[k / 4 * STRIPE + v % STRIPE] |= (uint8_t)(q << k % 4 * 2);
        }
    }
}
