/* A panel's products for 64-bit Arm with i8mm. One instruction multiplies 8 columns of two
 * activation rows with those of two weight rows, which are next to each other in the panel, and
 * adds four sums: a square. Squares of a block are integers in registers, of 16 weight rows by
 * PANEL_ROWS activation rows. Sums of blocks stay in the output. */
#define OWN_LIMIT

enum { PANEL_PAIRS = (PANEL_ROWS + 1) / 2 };

struct panel {
    struct panel_place at;
    const struct act_block *row[PANEL_CHUNK]; /* from the panel's first block on */
    ptrdiff_t low;                            /* fine rows: from there to their low blocks */
    /* Of a block, 8 columns and a pair of rows: 8 bytes of the one, then 8 of the other. */
    alignas(16) int8_t w[PANEL_BLOCKS][4][8][16];
    float scale[PANEL_BLOCKS][16];
    float factor[PANEL_BLOCKS][2][16]; /* of both halves of a block */
    float min[PANEL_BLOCKS][2][16];
};

ALWAYS void prepare_rows(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                         int32_t first, int32_t n, struct panel *panel)
{
    (void)kind;
    panel->low = low_blocks(is_fine, job);
    for (int32_t i = 0; i < n; i++) panel->row[i] = job_row(job, first + i) + panel->at.first;
}

/* Eight columns from two groups of four. */
ALWAYS void store_pairs(bvec even, bvec odd, int8_t out[8][16])
{
    for (int i = 0; i < 4; i++) {
        uint32x4_t x = vreinterpretq_u32_u8(even.v[i]), y = vreinterpretq_u32_u8(odd.v[i]);
        vst1q_s8(out[i * 2], vreinterpretq_s8_u32(vzip1q_u32(x, y)));
        vst1q_s8(out[i * 2 + 1], vreinterpretq_s8_u32(vzip2q_u32(x, y)));
    }
}

ALWAYS void fill_panel(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                       struct panel *panel)
{
    (void)is_fine;
    const struct tile_unit u = tile_unit_for_codes(kind);
    const tvec table = table_of(kind, job->shape);
    for (int b = 0; b < panel->at.n_blocks; b++) {
        const uint8_t *unit = unit_at(kind, job, panel->at.tile, panel->at.first + b);
        int i = (int)(panel->at.first + b) % u.n_blocks;
        bvec w[8];
        unpack(kind, table, unit + (size_t)i * u.block_bytes, w);
        for (int c = 0; c < 4; c++) store_pairs(w[c * 2], w[c * 2 + 1], panel->w[b][c]);
        f_store(panel->scale[b], unit_scales(kind, unit, i));
        struct factors room;
        for (int h = 0; h < 2 && block_halves(kind) == 2; h++)
            f_store(panel->factor[b][h], f_load_i8(unit_factors(kind, unit, i, h, &room)));
        for (int h = 0; h < block_mins(kind); h++)
            f_store(panel->min[b][h], unit_mins(kind, unit, i, h));
    }
}

/* Products of half h of block b, which is `at` in the rows, by n rows. If n is odd, the last row is
 * multiplied twice. */
ALWAYS void squares(const enum code_kind kind, const int n, const struct panel *panel,
                    const struct act_block *const *rows, int b, ptrdiff_t at, int h,
                    int32x4_t sum[PANEL_PAIRS][8])
{
    const int parts = 4 / block_halves(kind);
    for (int p = 0; p < (n + 1) / 2; p++)
        for (int r = 0; r < 8; r++) sum[p][r] = vdupq_n_s32(0);
    for (int c = h * parts; c < (h + 1) * parts; c++) {
        int8x16_t a[PANEL_PAIRS];
        for (int p = 0; p < (n + 1) / 2; p++) {
            int second = p * 2 + 1 < n ? p * 2 + 1 : p * 2;
            a[p] = vcombine_s8(vld1_s8(rows[p * 2][at].q + c * 8),
                               vld1_s8(rows[second][at].q + c * 8));
        }
        for (int r = 0; r < 8; r++) {
            int8x16_t w = vld1q_s8(panel->w[b][c][r]);
            for (int p = 0; p < (n + 1) / 2; p++) sum[p][r] = vmmlaq_s32(sum[p][r], a[p], w);
        }
    }
}

