/* The base file of `carat perplexity --save-logits`: what a model predicted, for comparison.
 *
 * Little-endian, no padding:
 *   bytes  0..7   "CARATLP\0"
 *   bytes  8..31  uint32: version (1), number type (0: f16, 1: f32), n_vocab, n_ctx, first,
 *                 n_chunk
 *   bytes 32..47  uint64: FNV-1a of all pieces, each with a zero byte after it; uint64: 0
 *   then          int32 tokens[n_chunk][n_ctx]
 *   then          rows[n_chunk][n_ctx - 1 - first][n_vocab]: natural logarithms of the
 *                 probabilities that position first, first + 1, ... gives the next token
 * f16 numbers are at most 2^-10 of their size away from the true ones. */
#ifndef CLI_LOGPROB_FILE_H
#define CLI_LOGPROB_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"
#include "cli/file_writer.h"

struct logprob_header {
    char magic[8];
    uint32_t version, type, n_vocab, n_ctx, first, n_chunk;
    uint64_t vocabulary;
    uint32_t reserved[2];
};

enum { LOGPROB_F16, LOGPROB_F32 };

struct logprob_file { /* for reading */
    struct os_map map;
    struct logprob_header header;
    const int32_t *tokens;
    const uint8_t *rows;
    size_t row_bytes;
};

/* Checks magic, version, sizes against the file's length, and every token id. */
int logprob_file_open(struct logprob_file *f, const char *path, struct carat_error *err);
void logprob_file_close(struct logprob_file *f);
void logprob_file_row(const struct logprob_file *f, uint32_t chunk, uint32_t row, float *out);

int logprob_write_header(struct file_writer *w, const struct logprob_header *header,
                         const int32_t *tokens, struct carat_error *err);
/* `row`: n_vocab numbers; `scratch`: room for as many. */
int logprob_write_row(struct file_writer *w, const struct logprob_header *header, const float *row,
                      void *scratch, struct carat_error *err);

#endif
