/* Keys are kept encoded, tensors as descriptions; saving lays them out. The tensor data goes
 * out in pieces of whole blocks, so that a file may be far larger than memory. */
#include "support/gguf_writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "gguf/internal.h"

enum { PIECE_BYTES = 4 << 20 };

/* ---- Collecting ------------------------------------------------------------------------- */

/* Makes room for one more element of an array that grows by half. */
static bool make_room(void **array, size_t n, size_t *room, size_t size)
{
    if (n < *room) return true;
    size_t wanted = *room + *room / 2 + 64;
    void *grown = mem_resize(*array, wanted, size);
    if (!grown) return false;
    *array = grown;
    *room = wanted;
    return true;
}

static void free_key(struct gguf_out_key *key)
{
    mem_free(key->name);
    mem_free(key->value);
    *key = (struct gguf_out_key){0};
}

static struct gguf_out_key *find_key(const struct gguf_writer *w, const char *name, size_t length)
{
    for (size_t i = 0; i < w->n_key; i++)
        if (w->keys[i].name_length == length && memcmp(w->keys[i].name, name, length) == 0)
            return &w->keys[i];
    return NULL;
}

void gguf_put_raw(struct gguf_writer *w, const char *key, size_t key_length, uint32_t type,
                  const void *value, size_t value_bytes)
{
    void *room = w->keys;
    struct gguf_out_key new_key = {.name = mem_copy_text(key, key_length),
                                   .name_length = key_length,
                                   .type = type,
                                   .value = mem_copy_text(value, value_bytes),
                                   .value_bytes = value_bytes};
    bool ok =
        new_key.name && new_key.value && make_room(&room, w->n_key, &w->keys_room, sizeof *w->keys);
    w->keys = room;
    if (!ok) {
        free_key(&new_key);
        w->failed = true;
        return;
    }
    struct gguf_out_key *old = find_key(w, key, key_length);
    if (old)
        free_key(old);
    else
        old = &w->keys[w->n_key++];
    *old = new_key;
}

static void put_scalar(struct gguf_writer *w, const char *key, enum gguf_type type,
                       const void *value, size_t bytes)
{
    gguf_put_raw(w, key, strlen(key), (uint32_t)type, value, bytes);
}

void gguf_put_u8(struct gguf_writer *w, const char *key, uint8_t value)
{
    put_scalar(w, key, GGUF_U8, &value, sizeof value);
}

void gguf_put_u16(struct gguf_writer *w, const char *key, uint16_t value)
{
    put_scalar(w, key, GGUF_U16, &value, sizeof value);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_scalar(w, key, GGUF_U32, &value, sizeof value);
}

void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t value)
{
    put_scalar(w, key, GGUF_U64, &value, sizeof value);
}

void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t value)
{
    put_scalar(w, key, GGUF_I32, &value, sizeof value);
}

void gguf_put_i64(struct gguf_writer *w, const char *key, int64_t value)
{
    put_scalar(w, key, GGUF_I64, &value, sizeof value);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float value)
{
    put_scalar(w, key, GGUF_F32, &value, sizeof value);
}

void gguf_put_f64(struct gguf_writer *w, const char *key, double value)
{
    put_scalar(w, key, GGUF_F64, &value, sizeof value);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool value)
{
    uint8_t byte = value;
    put_scalar(w, key, GGUF_BOOL, &byte, sizeof byte);
}

static void add_u32(struct buf *b, uint32_t value)
{
    buf_add(b, &value, sizeof value);
}

static void add_u64(struct buf *b, uint64_t value)
{
    buf_add(b, &value, sizeof value);
}

static void add_string(struct buf *b, const char *text, size_t length)
{
    add_u64(b, length);
    buf_add(b, text, length);
}

/* Puts what was collected in b, and frees it. */
static void put_buf(struct gguf_writer *w, const char *key, enum gguf_type type, struct buf *b)
{
    if (b->failed)
        w->failed = true;
    else
        gguf_put_raw(w, key, strlen(key), (uint32_t)type, buf_text(b), b->length);
    buf_deinit(b);
}

void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t length)
{
    struct buf b = {0};
    add_string(&b, text, length);
    put_buf(w, key, GGUF_STRING, &b);
}

void gguf_put_text(struct gguf_writer *w, const char *key, const char *text)
{
    gguf_put_string(w, key, text, strlen(text));
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type element_type,
                    const void *elements, size_t count)
{
    carat_assert((unsigned)element_type < GGUF_TYPE_COUNT);
    uint32_t bytes = gguf_scalar_bytes(element_type);
    carat_assert(bytes > 0);
    struct buf b = {0};
    add_u32(&b, (uint32_t)element_type);
    add_u64(&b, count);
    buf_add(&b, elements, count * bytes);
    put_buf(w, key, GGUF_ARRAY, &b);
}

