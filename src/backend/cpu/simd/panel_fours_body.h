/* A panel's products for instruction sets that add four byte products of a lane in 32 bits. Four
 * activations are loaded into a register once for PANEL_TILES tiles. Sums of a block in integers
 * and of blocks in floats are in registers, as many as a set has room for. */

struct panel {
    struct panel_place at;
    const struct act_block *row[PANEL_CHUNK]; /* from the panel's first block on */
    ptrdiff_t low;                            /* fine rows: from there to their low blocks */
    alignas(64) uint8_t w[PANEL_BLOCKS][8][PANEL_TILES][64];
    float scale[PANEL_BLOCKS][PANEL_TILES][16];
    float factor[PANEL_BLOCKS][2][PANEL_TILES][16]; /* of both halves of a block */
    float min[PANEL_BLOCKS][2][PANEL_TILES][16];
};

ALWAYS void prepare_rows(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                         int32_t first, int32_t n, struct panel *panel)
{
    (void)kind;
    panel->low = low_blocks(is_fine, job);
    for (int32_t i = 0; i < n; i++) panel->row[i] = job_row(job, first + i) + panel->at.first;
}

ALWAYS void fill_panel(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                       struct panel *panel)
{
    (void)is_fine;
    const struct tile_unit u = tile_unit_for_codes(kind);
    const tvec table = table_of(kind, job->shape);
    for (int t = 0; t < PANEL_TILES; t++)
        for (int b = 0; b < panel->at.n_blocks; b++) {
            const uint8_t *unit = unit_at(kind, job, panel->at.tile + t, panel->at.first + b);
            int i = (int)(panel->at.first + b) % u.n_blocks;
            bvec w[8];
            unpack(kind, table, unit + (size_t)i * u.block_bytes, w);
            for (int g = 0; g < 8; g++) b_store(panel->w[b][g][t], w[g]);
            f_store(panel->scale[b][t], unit_scales(kind, unit, i));
            struct factors room;
            for (int h = 0; h < 2 && block_halves(kind) == 2; h++)
                f_store(panel->factor[b][h][t], f_load_i8(unit_factors(kind, unit, i, h, &room)));
            for (int h = 0; h < block_mins(kind); h++)
                f_store(panel->min[b][h][t], unit_mins(kind, unit, i, h));
        }
}

/* Adds the products of half h of block b by n rows, or of all of it; `at` is the block in the
 * rows. */
ALWAYS void panel_dots(const enum code_kind kind, const int n, const struct panel *panel,
                       const struct act_block *const *rows, int b, ptrdiff_t at, const int h,
                       ivec dots[PANEL_ROWS][PANEL_TILES])
{
    const int groups = 8 / block_halves(kind);
    /* As a loop it has its sums in memory, which halves the speed. */
#pragma GCC unroll 8
    for (int g = h * groups; g < (h + 1) * groups; g++) {
        bvec w[PANEL_TILES];
        for (int t = 0; t < PANEL_TILES; t++) w[t] = b_load(panel->w[b][g][t]);
        for (int i = 0; i < n; i++) {
            ivec a = four_bytes(rows[i][at].q + g * 4);
            for (int t = 0; t < PANEL_TILES; t++) dots[i][t] = dot(kind, dots[i][t], w[t], a);
        }
    }
}

/* The sums of half h of block b by n rows, or of all of it, as floats. Halves by their factors, and
 * added to those of the first half. */
ALWAYS void panel_half(const enum code_kind kind, const bool is_fine, const int n,
                       const struct panel *panel, const struct act_block *const *rows, int b,
                       const int h, fvec total[PANEL_ROWS][PANEL_TILES])
{
    const int halves = block_halves(kind);
    ivec dots[PANEL_ROWS][PANEL_TILES];
    for (int i = 0; i < n; i++) {
        dots[i][0] = first_sum(kind, &rows[i][b], h);
        for (int t = 1; t < PANEL_TILES; t++) dots[i][t] = dots[i][0];
    }
    panel_dots(kind, n, panel, rows, b, b, h, dots);
    if (is_fine) {
        for (int i = 0; i < n; i++)
            for (int t = 0; t < PANEL_TILES; t++)
                dots[i][t] = sums_so_far(kind, dots[i][t], &rows[i][b + panel->low], h);
        panel_dots(kind, n, panel, rows, b, b + panel->low, h, dots);
    }
    for (int i = 0; i < n; i++)
        for (int t = 0; t < PANEL_TILES; t++) {
            fvec sums = f_of_int(dots[i][t]);
            if (halves == 1)
                total[i][t] = sums;
            else if (h == 0)
                total[i][t] = f_mul(sums, f_load(panel->factor[b][h][t]));
            else
                total[i][t] = f_fma(sums, f_load(panel->factor[b][h][t]), total[i][t]);
        }
}

/* The panel by n rows from prepared row `first` on. kind and n are constants where this is
 * expanded. */
ALWAYS void panel_rows(const enum code_kind kind, const bool is_fine, const int n,
                       const struct panel *panel, int32_t first, float *out, int64_t stride)
{
    ptrdiff_t low = is_fine ? panel->low : 0;
    const struct act_block *const *rows = panel->row + first;
    fvec sum[PANEL_ROWS][PANEL_TILES];
    for (int i = 0; i < n; i++)
        for (int t = 0; t < PANEL_TILES; t++)
            sum[i][t] = panel->at.first ? f_load(out + i * stride + t * 16) : f_set(0);
    for (int b = 0; b < panel->at.n_blocks; b++) {
        fvec total[PANEL_ROWS][PANEL_TILES];
        panel_half(kind, is_fine, n, panel, rows, b, 0, total);
        if (block_halves(kind) == 2) panel_half(kind, is_fine, n, panel, rows, b, 1, total);
        for (int i = 0; i < n; i++)
            for (int t = 0; t < PANEL_TILES; t++)
                sum[i][t] = f_fma(f_mul(total[i][t], f_set(rows[i][b + low].scale)),
                                  f_load(panel->scale[b][t]), sum[i][t]);
        for (int h = 0; h < block_mins(kind); h++)
            for (int i = 0; i < n; i++) {
                fvec x = f_set(x_sum(kind, is_fine, &rows[i][b], low, h));
                for (int t = 0; t < PANEL_TILES; t++)
                    sum[i][t] = f_fma(f_load(panel->min[b][h][t]), x, sum[i][t]);
            }
    }
    for (int i = 0; i < n; i++)
        for (int t = 0; t < PANEL_TILES; t++) f_store(out + i * stride + t * 16, sum[i][t]);
}
