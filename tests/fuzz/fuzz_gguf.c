/* The container's reader on any bytes; after a success everything it promises is read, and the
 * file is written anew, which has to give one that reads alike.
 *
 * Subject: src/gguf/parse.c 100
 * Subject: src/gguf/lookup.c 30
 * Subject: src/gguf/order.c 90
 * Subject: src/gguf/write.c 90 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "gguf/write.h"
#include "support/gguf_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

static void add_zeros(struct buf *out, uint64_t n)
{
    while (n-- > 0) buf_add_char(out, '\0');
}

/* With all tensors as they are. */
static void write_anew(const struct gguf *g, struct buf *out)
{
    size_t n = gguf_tensor_count(g);
    enum format *formats = malloc(n * sizeof *formats + 1);
    if (!formats) abort();
    for (size_t i = 0; i < n; i++) formats[i] = FORMAT_COUNT;
    struct buf keys = {0};
    gguf_add_key_string(&keys, "quantize.imatrix.file", "a", 1);
    gguf_add_key_text_list(&keys, "quantize.imatrix.datasets", "b");
    struct gguf_rewrite r = {.formats = formats, .file_type = 7, .keys = &keys, .n_keys = 2};
    gguf_rewrite_head(g, &r, out);
    buf_deinit(&keys);
    add_zeros(out, gguf_padding(g, out->length));
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (gguf_rewrite_bytes(g, &r, i) != t->bytes) abort();
        buf_add(out, t->data, t->bytes);
        add_zeros(out, gguf_padding(g, t->bytes));
    }
    free(formats);
    if (out->failed) abort();
}

static bool is_kept(const char *key)
{
    return strncmp(key, "split.", 6) != 0 && strncmp(key, "quantize.imatrix.", 17) != 0 &&
           strcmp(key, "general.file_type") != 0 &&
           strcmp(key, "general.quantization_version") != 0;
}

static void check_anew(const struct gguf *g)
{
    struct buf out = {0};
    struct gguf *again = NULL;
    write_anew(g, &out);
    if (gguf_open_memory(&again, out.data, out.length, "again", NULL)) abort();
    if (gguf_tensor_count(again) != gguf_tensor_count(g)) abort();
    if (!gguf_find(again, "quantize.imatrix.file")) abort();
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *a = gguf_tensor_at(g, i), *b = gguf_tensor_at(again, i);
        bool is_same = strcmp(a->name, b->name) == 0 && a->gguf_type == b->gguf_type &&
                       a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
        if (!is_same) abort();
    }
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i), *found = gguf_find(again, kv->key.data);
        if (is_kept(kv->key.data) && !(found && gguf_same_key(kv, found))) abort();
    }
    gguf_walk(again);
    gguf_close(again);
    buf_deinit(&out);
}

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
    if (g && gguf_part_count(g) == 1 && gguf_alignment(g) <= 256) check_anew(g);
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
