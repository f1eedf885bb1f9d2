#include "backend/cpu/tile.h"

#include <string.h>

#include "base/os.h"

struct kind_facts {
    int bits, offset;
    bool has_min;
};

static const struct kind_facts facts[TILE_KIND_COUNT] = {
#define X(kind, bits, offset, has_min) {bits, offset, has_min},
    TILE_KIND_LIST(X)
#undef X
};

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

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t quant_bytes(enum tile_kind kind)
{
    return (size_t)facts[kind].bits * TILE_ROWS * BLOCK_COLS / 8;
}

static struct tile_shape shape_of(enum tile_kind kind, int64_t cols)
{
    size_t n_blocks = (size_t)(cols / BLOCK_COLS);
    size_t scales = (kind == TILE_U6 ? (n_blocks + 7) / 8 : n_blocks) * TILE_ROWS * 2;
    size_t mins = facts[kind].has_min || kind == TILE_U6 ? n_blocks * TILE_ROWS * 2 : 0;
    struct tile_shape s = {.kind = kind, .n_blocks = (int64_t)n_blocks};
    s.scales_at = aligned(n_blocks * quant_bytes(kind));
    s.mins_at = s.scales_at + aligned(scales);
    s.bytes = s.mins_at + aligned(mins);
    return s;
}

/* Puts the 32 quants of row r into a block's quant plane, which was zero. */
static void place_quants(enum tile_kind kind, const uint8_t *q, int r, uint8_t *plane)
{
    if (kind == TILE_U8) {
        for (int g = 0; g < 8; g++) memcpy(plane + g * 64 + r * 4, q + g * 4, 4);
        return;
    }
    for (int i = 0; i < 16; i++)
        plane[i / 4 * 64 + r * 4 + i % 4] = (uint8_t)((q[i] & 15) | q[i + 16] << 4);
    if (kind == TILE_U5 || kind == TILE_U5_MIN)
        for (int i = 0; i < 32; i++)
            plane[256 + r * 4 + i % 4] |= (uint8_t)((q[i] >> 4 & 1) << i / 4);
    if (kind == TILE_U6)
        for (int i = 0; i < 32; i++)
            plane[256 + i / 16 * 64 + r * 4 + i % 4] |= (uint8_t)((q[i] >> 4) << i % 16 / 4 * 2);
}

static void place_row(const struct cpu_weight *w, const uint8_t *row, int r, uint8_t *tile)
{
    const struct tile_shape *s = &w->shape;
    uint16_t *scales = (uint16_t *)(void *)(tile + s->scales_at);
    uint16_t *mins = (uint16_t *)(void *)(tile + s->mins_at);
    struct block32 block;
    for (int64_t b = 0; b < s->n_blocks; b++) {
        block32_read(w->source->format, row, b, &block);
        place_quants(s->kind, block.q, r, tile + (size_t)b * quant_bytes(s->kind));
        if (s->kind == TILE_U6) {
            scales[b / 8 * TILE_ROWS + r] = f32_to_f16(block.scale);
            for (int half = 0; half < 2; half++)
                ((int8_t *)mins)[(b * 2 + half) * TILE_ROWS + r] = block.factor[half];
            continue;
        }
        scales[b * TILE_ROWS + r] = f32_to_f16(block.scale);
        if (facts[s->kind].has_min) mins[b * TILE_ROWS + r] = f32_to_f16(block.min);
    }
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
    w->bytes = 0;
    if (!tile_kind_of(source->format, &kind)) return;
    w->shape = shape_of(kind, source->cols);
    w->n_tiles = (source->rows + TILE_ROWS - 1) / TILE_ROWS;
    w->bytes = (size_t)(source->n_expert * w->n_tiles) * w->shape.bytes;
}

void tile_fill(struct cpu_weight *w, uint8_t *memory, struct pool *pool)
{
    w->tiles = memory;
    pool_run(pool, make_tiles, w);
    os_map_release(w->source->data, w->source->expert_bytes * (size_t)w->source->n_expert);
}
