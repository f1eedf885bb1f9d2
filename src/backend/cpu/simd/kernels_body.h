/* The kernels, written once over 16 lanes. Each instruction set has one .c file that includes this
 * after its lanes header, with KERNELS_NAME and KERNELS_TABLE defined.
 *
 * fvec, ivec: 16 floats, 16 int32. bvec: 64 bytes, four for each lane.
 * dot_wide/dot_small(sum, w, a): sum + the four products of each lane, w unsigned (small: at
 * most 127), a signed. Where wide products need signed weights, b_wide flips the top bit and
 * WEIGHT_BIAS is 0, else 128. tvec: a table of 16 bytes; t_load(levels, offset): levels plus the
 * offset; b_look_up: its bytes at indices of 4 bits. f_sum4: four times f_sum, to the bit.
 * FEW_ROWS: activation rows that fit in registers, 8 at most; PANEL_TILES, PANEL_ROWS: see
 * panel_body.h. */
#include <stdalign.h>
#include <stddef.h>
#include <string.h>

#include "backend/cpu/kernels.h"

/* Kernels are specialised by constants, so what they call must be inlined. Specialising takes
 * compilers minutes, so `plain` does without, and so does every set under sanitizers. */
#ifdef KERNELS_SMALL
#define ALWAYS static __attribute__((unused))
#else
#define ALWAYS static inline __attribute__((always_inline))
#endif

ALWAYS ivec four_bytes(const int8_t *p)
{
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return i_set(bytes);
}

#ifndef b_load_once
#define b_load_once b_load
#endif

/* ---- Quantised products ----------------------------------------------------------------- */

/* The eight groups of a block, of codes of 2 to 6 bits (tile.h). */
ALWAYS void unpack_pairs(const uint8_t *p, bvec w[8])
{
    for (int h = 0; h < 2; h++) {
        bvec pairs = b_load_once(p + h * 64);
        w[h * 4] = b_and(pairs, 3);
        for (int i = 1; i < 4; i++) w[h * 4 + i] = b_and(b_shr(pairs, 2 * i), 3);
    }
}

ALWAYS void unpack_threes(const uint8_t *p, bvec w[8])
{
    bvec packed[3];
    for (int i = 0; i < 3; i++) {
        packed[i] = b_load_once(p + i * 64);
        w[2 * i] = b_and(packed[i], 7);
        w[2 * i + 1] = b_and(b_shr(packed[i], 3), 7);
    }
    w[6] = b_or(b_and(b_shr(packed[0], 6), 3), b_and(b_shr(packed[2], 4), 4));
    w[7] = b_or(b_and(b_shr(packed[1], 6), 3), b_and(b_shr(packed[2], 5), 4));
}

ALWAYS void unpack_nibbles(const uint8_t *p, bvec w[8])
{
    for (int g = 0; g < 4; g++) {
        bvec packed = b_load_once(p + g * 64);
        w[g] = b_and(packed, 15);
        w[g + 4] = b_and(b_shr(packed, 4), 15);
    }
}

ALWAYS void unpack_fives(const uint8_t *p, bvec w[8])
{
    bvec packed[5];
    for (int g = 0; g < 5; g++) {
        packed[g] = b_load_once(p + g * 64);
        w[g] = b_and(packed[g], 31);
    }
    w[5] = b_or(b_and(b_shr(packed[0], 5), 7), b_and(b_shr(packed[1], 3), 24));
    w[6] = b_or(b_and(b_shr(packed[2], 5), 7), b_and(b_shr(packed[3], 3), 24));
    w[7] = b_or(b_or(b_and(b_shr(packed[4], 5), 7), b_and(b_shr(packed[1], 2), 8)),
                b_and(b_shr(packed[3], 1), 16));
}

ALWAYS void unpack_sixes(const uint8_t *p, bvec w[8])
{
    bvec packed[6];
    for (int g = 0; g < 6; g++) {
        packed[g] = b_load_once(p + g * 64);
        w[g] = b_and(packed[g], 63);
    }
    for (int h = 0; h < 2; h++)
        w[6 + h] =
            b_or(b_or(b_and(b_shr(packed[3 * h], 6), 3), b_and(b_shr(packed[3 * h + 1], 4), 12)),
                 b_and(b_shr(packed[3 * h + 2], 2), 48));
}

/* Bits of unpacked codes: those of N4 are levels plus 128, those of M4 levels plus 64. */
ALWAYS int unpacked_bits(enum code_kind kind)
{
    return kind == CODE_N4 ? 8 : kind == CODE_M4 ? 7 : code_kind_facts(kind).bits;
}

ALWAYS bool is_wide(enum code_kind kind)
{
    return unpacked_bits(kind) == 8;
}

