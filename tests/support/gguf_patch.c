#include "support/gguf_patch.h"

#include <string.h>

#include "base/assert.h"
#include "gguf/gguf.h"

static uint64_t number_at(const struct buf *image, size_t at, int bytes)
{
    uint64_t value = 0;
    carat_assert(at + (size_t)bytes <= image->length);
    memcpy(&value, image->data + at, (size_t)bytes);
    return value;
}

static size_t skip_string(const struct buf *image, size_t at)
{
    return at + 8 + (size_t)number_at(image, at, 8);
}

static size_t skip_value(const struct buf *image, size_t at, uint32_t type)
{
    static const uint8_t bytes[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    carat_assert(type < GGUF_TYPE_COUNT);
    if (type == GGUF_STRING) return skip_string(image, at);
    if (type != GGUF_ARRAY) return at + bytes[type];
    uint32_t element = (uint32_t)number_at(image, at, 4);
    uint64_t count = number_at(image, at + 4, 8);
    at += 12;
    if (element != GGUF_STRING) return at + (size_t)count * bytes[element];
    for (; count > 0; count--) at = skip_string(image, at);
    return at;
}

static struct key_spot key_spot_at(const struct buf *image, size_t at)
{
    struct key_spot s = {.length_at = at, .text_at = at + 8, .type_at = skip_string(image, at)};
    s.value_at = s.type_at + 4;
    s.end = skip_value(image, s.value_at, (uint32_t)number_at(image, s.type_at, 4));
    return s;
}

static struct tensor_spot tensor_spot_at(const struct buf *image, size_t at)
{
    struct tensor_spot s = {
        .length_at = at, .text_at = at + 8, .n_dims_at = skip_string(image, at)};
    s.dims_at = s.n_dims_at + 4;
    s.type_at = s.dims_at + 8 * (size_t)number_at(image, s.n_dims_at, 4);
    s.offset_at = s.type_at + 4;
    s.end = s.offset_at + 8;
    return s;
}

static bool is_named(const struct buf *image, size_t length_at, const char *name)
{
    size_t length = (size_t)number_at(image, length_at, 8);
    return length == strlen(name) && memcmp(image->data + length_at + 8, name, length) == 0;
}

bool find_key_spot(const struct buf *image, const char *name, struct key_spot *out)
{
    size_t at = AT_FIRST_KEY;
    for (uint64_t n = number_at(image, AT_KEY_COUNT, 8); n > 0; n--) {
        *out = key_spot_at(image, at);
        if (is_named(image, at, name)) return true;
        at = out->end;
    }
    return false;
}

/* Without a name: to the end of the directory, which is then out->end. */
static bool find_tensor(const struct buf *image, const char *name, struct tensor_spot *out)
{
    size_t at = AT_FIRST_KEY;
    for (uint64_t n = number_at(image, AT_KEY_COUNT, 8); n > 0; n--)
        at = key_spot_at(image, at).end;
    *out = (struct tensor_spot){.end = at};
    for (uint64_t n = number_at(image, AT_TENSOR_COUNT, 8); n > 0; n--) {
        *out = tensor_spot_at(image, at);
        if (name && is_named(image, at, name)) return true;
        at = out->end;
    }
    return false;
}

bool find_tensor_spot(const struct buf *image, const char *name, struct tensor_spot *out)
{
    return find_tensor(image, name, out);
}

size_t directory_end(const struct buf *image)
{
    struct tensor_spot last;
    find_tensor(image, NULL, &last);
    return last.end;
}

void patch(struct buf *image, size_t at, uint64_t value, int bytes)
{
    carat_assert(at + (size_t)bytes <= image->length);
    memcpy(image->data + at, &value, (size_t)bytes);
}

void patch_cut(struct buf *image, size_t length)
{
    carat_assert(length <= image->length);
    image->length = length;
}

void patch_replace(struct buf *image, size_t at, size_t old, const void *bytes, size_t n)
{
    carat_assert(at + old <= image->length);
    struct buf changed = {0};
    buf_add(&changed, image->data, at);
    buf_add(&changed, bytes, n);
    buf_add(&changed, image->data + at + old, image->length - at - old);
    carat_assert(!changed.failed);
    buf_deinit(image);
    *image = changed;
}
