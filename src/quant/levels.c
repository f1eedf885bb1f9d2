#include "quant/levels.h"

#include <math.h>

static uint8_t nearest_level(float value)
{
    int q = 0;
    for (int i = 1; i < LEVELS; i++) q += value > 0.5f * (float)(levels[i - 1] + levels[i]);
    return (uint8_t)q;
}

void levels_encode(const float x[LEVEL_VALUES], float d, uint8_t q[LEVEL_BYTES])
{
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    for (int i = 0; i < LEVEL_BYTES; i++)
        q[i] = (uint8_t)(nearest_level(x[i] * inverse) | nearest_level(x[i + LEVEL_BYTES] * inverse)
                                                             << 4);
}

float search_levels(const float x[LEVEL_VALUES])
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
