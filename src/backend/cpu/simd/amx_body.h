/* Products of prompts on Intel's tile registers (AMX). Part of kernels_body.h; KERNELS_AMX names
 * the header with their operations, which a test replaces.
 *
 * Weights and activations are rounded to bf16, scales and minima within the weights, so that a sum
 * stays in a register for all columns. (Integer products would have to leave the registers every 32
 * columns, for their scales: at most 1.4 times as fast as AVX-512, see docs/benchmarks.md.) bf16
 * keeps 8 bits of every number, where 8-bit codes keep 8 bits only of a block's largest.
 *
 * What has more bits is the sum of two numbers in bf16, and a product of two sums three products:
 * high by high, low by high, high by low. Activations of fine rows and of float weights are such
 * sums; so are weights of fine rows and in F16.
 *
 *   - Two tiles of weights and two groups of rows share registers: four loads, four products.
 *   - Weights are unpacked for a panel of columns, which stays in the first-level cache for all
 *     rows, as activations are loaded with the hint that they are not needed again. Sums wait in
 *     memory from one panel to the next, and are prefetched. */

/* 64 bytes, as the processor reads them. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#include KERNELS_AMX

/* AMX_GROUP: numbers of a group of rows in a stretch. AMX_HALF_BLOCKS: blocks of a panel if weights
 * are sums of two numbers, which take twice the room, or if there are fewer than AMX_PANEL_ROWS
 * rows. Then unpacking counts most, and what it reads has to stay in the first-level cache too. */
enum {
    AMX_TILES = 2,
    AMX_ROWS = 2 * BF16_ROWS, /* that share registers */
    AMX_GROUP = BF16_BLOCKS * BF16_BLOCK,
    AMX_HALF_BLOCKS = BF16_BLOCKS / 2,
    AMX_PANEL_ROWS = 128,
};

/* A register of weights: row k holds columns 2 k and 2 k + 1 of 16 weight rows. */
typedef uint16_t amx_weights[16][32];

/* A stretch of memory that is prefetched into the second-level cache, some bytes (whole lines) for
 * each block that is multiplied: all at once would keep loads waiting. */
struct amx_ahead {
    const uint8_t *next, *end;
    ptrdiff_t a_block;
};

struct amx_panel {
    int64_t first; /* block */
    int n_blocks;
    bool is_last;
    struct amx_ahead next[AMX_TILES]; /* weights of the panel that is filled next */
    alignas(64) amx_weights high[BF16_BLOCKS][AMX_TILES];
    alignas(64) amx_weights low[AMX_HALF_BLOCKS][AMX_TILES];
};

/* Activations of the panel's columns, group after group. */
struct amx_rows {
    const uint16_t *high, *low;
};

/* Where sums are between panels, and where they go: to the same place until the last panel. */
struct amx_sums {
    float *from, *to;
    int64_t from_stride, to_stride;
};

/* How many products of bf16 numbers make up a product. */
enum amx_parts {
    AMX_HIGH = 1,  /* high by high */
    AMX_ACT_SUMS,  /* and low activations by high weights */
    AMX_BOTH_SUMS, /* and high activations by low weights */
};

ALWAYS int amx_panel_blocks(const enum amx_parts parts, int32_t n_rows)
{
    return parts == AMX_BOTH_SUMS || n_rows < AMX_PANEL_ROWS ? AMX_HALF_BLOCKS : BF16_BLOCKS;
}

/* ---- Weights ---------------------------------------------------------------------------- */

/* Columns 4 g + j of 16 weight rows, from their codes in `w`. */
ALWAYS fvec amx_values(const enum code_kind kind, bvec w, const int j, fvec scale, fvec min)
{
    const int offset = unpacked_offset(kind);
    fvec code = f_of_int(dot(kind, i_set(-offset), w, i_set(1 << (8 * j))));
    return code_kind_facts(kind).has_min ? f_fma(code, scale, min) : f_mul(code, scale);
}

/* Two columns; `low` gets what rounding loses, if the parts have it. */
ALWAYS void amx_store_columns(const enum amx_parts parts, fvec even, fvec odd, uint16_t *high,
                              uint16_t *low)
{
    bf_store_pairs(high, even, odd);
    if (parts == AMX_BOTH_SUMS)
        bf_store_pairs(low, f_sub(even, f_bf16(even)), f_sub(odd, f_bf16(odd)));
}

