/* Shared by the files of this folder: the open file and the parser's interface. */
#ifndef GGUF_INTERNAL_H
#define GGUF_INTERNAL_H

#include "base/arena.h"
#include "base/os.h"
#include "gguf/gguf.h"

/* Limits of the reader. Real files have about 50 keys, 900 tensors and 780 000 strings. The limits
 * keep a hostile file below 64 MB and one second, whatever it declares. */
enum {
    KEYS_MAX = 65536,
    TENSORS_MAX = 65536,
    KEY_BYTES_MAX = 65535,
    TENSOR_NAME_BYTES_MAX = 63, /* ggml's limit is 64 with the NUL */
    STRING_BYTES_MAX = 64 << 20,
    STRINGS_MAX = 1 << 21,        /* in all string arrays of a file */
    ARRAY_ELEMENTS_MAX = 1 << 25, /* in all arrays of a file */
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MIN = 8,
    ALIGNMENT_MAX = 65536,
    PARTS_MAX = 512
};

/* One file image and its directory. */
struct part {
    struct os_map map;
    bool is_mapped; /* `map` is ours to close */
    const uint8_t *data;
    uint64_t length;
    uint32_t version, alignment;
    struct gguf_kv *kvs;
    size_t n_kv;
    uint32_t *kv_order; /* indexes of kvs, sorted by key */
    struct gguf_tensor *tensors;
    size_t n_tensor;
};

struct gguf {
    struct arena arena; /* directory and names */
    const char *path;
    struct part *parts; /* parts[0] holds the metadata */
    int n_part;
    uint64_t file_bytes;
    struct gguf_tensor *tensors; /* of all parts, in order */
    size_t n_tensor;
    uint32_t *tensor_order; /* indexes of tensors, sorted by name */
};

/* Reads the directory of part->data[0, length) into arena memory. Messages do not name the file;
 * the caller adds it. */
int part_parse(struct part *part, int index, struct arena *arena, struct carat_error *err);

const struct gguf_kv *part_find(const struct part *part, const char *key);

/* Sorts order[0, n), a permutation of indexes, so that name_at(user, order[i]) ascends. In place,
 * and O(n log n) whatever the names are: a file cannot choose a slow case. */
typedef const char *(*name_at_fn)(const void *user, uint32_t index);
void order_by_name(uint32_t *order, size_t n, name_at_fn name_at, const void *user);

/* The place of the entry called `name` in a sorted order, or n. */
size_t order_find(const uint32_t *order, size_t n, name_at_fn name_at, const void *user,
                  const char *name);

/* Sorted order of the tensors; CARAT_EFORMAT when a name occurs twice. */
int tensors_order(const struct gguf_tensor *tensors, size_t n, struct arena *arena, uint32_t **out,
                  struct carat_error *err);
const char *tensor_name_at(const void *tensors, uint32_t index);

/* Follows the split.* keys of the one part in g->parts: afterwards g->parts holds all parts. */
int split_open(struct gguf *g, struct carat_error *err);

/* Maps and parses `path` into *part. (part.c) */
int part_open(struct part *part, int index, const char *path, struct arena *arena,
              struct carat_error *err);
void part_close(struct part *part);

/* Puts the file's name, or the end of a long one, in front of a message; returns its status. */
int part_within_file(struct carat_error *err, const char *path);

/* What the format knows of a tensor type: false for removed and unknown numbers. */
struct tensor_type {
    const char *name;
    uint32_t block_elements, block_bytes;
};
bool tensor_type_find(uint32_t gguf_type, struct tensor_type *out);

#endif
