/* Writing GGUF files: collect keys and tensors in any order, then save them all at once.
 *
 * Rules
 * 1. Zeroed is a valid, empty writer (version 3, alignment 32). Owned by whoever calls
 *    gguf_writer_deinit; one thread at a time.
 * 2. Putting a key or adding a tensor under a name that is already there replaces it in place.
 *    Names and values are copied; what a `fill` function reads must live until saving.
 * 3. Running out of memory is remembered and reported by the save functions.
 * 4. Nothing is checked against the format's rules: tests write malformed files with this. */
#ifndef SUPPORT_GGUF_WRITER_H
#define SUPPORT_GGUF_WRITER_H

#include "base/buf.h"
#include "gguf/gguf.h"

/* Writes bytes [offset, offset + n) of a tensor to `out`; offset and n are whole blocks. */
typedef void (*gguf_fill_fn)(void *user, uint64_t offset, void *out, size_t n);

struct gguf_out_tensor {
    char *name;
    size_t name_length;
    uint32_t gguf_type;
    int n_dims;
    int64_t dims[GGUF_DIMS_MAX];
    uint64_t bytes;
    void *data; /* owned, or NULL: then fill */
    gguf_fill_fn fill;
    void *user;
};

struct gguf_out_key {
    char *name;
    size_t name_length;
    uint32_t type;
    void *value; /* as it goes into the file, after the type; owned */
    size_t value_bytes;
};

struct gguf_writer {
    uint32_t version, alignment; /* 0: 3 and 32; alignment is also put as a key when not 32 */
    struct gguf_out_key *keys;
    size_t n_key, keys_room;
    struct gguf_out_tensor *tensors;
    size_t n_tensor, tensors_room;
    bool failed;
};

void gguf_put_u8(struct gguf_writer *w, const char *key, uint8_t value);
void gguf_put_u16(struct gguf_writer *w, const char *key, uint16_t value);
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t value);
void gguf_put_i64(struct gguf_writer *w, const char *key, int64_t value);
void gguf_put_f32(struct gguf_writer *w, const char *key, float value);
void gguf_put_f64(struct gguf_writer *w, const char *key, double value);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_put_text(struct gguf_writer *w, const char *key, const char *text);
void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t length);

/* An array of scalars as they lie in memory, and one of strings. */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type element_type,
                    const void *elements, size_t count);
void gguf_put_strings(struct gguf_writer *w, const char *key, const struct gguf_string *strings,
                      size_t count);

/* Any type number followed by any bytes; a key of any bytes. */
void gguf_put_raw(struct gguf_writer *w, const char *key, size_t key_length, uint32_t type,
                  const void *value, size_t value_bytes);
void gguf_drop_key(struct gguf_writer *w, const char *key); /* absent: nothing */

/* A tensor of `bytes` bytes: copied from `data`, or asked from `fill` while saving. Zero
 * bytes are written when both are NULL. */
void gguf_add_bytes(struct gguf_writer *w, const char *name, uint32_t gguf_type,
                    const int64_t *dims, int n_dims, const void *data, uint64_t bytes);
void gguf_add_fill(struct gguf_writer *w, const char *name, enum format format, const int64_t *dims,
                   int n_dims, gguf_fill_fn fill, void *user);

/* A tensor of floats, encoded in `format`. */
void gguf_add_values(struct gguf_writer *w, const char *name, enum format format,
                     const int64_t *dims, int n_dims, const float *values);
void gguf_drop_tensor(struct gguf_writer *w, const char *name); /* absent: nothing */
struct gguf_out_tensor *gguf_writer_tensor(struct gguf_writer *w, const char *name);

/* Writes to `path` (not atomically: name a temporary file), or appends to `image`. */
int gguf_save(const struct gguf_writer *w, const char *path, struct carat_error *err);
int gguf_save_image(const struct gguf_writer *w, struct buf *image, struct carat_error *err);
void gguf_writer_deinit(struct gguf_writer *w);

#endif