void gguf_put_strings(struct gguf_writer *w, const char *key, const struct gguf_string *strings,
                      size_t count)
{
    struct buf b = {0};
    add_u32(&b, GGUF_STRING);
    add_u64(&b, count);
    for (size_t i = 0; i < count; i++) add_string(&b, strings[i].data, strings[i].length);
    put_buf(w, key, GGUF_ARRAY, &b);
}

void gguf_drop_key(struct gguf_writer *w, const char *key)
{
    struct gguf_out_key *found = find_key(w, key, strlen(key));
    if (!found) return;
    free_key(found);
    size_t after = (size_t)(w->keys + w->n_key - found) - 1;
    memmove(found, found + 1, after * sizeof *found);
    w->n_key--;
}

struct gguf_out_tensor *gguf_writer_tensor(struct gguf_writer *w, const char *name)
{
    for (size_t i = 0; i < w->n_tensor; i++)
        if (strcmp(w->tensors[i].name, name) == 0) return &w->tensors[i];
    return NULL;
}

static void free_tensor(struct gguf_out_tensor *t)
{
    mem_free(t->name);
    mem_free(t->data);
    *t = (struct gguf_out_tensor){0};
}

static void add_tensor(struct gguf_writer *w, struct gguf_out_tensor t, const char *name,
                       const int64_t *dims, int n_dims)
{
    carat_assert(n_dims >= 1 && n_dims <= GGUF_DIMS_MAX);
    void *room = w->tensors;
    t.name_length = strlen(name);
    t.name = mem_copy_text(name, t.name_length);
    t.n_dims = n_dims;
    for (int i = 0; i < GGUF_DIMS_MAX; i++) t.dims[i] = i < n_dims ? dims[i] : 1;
    bool ok = t.name && make_room(&room, w->n_tensor, &w->tensors_room, sizeof *w->tensors);
    w->tensors = room;
    if (!ok) {
        free_tensor(&t);
        w->failed = true;
        return;
    }
    struct gguf_out_tensor *old = gguf_writer_tensor(w, name);
    if (old)
        free_tensor(old);
    else
        old = &w->tensors[w->n_tensor++];
    *old = t;
}

static uint64_t tensor_bytes(enum format format, const int64_t *dims, int n_dims)
{
    uint64_t bytes = format_row_bytes(format, dims[0]);
    for (int i = 1; i < n_dims; i++) bytes *= (uint64_t)dims[i];
    return bytes;
}

void gguf_add_bytes(struct gguf_writer *w, const char *name, uint32_t gguf_type,
                    const int64_t *dims, int n_dims, const void *data, uint64_t bytes)
{
    struct gguf_out_tensor t = {.gguf_type = gguf_type, .bytes = bytes};
    if (data) {
        t.data = mem_copy_text(data, (size_t)bytes);
        if (!t.data) w->failed = true;
    }
    add_tensor(w, t, name, dims, n_dims);
}

void gguf_add_fill(struct gguf_writer *w, const char *name, enum format format, const int64_t *dims,
                   int n_dims, gguf_fill_fn fill, void *user)
{
    struct gguf_out_tensor t = {.gguf_type = format_traits(format)->gguf_type,
                                .bytes = tensor_bytes(format, dims, n_dims),
                                .fill = fill,
                                .user = user};
    add_tensor(w, t, name, dims, n_dims);
}

void gguf_add_values(struct gguf_writer *w, const char *name, enum format format,
                     const int64_t *dims, int n_dims, const float *values)
{
    const struct format_traits *traits = format_traits(format);
    struct gguf_out_tensor t = {.gguf_type = traits->gguf_type,
                                .bytes = tensor_bytes(format, dims, n_dims)};
    t.data = mem_alloc((size_t)t.bytes, 1);
    if (!t.data) {
        w->failed = true;
        return;
    }
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= dims[i];
    traits->encode(values, NULL, t.data, n);
    add_tensor(w, t, name, dims, n_dims);
}

void gguf_drop_tensor(struct gguf_writer *w, const char *name)
{
    struct gguf_out_tensor *found = gguf_writer_tensor(w, name);
    if (!found) return;
    free_tensor(found);
    size_t after = (size_t)(w->tensors + w->n_tensor - found) - 1;
    memmove(found, found + 1, after * sizeof *found);
    w->n_tensor--;
}

void gguf_writer_deinit(struct gguf_writer *w)
{
    for (size_t i = 0; i < w->n_key; i++) free_key(&w->keys[i]);
    for (size_t i = 0; i < w->n_tensor; i++) free_tensor(&w->tensors[i]);
    mem_free(w->keys);
    mem_free(w->tensors);
    *w = (struct gguf_writer){0};
}

/* ---- Saving ----------------------------------------------------------------------------- */

