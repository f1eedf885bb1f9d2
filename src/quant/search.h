/* Choice of a block's scale when encoding: small searches over candidate scales, each improved
 * by least squares. Encoding is for tools and tests; decoding is the hot path. */
#ifndef QUANT_SEARCH_H
#define QUANT_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/* The importance of values may be NULL: then all count alike. */
static inline float importance_at(const float *importance, int i)
{
    return importance ? importance[i] : 1.0f;
}

static inline const float *importance_from(const float *importance, int64_t first)
{
    return importance ? importance + first : NULL;
}

/* To nearest (ties to even), limited to [low, high]; NaN gives low. For |value| < 2^22, which
 * the limits guarantee. Adding 1.5 * 2^23 rounds without a library call. */
static inline int round_limited(float value, int low, int high)
{
    if (!(value > (float)low)) return low;
    if (value > (float)high) return high;
    return (int)((value + 12582912.0f) - 12582912.0f);
}

/* The scale d that makes d * q, with q from low to high, fit x[0, n) best; 0 when all are 0.
 * May be negative when low and high are not symmetric. */
float search_scale(const float *x, const float *importance, int n, int low, int high);

/* Scale d >= 0 and offset m >= 0 for x ~ d * q - m, q from 0 to high. */
void search_scale_and_min(const float *x, const float *importance, int n, int high, float *d_out,
                          float *m_out);

/* The same with an offset of any sign: x ~ d * q + m. */
void search_scale_and_offset(const float *x, const float *importance, int n, int high, float *d_out,
                             float *m_out);

#endif
