#include "engine/estimate.h"

#include <math.h>

#include "base/assert.h"

/* Squared relative errors of a measurement: what is assumed at first, and its range. */
#define NOISE_FIRST 0.0025
#define NOISE_LEAST 0.0002
#define NOISE_MOST 0.04
#define NOISE_MEMORY 0.02 /* weight of the newest error */
#define DRIFT 1e-5        /* of a squared spread, added after each measurement: slow forgetting */
#define FAR 3.0           /* standard deviations; larger errors are cut to this */

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

/* A coefficient whose features do not vary gets no surer, and must not get endlessly unsure. */
static void drift(struct estimate *e)
{
    for (int32_t i = 0; i < e->n; i++) {
        double most = e->spread[i] * e->spread[i];
        e->cov[i][i] += DRIFT * most;
        if (e->cov[i][i] <= most) continue;
        double scale = sqrt(most / e->cov[i][i]);
        for (int32_t k = 0; k < e->n; k++) {
            e->cov[i][k] *= scale;
            e->cov[k][i] *= scale;
        }
    }
}

void estimate_learn(struct estimate *e, const double *x, double value)
{
    double gain[ESTIMATE_FEATURES];
    double sum = project(e, x, gain) + e->noise * value * value;
    double error = value - estimate_mean(e, x);
    double most = FAR * sqrt(sum), relative = error / value;
    if (!isfinite(value) || value <= 0 || sum <= 0) return;
    if (error > most) error = most;
    if (error < -most) error = -most;
    for (int32_t i = 0; i < e->n; i++) {
        e->theta[i] += gain[i] / sum * error;
        if (e->theta[i] < 0) e->theta[i] = 0;
        for (int32_t k = 0; k < e->n; k++) e->cov[i][k] -= gain[i] * gain[k] / sum;
    }
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