/* A block of a tile: block i of `unit`. */
ALWAYS void amx_fill_block(const enum code_kind kind, const enum amx_parts parts, const tvec table,
                           const uint8_t *unit, int i, amx_weights high, amx_weights low)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    bvec w[8];
    fvec scale = unit_scales(kind, unit, i), scales[2] = {scale, scale}, mins[2] = {scale, scale};
    struct factors room;
    unpack(kind, table, unit + (size_t)i * u.block_bytes, w);
    for (int h = 0; h < 2 && block_halves(kind) == 2; h++)
        scales[h] = f_mul(scale, f_load_i8(unit_factors(kind, unit, i, h, &room)));
    for (int h = 0; h < 2 && u.has_min; h++)
        mins[h] = h < block_mins(kind) ? unit_mins(kind, unit, i, h) : mins[0];
    for (int g = 0; g < 8; g++)
        for (int pair = 0; pair < 2; pair++)
            amx_store_columns(parts, amx_values(kind, w[g], pair * 2, scales[g / 4], mins[g / 4]),
                              amx_values(kind, w[g], pair * 2 + 1, scales[g / 4], mins[g / 4]),
                              high[g * 2 + pair], low[g * 2 + pair]);
}

/* A panel of more than AMX_HALF_BLOCKS has no low parts: what is passed for them is not written. */
ALWAYS void amx_fill(const enum code_kind kind, const enum amx_parts parts,
                     const struct bf16_job *job, int tile, int n_tiles, struct amx_panel *panel)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    const tvec table = table_of(kind, job->shape);
    for (int t = 0; t < n_tiles; t++) {
        const uint8_t *data = job->tile + (size_t)(tile + t) * job->shape->bytes;
        for (int b = 0; b < panel->n_blocks; b++) {
            int64_t at = panel->first + b;
            amx_fill_block(kind, parts, table, data + (size_t)(at / u.n_blocks) * u.bytes,
                           (int)(at % u.n_blocks), panel->high[b][t],
                           panel->low[b % AMX_HALF_BLOCKS][t]);
        }
    }
}

/* The same of rows of floats; zeros after the last row. */
static void amx_fill_floats(const enum amx_parts parts, const struct bf16_job *job, int tile,
                            int n_tiles, struct amx_panel *panel)
{
    for (int t = 0; t < n_tiles; t++)
        for (int b = 0; b < panel->n_blocks; b++) {
            bvec high[16], low[16];
            for (int r = 0; r < 16; r++) {
                int64_t row = (int64_t)(tile + t) * 16 + r, col = (panel->first + b) * BLOCK_COLS;
                bool is_there = row < job->n_rows;
                fvec x[2] = {f_set(0), f_set(0)};
                for (int h = 0; h < 2 && is_there; h++)
                    x[h] = values_at(job->rows.format, &job->rows, (int)row, col + h * 16);
                high[r] = bf_pack(x[0], x[1]);
                low[r] = bf_pack(f_sub(x[0], f_bf16(x[0])), f_sub(x[1], f_bf16(x[1])));
            }
            b_transpose(high);
            for (int k = 0; k < 16; k++) b_store((uint8_t *)panel->high[b][t][k], high[k]);
            if (parts != AMX_BOTH_SUMS) continue;
            b_transpose(low);
            for (int k = 0; k < 16; k++) b_store((uint8_t *)panel->low[b][t][k], low[k]);
        }
}

/* ---- Products --------------------------------------------------------------------------- */

ALWAYS void amx_begin(const int n_groups, const int n_tiles, bool is_first,
                      const struct amx_sums *sums)
{
    const float *out = sums->from, *second = out + 16 * sums->from_stride;
    int64_t stride = sums->from_stride * 4;
    if (is_first) {
        amx_zero(0);
        amx_zero(1);
        amx_zero(2);
        amx_zero(3);
        return;
    }
    amx_load(0, out, stride);
    if (n_tiles == 2) amx_load(1, out + 16, stride);
    if (n_groups == 2) amx_load(2, second, stride);
    if (n_groups == 2 && n_tiles == 2) amx_load(3, second + 16, stride);
}

