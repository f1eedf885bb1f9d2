/* IQ4_XS: 256 values in eight groups of 32: x = d scale[g] level[q]; d a half, scales of six bits
 * with sign (signed_scales.h), q in each group as in IQ4_NL (levels.h). */
#include "quant/codecs.h"
#include "quant/group_search.h"
#include "quant/half.h"
#include "quant/levels.h"
#include "quant/search.h"
#include "quant/signed_scales.h"

enum { GROUPS = IQ4_XS_SCALES, VALUES = GROUPS * LEVEL_VALUES };
struct block {
    uint8_t d[2];
    uint8_t scales[IQ4_XS_SCALES_BYTES];
    uint8_t q[GROUPS][LEVEL_BYTES];
};
_Static_assert(sizeof(struct block) == 136, "layout");

void iq4_xs_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++) {
        float d = load_half(block->d);
        for (int g = 0; g < GROUPS; g++, dst += LEVEL_VALUES)
            levels_decode(block->q[g], d * (float)iq4_xs_scale(block->scales, g), dst);
    }
}

static void pack_scales(const int8_t scales[GROUPS], uint8_t packed[IQ4_XS_SCALES_BYTES])
{
    memset(packed, 0, IQ4_XS_SCALES_BYTES);
    for (int g = 0; g < GROUPS; g++) {
        int bits = scales[g] - SIGNED_SCALE_LOW;
        packed[g / 4] |= (uint8_t)(bits >> 4 << g % 4 * 2);
        packed[2 + g / 2] |= (uint8_t)((bits & 15) << g % 2 * 4);
    }
}

void iq4_xs_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct scaled_groups facts = {.n_groups = GROUPS,
                                               .n_values = LEVEL_VALUES,
                                               .has_levels = true,
                                               .scale_low = SIGNED_SCALE_LOW};
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        int8_t scales[GROUPS];
        const float *w = importance_from(importance, b * VALUES);
        float d = search_scaled_groups(&facts, src, w, block->d, scales);
        pack_scales(scales, block->scales);
        for (int g = 0; g < GROUPS; g++)
            levels_encode(src + g * LEVEL_VALUES, d * (float)scales[g], block->q[g]);
    }
}
