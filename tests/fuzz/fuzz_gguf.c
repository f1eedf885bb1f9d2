/* The container's reader on any bytes; after a success everything it promises is read.
 *
 * Subject: src/gguf/parse.c 100
 * Subject: src/gguf/lookup.c 30
 * Subject: src/gguf/order.c 90 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "support/gguf_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A block of exactly this size, aligned as a mapping is. */
    uint8_t *copy = malloc(size ? size : 1);
    struct gguf *g = NULL;
    struct carat_error err = {0};
    if (!copy) return 0;
    memcpy(copy, data, size);
    int status = gguf_open_memory(&g, copy, size, "fuzz", &err);
    if ((status == CARAT_OK) != (g != NULL)) abort();
    if (status != CARAT_OK && (status != CARAT_EFORMAT || !err.message[0])) abort();
    if (g) gguf_walk(g);
    gguf_close(g);
    free(copy);
    return 0;
}

/* clang-format off */
/* Every other mutation keeps the file as it is, except one field of 4 or 8 bytes, which becomes
 * a number that readers get wrong: random bytes seldom pass the checks of a directory. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
    static const uint64_t nasty[] = {0, 1, 2, 3, 4, 8, 9, 12, 13, 31, 32, 33, 63, 64, 65, 255, 256,
                                     65535, 65536, 65537, INT32_MAX, UINT32_C(1) << 31,
                                     UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 40,
                                     UINT64_C(1) << 48, UINT64_C(1) << 61, UINT64_C(1) << 62,
                                     UINT64_C(1) << 63, UINT64_MAX - 31, UINT64_MAX - 7,
                                     UINT64_MAX};
    struct rng r = {.state = seed};
    if (size < 32 || rng_below(&r, 2)) return LLVMFuzzerMutate(data, size, size_max);
    size_t bytes = rng_below(&r, 2) ? 4 : 8;
    size_t at = rng_below(&r, (uint32_t)(size - bytes + 1));
    uint64_t value = nasty[rng_below(&r, sizeof nasty / sizeof *nasty)];
    if (rng_below(&r, 4) == 0) {
        memcpy(&value, data + at, bytes); /* one more or one less than it is */
        value += rng_below(&r, 2) ? 1 : UINT64_MAX;
    }
    memcpy(data + at, &value, bytes);
    return size;
}
/* clang-format on */
