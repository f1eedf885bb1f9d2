/* IQ4_NL: 32 values x = d level[q]; d a half, q as in Q4_0. The sixteen levels lie closer
 * together near zero, where weights are. */
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/search.h"

#include <math.h>

enum { VALUES = 32, HALF = VALUES / 2, LEVELS = 16 };
struct block {
    uint8_t d[2];
    uint8_t q[HALF];
};
_Static_assert(sizeof(struct block) == 18, "layout");

static const int8_t levels[LEVELS] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

void iq4_nl_decode(const void *src, float *dst, int64_t n)
{
    const struct block *block = src;
    for (int64_t b = 0; b < n / VALUES; b++, block++, dst += VALUES) {
        float d = load_half(block->d);
        for (int i = 0; i < HALF; i++) {
            dst[i] = d * (float)levels[block->q[i] & 15];
            dst[i + HALF] = d * (float)levels[block->q[i] >> 4];
        }
    }
}

static uint8_t nearest_level(float value)
{
    int q = 0;
    for (int i = 1; i < LEVELS; i++) q += value > 0.5f * (float)(levels[i - 1] + levels[i]);
    return (uint8_t)q;
}

/* Like search_scale, with levels instead of integers. */
static float search_levels(const float *x)
{
    float largest = 0.0f, gain_max = 0.0f;
    for (int i = 0; i < VALUES; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    if (!(fabsf(largest) > 1e-30f) || isinf(largest)) return 0.0f;
    float best = largest / (float)levels[0];
    for (int trial = 0; trial < 34; trial++) {
        float plain = largest / (float)levels[trial % 2 ? LEVELS - 1 : 0];
        float inverse = 1.0f / (plain * (0.7f + 0.025f * (float)(trial / 2)));
        float xq = 0.0f, qq = 0.0f;
        for (int i = 0; i < VALUES; i++) {
            float level = (float)levels[nearest_level(x[i] * inverse)];
            xq += x[i] * level;
            qq += level * level;
        }
        if (qq > 0.0f && xq * xq / qq > gain_max) {
            gain_max = xq * xq / qq;
            best = xq / qq;
        }
    }
    return best;
}

void iq4_nl_encode(const float *src, void *dst, int64_t n)
{
    struct block *block = dst;
    for (int64_t b = 0; b < n / VALUES; b++, block++, src += VALUES) {
        float d = store_half(block->d, search_levels(src));
        float inverse = d != 0.0f ? 1.0f / d : 0.0f;
        for (int i = 0; i < HALF; i++)
            block->q[i] = (uint8_t)(nearest_level(src[i] * inverse) |
                                    nearest_level(src[i + HALF] * inverse) << 4);
    }
}