/* Where bytes go: a file or an image. */
struct sink {
    FILE *file;
    struct buf *image;
};

static bool sink_add(struct sink *s, const void *bytes, size_t n)
{
    if (s->file) return fwrite(bytes, 1, n, s->file) == n;
    buf_add(s->image, bytes, n);
    return !s->image->failed;
}

static bool sink_pad(struct sink *s, uint64_t position, uint32_t alignment)
{
    static const uint8_t zeros[256];
    uint64_t n = (alignment - position % alignment) % alignment;
    for (; n > sizeof zeros; n -= sizeof zeros)
        if (!sink_add(s, zeros, sizeof zeros)) return false;
    return sink_add(s, zeros, (size_t)n);
}

static uint32_t alignment_of(const struct gguf_writer *w)
{
    return w->alignment ? w->alignment : ALIGNMENT_DEFAULT;
}

/* Header, keys and the directory of tensors. */
static void lay_out(const struct gguf_writer *w, struct buf *head)
{
    static const char key[] = "general.alignment";
    uint32_t alignment = alignment_of(w);
    bool put_alignment = alignment != ALIGNMENT_DEFAULT && !find_key(w, key, sizeof key - 1);
    buf_add(head, "GGUF", 4);
    add_u32(head, w->version ? w->version : 3);
    add_u64(head, w->n_tensor);
    add_u64(head, w->n_key + put_alignment);
    if (put_alignment) {
        add_string(head, key, sizeof key - 1);
        add_u32(head, GGUF_U32);
        add_u32(head, alignment);
    }
    for (size_t i = 0; i < w->n_key; i++) {
        add_string(head, w->keys[i].name, w->keys[i].name_length);
        add_u32(head, w->keys[i].type);
        buf_add(head, w->keys[i].value, w->keys[i].value_bytes);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n_tensor; i++) {
        const struct gguf_out_tensor *t = &w->tensors[i];
        add_string(head, t->name, t->name_length);
        add_u32(head, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) add_u64(head, (uint64_t)t->dims[d]);
        add_u32(head, t->gguf_type);
        add_u64(head, offset);
        offset += t->bytes;
        offset += (alignment - offset % alignment) % alignment;
    }
}

/* One tensor's data. `piece` has room for PIECE_BYTES. */
static bool save_tensor(struct sink *s, const struct gguf_out_tensor *t, uint8_t *piece)
{
    if (t->data) return sink_add(s, t->data, (size_t)t->bytes);
    struct tensor_type type = {.block_bytes = 1};
    tensor_type_find(t->gguf_type, &type);
    uint64_t step = PIECE_BYTES / type.block_bytes * type.block_bytes;
    for (uint64_t at = 0; at < t->bytes; at += step) {
        size_t n = (size_t)(t->bytes - at < step ? t->bytes - at : step);
        if (t->fill)
            t->fill(t->user, at, piece, n);
        else
            memset(piece, 0, n);
        if (!sink_add(s, piece, n)) return false;
    }
    return true;
}

static bool save_all(const struct gguf_writer *w, struct sink *s, const struct buf *head,
                     uint8_t *piece)
{
    uint32_t alignment = alignment_of(w);
    bool ok = sink_add(s, head->data, head->length) && sink_pad(s, head->length, alignment);
    for (size_t i = 0; ok && i < w->n_tensor; i++)
        ok = save_tensor(s, &w->tensors[i], piece) && sink_pad(s, w->tensors[i].bytes, alignment);
    return ok;
}

static int save(const struct gguf_writer *w, struct sink *s, const char *path,
                struct carat_error *err)
{
    struct buf head = {0};
    lay_out(w, &head);
    uint8_t *piece = mem_alloc(PIECE_BYTES, 1);
    int status = CARAT_OK;
    if (w->failed || head.failed || !piece)
        status = err_no_memory(err, "writing a GGUF file", PIECE_BYTES);
    else if (!save_all(w, s, &head, piece))
        status = s->file ? err_set(err, CARAT_EIO, "%s: writing failed: %s", path, strerror(errno))
                         : err_no_memory(err, "a file image", s->image->length);
    mem_free(piece);
    buf_deinit(&head);
    return status;
}

int gguf_save(const struct gguf_writer *w, const char *path, struct carat_error *err)
{
    struct sink s = {.file = fopen(path, "wbe")};
    if (!s.file) return err_set(err, CARAT_EIO, "%s: cannot be created: %s", path, strerror(errno));
    int status = save(w, &s, path, err);
    if (fclose(s.file) != 0 && status == CARAT_OK)
        status = err_set(err, CARAT_EIO, "%s: writing failed: %s", path, strerror(errno));
    return status;
}

int gguf_save_image(const struct gguf_writer *w, struct buf *image, struct carat_error *err)
{
    struct sink s = {.image = image};
    return save(w, &s, "image", err);
}
