/* Weights in the form that the kernels read: tiles of 16 rows, interleaved so that one register
 * holds four values of each row, in as many bits as the file has.
 *
 * A tile covers 16 rows and all columns, in blocks of 32 columns. A unit is a few blocks (8 where
 * halves of blocks have scales of their own, else 2). Units lie one after the other, so that
 * reading tiles is reading one stream of whole cache lines. The last unit may have blocks that are
 * not used. A unit has
 *   codes   block by block. Group g, columns 4 g + j of row r, is byte r * 4 + j of 64. As many
 *           times 64 bytes as a code has bits hold the eight groups; where groups share them:
 *             2 bits  group g in piece g / 4, from bit g % 4 * 2 on
 *             3 bits  groups 0 .. 5 in piece g / 2, from bit 0 or 3 on. Group 6 (7): two bits at
 *                     the top of piece 0 (1), the third is bit 6 (7) of piece 2
 *             4 bits  group g in piece g % 4, from bit 0 or 4 on
 *             5 bits  groups 0 .. 4 in pieces of their own. Groups 5, 6, 7: three bits at the top
 *                     of pieces 0, 2, 4. What is left of 5 (6) are the top two bits of piece 1
 *                     (3), of 7 bits 5 of both
 *             6 bits  groups 0 .. 5 in pieces of their own, whose top two bits are group 6 in
 *                     pieces 0 .. 2, group 7 in pieces 3 .. 5
 *           Codes that lie whole in their bytes take one instruction, others three a piece.
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
