/* The row functions of every format, declared from the one list. */
#ifndef QUANT_CODECS_H
#define QUANT_CODECS_H

#include "quant/format.h"

#define X(NAME, name, ...)                                                                         \
    void name##_decode(const void *src, float *dst, int64_t n);                                    \
    void name##_encode(const float *src, const float *importance, void *dst, int64_t n);
FORMAT_LIST(X)
#undef X

#endif
