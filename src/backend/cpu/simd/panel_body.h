/* Products of many rows. A stretch of the weights of PANEL_TILES tiles is unpacked into a panel,
 * which stays in the first-level cache while it is multiplied with many rows, PANEL_ROWS at a time.
 * Sums wait in the output from one panel to the next, so a row's order of summing is that of
 * tile_rows.
 *
 * Part of kernels_body.h. Every instruction set chooses
 *   PANEL_TILES, PANEL_ROWS  so that the sums of these many tiles and rows are in registers
 *   PANEL_FROM               the fewest rows for which this pays; any number of rows from there on
 *                            must be a sum of terms PANEL_ROWS and PANEL_ROWS - 1
 *   PANEL_ROWS_HALVES        if it differs from PANEL_ROWS: for blocks with two sums
 *   PANEL_BLOCKS             of 32 columns, so that a panel fits in the cache
 *   PANEL_CHUNK              the number of rows that are prepared at a time
 *   PANEL_PRODUCTS           a file that has struct panel and the functions
 *     prepare_rows(kind, is_fine, job, first, n, panel)  n activation rows, up to PANEL_CHUNK
 *     fill_panel(kind, is_fine, job, panel)              the weights
 *     panel_rows(kind, is_fine, n, panel, first, out, stride)
 *                            n of the prepared rows by the weights
 *                            and, if it defines OWN_LIMIT, multiply_bytes of kernels.h */

#ifndef PANEL_ROWS_HALVES
#define PANEL_ROWS_HALVES PANEL_ROWS
#endif

struct panel_place {
    int tile; /* the first, within the job */
    int n_blocks;
    int64_t first;       /* block */
    const uint8_t *next; /* units of the first tile of the next panel */
};

/* The unit that has block b of a tile. */
ALWAYS const uint8_t *unit_at(const enum code_kind kind, const struct tile_job *job, int tile,
                              int64_t b)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    return job->tile + (size_t)tile * job->shape->bytes + (size_t)(b / u.n_blocks) * u.bytes;
}

#include PANEL_PRODUCTS

/* Prefetches part i of n of the units of the next panel, which begins at `next` in the first of
 * n_tiles tiles: memory is read while products are computed. */
ALWAYS void read_ahead(const enum code_kind kind, const struct tile_job *job, const uint8_t *next,
                       const int n_tiles, const int n_blocks, int32_t i, int32_t n)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    int64_t lines = (int64_t)(u.bytes / 64) * (n_blocks / u.n_blocks);
    for (int t = 0; t < n_tiles; t++)
        for (int64_t line = lines * i / n; line < lines * (i + 1) / n; line++)
            __builtin_prefetch(next + (size_t)t * job->shape->bytes + line * 64, 0, 2);
}

/* The panel by n rows that were prepared; their results go to out. */
ALWAYS void panel_run(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                      struct panel *panel, int32_t n, float *out)
{
    const int n_rows = block_halves(kind) == 2 ? PANEL_ROWS_HALVES : PANEL_ROWS;
    int32_t n_groups = (n + n_rows - 1) / n_rows;
    int64_t stride = job->n_tiles * 16;
    for (int32_t i = 0, end, group = 0; group < n_groups; i = end, group++) {
        end = (int32_t)((int64_t)n * (group + 1) / n_groups);
        read_ahead(kind, job, panel->at.next, PANEL_TILES, PANEL_BLOCKS, group, n_groups);
        if (end - i == n_rows)
            panel_rows(kind, is_fine, n_rows, panel, i, out + i * stride, stride);
        else
            panel_rows(kind, is_fine, n_rows - 1, panel, i, out + i * stride, stride);
    }
}

/* One stretch of columns by n rows from `first` on, for all tiles in turn: the activations stay in
 * the second-level cache. */
ALWAYS void panel_stretch_run(const enum code_kind kind, const bool is_fine,
                              const struct tile_job *job, int n_tiles, int32_t first, int32_t n,
                              struct panel *panel)
{
    int64_t stride = job->n_tiles * 16;
    prepare_rows(kind, is_fine, job, first, n, panel);
    for (panel->at.tile = 0; panel->at.tile < n_tiles; panel->at.tile += PANEL_TILES) {
        int next = panel->at.tile + PANEL_TILES;
        panel->at.next = next < n_tiles
                             ? unit_at(kind, job, next, panel->at.first)
                             : unit_at(kind, job, 0, panel->at.first + panel->at.n_blocks);
        fill_panel(kind, is_fine, job, panel);
        panel_run(kind, is_fine, job, panel, n, job->out + first * stride + panel->at.tile * 16);
    }
}

/* The first n_tiles of a job, a multiple of PANEL_TILES, with PANEL_FROM rows or more. */
ALWAYS void panel_job_run(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                          int n_tiles)
{
    struct panel panel;
    const struct tile_shape *s = job->shape;
    int64_t n_panels = (s->n_blocks + PANEL_BLOCKS - 1) / PANEL_BLOCKS;
    int32_t n_chunks = (job->n + PANEL_CHUNK - 1) / PANEL_CHUNK;
    for (int64_t i = 0; i < n_panels; i++) {
        int64_t end = s->n_blocks * (i + 1) / n_panels;
        panel.at.first = s->n_blocks * i / n_panels;
        panel.at.n_blocks = (int)(end - panel.at.first);
        for (int32_t c = 0; c < n_chunks; c++) {
            int32_t first = (int32_t)((int64_t)job->n * c / n_chunks);
            int32_t last = (int32_t)((int64_t)job->n * (c + 1) / n_chunks);
            panel_stretch_run(kind, is_fine, job, n_tiles, first, last - first, &panel);
        }
    }
}
