/* IQ2_XXS, IQ2_XS and IQ2_S: points of eight magnitudes, signs apart. IQ2_XXS has 256 points, even
 * numbers of signs, and a factor for each 32 values. IQ2_XS has 512 points, IQ2_S 1024 and all
 * signs; both have a factor for each 16 values (grid_blocks.c has the layouts). */
#include <string.h>

#include "quant/codecs.h"
#include "quant/grid_search.h"
#include "quant/grids.h"

void iq2_xxs_decode(const void *src, float *dst, int64_t n)
{
    grid_decode(FORMAT_IQ2_XXS, src, dst, n);
}

static void iq2_xxs_put(uint8_t *block, int j, const struct grid_group *g)
{
    uint32_t word = (uint32_t)g->factor[0] << 28;
    for (int i = 0; i < 4; i++) {
        block[2 + j * 8 + i] = (uint8_t)g->index[i];
        word |= (uint32_t)(g->signs[i] & 127) << 7 * i;
    }
    memcpy(block + 2 + j * 8 + 4, &word, sizeof word);
}

void iq2_xxs_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct grid_facts facts = {.format = FORMAT_IQ2_XXS,
                                            .points = iq2_xxs_points,
                                            .n_points = 256,
                                            .bits = 2,
                                            .signs = GRID_EVEN_SIGNS,
                                            .n_shared = 32,
                                            .factor_max = 31,
                                            .from = 0.6f,
                                            .to = 1.2f,
                                            .n_trials = 9};
    grid_encode(&facts, iq2_xxs_put, NULL, src, importance, dst, n);
}

void iq2_xs_decode(const void *src, float *dst, int64_t n)
{
    grid_decode(FORMAT_IQ2_XS, src, dst, n);
}

static void iq2_xs_put(uint8_t *block, int j, const struct grid_group *g)
{
    for (int i = 0; i < 4; i++) {
        uint16_t word = (uint16_t)(g->index[i] | (g->signs[i] & 127) << 9);
        memcpy(block + 2 + j * 8 + i * 2, &word, sizeof word);
    }
    block[66 + j] = (uint8_t)(g->factor[0] | g->factor[1] << 4);
}

void iq2_xs_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct grid_facts facts = {.format = FORMAT_IQ2_XS,
                                            .points = iq2_xs_points,
                                            .n_points = 512,
                                            .bits = 2,
                                            .signs = GRID_EVEN_SIGNS,
                                            .n_shared = 16,
                                            .factor_max = 31,
                                            .from = 0.6f,
                                            .to = 1.2f,
                                            .n_trials = 9};
    grid_encode(&facts, iq2_xs_put, NULL, src, importance, dst, n);
}

void iq2_s_decode(const void *src, float *dst, int64_t n)
{
    grid_decode(FORMAT_IQ2_S, src, dst, n);
}

static void iq2_s_put(uint8_t *block, int j, const struct grid_group *g)
{
    for (int i = 0; i < 4; i++) {
        block[2 + j * 4 + i] = (uint8_t)g->index[i];
        block[66 + j] |= (uint8_t)(g->index[i] >> 8 << 2 * i);
    }
    memcpy(block + 34 + j * 4, g->signs, 4);
    block[74 + j] = (uint8_t)(g->factor[0] | g->factor[1] << 4);
}

void iq2_s_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    static const struct grid_facts facts = {.format = FORMAT_IQ2_S,
                                            .points = iq2_s_points,
                                            .n_points = 1024,
                                            .bits = 2,
                                            .signs = GRID_SIGNS,
                                            .n_shared = 16,
                                            .factor_max = 31,
                                            .from = 0.6f,
                                            .to = 1.2f,
                                            .n_trials = 9};
    grid_encode(&facts, iq2_s_put, NULL, src, importance, dst, n);
}