/* What unpacked codes are more than the numbers that they stand for. */
ALWAYS int unpacked_offset(enum code_kind kind)
{
    if (kind == CODE_M4) return 64;
    return is_wide(kind) ? WEIGHT_BIAS : code_kind_facts(kind).offset;
}

/* The table for unpacking; unused by kinds without levels. */
ALWAYS tvec table_of(enum code_kind kind, const struct tile_shape *s)
{
    if (kind == CODE_N4) return t_load(s->levels, 128);
    if (kind == CODE_M4) return t_load(s->levels, 64);
    return (tvec){0};
}

/* The eight groups of a block as unsigned bytes (or as b_wide makes them). */
ALWAYS void unpack(enum code_kind kind, const tvec table, const uint8_t *p, bvec w[8])
{
    switch (code_kind_facts(kind).bits) {
    case 2: unpack_pairs(p, w); break;
    case 3: unpack_threes(p, w); break;
    case 4: unpack_nibbles(p, w); break;
    case 5: unpack_fives(p, w); break;
    case 6: unpack_sixes(p, w); break;
    default:
        for (int g = 0; g < 8; g++) w[g] = b_wide(b_load(p + g * 64));
    }
    if (kind == CODE_N4)
        for (int g = 0; g < 8; g++) w[g] = b_wide(b_look_up(table, w[g]));
    if (kind == CODE_M4)
        for (int g = 0; g < 8; g++) w[g] = b_look_up(table, w[g]);
}

ALWAYS ivec dot(enum code_kind kind, ivec sum, bvec w, ivec a)
{
    return is_wide(kind) ? dot_wide(sum, w, a) : dot_small(sum, w, a);
}

/* Parts of a block that have scales of their own. */
ALWAYS int block_halves(enum code_kind kind)
{
    return code_kind_has_halves(kind) ? 2 : 1;
}

/* Scales of the 16 rows of a tile in a unit's block i. */
ALWAYS fvec unit_scales(enum code_kind kind, const uint8_t *unit, int i)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    const uint16_t *scales = (const uint16_t *)(const void *)(unit + u.scales_at);
    fvec stored = f_load_f16(block_halves(kind) == 2 ? scales : scales + i * 16);
    return kind == CODE_M4 ? f_mul(stored, f_set(tile_scale_unit(kind))) : stored;
}

/* Factors of 16 rows. */
struct factors {
    alignas(16) int8_t of[16];
};
typedef uint8_t sixteen_bytes __attribute__((vector_size(16)));

/* The low or the high halves of the bytes at p. */
ALWAYS void factors_of_halves(const uint8_t *p, bool is_high, struct factors *out)
{
    sixteen_bytes bytes;
    memcpy(&bytes, p, sizeof bytes);
    bytes = is_high ? bytes >> 4 : bytes & 15;
    memcpy(out->of, &bytes, sizeof bytes);
}

/* The factors of scales in half h of a unit's block i; `room` is for those that have to be taken
 * apart. The sum of both halves, times their factors, is below 2^24, so that floats hold it
 * exactly, in whichever way it is computed. */
ALWAYS const int8_t *unit_factors(enum code_kind kind, const uint8_t *unit, int i, int h,
                                  struct factors *room)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    const uint8_t *factors = unit + u.factors_at + (i * 2 + h) * 16;
    if (!u.has_min) return (const int8_t *)factors;
    factors_of_halves(factors, false, room);
    return room->of;
}

/* The minima of block i, or of half h of it: whole numbers of four bits by a half are exact. */
ALWAYS fvec unit_mins(enum code_kind kind, const uint8_t *unit, int i, int h)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    const uint16_t *mins = (const uint16_t *)(const void *)(unit + u.mins_at);
    if (block_halves(kind) == 1) return f_load_f16(mins + i * 16);
    const uint8_t *factors = unit + u.factors_at + (i * 2 + h) * 16;
    struct factors high;
    factors_of_halves(factors, true, &high);
    return f_mul(f_load_f16(mins), f_load_i8(high.of));
}

/* Parts of a block that have minima of their own. */
ALWAYS int block_mins(enum code_kind kind)
{
    return code_kind_facts(kind).has_min ? block_halves(kind) : 0;
}

/* The value that the integer sum of a block, or of half h of it, begins with: minus the weights'
 * offset times a sum of activations. Offsets are powers of two, and a shift keeps the sums in
 * vector registers. */
ALWAYS ivec first_sum(enum code_kind kind, const struct act_block *a, int h)
{
    const int offset = unpacked_offset(kind);
    if (block_halves(kind) == 2)
        return i_set(offset >= 32 ? a->start6[h] * (offset / 32)
                     : offset     ? a->start6[h] / (32 / offset)
                                  : 0);
    switch (offset) {
    case 8: return i_shl(i_set(a->minus), 3);
    case 16: return i_shl(i_set(a->minus), 4);
    case 128: return i_shl(i_set(a->minus), 7);
    default: return i_set(0);
    }
}

