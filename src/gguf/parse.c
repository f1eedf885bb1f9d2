/* The directory of one GGUF file: header, keys, tensor descriptions.
 *
 * Everything is read through one cursor, which checks at every step how many bytes are left. Sums
 * and products are checked for overflow. Nothing is allocated for a declared count before the count
 * has been compared with the bytes that remain. After part_parse has succeeded, no later code has
 * to check a bound. */
#include "gguf/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read in place");

enum { HEADER_BYTES = 24, KV_BYTES_MIN = 8 + 1 + 4 + 1, TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8 };

/* What is being read, so that an error can say where. */
struct reader {
    const uint8_t *base;
    uint64_t length, offset;
    const char *kind; /* "key", "tensor" */
    const char *name; /* once known */
    uint64_t index, count;
    uint64_t n_string, n_element; /* read so far, in arrays */
    struct arena *arena;
    struct carat_error *err;
};

static const char *describe_place(const struct reader *r, char out[160])
{
    char name[GGUF_PRINTABLE_BYTES];
    if (!r->kind)
        snprintf(out, 160, "header");
    else if (r->name)
        snprintf(out, 160, "%s \"%s\"", r->kind, gguf_printable(name, r->name, strlen(r->name)));
    else
        snprintf(out, 160, "%s %" PRIu64 " of %" PRIu64, r->kind, r->index + 1, r->count);
    return out;
}

/* "<place>: <sentence>" */
static int fail_at(struct reader *r, const char *form, ...) __attribute__((format(printf, 2, 3)));
static int fail_at(struct reader *r, const char *form, ...)
{
    char where[160], sentence[400];
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(sentence, sizeof sentence, form, arguments);
    va_end(arguments);
    return err_set(r->err, CARAT_EFORMAT, "%s: %s", describe_place(r, where), sentence);
}

static int take_bytes(struct reader *r, uint64_t n, const char *what, const uint8_t **out)
{
    if (n > r->length - r->offset) {
        fail_at(r,
                "%s of %" PRIu64 " bytes at byte %" PRIu64 " does not fit in the file, which has "
                "%" PRIu64,
                what, n, r->offset, r->length);
        err_hint(r->err, "the file is cut short or damaged; download it again");
        return CARAT_EFORMAT;
    }
    *out = r->base + r->offset;
    r->offset += n;
    return CARAT_OK;
}

static int take_u32(struct reader *r, const char *what, uint32_t *out)
{
    const uint8_t *bytes;
    TRY(take_bytes(r, sizeof *out, what, &bytes));
    memcpy(out, bytes, sizeof *out);
    return CARAT_OK;
}

static int take_u64(struct reader *r, const char *what, uint64_t *out)
{
    const uint8_t *bytes;
    TRY(take_bytes(r, sizeof *out, what, &bytes));
    memcpy(out, bytes, sizeof *out);
    return CARAT_OK;
}

static int take_string(struct reader *r, const char *what, struct gguf_string *out)
{
    uint64_t length;
    const uint8_t *bytes;
    TRY(take_u64(r, "a string length", &length));
    TRY(take_bytes(r, length, what, &bytes));
    if (length > STRING_BYTES_MAX)
        return fail_at(r, "%s of %" PRIu64 " bytes; at most %d are accepted", what, length,
                       STRING_BYTES_MAX);
    *out = (struct gguf_string){.data = (const char *)bytes, .length = (size_t)length};
    return CARAT_OK;
}

/* A key or a tensor's name: short, valid UTF-8, no NUL; copied with a closing NUL. */
static int take_name(struct reader *r, const char *what, uint64_t length_max, const char **out,
                     size_t *length_out)
{
    struct gguf_string text;
    uint64_t length, begin = r->offset;
    TRY(take_u64(r, "a string length", &length));
    if (length > length_max || length == 0)
        return fail_at(r,
                       "%s of %" PRIu64 " bytes at byte %" PRIu64 "; 1 to %" PRIu64 " are accepted",
                       what, length, begin, length_max);
    r->offset = begin;
    TRY(take_string(r, what, &text));
    bool has_nul = memchr(text.data, '\0', text.length);
    if (has_nul || utf8_valid_prefix(text.data, text.length) < text.length) {
        char shown[GGUF_PRINTABLE_BYTES];
        return fail_at(r, "%s \"%s\" at byte %" PRIu64 " is not valid UTF-8 text", what,
                       gguf_printable(shown, text.data, text.length), begin);
    }
    *out = arena_copy_text(r->arena, text.data, text.length);
    *length_out = text.length;
    return *out ? CARAT_OK : err_no_memory(r->err, "names", text.length);
}