/* The sums of one row of a pair. */
ALWAYS ivec row_of_squares(const int32x4_t sum[8], const int row)
{
    ivec r;
    for (int i = 0; i < 4; i++) {
        int64x2_t x = vreinterpretq_s64_s32(sum[i * 2]);
        int64x2_t y = vreinterpretq_s64_s32(sum[i * 2 + 1]);
        r.v[i] = vreinterpretq_s32_s64(row ? vzip2q_s64(x, y) : vzip1q_s64(x, y));
    }
    return r;
}

/* The sums of half h of block b by n rows, or of all of it, as floats. Halves by their factors, and
 * added to those of the first half. */
ALWAYS void panel_half(const enum code_kind kind, const bool is_fine, const int n,
                       const struct panel *panel, const struct act_block *const *rows, int b,
                       const int h, fvec total[PANEL_ROWS])
{
    int32x4_t sum[PANEL_PAIRS][8], low[PANEL_PAIRS][8];
    squares(kind, n, panel, rows, b, b, h, sum);
    if (is_fine) squares(kind, n, panel, rows, b, b + panel->low, h, low);
    for (int i = 0; i < n; i++) {
        ivec dots = i_add(row_of_squares(sum[i / 2], i % 2), first_sum(kind, &rows[i][b], h));
        if (is_fine)
            dots = i_add(sums_so_far(kind, dots, &rows[i][b + panel->low], h),
                         row_of_squares(low[i / 2], i % 2));
        fvec sums = f_of_int(dots);
        if (block_halves(kind) == 2) {
            fvec factor = f_load(panel->factor[b][h]);
            sums = h ? f_fma(sums, factor, total[i]) : f_mul(sums, factor);
        }
        total[i] = sums;
    }
}

/* The panel by n rows from prepared row `first` on. kind and n are constants where this is
 * expanded. */
ALWAYS void panel_rows(const enum code_kind kind, const bool is_fine, const int n,
                       const struct panel *panel, int32_t first, float *out, int64_t stride)
{
    ptrdiff_t low = is_fine ? panel->low : 0;
    const struct act_block *const *rows = panel->row + first;
    if (panel->at.first == 0)
        for (int i = 0; i < n; i++) f_store(out + i * stride, f_set(0));
    for (int b = 0; b < panel->at.n_blocks; b++) {
        fvec total[PANEL_ROWS];
        panel_half(kind, is_fine, n, panel, rows, b, 0, total);
        if (block_halves(kind) == 2) panel_half(kind, is_fine, n, panel, rows, b, 1, total);
        for (int i = 0; i < n; i++) {
            float *y = out + i * stride;
            fvec sum = f_mul(total[i], f_set(rows[i][b + low].scale));
            sum = f_fma(sum, f_load(panel->scale[b]), f_load(y));
            for (int h = 0; h < block_mins(kind); h++)
                sum = f_fma(f_load(panel->min[b][h]),
                            f_set(x_sum(kind, is_fine, &rows[i][b], low, h)), sum);
            f_store(y, sum);
        }
    }
}

/* ---- Limit ------------------------------------------------------------------------------ */

/* The compiler cannot know what is added, so it keeps the loop. */
static double multiply_bytes(int64_t rounds)
{
    enum { SUMS = 12 };
    int32x4_t sum[SUMS];
    int8x16_t w = vdupq_n_s8(3), a = vdupq_n_s8((int8_t)rounds);
    for (int i = 0; i < SUMS; i++) sum[i] = vdupq_n_s32(i);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++) sum[i] = vmmlaq_s32(sum[i], a, w);
    int32_t used = 0;
    for (int i = 0; i < SUMS; i++) used |= vgetq_lane_s32(sum[i], 0);
    return (double)rounds * SUMS * 32 * 2 + (used == 12345 ? 1 : 0);
}
