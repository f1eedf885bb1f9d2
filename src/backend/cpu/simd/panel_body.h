/* Products of many rows. A stretch of the weights of PANEL_TILES tiles is unpacked into a panel,
 * which stays in the first-level cache while it is multiplied with all rows, PANEL_ROWS at a time.
 * Four activations are loaded into a register once for all these tiles. Sums wait in the output
 * from one panel to the next, so a row's order of summing is that of tile_rows.
 *
 * Part of kernels_body.h. Every instruction set chooses PANEL_TILES and PANEL_ROWS so that its
 * registers hold two sums, in integers and in floats, for each tile and row. */

enum {
    PANEL_BLOCKS = 24, /* at most: with two tiles 27 KB */
    /* From so many rows on any number is a sum of PANEL_ROWS and PANEL_ROWS - 1. Fewer rows are not
     * worth the unpacking. */
    PANEL_FROM = PANEL_ROWS * (PANEL_ROWS - 1) > 8 ? PANEL_ROWS *(PANEL_ROWS - 1) : 8
};

struct panel {
    int tile; /* the first, within the job */
    int n_blocks;
    int64_t first;       /* block */
    const uint8_t *next; /* units of the first tile of the next panel */
    alignas(64) uint8_t w[PANEL_BLOCKS][8][PANEL_TILES][64];
    float scale[PANEL_BLOCKS][2][PANEL_TILES][16]; /* S6: of both halves of a block */
    float min[PANEL_BLOCKS][PANEL_TILES][16];
};

/* The unit that has block b of a tile. */
ALWAYS const uint8_t *unit_at(const enum code_kind kind, const struct tile_job *job, int tile,
                              int64_t b)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    return job->tile + (size_t)tile * job->shape->bytes + (size_t)(b / u.n_blocks) * u.bytes;
}

ALWAYS void fill_panel(const enum code_kind kind, const struct tile_job *job, struct panel *panel)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    for (int t = 0; t < PANEL_TILES; t++)
        for (int b = 0; b < panel->n_blocks; b++) {
            const uint8_t *unit = unit_at(kind, job, panel->tile + t, panel->first + b);
            int i = (int)(panel->first + b) % u.n_blocks;
            bvec w[8];
            unpack(kind, unit + (size_t)i * u.block_bytes, w);
            for (int g = 0; g < 8; g++) b_store(panel->w[b][g][t], w[g]);
            for (int h = 0; h < block_halves(kind); h++)
                f_store(panel->scale[b][h][t], unit_scales(kind, unit, i, h));
            if (u.has_min) f_store(panel->min[b][t], unit_mins(kind, unit, i));
        }
}

/* The panel by n rows, which point to their blocks of the panel. kind and n are constants where
 * this is expanded. */
ALWAYS void panel_rows(const enum code_kind kind, const int n, const struct panel *panel,
                       const struct act_block *const *rows, float *out, int64_t stride)
{
    const int groups = 8 / block_halves(kind);
    fvec sum[PANEL_ROWS][PANEL_TILES];
    for (int i = 0; i < n; i++)
        for (int t = 0; t < PANEL_TILES; t++)
            sum[i][t] = panel->first ? f_load(out + i * stride + t * 16) : f_set(0);
    for (int b = 0; b < panel->n_blocks; b++) {
        for (int h = 0; h < block_halves(kind); h++) {
            ivec dots[PANEL_ROWS][PANEL_TILES];
            for (int i = 0; i < n; i++) {
                dots[i][0] = first_sum(kind, &rows[i][b], h);
                for (int t = 1; t < PANEL_TILES; t++) dots[i][t] = dots[i][0];
            }
            for (int g = h * groups; g < (h + 1) * groups; g++) {
                bvec w[PANEL_TILES];
                for (int t = 0; t < PANEL_TILES; t++) w[t] = b_load(panel->w[b][g][t]);
                for (int i = 0; i < n; i++) {
                    ivec a = four_bytes(rows[i][b].q + g * 4);
                    for (int t = 0; t < PANEL_TILES; t++)
                        dots[i][t] = dot(kind, dots[i][t], w[t], a);
                }
            }
            for (int i = 0; i < n; i++)
                for (int t = 0; t < PANEL_TILES; t++)
                    sum[i][t] = f_fma(f_mul(f_of_int(dots[i][t]), f_set(rows[i][b].scale)),
                                      f_load(panel->scale[b][h][t]), sum[i][t]);
        }
        if (!tile_unit_for_codes(kind).has_min) continue;
        for (int i = 0; i < n; i++)
            for (int t = 0; t < PANEL_TILES; t++)
                sum[i][t] = f_fma(f_load(panel->min[b][t]), x_sum(&rows[i][b]), sum[i][t]);
    }
    for (int i = 0; i < n; i++)
        for (int t = 0; t < PANEL_TILES; t++) f_store(out + i * stride + t * 16, sum[i][t]);
}

/* Prefetches part i of n of the units of the next panel: memory is read while products are
 * computed. */
ALWAYS void read_ahead(const enum code_kind kind, const struct tile_job *job,
                       const struct panel *panel, int32_t i, int32_t n)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    int64_t lines = (int64_t)(u.bytes / 64) * (PANEL_BLOCKS / u.n_blocks);
    for (int t = 0; t < PANEL_TILES; t++)
        for (int64_t line = lines * i / n; line < lines * (i + 1) / n; line++)
            __builtin_prefetch(panel->next + (size_t)t * job->shape->bytes + line * 64, 0, 2);
}

/* The panel by all rows of the job. */
ALWAYS void panel_run(const enum code_kind kind, const struct tile_job *job,
                      const struct panel *panel)
{
    int32_t n_groups = (job->n + PANEL_ROWS - 1) / PANEL_ROWS;
    int64_t stride = job->n_tiles * 16;
    for (int32_t i = 0, end, group = 0; group < n_groups; i = end, group++) {
        const struct act_block *rows[PANEL_ROWS];
        float *out = job->out + i * stride + panel->tile * 16;
        end = (int32_t)((int64_t)job->n * (group + 1) / n_groups);
        for (int32_t j = i; j < end; j++) rows[j - i] = job_row(job, j) + panel->first;
        read_ahead(kind, job, panel, group, n_groups);
        if (end - i == PANEL_ROWS)
            panel_rows(kind, PANEL_ROWS, panel, rows, out, stride);
        else
            panel_rows(kind, PANEL_ROWS - 1, panel, rows, out, stride);
    }
}

/* The first n_tiles of a job, a multiple of PANEL_TILES, with PANEL_FROM rows or more. One
 * stretch of columns for all tiles in turn: its activations stay in the second-level cache. */
ALWAYS void panel_job_run(const enum code_kind kind, const struct tile_job *job, int n_tiles)
{
    struct panel panel;
    const struct tile_shape *s = job->shape;
    int64_t n_panels = (s->n_blocks + PANEL_BLOCKS - 1) / PANEL_BLOCKS;
    for (int64_t i = 0; i < n_panels; i++) {
        int64_t end = s->n_blocks * (i + 1) / n_panels;
        panel.first = s->n_blocks * i / n_panels;
        panel.n_blocks = (int)(end - panel.first);
        for (panel.tile = 0; panel.tile < n_tiles; panel.tile += PANEL_TILES) {
            int next = panel.tile + PANEL_TILES;
            panel.next =
                next < n_tiles ? unit_at(kind, job, next, panel.first) : unit_at(kind, job, 0, end);
            fill_panel(kind, job, &panel);
            panel_run(kind, job, &panel);
        }
    }
}
