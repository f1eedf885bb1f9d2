/* Encoding of the formats with grids (grid_blocks.h): scales and factors by search, points by
 * looking for the nearest. */
#ifndef QUANT_GRID_SEARCH_H
#define QUANT_GRID_SEARCH_H

#include "quant/grid_blocks.h"

/* How values become points. */
enum grid_signs {
    GRID_EVEN_SIGNS, /* of magnitudes; an even number of eight signs is set */
    GRID_SIGNS,      /* of magnitudes; each is free */
    GRID_SHIFTS,     /* points have signs; 32 values are shifted by plus or minus an eighth */
    GRID_SHIFTS_8,   /* the same, but eight values */
};

struct grid_facts {
    enum format format;
    const uint16_t *points;
    int n_points;
    int bits; /* of a value in a point: 2 of eight values, 3 of four */
    enum grid_signs signs;
    int n_shared;   /* values that share a factor: 16 or 32 */
    int factor_max; /* factors are odd */
    /* Which scales are tried: the one that maps the largest value to the largest level, times
     * numbers between these two. */
    float from, to;
    int n_trials;
};

/* Of 32 values. A sign: of each value, or bit 0: whether the eighth is subtracted. */
struct grid_group {
    uint16_t index[8]; /* of 8 points, or of 4 */
    uint8_t signs[4];  /* of eight values each */
    uint8_t factor[2]; /* whole numbers k, which stand for 2 k + 1 */
};

/* Writes group j to a block of zeros. */
typedef void grid_put(uint8_t *block, int j, const struct grid_group *group);

/* n values to blocks. put_scale writes the half of a block; NULL: it comes first. */
void grid_encode(const struct grid_facts *facts, grid_put *put,
                 void (*put_scale)(uint8_t *block, uint16_t half), const float *src,
                 const float *importance, void *dst, int64_t n);

#endif
