/* The groups' own best scales come first (search.h). They are rounded to multiples of a half, the
 * largest of which is the largest scale. With importance a few rounds follow: each group tries the
 * neighbours of its whole numbers, then d and dmin are fitted to all that was chosen. */
#include "quant/group_search.h"

#include <math.h>

#include "quant/half.h"
#include "quant/levels.h"
#include "quant/search.h"

enum { ROUNDS = 2 };

/* ---- Scales ------------------------------------------------------------------------------ */

/* What d scale[g] is multiplied by, for a value divided by it. */
static float nearest_factor(const struct scaled_groups *f, float value)
{
    if (f->has_levels) return (float)levels[nearest_level(value)];
    return (float)round_limited(value, f->low, f->high);
}

/* Weighted sums over a group for a trial scale: <x, q>, <q, q>; returns the squared error less
 * <x, x>. */
static float sum_group(const struct scaled_groups *f, const float *x, const float *w, float scale,
                       float *xq, float *qq)
{
    float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    *xq = *qq = 0.0f;
    for (int i = 0; i < f->n_values; i++) {
        float q = nearest_factor(f, x[i] * inverse);
        *xq += w[i] * x[i] * q;
        *qq += w[i] * q * q;
    }
    return scale * (scale * *qq - 2.0f * *xq);
}

/* Tries the neighbours of all scales. Returns the best d for what was chosen. */
static float refine_scales(const struct scaled_groups *f, const float *x, const float *w, float d,
                           int8_t *scales)
{
    float all_xq = 0.0f, all_qq = 0.0f;
    for (int g = 0; g < f->n_groups; g++) {
        const int at = g * f->n_values, middle = scales[g];
        float least = INFINITY, best_xq = 0.0f, best_qq = 0.0f;
        for (int k = middle - 1; k <= middle + 1; k++) {
            float xq, qq;
            if (k < f->scale_low || k >= -f->scale_low) continue;
            float error = sum_group(f, x + at, w + at, d * (float)k, &xq, &qq);
            if (!(error < least)) continue;
            least = error;
            scales[g] = (int8_t)k;
            best_xq = xq * (float)k;
            best_qq = qq * (float)(k * k);
        }
        all_xq += best_xq;
        all_qq += best_qq;
    }
    return all_qq > 0.0f ? all_xq / all_qq : d;
}

static float store_scales(const struct scaled_groups *f, const float *found, uint8_t d_out[2],
                          int8_t *scales)
{
    float largest = 0.0f; /* with its sign */
    for (int g = 0; g < f->n_groups; g++)
        if (fabsf(found[g]) > fabsf(largest)) largest = found[g];
    float d = store_half(d_out, largest / (float)f->scale_low);
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    for (int g = 0; g < f->n_groups; g++)
        scales[g] = (int8_t)round_limited(found[g] * inverse, f->scale_low, -f->scale_low - 1);
    return d;
}

float search_scaled_groups(const struct scaled_groups *f, const float *x, const float *w,
                           uint8_t d_out[2], int8_t *scales)
{
    float found[GROUPS_MAX];
    for (int g = 0; g < f->n_groups; g++) {
        const float *values = x + g * f->n_values, *part = importance_from(w, g * f->n_values);
        found[g] = f->has_levels ? search_levels(values, part)
                                 : search_scale(values, part, f->n_values, f->low, f->high);
    }
    float d = store_scales(f, found, d_out, scales);
    for (int round = 0; w && d != 0.0f && round < ROUNDS; round++)
        d = store_half(d_out, refine_scales(f, x, w, d, scales));
    return d;
}

/* ---- Scales and minima ------------------------------------------------------------------- */

/* Weighted sums over values x ~ d (scale q) - dmin min, to fit d and dmin. */
struct line_sums {
    float qq, qm, mm, xq, xm;
};

static int quant_at(const struct lined_groups *f, float x, float scale, float min)
{
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    return round_limited((x + min) * inverse, 0, f->high);
}

/* Adds the sums of a group with whole numbers s and m; returns the squared error. */
static float sum_line(const struct lined_groups *f, const float *x, const float *w, float d,
                      float dmin, int s, int m, struct line_sums *sums)
{
    float scale = d * (float)s, min = dmin * (float)m, error = 0.0f;
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    float weight = 0.0f, sum_q = 0.0f, sum_qq = 0.0f, sum_x = 0.0f, sum_xq = 0.0f;
    for (int i = 0; i < f->n_values; i++) {
        float q = (float)round_limited((x[i] + min) * inverse, 0, f->high);
        float difference = scale * q - min - x[i], wq = w[i] * q, wx = w[i] * x[i];
        error += w[i] * difference * difference;
        weight += w[i];
        sum_q += wq;
        sum_qq += wq * q;
        sum_x += wx;
        sum_xq += wx * q;
    }
    *sums = (struct line_sums){.qq = sum_qq * (float)(s * s),
                               .qm = sum_q * (float)(s * m),
                               .mm = weight * (float)(m * m),
                               .xq = sum_xq * (float)s,
                               .xm = sum_x * (float)m};
    return error;
}

