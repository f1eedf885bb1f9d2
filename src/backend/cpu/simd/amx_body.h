/* Products of many rows on Intel's tile registers (AMX). Part of kernels_body.h; KERNELS_AMX names
 * the header with their operations, which a test replaces.
 *
 * Scales change every 32 columns (S6: 16), so one product of registers covers a *part*: 16
 * activation rows by 16 weight rows by those columns. Its 16 x 16 integer sums go to memory and are
 * scaled and added up by the vector unit, in the order and with the bits of panel_rows. That takes
 * three float operations for 16 of the sums: 24 cycles a part, where its product takes 16, its
 * stores 16 and all loads 22. Everything would have to run beside each other for that; it does so
 * only in part (docs/benchmarks.md):
 *   - two tiles of weights at a time, which share registers of activations and their scales;
 *   - while four parts of both tiles are scaled, the products of the next four are computed. Their
 *     stores come half a step later, when they are complete;
 *   - sums of 8 rows by 2 tiles stay in registers for four parts;
 *   - codes are made signed when they are unpacked, so that no sum needs a first value;
 *   - activations are packed first: rows of a register lie next to each other, whatever list they
 *     come from and wherever rows are in the cache's sets. */

/* 64 bytes, as the processor reads them. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#include KERNELS_AMX

/* Rows from which this may be faster than AVX-512, by processor; that was measured once. */
#ifndef AMX_FROM
#define AMX_FROM 16
#endif

enum {
    AMX_BLOCKS = 8, /* of a panel */
    AMX_TILES = 2,
    AMX_ROWS = 256, /* packed at a time */
    AMX_PARTS = 4   /* of a step */
};

/* Weights of one or two tiles, as registers take them. */
struct amx_panel {
    int64_t first; /* block */
    int n_blocks;
    const uint8_t *next; /* units of the first tile of the next panel */
    alignas(64) uint8_t w[AMX_BLOCKS][AMX_TILES][8][64];
    float scale[AMX_BLOCKS][AMX_TILES][16];
    float factor[AMX_BLOCKS * 2][AMX_TILES][16]; /* S6, by part */
    float min[AMX_BLOCKS][AMX_TILES][16];
};

/* Activations of the panel's blocks in groups of 16 rows; zeros after the last row. */
struct amx_rows {
    int32_t n;
    alignas(64) int8_t q[AMX_ROWS / 16][AMX_BLOCKS][16][BLOCK_COLS];
    float scale[AMX_ROWS / 16][AMX_BLOCKS][16];
    float sum[AMX_ROWS / 16][AMX_BLOCKS][16]; /* of kinds with a minimum */
};

/* Parts of both tiles for one group of rows. */
struct amx_step {
    int32_t group;
    int part, n_parts; /* the first, a multiple of AMX_PARTS; n_parts 0: none is left */
};

typedef int32_t amx_dots[AMX_PARTS][AMX_TILES][16][16];

/* What is subtracted from codes as `unpack` makes them. */
ALWAYS uint8_t amx_offset(const enum code_kind kind)
{
    return (uint8_t)(is_wide(kind) ? WEIGHT_BIAS : code_kind_facts(kind).offset);
}

ALWAYS void amx_fill(const enum code_kind kind, const int n_tiles, const struct tile_job *job,
                     int tile, struct amx_panel *panel)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    for (int t = 0; t < n_tiles; t++)
        for (int b = 0; b < panel->n_blocks; b++) {
            const uint8_t *unit = unit_at(kind, job, tile + t, panel->first + b);
            int i = (int)(panel->first + b) % u.n_blocks;
            bvec w[8];
            unpack(kind, unit + (size_t)i * u.block_bytes, w);
            for (int g = 0; g < 8; g++) b_store(panel->w[b][t][g], b_less(w[g], amx_offset(kind)));
            f_store(panel->scale[b][t], unit_scales(kind, unit, i));
            for (int h = 0; h < 2 && block_halves(kind) == 2; h++)
                f_store(panel->factor[b * 2 + h][t], f_load_i8(unit_factors(kind, unit, i, h)));
            if (u.has_min) f_store(panel->min[b][t], unit_mins(kind, unit, i));
        }
}

/* Rows of the job from `done` on, as many as there is room for. */
static void amx_pack(const struct tile_job *job, int32_t done, bool has_min,
                     const struct amx_panel *panel, struct amx_rows *rows)
{
    static const struct act_block nothing;
    rows->n = job->n - done < AMX_ROWS ? job->n - done : AMX_ROWS;
    for (int32_t r = 0; r < (rows->n + 15) / 16 * 16; r++) {
        const struct act_block *act = r < rows->n ? job_row(job, done + r) + panel->first : NULL;
        for (int b = 0; b < panel->n_blocks; b++) {
            const struct act_block *block = act ? &act[b] : &nothing;
            memcpy(rows->q[r / 16][b][r % 16], block->q, BLOCK_COLS);
            rows->scale[r / 16][b][r % 16] = block->scale;
            if (has_min) rows->sum[r / 16][b][r % 16] = block->sum;
        }
    }
}

