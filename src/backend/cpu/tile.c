#include "backend/cpu/tile.h"

#include <string.h>

#include "base/os.h"

/* Puts the 32 codes of row r among those of a block, which were zero. */
static void place_codes(int bits, const uint8_t *q, int r, uint8_t *codes)
{
    if (bits == 8) {
        for (int g = 0; g < 8; g++) memcpy(codes + g * 64 + r * 4, q + g * 4, 4);
        return;
    }
    for (int i = 0; i < 16; i++)
        codes[i / 4 * 64 + r * 4 + i % 4] = (uint8_t)((q[i] & 15) | q[i + 16] << 4);
    if (bits == 5)
        for (int i = 0; i < 32; i++)
            codes[256 + r * 4 + i % 4] |= (uint8_t)((q[i] >> 4 & 1) << i / 4);
    if (bits == 6)
        for (int i = 0; i < 32; i++)
            codes[256 + i / 16 * 64 + r * 4 + i % 4] |= (uint8_t)((q[i] >> 4) << i % 16 / 4 * 2);
}

static void place_row(const struct cpu_weight *w, const uint8_t *row, int r, uint8_t *tile)
{
    enum code_kind kind = w->shape.kind;
    int bits = code_kind_facts(kind).bits;
    struct tile_unit u = tile_unit_for_codes(kind);
    struct block32 block;
    for (int64_t b = 0; b < w->shape.n_blocks; b++) {
        uint8_t *unit = tile + (size_t)(b / u.n_blocks) * u.bytes;
        uint16_t *scales = (uint16_t *)(void *)(unit + u.scales_at);
        uint16_t *mins = (uint16_t *)(void *)(unit + u.mins_at);
        int64_t i = b % u.n_blocks;
        block32_read(w->source->format, row, b, &block);
        place_codes(bits, block.q, r, unit + (size_t)i * u.block_bytes);
        if (kind == CODE_S6) {
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

/* Rows after the matrix's last stay zero: with zero scales their results are zero, and nobody reads
 * them. */
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

void tile_plan(struct cpu_weight *w, enum read_ahead ahead)
{
    const struct weight *source = w->source;
    enum code_kind kind = format_traits(source->format)->codes;
    if (kind == CODE_NONE) {
        w->bytes = whole_lines(weight_matrix_bytes(source) * (size_t)source->n_expert);
        return;
    }
    struct tile_unit u = tile_unit_for_codes(kind);
    int64_t n_blocks = source->cols / BLOCK_COLS;
    w->shape = (struct tile_shape){
        .kind = kind,
        .ahead = ahead,
        .n_blocks = n_blocks,
        .bytes = (size_t)((n_blocks + u.n_blocks - 1) / u.n_blocks) * u.bytes,
    };
    w->n_tiles = (source->rows + TILE_ROWS - 1) / TILE_ROWS;
    w->bytes = (size_t)(source->n_expert * w->n_tiles) * w->shape.bytes;
}

void tile_fill(struct cpu_weight *w, uint8_t *memory, struct pool *pool)
{
    bool has_tiles = format_traits(w->source->format)->codes != CODE_NONE;
    w->tiles = has_tiles ? memory : NULL;
    w->rows = has_tiles ? NULL : memory;
    w->matrix_bytes = weight_matrix_bytes(w->source);
    w->is_filled = true;
    pool_run(pool, has_tiles ? make_tiles : copy_rows, w);
    os_map_release(w->source->data, weight_span(w->source));
}