/* Tries the neighbours of a group's whole numbers. */
static struct line_sums refine_line(const struct lined_groups *f, const float *x, const float *w,
                                    float d, float dmin, uint8_t *scale, uint8_t *min)
{
    struct line_sums best = {0};
    const int s = *scale, m = *min;
    float least = INFINITY;
    for (int a = s - 1; a <= s + 1; a++)
        for (int b = m - 1; b <= m + 1; b++) {
            struct line_sums sums;
            if (a < 0 || a > f->scale_max || b < 0 || b > f->scale_max) continue;
            float error = sum_line(f, x, w, d, dmin, a, b, &sums);
            if (!(error < least)) continue;
            least = error;
            best = sums;
            *scale = (uint8_t)a;
            *min = (uint8_t)b;
        }
    return best;
}

/* One round. Changes d and dmin if there is a better pair. */
static void refine_lines(const struct lined_groups *f, const float *x, const float *w, float *d,
                         float *dmin, uint8_t *scales, uint8_t *mins)
{
    struct line_sums all = {0};
    for (int g = 0; g < f->n_groups; g++) {
        const int at = g * f->n_values;
        struct line_sums s = refine_line(f, x + at, w + at, *d, *dmin, &scales[g], &mins[g]);
        all.qq += s.qq;
        all.qm += s.qm;
        all.mm += s.mm;
        all.xq += s.xq;
        all.xm += s.xm;
    }
    float determinant = all.qq * all.mm - all.qm * all.qm;
    float fitted_d = all.qq > 0.0f ? (all.xq + *dmin * all.qm) / all.qq : 0.0f, fitted_min = *dmin;
    if (determinant > 1e-3f * all.qq * all.mm) { /* else rounding decides it */
        fitted_d = (all.xq * all.mm - all.xm * all.qm) / determinant;
        fitted_min = (all.xq * all.qm - all.xm * all.qq) / determinant;
    }
    if (!(fitted_d > 0.0f && fitted_min >= 0.0f)) return;
    *d = fitted_d;
    *dmin = fitted_min;
}

/* d and dmin of the groups' own scales and minima, and these as whole numbers. */
static void store_lines(const struct lined_groups *f, const float *d, const float *m,
                        uint8_t d_out[2], uint8_t dmin_out[2], uint8_t *scales, uint8_t *mins)
{
    float d_max = 0.0f, m_max = 0.0f;
    for (int g = 0; g < f->n_groups; g++) {
        d_max = fmaxf(d_max, d[g]);
        m_max = fmaxf(m_max, m[g]);
    }
    float d_unit = store_half(d_out, d_max / (float)f->scale_max);
    float m_unit = store_half(dmin_out, m_max / (float)f->scale_max);
    for (int g = 0; g < f->n_groups; g++) {
        float scale = d_unit > 0.0f ? d[g] / d_unit : 0.0f;
        float min = m_unit > 0.0f ? m[g] / m_unit : 0.0f;
        scales[g] = (uint8_t)round_limited(scale, 0, f->scale_max);
        mins[g] = (uint8_t)round_limited(min, 0, f->scale_max);
    }
}

void search_lined_groups(const struct lined_groups *f, const float *x, const float *w,
                         uint8_t d_out[2], uint8_t dmin_out[2], uint8_t *scales, uint8_t *mins,
                         uint8_t *quants)
{
    float found_d[GROUPS_MAX], found_m[GROUPS_MAX];
    for (int g = 0; g < f->n_groups; g++) {
        const int at = g * f->n_values;
        search_scale_and_min(x + at, importance_from(w, at), f->n_values, f->high, &found_d[g],
                             &found_m[g]);
    }
    store_lines(f, found_d, found_m, d_out, dmin_out, scales, mins);
    float d = load_half(d_out), dmin = load_half(dmin_out);
    for (int round = 0; w && d > 0.0f && round < ROUNDS; round++) {
        refine_lines(f, x, w, &d, &dmin, scales, mins);
        d = store_half(d_out, d);
        dmin = store_half(dmin_out, dmin);
    }
    for (int i = 0; i < f->n_groups * f->n_values; i++) {
        int g = i / f->n_values;
        quants[i] = (uint8_t)quant_at(f, x[i], d * (float)scales[g], dmin * (float)mins[g]);
    }
}