/* The sum of a block's activations, or of half h of them: minima are multiplied by it. `low`: how
 * far away a fine row's low block is, else 0. */
ALWAYS float x_sum(enum code_kind kind, const bool is_fine, const struct act_block *a,
                   ptrdiff_t low, int h)
{
    if (block_halves(kind) == 1) return a[low].sum;
    int32_t codes = is_fine ? FINE_BASE * a->start6[h] + a[low].start6[h] : a->start6[h];
    return a[low].scale * -0x1p-5f * (float)codes; /* exact: below 2^24 */
}

/* With a few rows the weights come from memory. The processor's own prefetching stops at every page
 * and is often slower than memory. */
enum { ONCE_DISTANCE = 4096 }; /* bytes */
enum { L2_DISTANCE = 8192, L1_DISTANCE = 3072, FAR_L2_DISTANCE = 16384, FAR_L1_DISTANCE = 8192 };

/* Prefetches block i's part of the lines some way after a unit, rounded up, so that their number is
 * a constant. After the end of the weights this does no harm. */
ALWAYS void ask_ahead(enum read_ahead ahead, const struct tile_unit u, const uint8_t *unit, int i)
{
    const int lines = ((int)(u.bytes / 64) + u.n_blocks - 1) / u.n_blocks;
    const uint8_t *from = unit + i * lines * 64;
    if (ahead == AHEAD_ONCE)
        for (int line = 0; line < lines; line++)
            __builtin_prefetch(from + ONCE_DISTANCE + line * 64, 0, 0);
    if (ahead >= AHEAD_BY_LEVEL) {
        const uint8_t *l2 = from + (ahead == AHEAD_FAR ? FAR_L2_DISTANCE : L2_DISTANCE);
        const uint8_t *l1 = from + (ahead == AHEAD_FAR ? FAR_L1_DISTANCE : L1_DISTANCE);
        for (int line = 0; line < lines; line++) {
            __builtin_prefetch(l2 + line * 64, 0, 2);
            __builtin_prefetch(l1 + line * 64, 0, 3);
        }
    }
}

#if SHORT_SUMS
#include "backend/cpu/simd/levels_body.h"
#endif

/* Adds the products of half h of a block by n rows. SHORT_SUMS: those of codes of up to 7 bits
 * are summed up in 16 bits while they fit (6 bits of rows that are not fine: see short_half).
 * Groups g and g + 4 follow each other because they are nibbles of the same bytes. */
ALWAYS void half_dots(const enum code_kind kind, const int n, const bvec w[8],
                      const struct act_block *const *rows, int64_t b, const int h, ivec *dots)
{
    const int groups = 8 / block_halves(kind);
#if SHORT_SUMS
    if (kind == CODE_N4) {
        level_dots(n, w, w[4], rows, b, dots);
        return;
    }
    const int most = 128 >> unpacked_bits(kind), fit = most < groups ? most : groups;
    ivec part[FEW_ROWS];
    for (int i = 0; i < groups && !is_wide(kind); i++) {
        const int g = groups == 8 ? i / 2 + i % 2 * 4 : h * 4 + i;
        for (int r = 0; r < n; r++) {
            ivec products = dot_short(w[g], four_bytes(rows[r][b].q + g * 4));
            part[r] = i % fit ? add_short(part[r], products) : products;
            if (i % fit == fit - 1) dots[r] = add_short_sum(dots[r], part[r]);
        }
    }
    if (!is_wide(kind)) return;
#endif
    for (int g = h * groups; g < (h + 1) * groups; g++)
        for (int r = 0; r < n; r++)
            dots[r] = dot(kind, dots[r], w[g], four_bytes(rows[r][b].q + g * 4));
}

/* Turns the sums of half h of a fine row's high block into what those of the low block are added
 * to. */
ALWAYS ivec sums_so_far(enum code_kind kind, ivec high, const struct act_block *low, int h)
{
    _Static_assert(FINE_BASE == 256 - 2, "by two shifts");
    return i_add(i_sub(i_shl(high, 8), i_shl(high, 1)), first_sum(kind, low, h));
}

/* Sums of half h of a block, or of all of it, by n fine rows. They fit 32 bits for all codes,
 * and those of a half are below 2^24 (of M4 below 2^25: floats round them, alike everywhere). */
ALWAYS void fine_dots(const enum code_kind kind, const int n, const bvec w[8],
                      const struct act_block *const *rows, ptrdiff_t low, int64_t b, const int h,
                      ivec *dots)
{
    for (int r = 0; r < n; r++) dots[r] = first_sum(kind, &rows[r][b], h);
    half_dots(kind, n, w, rows, b, h, dots);
    for (int r = 0; r < n; r++) dots[r] = sums_so_far(kind, dots[r], &rows[r][b + low], h);
    half_dots(kind, n, w, rows, b + low, h, dots);
}