/* The integer sums of a part, in registers. There are two sets of them, because a set is stored
 * after the products of the next have begun. */
ALWAYS void amx_multiply(const enum code_kind kind, const int n_tiles, const int set,
                         const struct amx_panel *panel, const struct amx_rows *rows,
                         const struct amx_step *step, int i)
{
    const int halves = block_halves(kind), b = step->part / halves, h = i % halves;
    const int8_t *q = rows->q[step->group][b + i / halves][0] + h * 16;
    const uint8_t *w = panel->w[b + i / halves][0][h * 4];
    const uint8_t *w1 = w + sizeof panel->w[0][0];
    if (i >= step->n_parts) return;
    if (set == 0) {
        amx_zero(0);
        amx_load(4, q, BLOCK_COLS);
        amx_load(6, w, 64);
        amx_dot(0, 4, 6);
        if (n_tiles < 2) return;
        amx_zero(1);
        amx_load(7, w1, 64);
        amx_dot(1, 4, 7);
    } else {
        amx_zero(2);
        amx_load(5, q, BLOCK_COLS);
        amx_load(6, w, 64);
        amx_dot(2, 5, 6);
        if (n_tiles < 2) return;
        amx_zero(3);
        amx_load(7, w1, 64);
        amx_dot(3, 5, 7);
    }
}

ALWAYS void amx_keep(const int n_tiles, const int set, const struct amx_step *step, int i,
                     amx_dots dots)
{
    if (i >= step->n_parts) return;
    if (set == 0) {
        amx_store(0, dots[i][0], 64);
        if (n_tiles == 2) amx_store(1, dots[i][1], 64);
    } else {
        amx_store(2, dots[i][0], 64);
        if (n_tiles == 2) amx_store(3, dots[i][1], 64);
    }
}

/* The sums of part i for a row and a tile. S6: those of this part and the one before it, by their
 * factors. */
ALWAYS fvec amx_total(const enum code_kind kind, const struct amx_panel *panel, int part, int i,
                      int t, int row, amx_dots dots)
{
    fvec x = f_of_int(i_load(dots[i][t][row]));
    if (block_halves(kind) == 1) return x;
    fvec before = f_of_int(i_load(dots[i - 1][t][row]));
    return f_fma(x, f_load(panel->factor[part + i][t]),
                 f_mul(before, f_load(panel->factor[part + i - 1][t])));
}

/* The float steps of part i for rows `row` to row + 7 of a group; S6: after the second half of a
 * block. */
ALWAYS void amx_scale(const enum code_kind kind, const int n_tiles, const struct amx_panel *panel,
                      const struct amx_rows *rows, const struct amx_step *step, int i, int row,
                      amx_dots dots, fvec sum[8][AMX_TILES])
{
    const int halves = block_halves(kind), b = step->part / halves;
    const float *scale = rows->scale[step->group][b + i / halves] + row;
    const float *x = rows->sum[step->group][b + i / halves] + row;
    fvec w[AMX_TILES];
    if (i >= step->n_parts || i % halves != halves - 1) return;
    for (int t = 0; t < n_tiles; t++) w[t] = f_load(panel->scale[b + i / halves][t]);
    for (int r = 0; r < 8; r++) {
        fvec a = f_set(scale[r]);
        for (int t = 0; t < n_tiles; t++)
            sum[r][t] = f_fma(f_mul(amx_total(kind, panel, step->part, i, t, row + r, dots), a),
                              w[t], sum[r][t]);
    }
    if (!tile_unit_for_codes(kind).has_min) return;
    for (int t = 0; t < n_tiles; t++) w[t] = f_load(panel->min[step->part + i][t]);
    for (int r = 0; r < 8; r++)
        for (int t = 0; t < n_tiles; t++) sum[r][t] = f_fma(w[t], f_set(x[r]), sum[r][t]);
}

/* Scales the sums of `step` and computes those of `next` meanwhile. */
ALWAYS void amx_step_run(const enum code_kind kind, const int n_tiles,
                         const struct amx_panel *panel, const struct amx_rows *rows,
                         const struct amx_step *step, amx_dots dots, const struct amx_step *next,
                         amx_dots next_dots, float *out, int64_t stride)
{
    bool begins = panel->first == 0 && step->part == 0;
    for (int half = 0; half < 2; half++, out += 8 * stride) {
        fvec sum[8][AMX_TILES];
        for (int r = 0; r < 8; r++)
            for (int t = 0; t < n_tiles; t++)
                sum[r][t] = begins ? f_set(0) : f_load(out + r * stride + t * 16);
        amx_multiply(kind, n_tiles, 0, panel, rows, next, half * 2);
        amx_scale(kind, n_tiles, panel, rows, step, 0, half * 8, dots, sum);
        amx_multiply(kind, n_tiles, 1, panel, rows, next, half * 2 + 1);
        amx_scale(kind, n_tiles, panel, rows, step, 1, half * 8, dots, sum);
        amx_keep(n_tiles, 0, next, half * 2, next_dots);
        amx_scale(kind, n_tiles, panel, rows, step, 2, half * 8, dots, sum);
        amx_keep(n_tiles, 1, next, half * 2 + 1, next_dots);
        amx_scale(kind, n_tiles, panel, rows, step, 3, half * 8, dots, sum);
        for (int r = 0; r < 8; r++)
            for (int t = 0; t < n_tiles; t++) f_store(out + r * stride + t * 16, sum[r][t]);
    }
}

