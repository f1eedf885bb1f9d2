/* Activations of 8 bits for checks of products: made on the host as the backend makes them
 * (d = max |x| / 127, q = round(x / d), by block of 32), in the order of tiles. */
#ifndef TESTS_CUDA_CHECK_ACT8_H
#define TESTS_CUDA_CHECK_ACT8_H

#include <math.h>
#include <stdlib.h>

#include "cuda/check.h"

struct act8 {
    struct act act;
    double *values; /* [rows][cols], what the rounded activations mean */
};

/* Column of byte i of a block in the order of tiles. */
static inline int32_t act8_column(int32_t i)
{
    int32_t t = i / 8, v = i % 8;
    return v < 4 ? 4 * t + v : 16 + 4 * t + v - 4;
}

static inline void act8_block(const float *x, int32_t n, int8_t *q, float *scale, double *values)
{
    float most = 0;
    for (int32_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    float d = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0;
    int sum = 0;
    for (int32_t i = 0; i < ACT_BLOCK; i++) {
        int32_t col = act8_column(i);
        q[i] = (int8_t)(col < n ? rintf(x[col] * inverse) : 0);
        sum += q[i];
        if (col < n) values[col] = (double)d * q[i];
    }
    scale[0] = d;
    scale[1] = d * (float)sum;
}

/* Normal random activations. */
static inline struct act8 act8_make(struct rng *rng, int32_t rows, int32_t cols)
{
    int32_t stride = (cols + TILE_COLS - 1) / TILE_COLS * TILE_COLS, blocks = stride / ACT_BLOCK;
    size_t n = (size_t)rows * (size_t)stride, n_scale = 2 * n / ACT_BLOCK;
    int8_t *q = calloc(n, 1);
    float *scale = calloc(n_scale, sizeof *scale), *x = malloc((size_t)cols * sizeof *x);
    double *values = malloc((size_t)rows * (size_t)cols * sizeof *values);
    if (!q || !scale || !x || !values) exit(1);
    for (int32_t r = 0; r < rows; r++) {
        check_normal(rng, x, (size_t)cols, 1.0f);
        for (int32_t b = 0; b * ACT_BLOCK < cols; b++) {
            int32_t first = b * ACT_BLOCK, left = cols - first;
            size_t block = (size_t)r * (size_t)blocks + (size_t)b;
            act8_block(x + first, left < ACT_BLOCK ? left : ACT_BLOCK, q + block * ACT_BLOCK,
                       scale + block * 2, values + (size_t)r * (size_t)cols + first);
        }
    }
    struct act8 made = {.act = {.kind = ACT_INT8,
                                .stride = stride,
                                .values = check_alloc(q, n),
                                .scale = check_alloc(scale, n_scale * sizeof *scale)},
                        .values = values};
    free(q);
    free(scale);
    free(x);
    return made;
}

static inline void act8_free(struct act8 *a)
{
    check_free(a->act.values);
    check_free(a->act.scale);
    free(a->values);
}

static inline double act8_dot(const double *x, const float *w, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += x[i] * (double)w[i];
    return sum;
}

/* Largest NMSE of a product: fp32 sums of exact dots give about 1e-13. Where scale and minus are
 * products that types.h rounds to fp16, each is wrong by up to 2^-12, and the two errors of a
 * value do not cancel. */
static inline double act8_budget(enum format format)
{
    return format_traits(format)->block_elements == 256 ? 5e-7 : 1e-11;
}

/* A weight for timing: random quants, scales 2^-7. Its values are in no particular order. */
static inline struct cuda_weight act8_weight(struct rng *rng, enum format format, int32_t n_expert,
                                             int32_t rows, int32_t cols)
{
    struct cuda_weight w = {.format = format,
                            .layout = LAYOUT_TILES,
                            .n_expert = n_expert,
                            .rows = rows,
                            .cols = cols,
                            .n_groups = (rows + TILE_ROWS - 1) / TILE_ROWS,
                            .n_ktiles = (cols + TILE_COLS - 1) / TILE_COLS};
    size_t n = (size_t)n_expert * (size_t)w.n_groups * (size_t)w.n_ktiles * 512;
    uint64_t *bits = malloc(n);
    if (!bits) exit(1);
    for (size_t i = 0; i < n / 8; i++) bits[i] = rng_next(rng);
    w.quants = check_alloc(bits, format == FORMAT_Q8_0 ? n : n / 2); /* or fewer bits */
    w.high = check_alloc(bits, n / 4);
    for (size_t i = 0; i < n / 64; i++) bits[i] = 0x2000200020002000u;
    w.scale = check_alloc(bits, n / 8);
    w.minus = check_alloc(bits, n / 8);
    free(bits);
    return w;
}

#endif
