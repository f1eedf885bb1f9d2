#include "base/rng.h"

#include <math.h>

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

double rng_unit(struct rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

float rng_normal(struct rng *r)
{
    double u = 1.0 - rng_unit(r); /* (0, 1]: the logarithm is finite */
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * rng_unit(r)));
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)((rng_next(r) >> 32) * n >> 32);
}