static struct amx_step amx_step_at(int32_t group, int part, int n_parts)
{
    int left = n_parts - part;
    return (struct amx_step){group, part, left < AMX_PARTS ? left : AMX_PARTS};
}

static struct amx_step amx_step_after(const struct amx_step *step, int n_parts, int32_t n_groups)
{
    int part = step->part + step->n_parts;
    if (part < n_parts) return amx_step_at(step->group, part, n_parts);
    if (step->group + 1 < n_groups) return amx_step_at(step->group + 1, 0, n_parts);
    return (struct amx_step){0};
}

/* The panel by all packed rows. The last group may have less than 16, so its sums wait apart. */
ALWAYS void amx_panel_run(const enum code_kind kind, const int n_tiles, const struct tile_job *job,
                          const struct amx_panel *panel, const struct amx_rows *rows, float *out)
{
    alignas(64) amx_dots dots[2];
    float apart[16][AMX_TILES * 16] = {{0}};
    int n_parts = panel->n_blocks * block_halves(kind);
    int32_t n_groups = (rows->n + 15) / 16, n_last = rows->n % 16;
    size_t bytes = (size_t)n_tiles * 16 * sizeof *out;
    int64_t stride = job->n_tiles * 16;
    float *last = out + (n_groups - 1) * 16 * stride;
    for (int32_t r = 0; r < n_last && panel->first; r++) memcpy(apart[r], last + r * stride, bytes);
    struct amx_step step = amx_step_at(0, 0, n_parts), next;
    for (int i = 0; i < step.n_parts; i++) {
        amx_multiply(kind, n_tiles, 0, panel, rows, &step, i);
        amx_keep(n_tiles, 0, &step, i, dots[0]);
    }
    for (int at = 0; step.n_parts > 0; step = next, at ^= 1) {
        next = amx_step_after(&step, n_parts, n_groups);
        if (step.part == 0)
            read_ahead(kind, job, panel->next, AMX_TILES, AMX_BLOCKS, step.group, n_groups);
        if (n_last && step.group == n_groups - 1)
            amx_step_run(kind, n_tiles, panel, rows, &step, dots[at], &next, dots[at ^ 1], apart[0],
                         AMX_TILES * 16);
        else
            amx_step_run(kind, n_tiles, panel, rows, &step, dots[at], &next, dots[at ^ 1],
                         out + step.group * 16 * stride, stride);
    }
    for (int32_t r = 0; r < n_last; r++) memcpy(last + r * stride, apart[r], bytes);
}

static void amx_configure(int part_bytes)
{
    struct amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) { /* 0 to 3 sums, 4 and 5 activations, 6 and 7 weights */
        config.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? part_bytes : 64);
        config.rows[i] = (uint8_t)(i < 6 ? 16 : part_bytes / 4);
    }
    amx_shapes(&config);
}

/* One stretch of columns for all tiles in turn, so that activations are packed once for them. */
ALWAYS void amx_job_run(const enum code_kind kind, const struct tile_job *job)
{
    struct amx_panel panel;
    struct amx_rows rows;
    const struct tile_unit u = tile_unit_for_codes(kind);
    int64_t n_blocks = job->shape->n_blocks;
    amx_configure(BLOCK_COLS / block_halves(kind));
    for (int32_t done = 0; done < job->n; done += rows.n)
        for (panel.first = 0; panel.first < n_blocks; panel.first += panel.n_blocks) {
            int64_t end = panel.first + AMX_BLOCKS;
            if (end > n_blocks) end = n_blocks;
            panel.n_blocks = (int)(end - panel.first);
            amx_pack(job, done, u.has_min, &panel, &rows);
            for (int tile = 0, n; tile < job->n_tiles; tile += n) {
                float *out = job->out + done * (int64_t)job->n_tiles * 16 + tile * 16;
                n = job->n_tiles - tile < AMX_TILES ? 1 : AMX_TILES;
                panel.next = tile + n < job->n_tiles ? unit_at(kind, job, tile + n, panel.first)
                                                     : unit_at(kind, job, 0, end);
                amx_fill(kind, n, job, tile, &panel);
                if (n == 1)
                    amx_panel_run(kind, 1, job, &panel, &rows, out);
                else
                    amx_panel_run(kind, AMX_TILES, job, &panel, &rows, out);
            }
        }
    amx_release();
}

/* Products of whole registers. */
static double multiply_bytes(int64_t rounds)
{
    alignas(64) int8_t bytes[16][64];
    alignas(64) int32_t sums[16][16];
    memset(bytes, (int)(rounds & 7), sizeof bytes);
    amx_configure(64);
    amx_load(4, bytes, 64);
    amx_load(6, bytes, 64);
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
    return (double)(rounds / 8) * 4 * 16 * 16 * 64 * 2 + (sums[0][0] == 12345 ? 1 : 0);
}
