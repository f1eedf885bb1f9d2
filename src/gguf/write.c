#include "gguf/write.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are written as they are");

enum { VERSION = 3, QUANTIZATION_VERSION = 2 };

static void add_u32(struct buf *out, uint32_t value)
{
    buf_add(out, &value, sizeof value);
}

static void add_u64(struct buf *out, uint64_t value)
{
    buf_add(out, &value, sizeof value);
}

static void add_string(struct buf *out, const char *text, size_t length)
{
    add_u64(out, length);
    buf_add(out, text, length);
}

void gguf_add_key_u32(struct buf *out, const char *key, uint32_t value)
{
    add_string(out, key, strlen(key));
    add_u32(out, GGUF_U32);
    add_u32(out, value);
}

void gguf_add_key_string(struct buf *out, const char *key, const char *text, size_t length)
{
    add_string(out, key, strlen(key));
    add_u32(out, GGUF_STRING);
    add_string(out, text, length);
}

void gguf_add_key_text_list(struct buf *out, const char *key, const char *text)
{
    add_string(out, key, strlen(key));
    add_u32(out, GGUF_ARRAY);
    add_u32(out, GGUF_STRING);
    add_u64(out, 1);
    add_string(out, text, strlen(text));
}

void gguf_add_beginning(struct buf *out, uint64_t n_tensors, uint64_t n_keys)
{
    buf_add(out, "GGUF", 4);
    add_u32(out, VERSION);
    add_u64(out, n_tensors);
    add_u64(out, n_keys);
}

void gguf_add_floats(struct buf *out, const char *name, int64_t cols, int64_t rows,
                     uint64_t *offset)
{
    add_string(out, name, strlen(name));
    add_u32(out, 2);
    add_u64(out, (uint64_t)cols);
    add_u64(out, (uint64_t)rows);
    add_u32(out, format_traits(FORMAT_F32)->gguf_type);
    add_u64(out, *offset);
    uint64_t bytes = (uint64_t)cols * (uint64_t)rows * sizeof(float);
    *offset += (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

/* ---- Keys ------------------------------------------------------------------------------- */

/* Keys that say nothing true of the new file, or are written anew. */
static bool is_kept(const struct gguf_kv *kv)
{
    static const char *const begins[] = {"split.", "quantize.imatrix."};
    static const char *const names[] = {"general.file_type", "general.quantization_version"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(kv->key.data, begins[i], strlen(begins[i])) == 0) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(kv->key.data, names[i]) == 0) return false;
    return true;
}

/* The low bytes of an integer; a float of 32 bits was widened without loss. */
static void add_scalar(struct buf *out, const struct gguf_kv *kv)
{
    float narrow = (float)kv->value.f;
    if (kv->type == GGUF_F32)
        buf_add(out, &narrow, sizeof narrow);
    else
        buf_add(out, &kv->value, gguf_scalar_bytes(kv->type));
}

static void add_array(struct buf *out, const struct gguf_kv *kv)
{
    add_u32(out, kv->element_type);
    add_u64(out, kv->count);
    if (kv->element_type != GGUF_STRING) {
        buf_add(out, kv->value.elements, (size_t)kv->count * gguf_scalar_bytes(kv->element_type));
        return;
    }
    for (uint64_t i = 0; i < kv->count; i++)
        add_string(out, kv->strings[i].data, kv->strings[i].length);
}

static void add_key(struct buf *out, const struct gguf_kv *kv)
{
    add_string(out, kv->key.data, kv->key.length);
    add_u32(out, kv->type);
    if (kv->type == GGUF_STRING)
        add_string(out, kv->value.s.data, kv->value.s.length);
    else if (kv->type == GGUF_ARRAY)
        add_array(out, kv);
    else
        add_scalar(out, kv);
}

static void add_keys(const struct gguf *g, const struct gguf_rewrite *r, struct buf *out)
{
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        if (is_kept(gguf_kv_at(g, i))) add_key(out, gguf_kv_at(g, i));
    gguf_add_key_u32(out, "general.file_type", r->file_type);
    gguf_add_key_u32(out, "general.quantization_version", QUANTIZATION_VERSION);
    if (r->keys) buf_add(out, r->keys->data, r->keys->length);
}

static uint64_t count_keys(const struct gguf *g, const struct gguf_rewrite *r)
{
    uint64_t n = 2 + r->n_keys;
    for (size_t i = 0; i < gguf_kv_count(g); i++) n += is_kept(gguf_kv_at(g, i));
    return n;
}

/* ---- Tensors ---------------------------------------------------------------------------- */

uint64_t gguf_rewrite_bytes(const struct gguf *g, const struct gguf_rewrite *r, size_t i)
{
    const struct gguf_tensor *t = gguf_tensor_at(g, i);
    if (r->formats[i] == FORMAT_COUNT) return t->bytes;
    uint64_t rows = (uint64_t)t->dims[1] * (uint64_t)t->dims[2] * (uint64_t)t->dims[3];
    return rows * format_row_bytes(r->formats[i], t->dims[0]);
}

uint64_t gguf_padding(const struct gguf *g, uint64_t bytes)
{
    uint64_t alignment = gguf_alignment(g);
    return (alignment - bytes % alignment) % alignment;
}

static void add_tensors(const struct gguf *g, const struct gguf_rewrite *r, struct buf *out)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t bytes = gguf_rewrite_bytes(g, r, i);
        add_string(out, t->name, strlen(t->name));
        add_u32(out, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) add_u64(out, (uint64_t)t->dims[d]);
        add_u32(out, r->formats[i] == FORMAT_COUNT ? t->gguf_type
                                                   : format_traits(r->formats[i])->gguf_type);
        add_u64(out, offset);
        offset += bytes + gguf_padding(g, bytes);
    }
}

void gguf_rewrite_head(const struct gguf *g, const struct gguf_rewrite *r, struct buf *out)
{
    gguf_add_beginning(out, gguf_tensor_count(g), count_keys(g, r));
    add_keys(g, r, out);
    add_tensors(g, r, out);
}
