#include "support/gguf_walk.h"

#include <string.h>

static uint64_t sum_bytes(const void *data, size_t n)
{
    const uint8_t *bytes = data;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += bytes[i];
    return sum;
}

static uint64_t walk_array(const struct gguf_kv *kv)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < kv->count; i++) {
        if (kv->strings)
            sum += sum_bytes(kv->strings[i].data, kv->strings[i].length);
        else
            sum += (uint64_t)gguf_array_int(kv, i) + (gguf_array_float(kv, i) > 0.0);
    }
    return sum;
}

/* All typed look-ups of one key: each works or says why not. */
static uint64_t look_up(const struct gguf *g, const char *key)
{
    struct carat_error err;
    struct gguf_string text = {0};
    uint32_t layers[4] = {0}, u = 0;
    float f = 0.0f;
    bool b = false;
    uint64_t sum = gguf_find(g, key) != NULL;
    gguf_get_u32(g, key, &u, &err);
    gguf_get_f32(g, key, &f, &err);
    gguf_get_bool(g, key, &b, &err);
    if (gguf_get_string(g, key, &text, &err) == CARAT_OK) sum += sum_bytes(text.data, text.length);
    gguf_get_u32_per_layer(g, key, 4, layers, &err);
    return sum + u + b + (f > 0.0f) + layers[3];
}

static uint64_t walk_tensor(const struct gguf *g, const struct gguf_tensor *t)
{
    float row[256];
    uint64_t sum = sum_bytes(t->data, t->bytes) + (gguf_tensor_find(g, t->name) == t);
    sum += strlen(t->name) + strlen(t->type_name);
    if (!t->is_supported) return sum;
    const struct format_traits *traits = format_traits(t->format);
    if (t->bytes < (size_t)traits->block_bytes) return sum;
    traits->decode(t->data, row, traits->block_elements);
    return sum + (row[0] > 0.0f);
}

uint64_t gguf_walk(const struct gguf *g)
{
    uint64_t sum = strlen(gguf_path(g)) + gguf_version(g) + gguf_alignment(g) + gguf_file_bytes(g) +
                   (uint64_t)gguf_part_count(g);
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        char shown[GGUF_PRINTABLE_BYTES];
        sum += strlen(gguf_printable(shown, kv->key.data, kv->key.length));
        sum += strlen(gguf_type_name(kv->type));
        if (kv->type == GGUF_ARRAY) sum += walk_array(kv);
        sum += look_up(g, kv->key.data);
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) sum += walk_tensor(g, gguf_tensor_at(g, i));
    return sum;
}

static bool same_string(struct gguf_string a, struct gguf_string b)
{
    return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

static bool same_element(const struct gguf_kv *a, const struct gguf_kv *b, uint64_t i)
{
    if (a->element_type == GGUF_STRING) return same_string(a->strings[i], b->strings[i]);
    if (a->element_type != GGUF_F32 && a->element_type != GGUF_F64)
        return gguf_array_int(a, i) == gguf_array_int(b, i);
    double x = gguf_array_float(a, i), y = gguf_array_float(b, i);
    return memcmp(&x, &y, sizeof x) == 0; /* NaN too */
}

bool gguf_same_key(const struct gguf_kv *a, const struct gguf_kv *b)
{
    if (a->type != b->type || a->count != b->count) return false;
    if (a->type == GGUF_STRING) return same_string(a->value.s, b->value.s);
    if (a->type != GGUF_ARRAY) return a->value.u == b->value.u;
    if (a->element_type != b->element_type) return false;
    for (uint64_t i = 0; i < a->count; i++)
        if (!same_element(a, b, i)) return false;
    return true;
}
