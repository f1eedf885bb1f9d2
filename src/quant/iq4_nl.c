/* IQ4_NL: 32 values x = d level[q]; d a half (levels.h). */
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/levels.h"
#include "quant/search.h"

struct block {
    uint8_t d[2];
    uint8_t q[LEVEL_BYTES];
};
_Static_assert(sizeof(struct block) == 18, "layout");

void iq4_nl_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / LEVEL_VALUES; b++, block++, dst += LEVEL_VALUES)
        levels_decode(block->q, load_half(block->d), dst);
}

void iq4_nl_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / LEVEL_VALUES; b++, block++, src += LEVEL_VALUES) {
        float d = search_levels(src, importance_from(importance, b * LEVEL_VALUES));
        levels_encode(src, store_half(block->d, d), block->q);
    }
}
