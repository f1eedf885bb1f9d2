#include "server/msgpack.h"

#include <string.h>

/* A byte that says what follows, and the low bytes of a number, the highest first. */
static void put(struct buf *out, int kind, uint64_t value, int n_bytes)
{
    char bytes[9] = {(char)kind};
    for (int i = 0; i < n_bytes; i++) bytes[1 + i] = (char)(value >> 8 * (n_bytes - 1 - i));
    buf_add(out, bytes, 1 + (size_t)n_bytes);
}

void msgpack_array(struct buf *out, uint32_t n)
{
    if (n < 16)
        put(out, 0x90 | (int)n, 0, 0);
    else if (n <= UINT16_MAX)
        put(out, 0xDC, n, 2);
    else
        put(out, 0xDD, n, 4);
}

void msgpack_nil(struct buf *out)
{
    put(out, 0xC0, 0, 0);
}

void msgpack_uint(struct buf *out, uint64_t value)
{
    if (value < 128)
        put(out, (int)value, 0, 0);
    else if (value <= UINT8_MAX)
        put(out, 0xCC, value, 1);
    else if (value <= UINT16_MAX)
        put(out, 0xCD, value, 2);
    else if (value <= UINT32_MAX)
        put(out, 0xCE, value, 4);
    else
        put(out, 0xCF, value, 8);
}

void msgpack_real(struct buf *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(out, 0xCB, bits, 8);
}

void msgpack_text(struct buf *out, const char *text)
{
    size_t n = strlen(text);
    if (n < 32)
        put(out, 0xA0 | (int)n, 0, 0);
    else if (n <= UINT8_MAX)
        put(out, 0xD9, n, 1);
    else
        put(out, 0xDA, n, 2);
    buf_add(out, text, n);
}
