/* A small random generator (SplitMix64): repeatable, and the same everywhere. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state; /* any value is a valid seed */
};

uint64_t rng_next(struct rng *r);
double rng_unit(struct rng *r);                /* [0, 1), 53 bits */
float rng_normal(struct rng *r);               /* mean 0, spread 1 */
uint32_t rng_below(struct rng *r, uint32_t n); /* 0 .. n-1, n >= 1 */

#endif
