/* A linear model of a quantity from features, learned one measurement at a time: a Kalman filter
 * whose coefficients drift slowly and are never negative. It knows how sure it is. Pure; no
 * allocation. */
#ifndef ENGINE_ESTIMATE_H
#define ENGINE_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

enum { ESTIMATE_FEATURES = 6 };

struct estimate {
    int32_t n;                                        /* features */
    double theta[ESTIMATE_FEATURES];                  /* coefficients */
    double cov[ESTIMATE_FEATURES][ESTIMATE_FEATURES]; /* how unsure they are, squared */
    double spread[ESTIMATE_FEATURES];                 /* how unsure they can be */
    double noise;                                     /* squared error of a measurement / value */
    int64_t n_measured;
};

/* Begins with coefficients `theta`, each unsure by `spread`. */
void estimate_init(struct estimate *e, int32_t n, const double *theta, const double *spread);

/* Learns from a measured value > 0. The error of a value that is far off is limited. */
void estimate_learn(struct estimate *e, const double *x, double value);

double estimate_mean(const struct estimate *e, const double *x);

/* The mean plus `sigmas` standard deviations. */
double estimate_high(const struct estimate *e, const double *x, double sigmas);

#endif
