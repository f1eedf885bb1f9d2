/* Writing a GGUF file that has the keys and tensors of another one, in other types. */
#ifndef GGUF_WRITE_H
#define GGUF_WRITE_H

#include "base/buf.h"
#include "gguf/gguf.h"

/* What the new file says of itself. */
struct gguf_rewrite {
    const enum format *formats; /* of g's tensors, in order; FORMAT_COUNT: as it was */
    uint32_t file_type;         /* general.file_type */
    const struct buf *keys;     /* further keys, made by the functions below; NULL: none */
    uint64_t n_keys;
};

/* Each appends a key and its value, in a file's form. out->failed says if there was no memory. */
void gguf_add_key_u32(struct buf *out, const char *key, uint32_t value);
void gguf_add_key_string(struct buf *out, const char *key, const char *text, size_t length);
void gguf_add_key_text_list(struct buf *out, const char *key, const char *text); /* of one text */

/* The parts of the head of a new file: its beginning, then keys, then tensors in F32, the first at
 * offset 0. gguf_add_floats moves *offset to the next tensor. Head and tensors are padded with
 * zeros to multiples of GGUF_ALIGNMENT. */
enum { GGUF_ALIGNMENT = 32 };
void gguf_add_beginning(struct buf *out, uint64_t n_tensors, uint64_t n_keys);
void gguf_add_floats(struct buf *out, const char *name, int64_t cols, int64_t rows,
                     uint64_t *offset);

/* Bytes of tensor i in the new file. */
uint64_t gguf_rewrite_bytes(const struct gguf *g, const struct gguf_rewrite *r, size_t i);

/* Zero bytes that follow so many bytes of a tensor, or of the file's head. */
uint64_t gguf_padding(const struct gguf *g, uint64_t bytes);

/* Writes the head of a file of version 3 in one part to `out`, which is empty: keys, but none about
 * parts and importance matrices, and the directory. The file goes on with the head's padding, then
 * the tensors in order, each with its own. Failure is kept in `out`. */
void gguf_rewrite_head(const struct gguf *g, const struct gguf_rewrite *r, struct buf *out);

#endif
