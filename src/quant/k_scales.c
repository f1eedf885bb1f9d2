#include "quant/k_scales.h"

#include <math.h>

#include "quant/half.h"
#include "quant/search.h"

void k_encode(const float *x, const float *importance, int high, uint8_t d_out[2],
              uint8_t dmin_out[2], uint8_t packed[K_SCALES_BYTES], uint8_t quants[K_VALUES])
{
    float d[K_GROUPS], m[K_GROUPS], d_max = 0.0f, m_max = 0.0f;
    for (int g = 0; g < K_GROUPS; g++) {
        search_scale_and_min(x + g * K_GROUP_VALUES,
                             importance_from(importance, g * K_GROUP_VALUES), K_GROUP_VALUES, high,
                             &d[g], &m[g]);
        d_max = fmaxf(d_max, d[g]);
        m_max = fmaxf(m_max, m[g]);
    }
    float d_unit = store_half(d_out, d_max / 63.0f), m_unit = store_half(dmin_out, m_max / 63.0f);
    uint8_t scales[K_GROUPS], mins[K_GROUPS];
    for (int g = 0; g < K_GROUPS; g++) {
        scales[g] = (uint8_t)round_limited(d_unit > 0.0f ? d[g] / d_unit : 0.0f, 0, 63);
        mins[g] = (uint8_t)round_limited(m_unit > 0.0f ? m[g] / m_unit : 0.0f, 0, 63);
        const struct line_units units = {d_unit, m_unit, 63};
        if (importance)
            search_units(x + g * K_GROUP_VALUES, importance + g * K_GROUP_VALUES, K_GROUP_VALUES,
                         high, &units, &scales[g], &mins[g]);
        float scale = d_unit * (float)scales[g], min = m_unit * (float)mins[g];
        float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (int i = g * K_GROUP_VALUES; i < (g + 1) * K_GROUP_VALUES; i++)
            quants[i] = (uint8_t)round_limited((x[i] + min) * inverse, 0, high);
    }
    pack_scales(scales, mins, packed);
}