ALWAYS void amx_end(const int n_groups, const int n_tiles, const struct amx_sums *sums)
{
    float *out = sums->to, *second = out + 16 * sums->to_stride;
    int64_t stride = sums->to_stride * 4;
    amx_store(0, out, stride);
    if (n_tiles == 2) amx_store(1, out + 16, stride);
    if (n_groups == 2) amx_store(2, second, stride);
    if (n_groups == 2 && n_tiles == 2) amx_store(3, second + 16, stride);
}

/* Groups at `a` by the weights at `w`, which may be in registers from the call before. */
ALWAYS void amx_block(const int n_groups, const int n_tiles, const bool loads_weights,
                      const uint16_t *a, amx_weights *w)
{
    amx_load_once(4, a, 64);
    if (loads_weights) amx_load(6, w[0], 64);
    amx_dot(0, 4, 6);
    if (n_tiles == 2) {
        if (loads_weights) amx_load(7, w[1], 64);
        amx_dot(1, 4, 7);
    }
    if (n_groups < 2) return;
    amx_load_once(5, a + AMX_GROUP, 64);
    amx_dot(2, 5, 6);
    if (n_tiles == 2) amx_dot(3, 5, 7);
}

/* Prefetches sums of the rows that come next: of `n` rows from row `first` of them on. They need
 * not exist. */
ALWAYS void amx_sums_ahead(const int n_tiles, const struct amx_sums *sums, int first, int n)
{
    for (int64_t r = AMX_ROWS + first; r < AMX_ROWS + first + n; r++)
        for (int t = 0; t < n_tiles; t++) {
            __builtin_prefetch(sums->from + r * sums->from_stride + t * 16, 1, 3);
            if (sums->to != sums->from)
                __builtin_prefetch(sums->to + r * sums->to_stride + t * 16, 1, 3);
        }
}

/* Prefetches what is due after a block. */
ALWAYS void amx_ask(struct amx_ahead *ahead)
{
    const uint8_t *stop = ahead->next + ahead->a_block;
    if (stop > ahead->end) stop = ahead->end;
    for (; ahead->next < stop; ahead->next += 64) __builtin_prefetch(ahead->next, 0, 2);
}

/* One or two groups of rows by one or two tiles, over the columns of the panel. */
ALWAYS void amx_multiply(const enum amx_parts parts, const int n_groups, const int n_tiles,
                         struct amx_panel *panel, const struct amx_rows *rows, int32_t group,
                         const struct amx_sums *sums)
{
    const int n_blocks = panel->n_blocks, n_ahead = (AMX_ROWS + n_blocks - 1) / n_blocks;
    const ptrdiff_t at = (ptrdiff_t)group * AMX_GROUP;
    amx_begin(n_groups, n_tiles, panel->first == 0, sums);
    for (int b = 0; b < n_blocks; b++) {
        const uint16_t *high = rows->high + at + b * BF16_BLOCK;
        amx_sums_ahead(n_tiles, sums, b * n_ahead, n_ahead);
        for (int t = 0; t < n_tiles; t++) amx_ask(&panel->next[t]);
        amx_block(n_groups, n_tiles, true, high, panel->high[b]);
        if (parts == AMX_HIGH) continue;
        amx_block(n_groups, n_tiles, false, rows->low + at + b * BF16_BLOCK, panel->high[b]);
        if (parts == AMX_BOTH_SUMS) amx_block(n_groups, n_tiles, true, high, panel->low[b]);
    }
    amx_end(n_groups, n_tiles, sums);
}

/* The same with fewer than 16 rows in the last group: their sums wait apart. */
ALWAYS void amx_multiply_last(const enum amx_parts parts, const int n_groups, const int n_tiles,
                              struct amx_panel *panel, const struct amx_rows *rows, int32_t group,
                              int32_t n, const struct amx_sums *sums)
{
    enum { STRIDE = AMX_TILES * 16 };
    float apart[2 * 16 * STRIDE];
    const struct amx_sums there = {apart, apart, STRIDE, STRIDE};
    size_t bytes = (size_t)n_tiles * 16 * sizeof *apart;
    memset(apart, 0, sizeof apart);
    for (int32_t r = 0; r < n && panel->first; r++)
        memcpy(apart + r * STRIDE, sums->from + r * sums->from_stride, bytes);
    amx_multiply(parts, n_groups, n_tiles, panel, rows, group, &there);
    for (int32_t r = 0; r < n; r++)
        memcpy(sums->to + r * sums->to_stride, apart + r * STRIDE, bytes);
}

