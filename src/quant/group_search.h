/* Encoding of blocks in which groups of values have scales of their own, as whole numbers times a
 * half: the k-quants and IQ4_XS. */
#ifndef QUANT_GROUP_SEARCH_H
#define QUANT_GROUP_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { GROUPS_MAX = 16 };

/* x = d scale[g] q. */
struct scaled_groups {
    int n_groups, n_values; /* n_values: of a group */
    int low, high;          /* of q, or of its index in `levels` (levels.h) */
    bool has_levels;
    int scale_low; /* the largest scale gets this one; all others are below -scale_low */
};

/* Stores d and finds the scales for a block; returns d. */
float search_scaled_groups(const struct scaled_groups *f, const float *x, const float *w,
                           uint8_t d_out[2], int8_t *scales);

/* x = d scale[g] q - dmin min[g], q from 0 to high, scales and minima from 0 to scale_max. */
struct lined_groups {
    int n_groups, n_values, high, scale_max;
};

/* Stores d and dmin; finds scales, minima and the quants of all values. */
void search_lined_groups(const struct lined_groups *f, const float *x, const float *w,
                         uint8_t d_out[2], uint8_t dmin_out[2], uint8_t *scales, uint8_t *mins,
                         uint8_t *quants);

#endif
