#include "quant/k_scales.h"

#include "quant/group_search.h"

void k_encode(const float *x, const float *w, int high, uint8_t d_out[2], uint8_t dmin_out[2],
              uint8_t packed[K_SCALES_BYTES], uint8_t quants[K_VALUES])
{
    const struct lined_groups facts = {
        .n_groups = K_GROUPS, .n_values = K_GROUP_VALUES, .high = high, .scale_max = 63};
    uint8_t scales[K_GROUPS], mins[K_GROUPS];
    search_lined_groups(&facts, x, w, d_out, dmin_out, scales, mins, quants);
    pack_scales(scales, mins, packed);
}
