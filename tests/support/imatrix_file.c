#include "support/imatrix_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rng.h"

void imatrix_put(struct gguf_writer *w, const char *name, int64_t cols, int64_t experts,
                 const float *sums, const float *counts)
{
    char full[96];
    snprintf(full, sizeof full, "%s.in_sum2", name);
    gguf_add_values(w, full, FORMAT_F32, (const int64_t[]){cols, experts}, 2, sums);
    snprintf(full, sizeof full, "%s.counts", name);
    gguf_add_values(w, full, FORMAT_F32, (const int64_t[]){1, experts}, 2, counts);
}

void imatrix_put_keys(struct gguf_writer *w, uint32_t chunks, const char *dataset)
{
    struct gguf_string text = {dataset, strlen(dataset)};
    gguf_put_text(w, "general.type", "imatrix");
    gguf_put_strings(w, "imatrix.datasets", &text, 1);
    gguf_put_u32(w, "imatrix.chunk_count", chunks);
    gguf_put_u32(w, "imatrix.chunk_size", 512);
}

void imatrix_dat_count(struct buf *out, int32_t n_entries)
{
    buf_add(out, &n_entries, sizeof n_entries);
}

static void add_text(struct buf *out, const char *text)
{
    int32_t length = (int32_t)strlen(text);
    buf_add(out, &length, sizeof length);
    buf_add(out, text, (size_t)length);
}

void imatrix_dat_add(struct buf *out, const char *name, int32_t calls, const float *values,
                     int32_t n)
{
    add_text(out, name);
    buf_add(out, &calls, sizeof calls);
    buf_add(out, &n, sizeof n);
    buf_add(out, values, (size_t)n * sizeof *values);
}

void imatrix_dat_end(struct buf *out, int32_t chunks, const char *dataset)
{
    buf_add(out, &chunks, sizeof chunks);
    add_text(out, dataset);
}

void imatrix_put_model(struct gguf_writer *w, const struct gguf *model, uint64_t seed)
{
    struct rng r = {.state = seed};
    imatrix_put_keys(w, 12, "words.txt");
    for (size_t i = 0; i < gguf_tensor_count(model); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(model, i);
        if (t->n_dims < 2 || strncmp(t->name, "blk.", 4) != 0) continue;
        int64_t n = t->dims[0] * t->dims[2];
        float *sums = mem_alloc((size_t)n, sizeof *sums);
        float *counts = mem_alloc((size_t)t->dims[2], sizeof *counts);
        carat_assert(sums && counts);
        for (int64_t k = 0; k < n; k++) sums[k] = expf(1.5f * rng_normal(&r));
        for (int64_t k = 0; k < t->dims[2]; k++) counts[k] = (float)(1 + rng_below(&r, 100));
        imatrix_put(w, t->name, t->dims[0], t->dims[2], sums, counts);
        mem_free(sums);
        mem_free(counts);
    }
}