#define AMX_SHAPE(FUNCTION, ...)                                                                   \
    do {                                                                                           \
        if (n_groups == 2 && n_tiles == 2)                                                         \
            FUNCTION(parts, 2, 2, __VA_ARGS__);                                                    \
        else if (n_groups == 2)                                                                    \
            FUNCTION(parts, 2, 1, __VA_ARGS__);                                                    \
        else if (n_tiles == 2)                                                                     \
            FUNCTION(parts, 1, 2, __VA_ARGS__);                                                    \
        else                                                                                       \
            FUNCTION(parts, 1, 1, __VA_ARGS__);                                                    \
    } while (0)

/* The panel by the two groups of rows, or one, from `group` on. n: rows from there on. */
ALWAYS void amx_groups(const enum amx_parts parts, const int n_tiles, struct amx_panel *panel,
                       const struct amx_rows *rows, int32_t group, int32_t n,
                       const struct amx_sums *sums)
{
    const int n_groups = n > 16 ? 2 : 1;
    if (n >= n_groups * 16)
        AMX_SHAPE(amx_multiply, panel, rows, group, sums);
    else
        AMX_SHAPE(amx_multiply_last, panel, rows, group, n, sums);
}

/* One function for all kinds of codes: weights are bf16 here. */
static __attribute__((noinline)) void amx_run(enum amx_parts parts, int n_tiles,
                                              struct amx_panel *panel, const struct amx_rows *rows,
                                              int32_t group, int32_t n, const struct amx_sums *sums)
{
    if (parts == AMX_HIGH)
        amx_groups(AMX_HIGH, n_tiles, panel, rows, group, n, sums);
    else if (parts == AMX_ACT_SUMS)
        amx_groups(AMX_ACT_SUMS, n_tiles, panel, rows, group, n, sums);
    else
        amx_groups(AMX_BOTH_SUMS, n_tiles, panel, rows, group, n, sums);
}

static void amx_configure(void)
{
    struct amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) { /* 0 to 3 sums, 4 and 5 activations, 6 and 7 weights */
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    amx_shapes(&config);
}

/* ---- Jobs ------------------------------------------------------------------------------- */

/* Notes which weights are to be prefetched: those of the panel that is filled next, which has the
 * tiles from `tile` on or is the first one of the next columns. */
static void amx_weights_ahead(const enum amx_parts parts, const struct bf16_job *job,
                              struct amx_panel *panel, int tile)
{
    int64_t block = panel->first;
    if (tile >= job->n_tiles) {
        tile = 0;
        block += panel->n_blocks;
    }
    for (int t = 0; t < AMX_TILES; t++) panel->next[t] = (struct amx_ahead){0};
    if (!job->shape || block >= job->n_blocks) return;
    const struct tile_unit u = tile_unit_for_codes(job->shape->kind);
    size_t at = (size_t)(block / u.n_blocks) * u.bytes;
    size_t bytes = (size_t)(amx_panel_blocks(parts, job->n) / u.n_blocks) * u.bytes;
    int64_t lines = (int64_t)bytes / 64, n = (job->n + AMX_ROWS - 1) / AMX_ROWS * panel->n_blocks;
    for (int t = 0; t < AMX_TILES && tile + t < job->n_tiles; t++) {
        const uint8_t *data = job->tile + (size_t)(tile + t) * job->shape->bytes + at;
        panel->next[t] = (struct amx_ahead){data, data + bytes, (lines + n - 1) / n * 64};
    }
}

/* Sums of rows from `row` of the job on, in tiles from `tile` on. */
static struct amx_sums amx_sums_at(const struct bf16_job *job, bool is_last, int32_t row, int tile)
{
    const int64_t stride = (int64_t)job->n_tiles * 16;
    float *out = job->out + row * stride + tile * 16;
    struct amx_sums sums = {out, out, stride, stride};
    if (is_last && job->y) {
        sums.to = job->y + row * job->y_stride + tile * 16;
        sums.to_stride = job->y_stride;
    }
    return sums;
}

