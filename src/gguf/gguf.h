/* The GGUF container (versions 2 and 3, little endian, split files): a mapped file and its
 * directory. It knows bounds and types; it knows nothing of models.
 *
 * Rules
 * 1. `gguf_open` checks everything that can be checked without knowing the model: after it
 *    succeeds every key, string, array and tensor lies inside the file and every tensor has a
 *    type, at least one element and a whole number of blocks a row.
 * 2. All pointers handed out are borrowed from the struct gguf and live until gguf_close.
 * 3. Read-only after open: any number of threads may look things up.
 * 4. Errors name the file and the place (key, tensor, byte offset); code CARAT_EFORMAT. */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "quant/format.h"

/* clang-format off */
enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
    GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPE_COUNT
};
/* clang-format on */

struct gguf_string {
    const char *data; /* not NUL-terminated; valid UTF-8 is NOT implied */
    size_t length;
};

/* A metadata entry. Scalars are widened: unsigned and bool to u, signed to i, floats to f.
 * Keys are valid UTF-8 without NUL. */
struct gguf_kv {
    struct gguf_string key; /* data is NUL-terminated for keys */
    enum gguf_type type;
    enum gguf_type element_type; /* of an array; never GGUF_ARRAY */
    uint64_t count;              /* of an array */
    union {
        uint64_t u;
        int64_t i;
        double f;
        struct gguf_string s;
        const uint8_t *elements; /* array: the first element, as in the file, unaligned */
    } value;
    const struct gguf_string *strings; /* array of strings: `count` views; else NULL */
};

#define GGUF_DIMS_MAX 4

/* Types that the format knows and we do not decode (TQ2_0, I8, NVFP4, ...) stay in the directory,
 * since an unknown extra tensor may be skipped. Code that needs such a tensor refuses it and names
 * `type_name`. */
struct gguf_tensor {
    const char *name;   /* NUL-terminated, valid UTF-8, 1 to 63 bytes */
    enum format format; /* FORMAT_COUNT when not is_supported */
    bool is_supported;
    uint32_t gguf_type;    /* as in the file */
    const char *type_name; /* "Q4_K", "TQ2_0" */
    int n_dims;
    int64_t dims[GGUF_DIMS_MAX]; /* dims[0] is contiguous; unused ones are 1 */
    const uint8_t *data;         /* in the mapping; at least 8-byte aligned in the file */
    size_t bytes;
    int part;        /* which split file, from 0 */
    uint64_t offset; /* from the start of that file */
};

struct gguf;

/* Opens a file, or all parts of a split one (any part may be named). */
int gguf_open(struct gguf **out, const char *path, struct carat_error *err);

/* Parses a file image as gguf_open parses a mapped file. The caller keeps it alive and aligned to 8
 * bytes. For tests and fuzzing; does not follow splits. `name` is used in messages. */
int gguf_open_memory(struct gguf **out, const void *data, size_t length, const char *name,
                     struct carat_error *err);
void gguf_close(struct gguf *g); /* NULL is fine */

const char *gguf_path(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
uint32_t gguf_alignment(const struct gguf *g);
int gguf_part_count(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g); /* all parts */

size_t gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* NULL: absent */

size_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

/* "Q4_K - Medium": the type of most of the layers' weights, with the suffix of general.file_type if
 * that names the same type. "Q4_K 61.3 %, Q6_K 37.9 %": the types with the most bytes. */
void gguf_quantisation(const struct gguf *g, char *out, size_t size);
void gguf_type_mix(const struct gguf *g, char *out, size_t size);

/* Typed look-ups. An absent key leaves *out as it is and returns CARAT_OK: set the default before,
 * or test with gguf_find. A key of a wrong type or range is CARAT_EFORMAT, and the message names
 * the key, what was expected and what was found. Integers may have any integer type if the value is
 * in range; reals are f32 or f64, and finite. */
int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct carat_error *err);
int gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct carat_error *err);
int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct carat_error *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct carat_error *err);
int gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *out,
                    struct carat_error *err);

/* Element i of an integer or bool array, or the value of a scalar for every i (per-layer keys
 * come both ways). `count` is the length an array must have. */
int gguf_get_u32_per_layer(const struct gguf *g, const char *key, uint32_t count, uint32_t *out,
                           struct carat_error *err);

/* Element i of any numeric or bool array, checked by the caller to exist (assertion). */
int64_t gguf_array_int(const struct gguf_kv *kv, uint64_t i);
double gguf_array_float(const struct gguf_kv *kv, uint64_t i);

const char *gguf_type_name(enum gguf_type type); /* "u32", "string", ... */

/* Bytes of a scalar in a file; 0 for string and array. */
uint32_t gguf_scalar_bytes(enum gguf_type type);

/* Text from a file, safe for a message: long text is cut with "..."; control characters, direction
 * marks and bytes that are not UTF-8 become \xNN. Returns `out`, for use as an argument. */
enum { GGUF_PRINTABLE_BYTES = 100 };
const char *gguf_printable(char out[GGUF_PRINTABLE_BYTES], const char *text, size_t length);

#endif
