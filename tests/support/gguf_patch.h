/* Byte positions inside a valid GGUF image, and changes to it that no writer would make. */
#ifndef SUPPORT_GGUF_PATCH_H
#define SUPPORT_GGUF_PATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Fixed places of the header. */
enum { AT_MAGIC = 0, AT_VERSION = 4, AT_TENSOR_COUNT = 8, AT_KEY_COUNT = 16, AT_FIRST_KEY = 24 };

struct key_spot {
    size_t length_at, text_at, type_at, value_at, end;
};

struct tensor_spot {
    size_t length_at, text_at, n_dims_at, dims_at, type_at, offset_at, end;
};

/* The entry called `name`; false when there is none. The image must be well-formed. */
bool find_key_spot(const struct buf *image, const char *name, struct key_spot *out);
bool find_tensor_spot(const struct buf *image, const char *name, struct tensor_spot *out);

/* Where the directory ends and the data (after padding) begins. */
size_t directory_end(const struct buf *image);

/* Overwrites the low `bytes` bytes of value. */
void patch(struct buf *image, size_t at, uint64_t value, int bytes);
void patch_cut(struct buf *image, size_t length);

/* Replaces [at, at + old) by n bytes. What follows moves: alignment is lost. */
void patch_replace(struct buf *image, size_t at, size_t old, const void *bytes, size_t n);

#endif