/* A stretch of columns by all rows, for all tiles in turn. */
ALWAYS void amx_stretch(const enum code_kind kind, const enum amx_parts parts,
                        const struct bf16_job *job, const struct amx_rows *rows,
                        struct amx_panel *panel)
{
    const int32_t n = job->n;
    for (int tile = 0, n_tiles; tile < job->n_tiles; tile += n_tiles) {
        n_tiles = job->n_tiles - tile < AMX_TILES ? 1 : AMX_TILES;
        amx_weights_ahead(parts, job, panel, tile + n_tiles);
        if (kind == CODE_NONE)
            amx_fill_floats(parts, job, tile, n_tiles, panel);
        else
            amx_fill(kind, parts, job, tile, n_tiles, panel);
        for (int32_t r = 0; r < n; r += AMX_ROWS) {
            struct amx_sums sums = amx_sums_at(job, panel->is_last, r, tile);
            amx_run(parts, n_tiles, panel, rows, r / 16, n - r, &sums);
        }
    }
}

/* The job's rows in the panel's columns. */
static struct amx_rows amx_rows_at(const struct bf16_job *job, const struct amx_panel *panel)
{
    int64_t at = panel->first / BF16_BLOCKS * job->stretch + bf16_row(job->first) +
                 panel->first % BF16_BLOCKS * BF16_BLOCK;
    return (struct amx_rows){job->act + at, job->low ? job->low + at : NULL};
}

ALWAYS void amx_job_run(const enum code_kind kind, const enum amx_parts parts,
                        const struct bf16_job *job)
{
    const int most = amx_panel_blocks(parts, job->n);
    struct amx_panel panel;
    amx_configure();
    for (panel.first = 0; panel.first < job->n_blocks; panel.first += most) {
        int64_t left = job->n_blocks - panel.first;
        panel.is_last = left <= most;
        panel.n_blocks = panel.is_last ? (int)left : most;
        struct amx_rows rows = amx_rows_at(job, &panel);
        amx_stretch(kind, parts, job, &rows, &panel);
    }
    amx_release();
}

#define X(kind, ...)                                                                               \
    static void bf16_dot_##kind(const struct bf16_job *job)                                        \
    {                                                                                              \
        if (job->low)                                                                              \
            amx_job_run(CODE_##kind, AMX_BOTH_SUMS, job);                                          \
        else                                                                                       \
            amx_job_run(CODE_##kind, AMX_HIGH, job);                                               \
    }
CODE_LIST(X)
#undef X

static void bf16_dot_floats(const struct bf16_job *job)
{
    if (job->rows.format == FORMAT_BF16)
        amx_job_run(CODE_NONE, AMX_ACT_SUMS, job);
    else
        amx_job_run(CODE_NONE, AMX_BOTH_SUMS, job);
}

static void bf16_dot(const struct bf16_job *job)
{
    switch (job->shape ? job->shape->kind : CODE_NONE) {
#define X(kind, ...)                                                                               \
    case CODE_##kind: bf16_dot_##kind(job); break;
        CODE_LIST(X)
#undef X
    default: bf16_dot_floats(job); break;
    }
}

static void bf16_round(const float *x, int64_t n, int64_t stretch, uint16_t *high, uint16_t *low)
{
    for (int64_t b = 0; b < n / BLOCK_COLS; b++)
        for (int h = 0; h < 2; h++) {
            int64_t at = b / BF16_BLOCKS * stretch + b % BF16_BLOCKS * BF16_BLOCK + h * 16;
            fvec values = f_load(x + b * BLOCK_COLS + h * 16);
            bf_store(high + at, values);
            if (low) bf_store(low + at, f_sub(values, f_bf16(values)));
        }
}

/* Products of whole registers. */
static double multiply_bf16(int64_t rounds)
{
    alignas(64) uint16_t ones[16][32];
    alignas(64) float sums[16][16];
    for (int i = 0; i < 16 * 32; i++) ones[i / 32][i % 32] = 0x3f80; /* 1 */
    amx_configure();
    amx_load(4, ones, 64);
    amx_load(6, ones, 64);
    amx_zero(0);
    amx_zero(1);
    amx_zero(2);
    amx_zero(3);
    for (int64_t r = 0; r < rounds / 8; r++) {
        amx_dot(0, 4, 6);
        amx_dot(1, 4, 6);
        amx_dot(2, 4, 6);
        amx_dot(3, 4, 6);
    }
    amx_store(3, sums, 64);
    amx_release();
    return (double)(rounds / 8) * 4 * 16 * 16 * 32 * 2 + (sums[0][0] > 12345 ? 1 : 0);
}
