/* Masks of ids: id's bit is bit id % 64 of word id / 64. */
#ifndef BASE_MASK_H
#define BASE_MASK_H

#include <stddef.h>
#include <stdint.h>

static inline size_t mask_words(int32_t n_ids)
{
    return ((size_t)n_ids + 63) / 64;
}

#endif
