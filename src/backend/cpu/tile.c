#include "backend/cpu/tile.h"

#include <string.h>

#include "backend/cpu/kernels.h"
#include "base/os.h"

bool tile_kind_of(enum format format, enum tile_kind *kind)
{
    switch (format) {
    case FORMAT_Q8_0: *kind = TILE_U8; return true;
    case FORMAT_Q4_0: *kind = TILE_U4; return true;
    case FORMAT_Q4_1:
    case FORMAT_Q4_K: *kind = TILE_U4_MIN; return true;
    case FORMAT_IQ4_NL: *kind = TILE_NL4; return true;
    case FORMAT_Q5_0: *kind = TILE_U5; return true;
    case FORMAT_Q5_1:
    case FORMAT_Q5_K: *kind = TILE_U5_MIN; return true;
    case FORMAT_Q6_K: *kind = TILE_U6; return true;
    default: return false;
    }
}

/* Puts the 32 quants of row r into those of a block, which were zero. */
static void place_quants(enum tile_kind kind, const uint8_t *q, int r, uint8_t *quants)
{
    if (kind == TILE_U8) {
        for (int g = 0; g < 8; g++) memcpy(quants + g * 64 + r * 4, q + g * 4, 4);
        return;
    }
    for (int i = 0; i < 16; i++)
        quants[i / 4 * 64 + r * 4 + i % 4] = (uint8_t)((q[i] & 15) | q[i + 16] << 4);
    if (kind == TILE_U5 || kind == TILE_U5_MIN)
        for (int i = 0; i < 32; i++)
            quants[256 + r * 4 + i % 4] |= (uint8_t)((q[i] >> 4 & 1) << i / 4);
    if (kind == TILE_U6)
        for (int i = 0; i < 32; i++)
            quants[256 + i / 16 * 64 + r * 4 + i % 4] |= (uint8_t)((q[i] >> 4) << i % 16 / 4 * 2);
}

static void place_row(const struct cpu_weight *w, const uint8_t *row, int r, uint8_t *tile)
{
    enum tile_kind kind = w->shape.kind;
    struct tile_unit u = tile_unit_of(kind);
    struct block32 block;
    for (int64_t b = 0; b < w->shape.n_blocks; b++) {
        uint8_t *unit = tile + (size_t)(b / u.n_blocks) * u.bytes;
        uint16_t *scales = (uint16_t *)(void *)(unit + u.scales_at);
        uint16_t *mins = (uint16_t *)(void *)(unit + u.mins_at);
        int64_t i = b % u.n_blocks;
        block32_read(w->source->format, row, b, &block);
        place_quants(kind, block.q, r, unit + (size_t)i * u.block_bytes);
        if (kind == TILE_U6) {
            scales[r] = f32_to_f16(block.scale);
            for (int half = 0; half < 2; half++)
                ((int8_t *)mins)[(i * 2 + half) * TILE_ROWS + r] = block.factor[half];
            continue;
        }
        scales[i * TILE_ROWS + r] = f32_to_f16(block.scale);
        if (u.has_min) mins[i * TILE_ROWS + r] = f32_to_f16(block.min);
    }
}

static void copy_rows(void *user, const struct pool_worker *worker)
{
    const struct cpu_weight *w = user;
    const struct weight *source = w->source;
    int64_t first, last;
    pool_stretch(worker, source->rows, &first, &last);
    size_t begin = (size_t)first * source->row_bytes;
    for (size_t i = 0; i < (size_t)source->n_expert; i++)
        memcpy((uint8_t *)(uintptr_t)w->rows + i * w->matrix_bytes + begin,
               (const uint8_t *)source->data + i * source->expert_bytes + begin,
               (size_t)(last - first) * source->row_bytes);
}

/* Rows beyond the matrix's last stay zero: zero scales give zero results, never read. */
static void make_tiles(void *user, const struct pool_worker *worker)
{
    const struct cpu_weight *w = user;
    const struct weight *source = w->source;
    int64_t first, last;
    pool_stretch(worker, source->n_expert * w->n_tiles, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t expert = i / w->n_tiles, row = i % w->n_tiles * TILE_ROWS;
        const uint8_t *rows = (const uint8_t *)source->data + (size_t)expert * source->expert_bytes;
        for (int r = 0; r < TILE_ROWS && row + r < source->rows; r++)
            place_row(w, rows + (size_t)(row + r) * source->row_bytes, r,
                      w->tiles + (size_t)i * w->shape.bytes);
    }
}

void tile_plan(struct cpu_weight *w)
{
    const struct weight *source = w->source;
    enum tile_kind kind;
    if (!tile_kind_of(source->format, &kind)) {
        w->bytes = whole_lines(weight_matrix_bytes(source) * (size_t)source->n_expert);
        return;
    }
    struct tile_unit u = tile_unit_of(kind);
    int64_t n_blocks = source->cols / BLOCK_COLS;
    w->shape = (struct tile_shape){
        .kind = kind,
        .ahead = cpu_read_ahead(kind),
        .n_blocks = n_blocks,
        .bytes = (size_t)((n_blocks + u.n_blocks - 1) / u.n_blocks) * u.bytes,
    };
    w->n_tiles = (source->rows + TILE_ROWS - 1) / TILE_ROWS;
    w->bytes = (size_t)(source->n_expert * w->n_tiles) * w->shape.bytes;
}

void tile_fill(struct cpu_weight *w, uint8_t *memory, struct pool *pool)
{
    enum tile_kind kind;
    bool has_tiles = tile_kind_of(w->source->format, &kind);
    w->tiles = has_tiles ? memory : NULL;
    w->rows = has_tiles ? NULL : memory;
    w->matrix_bytes = weight_matrix_bytes(w->source);
    w->is_filled = true;
    pool_run(pool, has_tiles ? make_tiles : copy_rows, w);
    os_map_release(w->source->data, weight_span(w->source));
}
