#include "kernels/tiled.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "quant/grid_blocks.h"

float *random_floats(int64_t n, float spread, uint64_t seed)
{
    struct rng rng = {.state = seed};
    float *x = mem_alloc((size_t)n, sizeof *x);
    for (int64_t i = 0; x && i < n; i++) x[i] = rng_normal(&rng) * spread;
    return x;
}

bool is_high(int64_t r, int64_t c)
{
    static const int64_t every[] = {1 << 20, 1, 2, 4, 16, 32};
    struct rng rng = {.state = (uint64_t)(r * 4096 + c)};
    if (r % 14 >= 12) return rng_normal(&rng) > 0;
    return (c / every[r % 14 / 2] + r) % 2;
}

/* Bytes of codes that are the largest and the smallest that the format has. */
static uint8_t extreme_codes(enum format format, bool high)
{
    switch (format) {
    case FORMAT_Q8_0: return high ? 127 : 128;
    case FORMAT_MXFP4: return high ? 0x77 : 0xFF; /* the highest bit is the sign */
    default: return high ? 0xFF : 0;
    }
}

/* Sets the codes of a row to extremes. The bytes of a block from `first` to `last` have bits of
 * codes alone. */
static void set_extreme_codes(enum format format, uint8_t *row, int64_t cols, int64_t r)
{
    const struct format_traits *t = format_traits(format);
    size_t n = (size_t)t->block_bytes, size = (size_t)t->block_elements;
    size_t first = (size_t)t->codes_at, last = n;
    if (format == FORMAT_Q5_0 || format == FORMAT_Q5_1) first -= 4;
    if (format == FORMAT_Q5_K) first -= 32;
    if (format == FORMAT_Q6_K) last = 192;
    if (format == FORMAT_Q2_K) last = 80;
    if (format == FORMAT_Q3_K) first = 0, last = 96;
    for (size_t b = 0; b < (size_t)cols / size; b++)
        for (size_t i = first; i < last; i++) {
            bool high = is_high(r, (int64_t)(b * size + i - first));
            row[b * n + i] = extreme_codes(format, high);
        }
}

void tiled_open(struct tiled *t, const struct cpu_kernels *k, enum format format, int64_t rows,
                int64_t cols, bool is_extreme)
{
    size_t row_bytes = format_row_bytes(format, cols);
    float *values = random_floats(rows * cols, 0.02f, 5);
    uint8_t *bytes = mem_alloc((size_t)rows, row_bytes);
    t->decoded = mem_alloc((size_t)(rows * cols), sizeof(float));
    if (!values || !bytes || !t->decoded) abort();
    /* Encoders of grids make extreme codes of values that are as large as each other, because
     * scales that map them to the largest levels are tried first. */
    const bool has_grid = format_has_grid(format);
    for (int64_t i = 0; is_extreme && has_grid && i < rows * cols; i++)
        values[i] = is_high(i / cols, i % cols) ? 0.5f : -0.5f;
    for (int64_t r = 0; r < rows; r++) {
        uint8_t *row = bytes + (size_t)r * row_bytes;
        format_traits(format)->encode(values + r * cols, NULL, row, cols);
        if (is_extreme && !has_grid) set_extreme_codes(format, row, cols, r);
        format_traits(format)->decode(row, t->decoded + r * cols, cols);
    }
    t->source = (struct weight){.name = "weight",
                                .format = format,
                                .n_expert = 1,
                                .rows = rows,
                                .cols = cols,
                                .row_bytes = row_bytes,
                                .expert_bytes = row_bytes * (size_t)rows,
                                .data = bytes};
    t->weight = (struct cpu_weight){.source = &t->source};
    struct pool *pool;
    if (pool_open(&pool, &(struct pool_options){.n_threads = 1}, NULL)) abort();
    tile_plan(&t->weight, cpu_read_ahead(k, format));
    tile_fill(&t->weight, os_pages_take(t->weight.bytes), pool);
    pool_close(pool);
    mem_free(values);
}

void tiled_close(struct tiled *t)
{
    uint8_t *memory = t->weight.tiles ? t->weight.tiles : (uint8_t *)(uintptr_t)t->weight.rows;
    os_pages_give(memory, t->weight.bytes);
    mem_free((void *)(uintptr_t)t->source.data);
    mem_free(t->decoded);
}
