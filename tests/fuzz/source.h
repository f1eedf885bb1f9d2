/* Choices of a fuzz target, taken from its input byte by byte. When the input is used up they
 * are zeros. */
#ifndef FUZZ_SOURCE_H
#define FUZZ_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct source {
    const uint8_t *data;
    size_t size, at;
};

static inline uint8_t next_byte(struct source *s)
{
    return s->at < s->size ? s->data[s->at++] : 0;
}

static inline uint32_t next_u32(struct source *s)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)next_byte(s) << 8 * i;
    return value;
}

/* At most `length` bytes of the input as they are. */
static inline const char *next_bytes(struct source *s, size_t *length)
{
    if (*length > s->size - s->at) *length = s->size - s->at;
    const char *bytes = (const char *)s->data + s->at;
    s->at += *length;
    return *length ? bytes : "";
}

#endif
