/* Base files of `perplexity`: the input is such a file, or (first byte odd) tells what to write as
 * one. What is opened is read from end to end; what was written comes back.
 *
 * Subject: src/cli/logprob_file.c 100 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "cli/logprob_file.h"
#include "fuzz/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB_MAX = 16, CTX_MAX = 24, CHUNKS_MAX = 3 };

static struct buf written; /* what the writer below was given */

/* Stands in for the function of the program, which writes to a disk. */
int file_writer_add(struct file_writer *w, const void *bytes, size_t n, struct carat_error *err)
{
    (void)w, (void)err;
    buf_add(&written, bytes, n);
    return CARAT_OK;
}

/* A file in memory that has a path. */
static const char *save(const void *data, size_t n)
{
    static int file = -1;
    static char path[64];
    if (file < 0) file = memfd_create("logprobs", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    carat_assert(ftruncate(file, 0) == 0 && pwrite(file, data, n, 0) == (ssize_t)n);
    return path;
}

static void read_all(const struct logprob_file *f)
{
    const struct logprob_header *h = &f->header;
    float *row = mem_alloc(h->n_vocab, sizeof *row);
    carat_assert(row);
    for (uint32_t c = 0; c < h->n_chunk; c++) {
        for (uint32_t i = 0; i < h->n_ctx; i++)
            carat_assert((uint32_t)f->tokens[(size_t)c * h->n_ctx + i] < h->n_vocab);
        for (uint32_t r = 0; r + h->first + 1 < h->n_ctx; r++) logprob_file_row(f, c, r, row);
    }
    mem_free(row);
}

static void check_file(const void *data, size_t size)
{
    struct logprob_file f;
    struct carat_error err = {0};
    int status = logprob_file_open(&f, save(data, size), &err);
    carat_assert(status == CARAT_OK || (status == CARAT_EFORMAT && err.message[0]));
    if (status != CARAT_OK) return;
    read_all(&f);
    logprob_file_close(&f);
}

static void check_number(uint32_t type, float wanted, float found)
{
    if (type == LOGPROB_F32)
        carat_assert(memcmp(&found, &wanted, sizeof found) == 0);
    else if (fabsf(wanted) < 65504.0f)
        carat_assert(fabsf(found - wanted) <= fabsf(wanted) / 1024 + 0x1p-24f);
}

/* A small file of any numbers: written, then compared with what is read. */
static void round_trip(struct source *s)
{
    struct logprob_header h = {.type = next_byte(s) % 2,
                               .n_vocab = 1 + next_byte(s) % VOCAB_MAX,
                               .n_ctx = CTX_MAX - next_byte(s) % 8,
                               .n_chunk = 1 + next_byte(s) % CHUNKS_MAX};
    h.first = h.n_ctx - 2 - next_byte(s) % 4;
    int32_t tokens[CTX_MAX * CHUNKS_MAX];
    float row[VOCAB_MAX];
    uint16_t scratch[VOCAB_MAX];
    struct carat_error err = {0};
    struct logprob_file f;
    buf_clear(&written);
    for (uint32_t i = 0; i < h.n_ctx * h.n_chunk; i++)
        tokens[i] = (int32_t)(next_byte(s) % h.n_vocab);
    carat_assert(logprob_write_header(NULL, &h, tokens, &err) == CARAT_OK);
    uint32_t rows = h.n_ctx - 1 - h.first;
    struct source again = *s;
    for (uint32_t r = 0; r < rows * h.n_chunk; r++) {
        for (uint32_t i = 0; i < h.n_vocab; i++) {
            uint32_t bits = next_u32(s);
            memcpy(&row[i], &bits, sizeof bits);
        }
        carat_assert(logprob_write_row(NULL, &h, row, scratch, &err) == CARAT_OK);
    }
    carat_assert(logprob_file_open(&f, save(written.data, written.length), &err) == CARAT_OK);
    for (uint32_t r = 0; r < rows * h.n_chunk; r++) {
        logprob_file_row(&f, r / rows, r % rows, row);
        for (uint32_t i = 0; i < h.n_vocab; i++) {
            uint32_t bits = next_u32(&again);
            float wanted;
            memcpy(&wanted, &bits, sizeof bits);
            check_number(h.type, wanted, row[i]);
        }
    }
    logprob_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source s = {data, size, 0};
    if (next_byte(&s) & 1 && size > 0 && data[0] != 'C')
        round_trip(&s);
    else
        check_file(data, size);
    return 0;
}
