/* Sums, products and differences of sizes that saturate at BYTES_MAX, or at 0, instead of wrapping.
 * They are for numbers that are only printed or compared with the memory there is. BYTES_MAX fits
 * into a signed number too. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdint.h>

#define BYTES_MAX ((uint64_t)INT64_MAX)

static inline uint64_t bytes_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) || sum > BYTES_MAX ? BYTES_MAX : sum;
}

static inline uint64_t bytes_multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) || product > BYTES_MAX ? BYTES_MAX : product;
}

static inline uint64_t bytes_left(uint64_t available, uint64_t taken)
{
    return available > taken ? available - taken : 0;
}

static inline uint64_t bytes_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t bytes_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
