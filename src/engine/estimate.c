#include "engine/estimate.h"

#include <math.h>

#include "base/assert.h"

/* Squared relative errors of a measurement: what is assumed at first, and its range. */
#define NOISE_FIRST 0.0025
#define NOISE_LEAST 0.0002
#define NOISE_MOST 0.04
#define NOISE_MEMORY 0.02 /* weight of the newest error */
#define DRIFT 1e-5        /* of a squared spread, added after each measurement: slow forgetting */
#define SLACK 1.25        /* factor by which a measurement may be too small */
#define GROWTH 1.02       /* factor on a spread, after each measurement that allows it */
#define FAR 3.0           /* standard deviations; larger errors are cut to this many, */
#define DOUBT 4.0         /* and the covariance grows by this: the first few may mislead */

void estimate_init(struct estimate *e, int32_t n, const double *theta, const double *spread)
{
    carat_assert(n >= 1 && n <= ESTIMATE_FEATURES);
    *e = (struct estimate){.n = n, .noise = NOISE_FIRST};
    for (int32_t i = 0; i < n; i++) {
        e->theta[i] = theta[i];
        e->spread[i] = spread[i];
        e->cov[i][i] = spread[i] * spread[i];
    }
}

double estimate_mean(const struct estimate *e, const double *x)
{
    double sum = 0;
    for (int32_t i = 0; i < e->n; i++) sum += e->theta[i] * x[i];
    return sum;
}

/* cov * x; returns x' cov x. */
static double project(const struct estimate *e, const double *x, double *out)
{
    double sum = 0;
    for (int32_t i = 0; i < e->n; i++) {
        out[i] = 0;
        for (int32_t k = 0; k < e->n; k++) out[i] += e->cov[i][k] * x[k];
        sum += out[i] * x[i];
    }
    return sum > 0 ? sum : 0;
}

/* Limits how unsure a coefficient can be. */
static void limit(struct estimate *e, int32_t i)
{
    double most = e->spread[i] * e->spread[i];
    if (e->cov[i][i] <= most) return;
    double scale = sqrt(most / e->cov[i][i]);
    for (int32_t k = 0; k < e->n; k++) {
        e->cov[i][k] *= scale;
        e->cov[k][i] *= scale;
    }
}

/* No coefficient can exceed value / feature, because all other terms are at least 0. So a first
 * measurement of a wrong scale does no lasting harm. */
static void bound(struct estimate *e, const double *x, double value)
{
    for (int32_t i = 0; i < e->n; i++) {
        if (x[i] <= 0) continue;
        double most = value / x[i], grown = e->spread[i] * GROWTH;
        e->spread[i] = most < grown ? most : grown;
        if (e->theta[i] > SLACK * most) e->theta[i] = SLACK * most;
        limit(e, i);
    }
}

/* The variance of a coefficient whose feature does not vary never shrinks, and must not grow
 * forever. */
static void drift(struct estimate *e)
{
    for (int32_t i = 0; i < e->n; i++) {
        e->cov[i][i] += DRIFT * e->spread[i] * e->spread[i];
        limit(e, i);
    }
}

/* One error that is far off may be chance. Several in a row make everything unsure again. */
static void doubt(struct estimate *e)
{
    for (int32_t i = 0; i < e->n; i++)
        for (int32_t k = 0; k < e->n; k++) e->cov[i][k] *= DOUBT;
}

/* A coefficient below 0 becomes 0, and the others what they most likely are then. */
static void keep_positive(struct estimate *e)
{
    for (int32_t pass = 0; pass < e->n; pass++)
        for (int32_t i = 0; i < e->n; i++) {
            double excess = e->theta[i];
            if (excess >= 0 || e->cov[i][i] <= 0) continue;
            for (int32_t k = 0; k < e->n; k++) e->theta[k] -= e->cov[k][i] / e->cov[i][i] * excess;
            e->theta[i] = 0;
        }
    for (int32_t i = 0; i < e->n; i++)
        if (e->theta[i] < 0) e->theta[i] = 0;
}

void estimate_learn(struct estimate *e, const double *x, double value)
{
    double gain[ESTIMATE_FEATURES];
    if (!isfinite(value) || value <= 0) return;
    bound(e, x, value);
    double error = value - estimate_mean(e, x), relative = error / value;
    double sum = project(e, x, gain) + e->noise * value * value, most = FAR * sqrt(sum);
    if (fabs(error) > most) {
        doubt(e);
        sum = project(e, x, gain) + e->noise * value * value;
    }
    if (error > most) error = most;
    if (error < -most) error = -most;
    for (int32_t i = 0; i < e->n; i++) {
        e->theta[i] += gain[i] / sum * error;
        for (int32_t k = 0; k < e->n; k++) e->cov[i][k] -= gain[i] * gain[k] / sum;
    }
    keep_positive(e);
    drift(e);
    double squared = relative * relative < NOISE_MOST ? relative * relative : NOISE_MOST;
    e->noise += NOISE_MEMORY * (squared - e->noise);
    if (e->noise < NOISE_LEAST) e->noise = NOISE_LEAST;
    e->n_measured++;
}

double estimate_high(const struct estimate *e, const double *x, double sigmas)
{
    double unused[ESTIMATE_FEATURES], mean = estimate_mean(e, x);
    return mean + sigmas * sqrt(project(e, x, unused) + e->noise * mean * mean);
}
