/* IQ1_S and IQ1_M: points of eight values -1, 0 or 1, to which an eighth is added, or from which it
 * is subtracted. IQ1_S has a factor and a choice of these for each 32 values, IQ1_M a factor for
 * each 16 and a choice for each eight (grid_blocks.c has the layouts). */
#include <string.h>

#include "quant/codecs.h"
#include "quant/grid_search.h"
#include "quant/grids.h"

void iq1_s_decode(const void *src, float *dst, int64_t n)
{
    grid_decode(FORMAT_IQ1_S, src, dst, n);
}

static void iq1_s_put(uint8_t *block, int j, const struct grid_group *g)
{
    uint16_t word = (uint16_t)(g->factor[0] << 12 | g->signs[0] << 15);
    for (int i = 0; i < 4; i++) {
        block[2 + j * 4 + i] = (uint8_t)g->index[i];
        word = (uint16_t)(word | g->index[i] >> 8 << 3 * i);
    }
    memcpy(block + 34 + j * 2, &word, sizeof word);
}

void iq1_s_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct grid_facts facts = {.format = FORMAT_IQ1_S,
                                            .points = iq1_points,
                                            .n_points = 2048,
                                            .bits = 2,
                                            .signs = GRID_SHIFTS,
                                            .n_shared = 32,
                                            .factor_max = 15,
                                            .from = 0.4f,
                                            .to = 0.8f,
                                            .n_trials = 5};
    grid_encode(&facts, iq1_s_put, NULL, src, importance, dst, n);
}

void iq1_m_decode(const void *src, float *dst, int64_t n)
{
    grid_decode(FORMAT_IQ1_M, src, dst, n);
}

static void iq1_m_put(uint8_t *block, int j, const struct grid_group *g)
{
    uint8_t *word = block + 48 + j / 2 * 2;
    int factors = (g->factor[0] | g->factor[1] << 3) << j % 2 * 6;
    for (int i = 0; i < 4; i++) {
        block[j * 4 + i] = (uint8_t)g->index[i];
        block[32 + j * 2 + i / 2] |= (uint8_t)((g->index[i] >> 8 | g->signs[i] << 3) << i % 2 * 4);
    }
    word[0] |= (uint8_t)factors;
    word[1] |= (uint8_t)(factors >> 8);
}

void iq1_m_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct grid_facts facts = {.format = FORMAT_IQ1_M,
                                            .points = iq1_points,
                                            .n_points = 2048,
                                            .bits = 2,
                                            .signs = GRID_SHIFTS_8,
                                            .n_shared = 16,
                                            .factor_max = 15,
                                            .from = 0.4f,
                                            .to = 0.8f,
                                            .n_trials = 5};
    grid_encode(&facts, iq1_m_put, iq1_m_put_half, src, importance, dst, n);
}
