/* Typed look-ups: the one place that knows which stored types are accepted for a wanted type. */
#include "gguf/gguf.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* "f32", or "array of string" */
static const char *found_type(const struct gguf_kv *kv, char out[32])
{
    if (kv->type == GGUF_ARRAY)
        snprintf(out, 32, "array of %s", gguf_type_name(kv->element_type));
    else
        snprintf(out, 32, "%s", gguf_type_name(kv->type));
    return out;
}

static int wrong_type(const struct gguf_kv *kv, const char *expected, struct carat_error *err)
{
    char found[32], key[GGUF_PRINTABLE_BYTES];
    return err_set(err, CARAT_EFORMAT, "key \"%s\": is %s, %s is expected",
                   gguf_printable(key, kv->key.data, kv->key.length), found_type(kv, found),
                   expected);
}

static bool is_signed(enum gguf_type type)
{
    return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
}

static bool is_unsigned(enum gguf_type type)
{
    return type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 || type == GGUF_U64;
}

static int out_of_range(const struct gguf_kv *kv, const char *value, struct carat_error *err)
{
    char key[GGUF_PRINTABLE_BYTES];
    return err_set(err, CARAT_EFORMAT,
                   "key \"%s\": %s is out of range, 0 to %" PRIu32 " is expected",
                   gguf_printable(key, kv->key.data, kv->key.length), value, UINT32_MAX);
}

/* A widened integer of `type` as u32. */
static int narrow(const struct gguf_kv *kv, enum gguf_type type, uint64_t bits, uint32_t *out,
                  struct carat_error *err)
{
    char value[24];
    if (bits <= UINT32_MAX) {
        *out = (uint32_t)bits;
        return CARAT_OK;
    }
    if (is_signed(type))
        snprintf(value, sizeof value, "%" PRId64, (int64_t)bits);
    else
        snprintf(value, sizeof value, "%" PRIu64, bits);
    return out_of_range(kv, value, err);
}

int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct carat_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return CARAT_OK;
    if (is_unsigned(kv->type)) return narrow(kv, kv->type, kv->value.u, out, err);
    if (is_signed(kv->type)) return narrow(kv, kv->type, (uint64_t)kv->value.i, out, err);
    return wrong_type(kv, "an integer", err);
}

int gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct carat_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return CARAT_OK;
    if (!is_unsigned(kv->type) && !is_signed(kv->type)) return wrong_type(kv, "an integer", err);
    if (is_unsigned(kv->type) && kv->value.u > INT64_MAX) {
        char shown[GGUF_PRINTABLE_BYTES];
        return err_set(err, CARAT_EFORMAT,
                       "key \"%s\": is %" PRIu64 ", at most %" PRId64 " is expected",
                       gguf_printable(shown, kv->key.data, kv->key.length), kv->value.u, INT64_MAX);
    }
    *out = is_signed(kv->type) ? kv->value.i : (int64_t)kv->value.u;
    return CARAT_OK;
}

int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct carat_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return CARAT_OK;
    if (kv->type != GGUF_F32 && kv->type != GGUF_F64) return wrong_type(kv, "f32", err);
    if (!isfinite(kv->value.f) || fabs(kv->value.f) > FLT_MAX) {
        char shown[GGUF_PRINTABLE_BYTES];
        return err_set(err, CARAT_EFORMAT, "key \"%s\": is %g, a finite f32 is expected",
                       gguf_printable(shown, kv->key.data, kv->key.length), kv->value.f);
    }
    *out = (float)kv->value.f;
    return CARAT_OK;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct carat_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return CARAT_OK;
    if (kv->type != GGUF_BOOL) return wrong_type(kv, "bool", err);
    *out = kv->value.u != 0;
    return CARAT_OK;
}

int gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *out,
                    struct carat_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return CARAT_OK;
    if (kv->type != GGUF_STRING) return wrong_type(kv, "string", err);
    *out = kv->value.s;
    return CARAT_OK;
}

int gguf_get_u32_per_layer(const struct gguf *g, const char *key, uint32_t count, uint32_t *out,
                           struct carat_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return CARAT_OK;
    enum gguf_type type = kv->type == GGUF_ARRAY ? kv->element_type : kv->type;
    if (!is_signed(type) && !is_unsigned(type) && type != GGUF_BOOL)
        return wrong_type(kv, "an integer, or an array of integers or bools", err);
    if (kv->type == GGUF_ARRAY && kv->count != count) {
        char shown[GGUF_PRINTABLE_BYTES];
        return err_set(err, CARAT_EFORMAT,
                       "key \"%s\": the array has %" PRIu64 " elements, %" PRIu32
                       " are expected (one a layer)",
                       gguf_printable(shown, kv->key.data, kv->key.length), kv->count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bits = is_signed(type) ? (uint64_t)kv->value.i : kv->value.u;
        if (kv->type == GGUF_ARRAY) bits = (uint64_t)gguf_array_int(kv, i);
        TRY(narrow(kv, type, bits, &out[i], err));
    }
    return CARAT_OK;
}

/* Reads element i of an array at its unaligned address. */
#define ELEMENT(type_name_, kv, i, out)                                                            \
    do {                                                                                           \
        type_name_ element_;                                                                       \
        memcpy(&element_, (kv)->value.elements + (i) * sizeof element_, sizeof element_);          \
        *(out) = element_;                                                                         \
    } while (0)

static void check_element(const struct gguf_kv *kv, uint64_t i)
{
    carat_assert(kv->type == GGUF_ARRAY && kv->element_type != GGUF_STRING);
    carat_assert(i < kv->count);
}

int64_t gguf_array_int(const struct gguf_kv *kv, uint64_t i)
{
    check_element(kv, i);
    int64_t value = 0;
    switch (kv->element_type) {
    case GGUF_BOOL:
    case GGUF_U8: ELEMENT(uint8_t, kv, i, &value); break;
    case GGUF_I8: ELEMENT(int8_t, kv, i, &value); break;
    case GGUF_U16: ELEMENT(uint16_t, kv, i, &value); break;
    case GGUF_I16: ELEMENT(int16_t, kv, i, &value); break;
    case GGUF_U32: ELEMENT(uint32_t, kv, i, &value); break;
    case GGUF_I32: ELEMENT(int32_t, kv, i, &value); break;
    case GGUF_U64:
    case GGUF_I64: ELEMENT(int64_t, kv, i, &value); break;
    case GGUF_F32:
    case GGUF_F64:
        /* Truncated. Values that do not fit an int64_t give 0, since converting them would be
         * undefined. */
        {
            double real = gguf_array_float(kv, i);
            if (real > -9.2e18 && real < 9.2e18) value = (int64_t)real;
            break;
        }
    case GGUF_STRING:
    case GGUF_ARRAY:
    case GGUF_TYPE_COUNT: break;
    }
    return value;
}

double gguf_array_float(const struct gguf_kv *kv, uint64_t i)
{
    check_element(kv, i);
    double value = 0.0;
    if (kv->element_type == GGUF_F32)
        ELEMENT(float, kv, i, &value);
    else if (kv->element_type == GGUF_F64)
        ELEMENT(double, kv, i, &value);
    else
        value = (double)gguf_array_int(kv, i);
    return value;
}
