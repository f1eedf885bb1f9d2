/* Samplers and logits for tests of what they choose. */
#ifndef SUPPORT_SAMPLERS_H
#define SUPPORT_SAMPLERS_H

#include <stdint.h>

#include "engine/sample.h"

/* One that a grammar may bind, for up to 1000 tokens; fails the test if it is refused. The caller
 * closes it. */
struct sampler *open_bound_sampler(struct carat_sampling sampling, int32_t n_vocab);

/* Normal values with a deviation of 3. */
void fill_logits(float *logits, int32_t n, uint64_t seed);

#endif