/* The sums of a block as floats, halves by their factors. */
ALWAYS void fine_sums(const enum code_kind kind, const int n, const bvec w[8], const uint8_t *unit,
                      int i, const struct act_block *const *rows, ptrdiff_t low, int64_t b,
                      fvec *total)
{
    for (int h = 0; h < block_halves(kind); h++) {
        ivec dots[FEW_ROWS];
        fine_dots(kind, n, w, rows, low, b, h, dots);
        for (int r = 0; r < n; r++) {
            fvec sums = f_of_int(dots[r]);
            if (block_halves(kind) == 1) {
                total[r] = sums;
                continue;
            }
            struct factors room;
            fvec factor = f_load_i8(unit_factors(kind, unit, i, h, &room));
            total[r] = h ? f_fma(sums, factor, total[r]) : f_mul(sums, factor);
        }
    }
}

#if SHORT_SUMS
/* Half h of a block with factors: adds its sums by the factors to `total`, or begins with them. In
 * 16 bits until factors are applied. Such sums may wrap on the way, since the final ones, of codes
 * without their offset, fit. (Those of M4 do not.) */
ALWAYS void short_half(const enum code_kind kind, const int n, const bvec w[8], const int h,
                       const int8_t *factors, const struct act_block *const *rows, int64_t b,
                       ivec *total)
{
    ivec factor = short_factors(factors), part[FEW_ROWS];
    const bool has_start = code_kind_facts(kind).offset != 0;
    for (int r = 0; r < n && has_start; r++) {
        part[r] = four_bytes((const int8_t *)rows[r][b].start6_pairs[h]);
        if (kind == CODE_S3) part[r] = eighth_short(part[r]); /* for an offset of 4, not 32 */
    }
    for (int g = h * 4; g < h * 4 + 4; g++)
        for (int r = 0; r < n; r++) {
            ivec products = dot_short(w[g], four_bytes(rows[r][b].q + g * 4));
            part[r] = g > h * 4 || has_start ? add_short(part[r], products) : products;
        }
    for (int r = 0; r < n; r++) {
        ivec sum = multiply_short(part[r], factor);
        total[r] = h ? i_add(total[r], sum) : sum;
    }
}
#endif

/* The same in floats. */
ALWAYS void float_half(const enum code_kind kind, const int n, const bvec w[8], const int h,
                       const int8_t *factors, const struct act_block *const *rows, int64_t b,
                       fvec *total)
{
    fvec factor = f_load_i8(factors);
    ivec dots[FEW_ROWS];
    for (int r = 0; r < n; r++) dots[r] = first_sum(kind, &rows[r][b], h);
    half_dots(kind, n, w, rows, b, h, dots);
    for (int r = 0; r < n; r++) {
        fvec sum = f_of_int(dots[r]);
        total[r] = h ? f_fma(sum, factor, total[r]) : f_mul(sum, factor);
    }
}

/* The sums of a block of rows that are not fine, by factors. */
ALWAYS void factored_sums_of_block(const enum code_kind kind, const int n, const bvec w[8],
                                   const int8_t *first, const int8_t *second,
                                   const struct act_block *const *rows, int64_t b, fvec *total)
{
#if SHORT_SUMS
    if (kind != CODE_M4) {
        ivec sums[FEW_ROWS];
        short_half(kind, n, w, 0, first, rows, b, sums);
        short_half(kind, n, w, 1, second, rows, b, sums);
        for (int r = 0; r < n; r++) total[r] = f_of_int(sums[r]);
        return;
    }
#endif
    float_half(kind, n, w, 0, first, rows, b, total);
    float_half(kind, n, w, 1, second, rows, b, total);
}

/* Unpacks a block into the form that half_dots takes. SHORT_SUMS, N4: four times 64 nibbles, and
 * tables for them. */
ALWAYS void unpack_few(enum code_kind kind, const tvec table, const uint8_t *p, bvec w[8])
{
#if SHORT_SUMS
    if (kind == CODE_N4) {
        for (int g = 0; g < 4; g++) w[g] = b_load(p + g * 64);
        w[4] = nibble_tables(table);
        return;
    }
#endif
    unpack(kind, table, p, w);
}

/* Block i of a unit by n rows. Integer sums of 32 products, corrected for the weights' offset,
 * then one float step for each row. */
