#include "backend/cpu/tile.h"

#include <string.h>

#include "base/os.h"
#include "quant/half.h"
#include "quant/levels.h"

/* Of each code of a word, the `n` bits from bit `from` on, at bit `to`. */
static uint32_t bits_of(uint32_t codes, int from, int n, int to)
{
    return (codes >> from & BITS * ((1u << n) - 1)) << to;
}

static void place_pairs(const uint32_t q[BLOCK_COLS / 4], uint32_t words[2])
{
    for (int g = 0; g < 8; g++) words[g / 4] |= bits_of(q[g], 0, 2, g % 4 * 2);
}

static void place_threes(const uint32_t q[BLOCK_COLS / 4], uint32_t words[3])
{
    for (int g = 0; g < 6; g++) words[g / 2] |= bits_of(q[g], 0, 3, g % 2 * 3);
    for (int g = 6; g < 8; g++) {
        words[g - 6] |= bits_of(q[g], 0, 2, 6);
        words[2] |= bits_of(q[g], 2, 1, g);
    }
}

static void place_nibbles(const uint32_t q[BLOCK_COLS / 4], uint32_t words[4])
{
    for (int g = 0; g < 8; g++) words[g % 4] |= bits_of(q[g], 0, 4, g / 4 * 4);
}

static void place_fives(const uint32_t q[BLOCK_COLS / 4], uint32_t words[5])
{
    for (int g = 0; g < 5; g++) words[g] = bits_of(q[g], 0, 5, 0);
    for (int g = 5; g < 8; g++) words[(g - 5) * 2] |= bits_of(q[g], 0, 3, 5);
    for (int g = 5; g < 7; g++) {
        words[(g - 5) * 2 + 1] |= bits_of(q[g], 3, 2, 6);
        words[(g - 5) * 2 + 1] |= bits_of(q[7], g - 2, 1, 5);
    }
}

static void place_sixes(const uint32_t q[BLOCK_COLS / 4], uint32_t words[6])
{
    for (int g = 0; g < 6; g++)
        words[g] = bits_of(q[g], 0, 6, 0) | bits_of(q[6 + g / 3], g % 3 * 2, 2, 6);
}

/* Stores the 32 codes of row r among those of a block. */
static void place_codes(int bits, const uint32_t q[BLOCK_COLS / 4], int r, uint8_t *codes)
{
    uint32_t words[8] = {0};
    switch (bits) {
    case 2: place_pairs(q, words); break;
    case 3: place_threes(q, words); break;
    case 4: place_nibbles(q, words); break;
    case 5: place_fives(q, words); break;
    case 6: place_sixes(q, words); break;
    default: memcpy(words, q, sizeof words); break;
    }
    for (int i = 0; i < bits; i++) memcpy(codes + i * 64 + r * 4, &words[i], 4);
}

static void place_block(enum code_kind kind, const struct block32 *block, int i, int r,
                        uint8_t *unit)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    uint16_t *scales = (uint16_t *)(void *)(unit + u.scales_at);
    uint16_t *mins = (uint16_t *)(void *)(unit + u.mins_at);
    place_codes(code_kind_facts(kind).bits, block->q, r, unit + (size_t)i * u.block_bytes);
    int at = r; /* of the scale */
    if (code_kind_has_halves(kind))
        for (int half = 0; half < 2; half++)
            unit[u.factors_at + (size_t)(i * 2 + half) * TILE_ROWS + (size_t)r] =
                block->factor[half];
    else
        at += i * TILE_ROWS;
    scales[at] = float_to_half(block->scale / tile_scale_unit(kind));
    if (u.has_min) mins[at] = float_to_half(block->min);
}

static void place_row(const struct cpu_weight *w, const uint8_t *row, int r, uint8_t *tile)
{
    const struct format_traits *traits = format_traits(w->source->format);
    const struct tile_unit u = tile_unit_for_codes(traits->codes);
    int64_t left = w->shape.n_blocks;
    struct block32 block;
    for (int j = 0; left > 0; tile += u.bytes)
        for (int i = 0; i < u.n_blocks && left > 0; i++, left--) {
            block32_read(w->source->format, row, j, &block);
            place_block(traits->codes, &block, i, r, tile);
            if (++j < traits->block_elements / BLOCK_COLS) continue;
            row += traits->block_bytes;
            j = 0;
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
        .levels = format_levels(source->format),
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