uint32_t gguf_scalar_bytes(enum gguf_type type)
{
    static const uint8_t bytes[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    return bytes[type];
}

static int take_type(struct reader *r, const char *what, enum gguf_type *out)
{
    uint32_t type;
    TRY(take_u32(r, what, &type));
    if (type >= GGUF_TYPE_COUNT)
        return fail_at(r, "%s %" PRIu32 " at byte %" PRIu64 " is unknown; 0 to %d are expected",
                       what, type, r->offset - 4, GGUF_TYPE_COUNT - 1);
    *out = (enum gguf_type)type;
    return CARAT_OK;
}

static int check_bool(struct reader *r, uint8_t byte)
{
    if (byte <= 1) return CARAT_OK;
    return fail_at(r, "a bool is stored as the byte %d; 0 or 1 is expected", byte);
}

static int read_scalar(struct reader *r, struct gguf_kv *kv)
{
    const uint8_t *bytes;
    TRY(take_bytes(r, gguf_scalar_bytes(kv->type), "a value", &bytes));
    union {
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } v = {.u64 = 0};
    memcpy(&v, bytes, gguf_scalar_bytes(kv->type));
    switch (kv->type) {
    case GGUF_BOOL:
        TRY(check_bool(r, *bytes));
        kv->value.u = *bytes;
        break;
    case GGUF_U8: kv->value.u = *bytes; break;
    case GGUF_I8: kv->value.i = (int8_t)*bytes; break;
    case GGUF_U16: kv->value.u = v.u16; break;
    case GGUF_I16: kv->value.i = v.i16; break;
    case GGUF_U32: kv->value.u = v.u32; break;
    case GGUF_I32: kv->value.i = v.i32; break;
    case GGUF_U64: kv->value.u = v.u64; break;
    case GGUF_I64: kv->value.i = v.i64; break;
    case GGUF_F32: kv->value.f = (double)v.f32; break;
    case GGUF_F64: kv->value.f = v.f64; break;
    case GGUF_STRING:
    case GGUF_ARRAY:
    case GGUF_TYPE_COUNT: break; /* not scalars */
    }
    return CARAT_OK;
}

/* The strings of an array, as views into the file. */
static int read_strings(struct reader *r, struct gguf_kv *kv)
{
    r->n_string += kv->count;
    if (kv->count > (r->length - r->offset) / 8)
        return fail_at(r,
                       "an array of %" PRIu64 " strings at byte %" PRIu64
                       " does not fit in the file, which has %" PRIu64 " bytes",
                       kv->count, r->offset, r->length);
    if (kv->count > STRINGS_MAX || r->n_string > STRINGS_MAX)
        return fail_at(r, "an array of %" PRIu64 " strings; a file may have %d in all", kv->count,
                       STRINGS_MAX);
    struct gguf_string *strings = arena_take(r->arena, (size_t)kv->count, sizeof *strings);
    if (!strings)
        return err_no_memory(r->err, "string arrays", (size_t)kv->count * sizeof *strings);
    for (uint64_t i = 0; i < kv->count; i++) TRY(take_string(r, "an array's string", &strings[i]));
    kv->strings = strings;
    return CARAT_OK;
}

static int read_array(struct reader *r, struct gguf_kv *kv)
{
    TRY(take_type(r, "element type", &kv->element_type));
    TRY(take_u64(r, "an array count", &kv->count));
    if (kv->element_type == GGUF_ARRAY)
        return fail_at(r, "is an array of arrays, which is not supported");
    kv->value.elements = r->base + r->offset;
    if (kv->element_type == GGUF_STRING) return read_strings(r, kv);
    uint64_t bytes;
    if (__builtin_mul_overflow(kv->count, (uint64_t)gguf_scalar_bytes(kv->element_type), &bytes))
        bytes = UINT64_MAX; /* more than any file has */
    TRY(take_bytes(r, bytes, "an array", &kv->value.elements));
    r->n_element += kv->count;
    if (kv->count > ARRAY_ELEMENTS_MAX || r->n_element > ARRAY_ELEMENTS_MAX)
        return fail_at(r, "an array of %" PRIu64 " elements; a file may have %d in all", kv->count,
                       ARRAY_ELEMENTS_MAX);
    if (kv->element_type == GGUF_BOOL)
        for (uint64_t i = 0; i < kv->count; i++) TRY(check_bool(r, kv->value.elements[i]));
    return CARAT_OK;
}

static int read_kv(struct reader *r, struct gguf_kv *kv)
{
    TRY(take_name(r, "a key", KEY_BYTES_MAX, &kv->key.data, &kv->key.length));
    r->name = kv->key.data;
    TRY(take_type(r, "value type", &kv->type));
    if (kv->type == GGUF_STRING) return take_string(r, "a string", &kv->value.s);
    if (kv->type == GGUF_ARRAY) return read_array(r, kv);
    return read_scalar(r, kv);
}

static const char *kv_name_at(const void *kvs, uint32_t index)
{
    return ((const struct gguf_kv *)kvs)[index].key.data;
}

const char *tensor_name_at(const void *tensors, uint32_t index)
{
    return ((const struct gguf_tensor *)tensors)[index].name;
}

/* Sorts the names of n entries; a name that occurs twice is an error. */
static int make_order(const void *entries, size_t n, name_at_fn name_at, const char *kind,
                      struct arena *arena, uint32_t **out, struct carat_error *err)
{
    uint32_t *order = arena_take(arena, n, sizeof *order);
    if (!order) return err_no_memory(err, "the directory", n * sizeof *order);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    order_by_name(order, n, name_at, entries);
    for (size_t i = 1; i < n; i++) {
        const char *name = name_at(entries, order[i]);
        if (strcmp(name, name_at(entries, order[i - 1])) != 0) continue;
        char shown[GGUF_PRINTABLE_BYTES];
        return err_set(err, CARAT_EFORMAT, "%s \"%s\": occurs twice", kind,
                       gguf_printable(shown, name, strlen(name)));
    }
    *out = order;
    return CARAT_OK;
}

int tensors_order(const struct gguf_tensor *tensors, size_t n, struct arena *arena, uint32_t **out,
                  struct carat_error *err)
{
    return make_order(tensors, n, tensor_name_at, "tensor", arena, out, err);
}

const struct gguf_kv *part_find(const struct part *part, const char *key)
{
    size_t at = order_find(part->kv_order, part->n_kv, kv_name_at, part->kvs, key);
    return at < part->n_kv ? &part->kvs[part->kv_order[at]] : NULL;
}

static int read_kvs(struct reader *r, struct part *part)
{
    part->kvs = arena_take(r->arena, part->n_kv, sizeof *part->kvs);
    if (!part->kvs) return err_no_memory(r->err, "keys", part->n_kv * sizeof *part->kvs);
    r->kind = "key";
    r->count = part->n_kv;
    for (r->index = 0; r->index < part->n_kv; r->index++) {
        r->name = NULL;
        TRY(read_kv(r, &part->kvs[r->index]));
    }
    r->name = NULL;
    return make_order(part->kvs, part->n_kv, kv_name_at, "key", r->arena, &part->kv_order, r->err);
}

static int read_alignment(struct part *part, struct carat_error *err)
{
    static const char key[] = "general.alignment";
    part->alignment = ALIGNMENT_DEFAULT;
    const struct gguf_kv *kv = part_find(part, key);
    if (!kv) return CARAT_OK;
    if (kv->type != GGUF_U32)
        return err_set(err, CARAT_EFORMAT, "key \"%s\": is %s, u32 is expected", key,
                       gguf_type_name(kv->type));
    uint64_t n = kv->value.u;
    if (n < ALIGNMENT_MIN || n > ALIGNMENT_MAX || (n & (n - 1)) != 0)
        return err_set(err, CARAT_EFORMAT,
                       "key \"%s\": is %" PRIu64 ", a power of two from %d to %d is expected", key,
                       n, ALIGNMENT_MIN, ALIGNMENT_MAX);
    part->alignment = (uint32_t)n;
    return CARAT_OK;
}

/* Fills in the dimensions; *elements is their product. */
static int read_dims(struct reader *r, struct gguf_tensor *t, uint64_t *elements)
{
    static const uint64_t dim_max = UINT64_C(1) << 40, elements_max = UINT64_C(1) << 48;
    uint32_t n_dims;
    TRY(take_u32(r, "a dimension count", &n_dims));
    if (n_dims < 1 || n_dims > GGUF_DIMS_MAX)
        return fail_at(r, "has %" PRIu32 " dimensions, 1 to %d are expected", n_dims,
                       GGUF_DIMS_MAX);
    t->n_dims = (int)n_dims;
    *elements = 1;
    for (int i = 0; i < GGUF_DIMS_MAX; i++) t->dims[i] = 1;
    for (int i = 0; i < t->n_dims; i++) {
        uint64_t dim;
        TRY(take_u64(r, "a dimension", &dim));
        if (dim < 1 || dim > dim_max)
            return fail_at(r, "dimension %d is %" PRIu64 ", 1 to %" PRIu64 " is expected", i, dim,
                           dim_max);
        if (__builtin_mul_overflow(*elements, dim, elements) || *elements > elements_max)
            return fail_at(r, "has more than %" PRIu64 " elements", elements_max);
        t->dims[i] = (int64_t)dim;
    }
    return CARAT_OK;
}

static int read_tensor(struct reader *r, struct gguf_tensor *t)
{
    size_t name_length;
    uint64_t elements = 0;
    struct tensor_type type;
    TRY(take_name(r, "a tensor name", TENSOR_NAME_BYTES_MAX, &t->name, &name_length));
    r->name = t->name;
    TRY(read_dims(r, t, &elements));
    TRY(take_u32(r, "a type", &t->gguf_type));
    TRY(take_u64(r, "an offset", &t->offset));
    if (!tensor_type_find(t->gguf_type, &type)) {
        fail_at(r,
                "has the type number %" PRIu32 ", which is unknown or was removed from the "
                "format",
                t->gguf_type);
        err_hint(r->err, "use a file made with a current converter, for example Q4_0 or Q8_0");
        return CARAT_EFORMAT;
    }
    t->is_supported = format_from_gguf(t->gguf_type, &t->format);
    if (!t->is_supported) t->format = FORMAT_COUNT;
    t->type_name = type.name;
    if (t->dims[0] % type.block_elements != 0)
        return fail_at(r,
                       "a row has %" PRId64 " elements, a multiple of %" PRIu32
                       " is expected for the type %s",
                       t->dims[0], type.block_elements, type.name);
    /* At most 2^48 elements of at most 8 bytes: no overflow. */
    t->bytes = (size_t)(elements / type.block_elements * type.block_bytes);
    return CARAT_OK;
}

static uint64_t align_up(uint64_t n, uint32_t alignment)
{
    return (n + alignment - 1) & ~(uint64_t)(alignment - 1);
}

/* Tensors lie one after the other in the order of the directory, with nothing but padding in
 * between. ggml's reader insists on this too; it excludes overlaps and hidden gaps. */
static int place_tensor(struct reader *r, const struct part *part, struct gguf_tensor *t,
                        uint64_t data_start, uint64_t *next)
{
    if (t->offset % part->alignment != 0)
        return fail_at(r,
                       "begins at offset %" PRIu64 ", which is no multiple of the alignment "
                       "%" PRIu32,
                       t->offset, part->alignment);
    if (t->offset != *next)
        return fail_at(r, "begins at offset %" PRIu64 " but %" PRIu64 " is expected: %s", t->offset,
                       *next,
                       t->offset < *next ? "it overlaps another tensor or is out of order"
                                         : "gaps between tensors are not accepted");
    uint64_t end;
    if (__builtin_add_overflow(data_start, t->offset, &t->offset) ||
        __builtin_add_overflow(t->offset, (uint64_t)t->bytes, &end) || end > part->length) {
        fail_at(r, "%zu bytes at byte %" PRIu64 " end past the end of the file, which has %" PRIu64,
                t->bytes, t->offset, part->length);
        err_hint(r->err, "the file is cut short; download it again");
        return CARAT_EFORMAT;
    }
    t->data = part->data + t->offset;
    *next = align_up(end - data_start, part->alignment);
    return CARAT_OK;
}

static int read_tensors(struct reader *r, struct part *part, int index)
{
    part->tensors = arena_take(r->arena, part->n_tensor, sizeof *part->tensors);
    if (!part->tensors)
        return err_no_memory(r->err, "tensors", part->n_tensor * sizeof *part->tensors);
    r->kind = "tensor";
    r->count = part->n_tensor;
    for (r->index = 0; r->index < part->n_tensor; r->index++) {
        r->name = NULL;
        part->tensors[r->index].part = index;
        TRY(read_tensor(r, &part->tensors[r->index]));
    }
    uint64_t data_start = align_up(r->offset, part->alignment), next = 0;
    for (r->index = 0; r->index < part->n_tensor; r->index++) {
        r->name = part->tensors[r->index].name;
        TRY(place_tensor(r, part, &part->tensors[r->index], data_start, &next));
    }
    return CARAT_OK;
}

static int read_magic(struct reader *r, struct part *part)
{
    if (r->length < HEADER_BYTES)
        return fail_at(r, "the file has %" PRIu64 " bytes, a GGUF file has at least %d", r->length,
                       HEADER_BYTES);
    const uint8_t *magic;
    TRY(take_bytes(r, 4, "the magic", &magic));
    TRY(take_u32(r, "the version", &part->version));
    if (memcmp(magic, "FUGG", 4) == 0 || part->version == 0x02000000 || part->version == 0x03000000)
        return fail_at(r, "this is a big-endian GGUF file; little-endian is expected");
    if (memcmp(magic, "GGUF", 4) != 0) {
        char shown[GGUF_PRINTABLE_BYTES];
        fail_at(r, "the file begins with \"%s\", \"GGUF\" is expected",
                gguf_printable(shown, (const char *)magic, 4));
        err_hint(r->err, "this is no GGUF file; compressed and other formats are not read");
        return CARAT_EFORMAT;
    }
    if (part->version != 2 && part->version != 3)
        return fail_at(r, "GGUF version %" PRIu32 " is not supported, 2 or 3 is expected",
                       part->version);
    return CARAT_OK;
}

/* A declared count, compared with a limit and with what the rest of the file could hold. */
static int take_count(struct reader *r, const char *what, uint64_t limit, uint64_t bytes_min,
                      uint64_t *out)
{
    TRY(take_u64(r, what, out));
    if (*out > limit)
        return fail_at(r, "%s is %" PRIu64 ", at most %" PRIu64 " is accepted", what, *out, limit);
    if (*out > (r->length - r->offset) / bytes_min)
        return fail_at(r, "%s is %" PRIu64 ", which does not fit in the file of %" PRIu64 " bytes",
                       what, *out, r->length);
    return CARAT_OK;
}

int part_parse(struct part *part, int index, struct arena *arena, struct carat_error *err)
{
    struct reader r = {.base = part->data, .length = part->length, .arena = arena, .err = err};
    uint64_t n_tensor, n_kv;
    TRY(read_magic(&r, part));
    TRY(take_count(&r, "the tensor count", TENSORS_MAX, TENSOR_BYTES_MIN, &n_tensor));
    TRY(take_count(&r, "the key count", KEYS_MAX, KV_BYTES_MIN, &n_kv));
    part->n_tensor = (size_t)n_tensor;
    part->n_kv = (size_t)n_kv;
    TRY(read_kvs(&r, part));
    TRY(read_alignment(part, err));
    return read_tensors(&r, part, index);
}