ALWAYS void unit_block(const enum code_kind kind, const bool is_fine, const int n, const tvec table,
                       const uint8_t *unit, int i, const struct act_block *const *rows,
                       ptrdiff_t low, int64_t b, fvec *sum)
{
    bvec w[8];
    fvec total[FEW_ROWS], scale = unit_scales(kind, unit, i);
    unpack_few(kind, table, unit + (size_t)i * tile_unit_for_codes(kind).block_bytes, w);
    if (is_fine) {
        fine_sums(kind, n, w, unit, i, rows, low, b, total);
    } else if (block_halves(kind) == 2) {
        struct factors room[2];
        factored_sums_of_block(kind, n, w, unit_factors(kind, unit, i, 0, &room[0]),
                               unit_factors(kind, unit, i, 1, &room[1]), rows, b, total);
    } else {
        ivec dots[FEW_ROWS];
        for (int r = 0; r < n; r++) dots[r] = first_sum(kind, &rows[r][b], 0);
        half_dots(kind, n, w, rows, b, 0, dots);
        for (int r = 0; r < n; r++) total[r] = f_of_int(dots[r]);
    }
    for (int r = 0; r < n; r++)
        sum[r] = f_fma(f_mul(total[r], f_set(rows[r][b + low].scale)), scale, sum[r]);
    for (int h = 0; h < block_mins(kind); h++) {
        fvec min = unit_mins(kind, unit, i, h);
        for (int r = 0; r < n; r++)
            sum[r] = f_fma(min, f_set(x_sum(kind, is_fine, &rows[r][b], low, h)), sum[r]);
    }
}

/* One tile by n rows; kind and n are constants where this is expanded. */
ALWAYS void tile_rows(const enum code_kind kind, const bool is_fine, const int n,
                      const struct tile_shape *s, enum read_ahead ahead, const uint8_t *tile,
                      const struct act_block *const *rows, ptrdiff_t low, float *out,
                      int64_t stride)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    const tvec table = table_of(kind, s);
    fvec sum[FEW_ROWS];
    for (int r = 0; r < n; r++) sum[r] = f_set(0);
    for (int64_t b = 0; b < s->n_blocks; b += u.n_blocks, tile += u.bytes)
        for (int i = 0; i < u.n_blocks && b + i < s->n_blocks; i++) {
            ask_ahead(ahead, u, tile, i);
            unit_block(kind, is_fine, n, table, tile, i, rows, low, b + i, sum);
        }
    for (int r = 0; r < n; r++) f_store(out + r * stride, sum[r]);
}

ALWAYS const struct act_block *job_row(const struct tile_job *job, int32_t i)
{
    int64_t row = job->list ? job->list[i] / job->divisor : job->first + i;
    return job->act + row * job->shape->n_blocks;
}

#define TILE_ROWS_CASE(N)                                                                          \
    case N:                                                                                        \
        if (N <= FEW_ROWS)                                                                         \
            tile_rows(kind, is_fine, N, job->shape, ahead, data, rows, low, out, stride);          \
        break;

/* How many blocks after a row's high blocks its low ones lie. */
ALWAYS ptrdiff_t low_blocks(const bool is_fine, const struct tile_job *job)
{
    return is_fine ? job->low - job->act : 0;
}

ALWAYS void tile_job_run(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                         int tile)
{
    ptrdiff_t low = low_blocks(is_fine, job);
    const uint8_t *data = job->tile + (size_t)tile * job->shape->bytes;
    int64_t stride = job->n_tiles * 16;
    for (int32_t done = 0, n; done < job->n; done += n) {
        const struct act_block *rows[FEW_ROWS];
        enum read_ahead ahead = done ? AHEAD_NONE : job->shape->ahead; /* once is enough */
        float *out = job->out + done * stride + tile * 16;
        n = job->n - done < FEW_ROWS ? job->n - done : FEW_ROWS;
        for (int32_t i = 0; i < n; i++) rows[i] = job_row(job, done + i);
        switch (n) {
            TILE_ROWS_CASE(1)
            TILE_ROWS_CASE(2)
            TILE_ROWS_CASE(3)
            TILE_ROWS_CASE(4)
            TILE_ROWS_CASE(5)
            TILE_ROWS_CASE(6)
            TILE_ROWS_CASE(7)
            TILE_ROWS_CASE(8)
        }
    }
}

#include "backend/cpu/simd/panel_body.h"
#ifdef KERNELS_AMX
/* The same lanes without AMX have these products, so they need not be compiled twice. */
static void tile_dot(const struct tile_job *job)
{
    KERNELS_WITHOUT_AMX.tile_dot(job);
}
#else

/* One function per kind, so that each stays small enough for the compiler to handle well. */
ALWAYS void tile_dot_run(const enum code_kind kind, const bool is_fine, const struct tile_job *job)
{
    int tile = 0;
    if (job->n >= PANEL_FROM) {
        tile = job->n_tiles / PANEL_TILES * PANEL_TILES;
        panel_job_run(kind, is_fine, job, tile);
    }
    for (; tile < job->n_tiles; tile++) tile_job_run(kind, is_fine, job, tile);
}

