#include "quant/levels.h"

#include <math.h>

#include "quant/search.h"

const int8_t *format_levels(enum format format)
{
    static const int8_t iq3_xxs[LEVELS] = {LEVELS_IQ3_XXS}, iq3_s[LEVELS] = {LEVELS_IQ3_S};
    static const int8_t iq2[LEVELS] = {LEVELS_IQ2}, iq1[LEVELS] = {LEVELS_IQ1};
    switch (format) {
    case FORMAT_IQ4_NL:
    case FORMAT_IQ4_XS: return levels;
    case FORMAT_IQ3_XXS: return iq3_xxs;
    case FORMAT_IQ3_S: return iq3_s;
    case FORMAT_IQ2_XXS:
    case FORMAT_IQ2_XS:
    case FORMAT_IQ2_S: return iq2;
    case FORMAT_IQ1_S:
    case FORMAT_IQ1_M: return iq1;
    default: return NULL;
    }
}

void levels_encode(const float x[LEVEL_VALUES], float d, uint8_t q[LEVEL_BYTES])
{
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    for (int i = 0; i < LEVEL_BYTES; i++)
        q[i] = (uint8_t)(nearest_level(x[i] * inverse) | nearest_level(x[i + LEVEL_BYTES] * inverse)
                                                             << 4);
}

float search_levels(const float x[LEVEL_VALUES], const float *importance)
{
    float largest = 0.0f, gain_max = 0.0f;
    for (int i = 0; i < LEVEL_VALUES; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    if (!(fabsf(largest) > 1e-30f) || isinf(largest)) return 0.0f;
    float best = largest / (float)levels[0];
    for (int trial = 0; trial < 34; trial++) {
        float plain = largest / (float)levels[trial % 2 ? LEVELS - 1 : 0];
        float inverse = 1.0f / (plain * (0.7f + 0.025f * (float)(trial / 2)));
        float xq = 0.0f, qq = 0.0f;
        for (int i = 0; i < LEVEL_VALUES; i++) {
            float level = (float)levels[nearest_level(x[i] * inverse)];
            float weighted = importance_at(importance, i) * level;
            xq += x[i] * weighted;
            qq += weighted * level;
        }
        if (qq > 0.0f && xq * xq / qq > gain_max) {
            gain_max = xq * xq / qq;
            best = xq / qq;
        }
    }
    return best;
}
