/* F32: plain little-endian floats. */
#include "quant/codecs.h"

#include <string.h>

void f32_decode(const void *src, float *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

void f32_encode(const float *src, const float *importance, void *dst, int64_t n)
{
    (void)importance; /* each value gets the nearest */
    memcpy(dst, src, (size_t)n * sizeof *src);
}