#define X(kind, ...)                                                                               \
    static void tile_dot_##kind(const struct tile_job *job)                                        \
    {                                                                                              \
        tile_dot_run(CODE_##kind, false, job);                                                     \
    }                                                                                              \
    static void tile_dot_fine_##kind(const struct tile_job *job)                                   \
    {                                                                                              \
        tile_dot_run(CODE_##kind, true, job);                                                      \
    }
CODE_LIST(X)
#undef X

static void tile_dot(const struct tile_job *job)
{
    switch (job->shape->kind) {
#define X(kind, ...)                                                                               \
    case CODE_##kind:                                                                              \
        (job->low ? tile_dot_fine_##kind : tile_dot_##kind)(job);                                  \
        break;
        CODE_LIST(X)
#undef X
    default: break;
    }
}
#endif

/* Fills in the sums of a block: pairs[2 h] has the codes of half h in columns 4 i and 4 i + 1, the
 * next one those in the others. */
ALWAYS void sums_of_codes(const fvec pairs[4], struct act_block *out)
{
    float totals[4];
    f_sum4(pairs, totals);
    for (int i = 0; i < 4; i++)
        out->start6_pairs[i / 2][i % 2] = (int16_t)(-32 * (int32_t)totals[i]);
    for (int h = 0; h < 2; h++) out->start6[h] = -32 * (int32_t)(totals[h * 2] + totals[h * 2 + 1]);
    out->minus = -(int32_t)(totals[0] + totals[1] + totals[2] + totals[3]);
    out->sum = -out->scale * (float)out->minus;
}

/* Rounds 32 values to codes of up to `most_code`, and returns what codes are multiplied by. A
 * value that is not finite makes the scale NaN: the vector maximum alone would drop a NaN, and
 * bad weights would go unnoticed. The codes of such a block are 0. So are codes and scale of a
 * block of values so small that most_code / largest could be infinite. */
ALWAYS float round_block(const float *x, float most_code, fvec codes[2])
{
    const float least = 0x1p-100f;
    fvec part[2] = {f_load(x), f_load(x + 16)};
    float not_finite = f_sum(f_add(f_sub(part[0], part[0]), f_sub(part[1], part[1])));
    float most = f_most(f_max(f_abs(part[0]), f_abs(part[1]))) + not_finite;
    bool has_numbers = most >= least;
    float inverse = has_numbers ? most_code / most : 0;
    for (int h = 0; h < 2; h++)
        codes[h] = f_round(has_numbers ? f_mul(part[h], f_set(inverse)) : f_set(0));
    return has_numbers || not_finite != 0 ? most / most_code : 0;
}

/* A block of these codes and this scale. */
ALWAYS void store_block(const fvec codes[2], float scale_of_codes, struct act_block *out)
{
    static const float first_two[16] = {1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0};
    fvec pairs[4];
    for (int h = 0; h < 2; h++) {
        f_store_i8(out->q + h * 16, codes[h]);
        pairs[h * 2] = f_mul(codes[h], f_load(first_two));
        pairs[h * 2 + 1] = f_sub(codes[h], pairs[h * 2]);
    }
    out->scale = scale_of_codes;
    sums_of_codes(pairs, out);
}

static void quantize(const float *x, int64_t n, struct act_block *out)
{
    fvec codes[2];
    for (int64_t b = 0; b < n / 32; b++) {
        float factor = round_block(x + b * 32, 127.0f, codes);
        store_block(codes, factor, &out[b]);
    }
}

/* High codes are the nearest multiples of FINE_BASE, or one of the two nearest. */
static void quantize_fine(const float *x, int64_t n, struct act_block *high, struct act_block *low)
{
    fvec codes[2], multiples[2];
    for (int64_t b = 0; b < n / 32; b++) {
        float factor = round_block(x + b * 32, (float)FINE_MOST, codes);
        for (int h = 0; h < 2; h++) {
            multiples[h] = f_round(f_mul(codes[h], f_set(1.0f / FINE_BASE)));
            codes[h] = f_sub(codes[h], f_mul(multiples[h], f_set((float)FINE_BASE)));
        }
        store_block(multiples, factor * FINE_BASE, &high[b]);
        store_block(codes, factor, &low[b]);
        low[b].sum = -factor * (float)(FINE_BASE * high[b].minus + low[b].minus);
    }
}

#include "backend/cpu/simd/float_body.h"
#ifdef KERNELS_AMX
#include "backend/cpu/simd/amx_body.h"
#endif

/* ---- Elementwise ------------------------------------------------------------------------ */

/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2 and ln 2 in two parts. The polynomial is
 * the Taylor series to r^7; its next term is below 5e-9. Below -87 it is e^-87, which is nothing in
 * a sum that holds a 1. */
ALWAYS fvec f_exp(fvec x)
{
    x = f_max(f_set(-87.0f), f_min(f_set(88.0f), x)); /* in this order NaN stays NaN */
    fvec n = f_round(f_mul(x, f_set(1.44269504f)));
    fvec r = f_fma(n, f_set(-0.693359375f), x);
    r = f_fma(n, f_set(2.12194440e-4f), r);
    fvec p = f_set(1.0f / 5040);
    p = f_fma(p, r, f_set(1.0f / 720));
    p = f_fma(p, r, f_set(1.0f / 120));
    p = f_fma(p, r, f_set(1.0f / 24));
    p = f_fma(p, r, f_set(1.0f / 6));
    p = f_fma(p, r, f_set(0.5f));
    p = f_fma(p, r, f_set(1.0f));
    p = f_fma(p, r, f_set(1.0f));
    return f_mul(p, f_exp2_int(n));
}

/* a * sigmoid(2 u), the same as a / 2 (1 + tanh u) without its cancellation. */
ALWAYS fvec f_gelu(fvec a)
{
    fvec cube = f_mul(f_mul(a, a), a);
    fvec u = f_mul(f_fma(cube, f_set(0.044715f), a), f_set(-2.0f * 0.79788456080286536f));
    return f_div(a, f_add(f_set(1.0f), f_exp(u)));
}

ALWAYS fvec f_softcap(fvec x, fvec cap)
{
    fvec e = f_exp(f_div(f_add(x, x), cap)), one = f_set(1.0f);
    return f_mul(cap, f_div(f_sub(e, one), f_add(e, one)));
}

/* Runs `step` on whole vectors, and on a padded copy of what is left. */
#define FOR_LANES(n, step, tail)                                                                   \
    int64_t i = 0;                                                                                 \
    for (; i + 16 <= (n); i += 16) step;                                                           \
    if (i < (n)) {                                                                                 \
        float in[16] = {0}, in2[16] = {0}, result[16];                                             \
        size_t left = (size_t)((n)-i) * sizeof(float);                                             \
        tail;                                                                                      \
    }

static void exp_shifted(float *x, int64_t n, float shift)
{
    fvec s = f_set(shift);
    FOR_LANES(n, f_store(x + i, f_exp(f_sub(f_load(x + i), s))), {
        (void)in2;
        memcpy(in, x + i, left);
        f_store(result, f_exp(f_sub(f_load(in), s)));
        memcpy(x + i, result, left);
    })
}

static void fill_outside(float *scores, int from, int to, float value)
{
    for (int i = 0; i < from; i++) scores[i] = value;
    for (int i = to + 1; i < 32; i++) scores[i] = value;
}

static float soften(float *scores, int from, int to, float *top)
{
    fill_outside(scores, from, to, -__builtin_inff());
    fvec low = f_load(scores), high = f_load(scores + 16);
    float most = f_most(f_max(low, high));
    *top = most > *top ? most : *top;
    f_store(scores, f_exp(f_sub(low, f_set(*top))));
    f_store(scores + 16, f_exp(f_sub(high, f_set(*top))));
    fill_outside(scores, from, to, 0);
    return f_sum(f_add(f_load(scores), f_load(scores + 16)));
}

static void gelu_mul(const float *a, const float *b, float *y, int64_t n)
{
    FOR_LANES(n, f_store(y + i, f_mul(f_gelu(f_load(a + i)), f_load(b + i))), {
        memcpy(in, a + i, left);
        memcpy(in2, b + i, left);
        f_store(result, f_mul(f_gelu(f_load(in)), f_load(in2)));
        memcpy(y + i, result, left);
    })
}

static void softcap(const float *x, float cap, float *y, int64_t n)
{
    fvec c = f_set(cap);
    FOR_LANES(n, f_store(y + i, f_softcap(f_load(x + i), c)), {
        (void)in2;
        memcpy(in, x + i, left);
        f_store(result, f_softcap(f_load(in), c));
        memcpy(y + i, result, left);
    })
}

static void add(const float *a, const float *b, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f_store(y + i, f_add(f_load(a + i), f_load(b + i)));
    for (; i < n; i++) y[i] = a[i] + b[i];
}

static void scale(const float *x, float value, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f_store(y + i, f_mul(f_load(x + i), f_set(value)));
    for (; i < n; i++) y[i] = x[i] * value;
}

static void rmsnorm(const float *x, const float *w, float *y, int64_t n, float eps)
{
    float total;
    struct float_rows row = {.format = FORMAT_F32, .data = x};
    dots_rows(FORMAT_F32, 1, 1, false, x, 0, &row, 1, n, &total, 0);
    float factor = 1.0f / __builtin_sqrtf(total / (float)n + eps);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        fvec scaled = f_mul(f_load(x + i), f_set(factor));
        f_store(y + i, w ? f_mul(scaled, f_load(w + i)) : scaled);
    }
    for (; i < n; i++) y[i] = x[i] * factor * (w ? w[i] : 1.0f);
}

static void rope(const float *x, const float *cosine, const float *sine, float *y, int64_t half)
{
    int64_t i = 0;
    for (; i + 16 <= half; i += 16) {
        fvec a = f_load(x + i), b = f_load(x + half + i);
        fvec c = f_load(cosine + i), s = f_load(sine + i);
        f_store(y + i, f_sub(f_mul(a, c), f_mul(b, s)));
        f_store(y + half + i, f_fma(a, s, f_mul(b, c)));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[half + i];
        y[i] = a * cosine[i] - b * sine[i];
        y[half + i] = b * cosine[i] + a * sine[i];
    }
}

static void decode_f16(const uint16_t *src, float *dst, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f_store(dst + i, f_load_f16(src + i));
    for (; i < n; i++) dst[i] = f16_to_f32(src[i]);
}

static void decode_bf16(const uint16_t *src, float *dst, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f_store(dst + i, f_load_bf16(src + i));
    for (; i < n; i++) dst[i] = bf16_to_f32(src[i]);
}

static void decode_q8_0(const void *src, float *dst, int64_t n)
{
    struct float_rows row = {.format = FORMAT_Q8_0, .data = src};
    for (int64_t i = 0; i < n; i += LANES) r_store(dst + i, values_at(FORMAT_Q8_0, &row, 0, i));
}

static void encode_f16(const float *src, uint16_t *dst, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f_store_f16(dst + i, f_load(src + i));
    for (; i < n; i++) dst[i] = f32_to_f16(src[i]);
}

/* ---- Limits ----------------------------------------------------------------------------- */

static int32_t first_lane(ivec x)
{
    float lane[16];
    f_store(lane, f_of_int(x));
    return lane[0] < 0x1p31f ? (int32_t)lane[0] : INT32_MAX;
}

static int32_t read_bytes(const uint8_t *p, size_t n)
{
    bvec sum[8];
    for (int i = 0; i < 8; i++) sum[i] = b_load(p + i * 64);
    for (size_t at = 512; at < n; at += 512)
        for (int i = 0; i < 8; i++) sum[i] = b_or(sum[i], b_load(p + at + (size_t)i * 64));
    ivec total = i_set(0);
    for (int i = 0; i < 8; i++) total = dot_small(total, b_and(sum[i], 1), i_set(1));
    return first_lane(total);
}

#if !SHORT_SUMS && !defined(OWN_LIMIT) /* those have their own */
/* As many independent sums as hide the latency of the product. */
static double multiply_bytes(int64_t rounds)
{
    enum { SUMS = FEW_ROWS > 4 ? 12 : FEW_ROWS > 2 ? 6 : 4 };
    ivec sum[SUMS], a = i_set((int32_t)rounds);
    bvec w = b_wide(b_load((const uint8_t[64]){1, 2, 3}));
    for (int i = 0; i < SUMS; i++) sum[i] = i_set(i);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++) sum[i] = dot_wide(sum[i], w, a);
    int32_t used = 0;
    for (int i = 0; i < SUMS; i++) used |= first_lane(sum[i]);
    /* The compiler cannot know what is added, so it keeps the loop. */
    return (double)rounds * SUMS * 16 * 4 * 2 + (used == 12345 ? 1 : 0);
}
#endif

/* As many independent sums as hide the latency of a fused product. */
static double multiply_floats(int64_t rounds)
{
    enum { SUMS = 12 / REGISTERS };
    fvec sum[SUMS], a = f_set((float)rounds * 1e-30f), b = f_set(0.5f);
    for (int i = 0; i < SUMS; i++) sum[i] = f_set((float)i);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++) sum[i] = f_fma(sum[i], b, a);
    float used = 0;
    for (int i = 0; i < SUMS; i++) used += f_sum(sum[i]);
    return (double)rounds * SUMS * 16 + (used == 12345 ? 1 : 0);
}

const struct cpu_kernels KERNELS_TABLE = {
    .name = KERNELS_NAME,
    .tile_dot = tile_dot,
#ifdef KERNELS_AMX
    .bf16_dot = bf16_dot,
    .bf16_round = bf16_round,
    .multiply_bf16 = multiply_bf16,
#endif
    .quantize = quantize,
    .quantize_fine = quantize_fine,
    .dots = dots,
    .weigh = weigh,
    .exp_shifted = exp_shifted,
    .soften = soften,
    .read_bytes = read_bytes,
    .multiply_bytes = multiply_bytes,
#if SHORT_SUMS
    .multiply_codes = multiply_codes,
#endif
    .multiply_floats = multiply_floats,
    .decode_f16 = decode_f16,
    .decode_bf16 = decode_bf16,
    .decode_q8_0 = decode_q8_0,
    .encode_f16 = encode_f16,
    .rmsnorm = rmsnorm,
    .gelu_mul = gelu_mul,
    .add = add,
    .scale = scale,
    .rope = rope,
    .softcap = softcap,
};
