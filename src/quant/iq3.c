/* IQ3_XXS and IQ3_S: points of four magnitudes, signs apart, a factor for each 32 values. IQ3_XXS
 * has 256 points and even numbers of signs, IQ3_S 512 and all signs (grid_blocks.c has the
 * layouts). */
#include <string.h>

#include "quant/codecs.h"
#include "quant/grid_search.h"
#include "quant/grids.h"

void iq3_xxs_decode(const void *src, float *dst, int64_t n)
{
    grid_decode(FORMAT_IQ3_XXS, src, dst, n);
}

static void iq3_xxs_put(uint8_t *block, int j, const struct grid_group *g)
{
    uint32_t word = (uint32_t)g->factor[0] << 28;
    for (int i = 0; i < 8; i++) block[2 + j * 8 + i] = (uint8_t)g->index[i];
    for (int i = 0; i < 4; i++) word |= (uint32_t)(g->signs[i] & 127) << 7 * i;
    memcpy(block + 66 + j * 4, &word, sizeof word);
}

void iq3_xxs_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct grid_facts facts = {.format = FORMAT_IQ3_XXS,
                                            .points = iq3_xxs_points,
                                            .n_points = 256,
                                            .bits = 3,
                                            .signs = GRID_EVEN_SIGNS,
                                            .n_shared = 32,
                                            .factor_max = 31,
                                            .from = 0.7f,
                                            .to = 1.2f,
                                            .n_trials = 9};
    grid_encode(&facts, iq3_xxs_put, NULL, src, importance, dst, n);
}

void iq3_s_decode(const void *src, float *dst, int64_t n)
{
    grid_decode(FORMAT_IQ3_S, src, dst, n);
}

static void iq3_s_put(uint8_t *block, int j, const struct grid_group *g)
{
    for (int i = 0; i < 8; i++) {
        block[2 + j * 8 + i] = (uint8_t)g->index[i];
        block[66 + j] |= (uint8_t)(g->index[i] >> 8 << i);
    }
    memcpy(block + 74 + j * 4, g->signs, 4);
    block[106 + j / 2] |= (uint8_t)(g->factor[0] << j % 2 * 4);
}

void iq3_s_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct grid_facts facts = {.format = FORMAT_IQ3_S,
                                            .points = iq3_s_points,
                                            .n_points = 512,
                                            .bits = 3,
                                            .signs = GRID_SIGNS,
                                            .n_shared = 32,
                                            .factor_max = 31,
                                            .from = 0.7f,
                                            .to = 1.2f,
                                            .n_trials = 9};
    grid_encode(&facts, iq3_s_put, NULL, src, importance, dst, n);
}
