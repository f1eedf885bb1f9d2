/* What host code and kernels of the CUDA backend share: plain data, passed to kernels by value.
 * C and CUDA common subset. Pointers are device memory unless they say otherwise.
 *
 * Tiles. A quantised matrix that products use is cut into tiles of 8 rows x 64 columns, which is
 * what a warp feeds to two mma.sync m16n8k32 as the B operand. Columns are padded to 64 and rows
 * to 8 with zeros (and scale 0). Tiles are numbered
 *     tile = (expert * n_groups + row / 8) * n_ktiles + col / 64
 * and lie one after the other in each plane. Lane L = (row % 8) * 4 + t, t = 0..3, owns of each
 * 32-column block the 8 values of columns 4t .. 4t+3 and 16+4t .. 16+4t+3, in this order: v0..v7.
 *   quants, 8 bits: 16 bytes a lane: v0..v7 of block 0, v0..v7 of block 1 (int8).
 *   quants, 4 bits: 8 bytes a lane, 4 a block: byte i holds v[i] in its low and v[i+4] in its high
 *                   half; where codes are levels byte i holds v[2i] and v[2i+1].
 *   quants, 2 bits: 4 bytes a lane: bits 2f, 2f+1 of byte i are bits 0, 1 of v[4 (f%2) + i]
 *                   of block f/2, f = 0..3                                  (Q2_K).
 *   quants, 3 bits: 4 bytes a lane and 2 bytes of `high`. Byte i holds v[i] and v[i+4] of block 0
 *                   and the top two bits of v[i] of block 1; nibble i of `high` v[i+4] of block 1
 *                   and the lowest bit of v[i] there                        (Q3_K).
 *   quants, 5 bits: 8 bytes a lane and 2 bytes of `high`. Byte i of word k holds v[i+4k] of block 0
 *                   and three bits of v[i+4k] of block 1; nibble i of `high` the other two of v[i]
 *                   and of v[i+4] there                                     (Q5_*, MXFP4).
 *   quants, 6 bits: 8 bytes a lane and 4 bytes of `high`. Byte i of the three words holds v[i] and
 *                   v[i+4] of block 0 and v[i] of block 1; each has two bits of v[i+4] there
 *                                                                           (Q6_K).
 *   scale, minus:   fp16, of a tile [row][block]                            (32 bytes a tile);
 *                   Q6_K, Q3_K, IQ2_* and IQ1_* have one for each 16 columns:
 *                   [row][block][half]                                      (64 bytes).
 *   scale of Q2_K:  for each row d and -dmin (fp16), then bytes [block][half] as in the file: d is
 *                   multiplied by their low four bits, -dmin by the high ones. It has no plane
 *                   `minus` (64 bytes a tile).
 * A value is scale * code + minus. Codes are the file's quants less the format's offset (Q4_0: 8,
 * Q5_0: 16, Q6_K: 32, Q3_K: 4, else none), in two's complement of their kind's bits where the kind
 * has an offset (quant/format.h); for MXFP4 they are floats, doubled, for IQ3_S odd numbers less 1,
 * halved, for the other IQ formats indices of levels (form.cuh).
 * scale and minus are d * sc and -dmin * m in blocks of 256 columns, rounded once to fp16, as is
 * the power of two of MXFP4. kernels/form.cuh reads all this.
 *
 * Activations for products of tiles are rounded to 8 bits by block of 32, as the CPU does, and
 * stored in the same order: within a block byte 8t + i is v[i] of lane t. Where a small error of a
 * product matters much (plan/op.h: is_fine) a second plane of 8 bits holds what the rounding lost:
 * 16 bits in all. kernels/round.cuh says how all this is rounded, and that NaN stays NaN. */
#ifndef CUDA_TYPES_H
#define CUDA_TYPES_H

#include <stdint.h>

#include "plan/op.h"

enum { TILE_ROWS = 8, TILE_COLS = 64, ACT_BLOCK = 32 };

/* Most rows of a matvec; more rows go to a matrix product. */
enum { MATVEC_ROWS_MAX = 64 };

/* How a weight lies in device memory. */
enum cuda_layout {
    LAYOUT_TILES, /* quantised formats, for products: planes as above */
    LAYOUT_ROWS,  /* F16, BF16, F32, for products: row-major, a row padded to 16 bytes */
    LAYOUT_FILE,  /* tables that are only looked up: rows as in the file */
    LAYOUT_FLOATS /* vectors: fp32 */
};

struct cuda_weight {
    enum format format;
    enum cuda_layout layout;
    int32_t n_expert;
    int32_t rows, cols;
    int32_t n_groups, n_ktiles; /* LAYOUT_TILES */
    int64_t row_bytes;          /* LAYOUT_ROWS, LAYOUT_FILE: from one row to the next */
    uint8_t *quants;            /* plane, rows or floats, as the layout says */
    uint8_t *high;              /* NULL where the format has none */
    uint16_t *scale, *minus;    /* fp16; minus NULL where the format has none */
    uint16_t *mirror;           /* fp16 [n_expert][rows][mirror_cols], NULL: none */
    int32_t mirror_cols;        /* cols padded to 64 */
};

/* Rows of a step whose sequences begin with the same pages: attention of a layer without a window
 * reads these once for all of them. The rows are member[first] .. and see equally many segments. */
struct pack {
    int32_t first, n_rows;
    int32_t n_tiles; /* of 32 positions */
};

/* Places in `counts`. */
enum { STEP_PACKS = 5 };

/* What changes from step to step, as kernels see it. `counts` is {n_token, n_decode, n_out, runs of
 * ROWS_TOKEN, runs of ROWS_OUT, packs}.
 *
 * A run is rows of a class that follow each other and belong to one sequence, with rising
 * positions; only rows after those of single new tokens are in runs. Runs are counted from the last
 * one: run i is rows run[class][i + 1] .. run[class][i] - 1. */
struct step_view {
    const int32_t *counts;
    const int32_t *id, *position, *sequence, *out_row;
    const int32_t *run[ROW_CLASS_COUNT];
    const struct pack *pack;
    const int32_t *member, *is_packed; /* rows of all packs; [row]: is it one of them? */
};

/* Rows of a launch: at most `max` (what the grid is made for), of the class that `is_out` says;
 * step.counts tells how many are live. Row r of ROWS_OUT is token out_row[r]. */
struct rows {
    int32_t max;
    int32_t is_out; /* enum row_class */
};

/* Activations prepared for products; a row has `stride` values, cols padded to 64 with zeros. */
enum act_kind { ACT_NONE, ACT_INT8, ACT_FINE, ACT_HALF, ACT_CORES, ACT_STEPS };

/* ACT_FINE: a code is FINE_STEPS * value + low. */
enum { FINE_STEPS = 254 };

struct act {
    enum act_kind kind;
    int32_t stride;
    /* [rows][stride]: int8 in the order of tiles; ACT_HALF: fp16 in natural order; ACT_CORES: fp16
     * as products on Hopper read it (round.cuh: core_quad), rows padded to 64; ACT_STEPS: rows
     * as in ACT_HALF, but each 16 columns (a step of wgmma) in the order of ACT_CORES. */
    void *values;
    int8_t *low; /* ACT_FINE: like values, -127 .. 127; else NULL */
    /* ACT_INT8, ACT_FINE: [rows][stride / 32] pairs {d, d * sum of a block's codes}: x = d * code.
     * ACT_HALF, ACT_CORES, ACT_STEPS: [rows], x = scale * value, a power of two that brings the
     * largest |value| of the row into [1, 2); 1 for a row of zeros. */
    float *scale;
};

#endif
