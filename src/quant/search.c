#include "quant/search.h"

#include <math.h>
#include <stdbool.h>

/* With q chosen for the trial scale d, the best scale is <x,q>/<q,q> and the squared error
 * falls by <x,q>^2/<q,q>. Returns that gain. */
static float fit_scale(const float *x, const float *importance, int n, int low, int high, float d,
                       float *best_d)
{
    float inverse = 1.0f / d, xq = 0.0f, qq = 0.0f;
    for (int i = 0; i < n; i++) {
        float q = (float)round_limited(x[i] * inverse, low, high);
        float weighted = importance_at(importance, i) * q;
        xq += x[i] * weighted;
        qq += weighted * q;
    }
    if (!(qq > 0.0f)) return 0.0f;
    *best_d = xq / qq;
    return xq * xq / qq;
}

float search_scale(const float *x, const float *importance, int n, int low, int high)
{
    float largest = 0.0f; /* with its sign */
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    if (!(fabsf(largest) > 1e-30f) || isinf(largest)) return 0.0f;

    /* Candidates map the largest value near either end of the range: for each end, 17 steps from
     * 0.7 to 1.1 of the plain choice, where the best scale of a block lies. With importance, which
     * may make little of the largest value, they begin at 0.4. */
    float gain_max = 0.0f, best = largest / (float)low;
    for (int end = 0; end < 2; end++) {
        float plain = largest / (float)(end == 0 ? low : high);
        for (int trial = importance ? -12 : 0; trial <= 16; trial++) {
            float d = plain * (0.7f + 0.025f * (float)trial), fitted = d;
            float gain = fit_scale(x, importance, n, low, high, d, &fitted);
            if (gain > gain_max) {
                gain_max = gain;
                best = fitted;
            }
        }
    }
    return best;
}

/* Least squares of x ~ d q + m for q chosen by the trial (d, m). Returns the squared error
 * after the fit. With `min_only`, m must not be positive. */
static float fit_line(const float *x, const float *importance, int n, int high, bool min_only,
                      float *d, float *m)
{
    if (!(*d > 0.0f)) return INFINITY;
    float inverse = 1.0f / *d, offset = *m;
    float count = 0, sum_q = 0, sum_qq = 0, sum_x = 0, sum_xq = 0, sum_xx = 0;
    for (int i = 0; i < n; i++) {
        float q = (float)round_limited((x[i] - offset) * inverse, 0, high);
        float weight = importance_at(importance, i), weighted = weight * x[i];
        count += weight;
        sum_q += weight * q;
        sum_qq += weight * q * q;
        sum_x += weighted;
        sum_xq += weighted * q;
        sum_xx += weighted * x[i];
    }
    float determinant = count * sum_qq - sum_q * sum_q;
    if (determinant > 0.0f) {
        *d = (count * sum_xq - sum_x * sum_q) / determinant;
        *m = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
    }
    if ((min_only && *m > 0.0f) || determinant <= 0.0f) {
        *m = 0.0f;
        *d = sum_qq > 0.0f ? sum_xq / sum_qq : 0.0f;
    }
    if (!(*d > 0.0f)) return INFINITY;
    return sum_xx + *d * *d * sum_qq + count * *m * *m + 2.0f * *d * *m * sum_q -
           2.0f * *d * sum_xq - 2.0f * *m * sum_x;
}

static void search_line(const float *x, const float *importance, int n, int high, bool min_only,
                        float *d_out, float *m_out)
{
    float low = x[0], top = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > top) top = x[i];
    }
    if (min_only && low > 0.0f) low = 0.0f;
    *m_out = low;
    *d_out = 0.0f;
    if (!(top - low > 1e-30f) || isinf(top - low)) return;

    /* The range is shrunk from both ends in 5 x 5 steps: clipping a few outliers pays when
     * there are few levels, and more so where outliers count less than others. With importance the
     * best line may also be farther from a trial: q is chosen anew for the fitted line while that
     * helps, which lowers errors of Q5_K by 2 %. */
    const int n_fits = importance ? 4 : 1;
    const float cut = importance && high < 16 ? 0.05f : 0.03f;
    float error_min = INFINITY, range = top - low;
    for (int cut_low = 0; cut_low < 5; cut_low++) {
        for (int cut_top = 0; cut_top < 5; cut_top++) {
            float m = low + range * cut * (float)cut_low;
            float d = (top - range * cut * (float)cut_top - m) / (float)high;
            if (min_only && m > 0.0f) m = 0.0f;
            float error = INFINITY;
            for (int fit = 0; fit < n_fits; fit++) {
                float before = error;
                error = fit_line(x, importance, n, high, min_only, &d, &m);
                if (!(error < before)) break;
                if (!(error < error_min)) continue;
                error_min = error;
                *d_out = d;
                *m_out = m;
            }
        }
    }
}

void search_scale_and_min(const float *x, const float *importance, int n, int high, float *d_out,
                          float *m_out)
{
    search_line(x, importance, n, high, true, d_out, m_out);
    *m_out = *m_out < 0.0f ? -*m_out : 0.0f;
}

void search_scale_and_offset(const float *x, const float *importance, int n, int high, float *d_out,
                             float *m_out)
{
    search_line(x, importance, n, high, false, d_out, m_out);
}
