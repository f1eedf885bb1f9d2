/* What tests against logits of another implementation share: numbers of a fixture's JSON, and the
 * distance of rows. For cmocka cases of builds with jansson. */
#ifndef SUPPORT_ORACLE_FILE_H
#define SUPPORT_ORACLE_FILE_H

#include <jansson.h>
#include <math.h>

/* The list of n numbers that a member of `root` is. */
static inline void read_integers(const json_t *root, const char *key, int32_t *out, size_t n)
{
    const json_t *list = json_object_get(root, key);
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(list, i));
}

/* |row - expected| / |expected| */
static inline double relative_error(const float *row, const float *expected, int32_t n)
{
    double error = 0, size = 0;
    for (int32_t i = 0; i < n; i++) {
        double d = (double)row[i] - (double)expected[i];
        error += d * d;
        size += (double)expected[i] * (double)expected[i];
    }
    return sqrt(error / size);
}

#endif
