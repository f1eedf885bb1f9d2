/* Grids: which combinations of levels 8 or 4 adjacent values may have. A block holds indices of
 * points, so that a value takes less than its index of a level would. grids_data.h has the points,
 * levels.h the levels. */
#ifndef QUANT_GRIDS_H
#define QUANT_GRIDS_H

#include <stdint.h>

/*  NAME points */
#define GRID_LIST(X)                                                                               \
    X(iq2_xxs_points, 256)                                                                         \
    X(iq2_xs_points, 512)                                                                          \
    X(iq2_s_points, 1024)                                                                          \
    X(iq3_xxs_points, 256)                                                                         \
    X(iq3_s_points, 512)                                                                           \
    X(iq1_points, 2048)

#define X(NAME, N) extern const uint16_t NAME[N];
GRID_LIST(X)
#undef X

/* Seven signs of eight values. An even number of the eight is set, so the last follows from the
 * others. */
static inline unsigned even_signs(unsigned seven)
{
    unsigned parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return seven | (parity & 1) << 7;
}

#endif
