#include "cli/logprob_file.h"

#include <assert.h>
#include <string.h>

#include "carat.h"

static_assert(sizeof(struct logprob_header) == 48, "the header is written as it is in memory");

static const char magic[8] = "CARATLP";

/* Nearest half-precision number; values beyond its range become infinite, tiny ones zero. The
 * program may not include quant/, and this is all that it needs of it. */
static uint16_t half_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7C00); /* 65536 and above, NaN */
    if (magnitude < 0x38800000) { /* below 2^-14: a multiple of 2^-24 */
        float absolute;
        memcpy(&absolute, &magnitude, sizeof absolute);
        return (uint16_t)(sign | (uint32_t)(absolute * 16777216.0f + 0.5f));
    }
    uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded - 0x38000000) >> 13));
}

static float float_from_half(uint16_t half)
{
    float sign = half & 0x8000 ? -1.0f : 1.0f;
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 0) return sign * (float)fraction / 16777216.0f;
    uint32_t bits =
        exponent == 31 ? 0x7F800000 | fraction << 13 : (exponent + 112) << 23 | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return sign * value;
}

static size_t number_bytes(const struct logprob_header *h)
{
    return h->type == LOGPROB_F16 ? 2 : 4;
}

static int check_header(const struct logprob_file *f, const char *path, struct carat_error *err)
{
    const struct logprob_header *h = &f->header;
    if (f->map.length < sizeof *h || memcmp(h->magic, magic, sizeof magic) != 0)
        return err_set(err, CARAT_EFORMAT, "%s: was not made by --save-logits", path);
    if (h->version != 1)
        return err_set(err, CARAT_EFORMAT, "%s: version %u, 1 expected", path, h->version);
    bool is_sane = h->type <= LOGPROB_F32 && h->n_vocab >= 1 && h->n_vocab <= 1u << 24 &&
                   h->n_ctx >= 16 && h->n_ctx <= 1u << 20 && h->first < h->n_ctx - 1 &&
                   h->n_chunk >= 1 && h->n_chunk <= 1u << 20;
    if (!is_sane)
        return err_set(err, CARAT_EFORMAT, "%s: the header holds impossible numbers", path);
    /* Below 2^20 * 2^20 * 2^24 * 4 = 2^66: two checked products. */
    uint64_t tokens = (uint64_t)h->n_chunk * h->n_ctx * sizeof(int32_t), rows, bytes;
    bool overflows = __builtin_mul_overflow((uint64_t)h->n_chunk * (h->n_ctx - 1 - h->first),
                                            (uint64_t)h->n_vocab * number_bytes(h), &rows) ||
                     __builtin_add_overflow(rows, tokens + sizeof *h, &bytes);
    if (overflows || bytes != f->map.length) {
        err_set(err, CARAT_EFORMAT, "%s: %llu bytes expected, the file has %zu", path,
                overflows ? ~0ull : (unsigned long long)bytes, f->map.length);
        err_hint(err, "the file was cut short or changed; make it again with --save-logits");
        return CARAT_EFORMAT;
    }
    return CARAT_OK;
}

int logprob_file_open(struct logprob_file *f, const char *path, struct carat_error *err)
{
    *f = (struct logprob_file){0};
    TRY(os_map_open(&f->map, path, err));
    size_t known = f->map.length < sizeof f->header ? f->map.length : sizeof f->header;
    memcpy(&f->header, f->map.data, known);
    int status = check_header(f, path, err);
    if (status == CARAT_OK) {
        size_t n = (size_t)f->header.n_chunk * f->header.n_ctx;
        f->tokens = (const void *)(f->map.data + sizeof f->header);
        f->rows = f->map.data + sizeof f->header + n * sizeof *f->tokens;
        f->row_bytes = (size_t)f->header.n_vocab * number_bytes(&f->header);
        for (size_t i = 0; i < n && status == CARAT_OK; i++)
            if (f->tokens[i] < 0 || (uint32_t)f->tokens[i] >= f->header.n_vocab)
                status = err_set(err, CARAT_EFORMAT, "%s: token %zu is %d, below %u expected", path,
                                 i, f->tokens[i], f->header.n_vocab);
    }
    if (status != CARAT_OK) logprob_file_close(f);
    return status;
}

void logprob_file_close(struct logprob_file *f)
{
    os_map_close(&f->map);
    *f = (struct logprob_file){0};
}

void logprob_file_row(const struct logprob_file *f, uint32_t chunk, uint32_t row, float *out)
{
    size_t rows_a_chunk = f->header.n_ctx - 1 - f->header.first;
    const uint8_t *at = f->rows + (chunk * rows_a_chunk + row) * f->row_bytes;
    if (f->header.type == LOGPROB_F32) {
        memcpy(out, at, f->row_bytes);
        return;
    }
    for (uint32_t i = 0; i < f->header.n_vocab; i++) {
        uint16_t half;
        memcpy(&half, at + 2 * (size_t)i, sizeof half);
        out[i] = float_from_half(half);
    }
}

int logprob_write_header(struct file_writer *w, const struct logprob_header *header,
                         const int32_t *tokens, struct carat_error *err)
{
    struct logprob_header h = *header;
    memcpy(h.magic, magic, sizeof magic);
    h.version = 1;
    TRY(file_writer_add(w, &h, sizeof h, err));
    return file_writer_add(w, tokens, (size_t)h.n_chunk * h.n_ctx * sizeof *tokens, err);
}

int logprob_write_row(struct file_writer *w, const struct logprob_header *header, const float *row,
                      void *scratch, struct carat_error *err)
{
    if (header->type == LOGPROB_F32)
        return file_writer_add(w, row, header->n_vocab * sizeof *row, err);
    uint16_t *halves = scratch;
    for (uint32_t i = 0; i < header->n_vocab; i++) halves[i] = half_from_float(row[i]);
    return file_writer_add(w, halves, header->n_vocab * sizeof *halves, err);
}
