/* Samplers that look at all candidates together: top-n-sigma, locally typical sampling, dynamic
 * temperature, XTC and Mirostat. Pure functions; sample.h says in which order they come.
 *
 * Those that return a number move the candidates that stay to the beginning and keep at least one,
 * in the order in which they were, unless something else is said. */
#ifndef ENGINE_SHAPE_H
#define ENGINE_SHAPE_H

#include "engine/candidates.h"

/* Top-n-sigma: the largest of n logits minus n_sigma standard deviations. Logits of -infinity do
 * not count. There is at least one other one. */
float shape_sigma_floor(const float *logits, int32_t n, float n_sigma);
int32_t shape_keep_from(struct candidate *all, int32_t count, float floor);

/* Locally typical sampling: the candidates whose information is nearest to the expected one, until
 * they hold more than `share` of the probability. They end up in order. Changes the weights. */
int32_t shape_typical(struct candidate *all, int32_t count, float share, double temperature);

/* Dynamic temperature: from temperature - range (not below 0), where one candidate is certain, to
 * temperature + range, where all are equally likely. Changes the weights. */
double shape_temperature(struct candidate *all, int32_t count, float temperature, float range,
                         float exponent);

/* XTC: of the candidates whose share of the weights is at least `threshold`, all but the last in
 * order are dropped. */
int32_t shape_drop_choices(struct candidate *all, int32_t count, double threshold);

/* Mirostat 2: the candidates with at most `bits` of surprise, or else the best one; in order.
 * `sum` is that of the weights. */
int32_t shape_keep_unsurprising(struct candidate *all, int32_t count, double sum, double bits);

#endif
