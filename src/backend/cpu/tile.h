/* Weights in the form that the kernels read: tiles of 16 rows, interleaved so that one register
 * holds four values of each row, in as many bits as the file has.
 *
 * A tile covers 16 rows and all columns, in blocks of 32 columns. A unit is a few blocks (8 where
 * halves of blocks have scales of their own, else 2). Units lie one after the other, so that
 * reading tiles is reading one stream of whole cache lines. The last unit may have blocks that are
 * not used. A unit has
 *   codes   block by block. Full bytes: 8 groups of 64 bytes, byte r * 4 + j of group g is row r,
 *           column 4 g + j. Nibbles: 4 groups of 64; the low half of byte r * 4 + j of group g
 *           is column 4 g + j, the high half column 4 g + 16 + j. A fifth bit: 64 bytes more,
 *           bit g is that of group g. Two more bits: 128 bytes more, bits 2 g and 2 g + 1 of the
 *           first 64 are those of group g, of the next 64 of group g + 4. Two bits alone: these
 *           128 bytes. Three: these, and 64 bytes of which bit g is that of group g.
 *   scales  16 fp16 numbers per block (with halves: 16 for the unit; of M4 they are eightfold,
 *           since those numbers are in the file, and an eighth may have fewer bits)
 *   mins    for kinds with a minimum, as many
 *   factors with halves: 2 x 16 bytes per block, for its two halves of 16 columns (unpack.h)
 * Codes are unsigned; quant/format.h says what they stand for. */
#ifndef BACKEND_CPU_TILE_H
#define BACKEND_CPU_TILE_H

#include "backend/cpu/unpack.h"
#include "base/pool.h"
#include "plan/weight.h"

enum { TILE_ROWS = 16 };

/* How a kernel prefetches weights that come from memory. */
enum read_ahead {
    AHEAD_NONE,     /* the processor's own prefetching is faster */
    AHEAD_ONCE,     /* into the first level alone, past the caches in between */
    AHEAD_BY_LEVEL, /* into the second level, and later from there into the first */
    AHEAD_FAR,      /* the same from further away */
};

struct tile_shape {
    enum code_kind kind;
    const int8_t *levels; /* 16 of them, for N4 and M4 */
    enum read_ahead ahead;
    int64_t n_blocks;
    size_t bytes; /* of one tile */
};

/* Where things are in a unit. Kernels call these with a constant kind. */
struct tile_unit {
    int n_blocks;
    bool has_min;
    size_t block_bytes, scales_at, mins_at, factors_at, bytes; /* block_bytes: of codes */
};

/* Rounded up to whole cache lines. */
static inline size_t whole_lines(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* What scales in tiles are multiplied by. */
static inline float tile_scale_unit(enum code_kind kind)
{
    return kind == CODE_M4 ? 0.125f : 1.0f;
}

static inline struct tile_unit tile_unit_for_codes(enum code_kind kind)
{
    const struct code_facts facts = code_kind_facts(kind);
    const bool has_halves = code_kind_has_halves(kind);
    struct tile_unit u = {.n_blocks = has_halves ? 8 : 2, .has_min = facts.has_min};
    size_t n = (size_t)u.n_blocks, scales = (has_halves ? 1 : n) * TILE_ROWS * 2;
    u.block_bytes = (size_t)facts.bits * TILE_ROWS * BLOCK_COLS / 8;
    u.scales_at = n * u.block_bytes;
    u.mins_at = u.scales_at + scales;
    u.factors_at = u.mins_at + (u.has_min ? scales : 0);
    u.bytes = whole_lines(u.factors_at + (has_halves ? n * TILE_ROWS * 2 : 0));
    return u;
}

/* A weight on this backend: tiles, or the rows of the file for formats without tiles. Rows are
 * copied too, since memory in huge pages is read twice as fast as a mapped file. */
struct cpu_weight {
    const struct weight *source;
    struct tile_shape shape;
    int64_t n_tiles;     /* of one matrix */
    uint8_t *tiles;      /* n_expert * n_tiles of them; NULL until tile_fill, and for rows */
    const uint8_t *rows; /* n_expert matrices; for tiles NULL, until tile_fill the mapped file's */
    size_t matrix_bytes; /* of rows, from one matrix to the next */
    size_t bytes;        /* of all, a multiple of 64 */
    bool is_filled;
};

/* Works out shape and bytes of w->source. */
void tile_plan(struct cpu_weight *w, enum read_ahead ahead);

/* Makes the tiles, or copies the rows, with all workers of the pool. `memory` has w->bytes zero
 * bytes, aligned to 64, and stays the caller's. Afterwards the mapped pages of the source are given
 * back to the system. */
void tile_fill(struct cpu_weight *w, uint8_t *memory, struct pool *pool);

static inline const uint8_t *tile_at(const struct cpu_weight *w, int64_t expert, int64_t tile)
{
    return w->tiles + (size_t)(expert * w->n_tiles + tile) * w->shape.bytes;
}

#endif
