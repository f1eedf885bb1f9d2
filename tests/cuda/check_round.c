/* NaN stays NaN in every kernel that rounds (kernels/round.cuh). Each kernel runs twice: with a
 * number in one place of its input, and with NaN in that place. Results that depend on that
 * place become NaN; all others keep their bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/check_act.h"
#include "cuda/check_tiles.h"
#include "quant/format.h"
#include "quant/grid_blocks.h"

enum { COLS = 256, BAD_ROW = 1, BAD_COL = 70, ROWS_MOST = 9 };

/* Which results must be NaN. */
struct area {
    int32_t first_row, n_rows, first_col, n_cols;
};

static bool is_in(const struct area *a, int32_t row, int32_t col, int32_t n_cols)
{
    return row >= a->first_row && row < a->first_row + a->n_rows &&
           col < a->first_col + a->n_cols && col + n_cols > a->first_col;
}

static void *fetch(const void *device, size_t bytes)
{
    char *host = malloc(bytes);
    check_download(host, device, bytes);
    return host;
}

/* ---- Comparing a run with NaN with one without -------------------------------------------- */

static bool are_blocks_right(const struct act *clean, const struct act *bad, int32_t rows,
                             const struct area *area)
{
    size_t n = (size_t)rows * (size_t)clean->stride, n_scale = n / ACT_BLOCK * 2;
    char *v0 = fetch(clean->values, n), *v1 = fetch(bad->values, n);
    char *l0 = clean->low ? fetch(clean->low, n) : calloc(n, 1);
    char *l1 = clean->low ? fetch(bad->low, n) : calloc(n, 1);
    float *s0 = fetch(clean->scale, n_scale * sizeof *s0);
    float *s1 = fetch(bad->scale, n_scale * sizeof *s1);
    bool is_right = true;
    for (size_t b = 0; b < n / ACT_BLOCK; b++) {
        int32_t at = (int32_t)(b * ACT_BLOCK), row = at / clean->stride, col = at % clean->stride;
        is_right &= !isnan(s0[2 * b]);
        if (is_in(area, row, col, ACT_BLOCK))
            is_right &= isnan(s1[2 * b]) && isnan(s1[2 * b + 1]);
        else
            is_right &= memcmp(v0 + at, v1 + at, ACT_BLOCK) == 0 &&
                        memcmp(l0 + at, l1 + at, ACT_BLOCK) == 0 &&
                        memcmp(s0 + 2 * b, s1 + 2 * b, 2 * sizeof *s0) == 0;
    }
    free(v0), free(v1), free(l0), free(l1), free(s0), free(s1);
    return is_right;
}

/* fp16: the row's scale is NaN, or the values themselves are. */
static bool are_halves_right(const struct act *clean, const struct act *bad, int32_t rows,
                             const struct area *area)
{
    size_t stride = (size_t)clean->stride, n = (size_t)rows * stride;
    if (clean->kind == ACT_CORES)
        n = ((size_t)rows + CORE_ROWS - 1) / CORE_ROWS * CORE_ROWS * stride;
    uint16_t *v0 = fetch(clean->values, n * 2), *v1 = fetch(bad->values, n * 2);
    if (clean->kind == ACT_CORES) {
        check_act_order(v0, rows, clean->stride);
        check_act_order(v1, rows, clean->stride);
    }
    float *s0 = fetch(clean->scale, (size_t)rows * sizeof *s0);
    float *s1 = fetch(bad->scale, (size_t)rows * sizeof *s1);
    bool is_right = true;
    for (int32_t r = 0; r < rows; r++) {
        const uint16_t *row = v1 + (size_t)r * stride;
        is_right &= !isnan(s0[r]);
        if (!is_in(area, r, 0, clean->stride)) {
            is_right &= s0[r] == s1[r] && memcmp(row, v0 + (size_t)r * stride, stride * 2) == 0;
            continue;
        }
        for (int32_t c = area->first_col; c < area->first_col + area->n_cols; c++)
            is_right &= isnan(s1[r] * f16_to_f32(row[c]));
    }
    free(v0), free(v1), free(s0), free(s1);
    return is_right;
}

static void check_acts(struct check *c, const char *what, struct act *clean, struct act *bad,
                       int32_t rows, struct area area)
{
    bool is_right = act_is_half(clean->kind) ? are_halves_right(clean, bad, rows, &area)
                                             : are_blocks_right(clean, bad, rows, &area);
    is_right = check_act_free(clean) & check_act_free(bad) & is_right;
    check_that(c, is_right, "round: %s, activations of kind %d, %d rows", what, (int)clean->kind,
               rows);
}

/* Values of any format, [rows][cols]. Frees both. */
static void check_values(struct check *c, const char *what, enum format format, void *clean,
                         void *bad, int32_t rows, int32_t cols, struct area area)
{
    int32_t block = format_traits(format)->block_elements;
    size_t block_bytes = (size_t)format_traits(format)->block_bytes;
    size_t n = (size_t)rows * (size_t)cols, bytes = n / (size_t)block * block_bytes;
    char *x = fetch(clean, bytes), *y = fetch(bad, bytes);
    float *decoded = malloc(n * sizeof *decoded);
    format_traits(format)->decode(y, decoded, (int64_t)n);
    bool is_right = true;
    for (int32_t i = 0; i < (int32_t)n; i += block) {
        size_t at = (size_t)(i / block) * block_bytes;
        if (!is_in(&area, i / cols, i % cols, block))
            is_right &= memcmp(x + at, y + at, block_bytes) == 0;
        for (int32_t j = i; is_in(&area, i / cols, i % cols, block) && j < i + block; j++)
            is_right &= isnan(decoded[j]);
    }
    free(x), free(y), free(decoded);
    is_right = check_free(clean) & check_free(bad) & is_right;
    check_that(c, is_right, "round: %s, %s, %d rows", what, format_traits(format)->name, rows);
}

/* Normal random rows on the device, with the bad number where it is wanted. */
static float *new_floats(int32_t rows, int32_t cols, int32_t row, int32_t col, float odd)
{
    struct rng rng = {12};
    size_t n = (size_t)rows * (size_t)cols;
    float *x = malloc(n * sizeof *x);
    check_normal(&rng, x, n, 1);
    if (row < rows) x[row * cols + col] = odd;
    float *device = check_alloc(x, n * sizeof *x);
    free(x);
    return device;
}

static uint16_t *new_halves(int32_t rows, int32_t cols, int32_t row, int32_t col, float odd)
{
    struct rng rng = {13};
    size_t n = (size_t)rows * (size_t)cols;
    float *x = malloc(n * sizeof *x);
    uint16_t *h = malloc(n * sizeof *h);
    check_normal(&rng, x, n, 1);
    x[row * cols + col] = odd;
    for (size_t i = 0; i < n; i++) h[i] = f32_to_f16(x[i]);
    uint16_t *device = check_alloc(h, n * sizeof *h);
    free(x), free(h);
    return device;
}

static const struct area bad_block = {BAD_ROW, 1, BAD_COL, 1}, bad_row = {BAD_ROW, 1, 0, COLS};

/* ---- Rows into activations -------------------------------------------------------------- */

static struct act round_rows(struct check *c, enum act_kind kind, float odd)
{
    float *x = new_floats(3, COLS, BAD_ROW, BAD_COL, odd);
    struct act act = check_act_new(kind, 3, COLS);
    launch_act(&c->queue, (struct step_view){0}, (struct rows){3, ROWS_TOKEN}, x, COLS, act, true);
    check_free(x);
    return act;
}

static struct act gelu_rows(struct check *c, enum act_kind kind, float odd, bool is_half)
{
    float *a = new_floats(3, COLS, BAD_ROW, BAD_COL, odd), *b = new_floats(3, COLS, 3, 0, 0);
    uint16_t *half = new_halves(3, 2 * COLS, BAD_ROW, BAD_COL, odd);
    float ones[3] = {1, 1, 1}, *scale = check_alloc(ones, sizeof ones);
    struct gelu_mul_args args = {.rows = {3, ROWS_TOKEN},
                                 .is_all_live = true,
                                 .a = a,
                                 .b = b,
                                 .half = is_half ? half : NULL,
                                 .half_scale = scale,
                                 .half_div = 1,
                                 .cols = COLS,
                                 .b_cols = COLS,
                                 .act = check_act_new(kind, 3, COLS)};
    launch_gelu_mul(&c->queue, &args);
    check_free(a), check_free(b), check_free(half), check_free(scale);
    return args.act;
}

static struct act norm_rows(struct check *c, enum act_kind kind, float odd, bool is_normed)
{
    struct step_view step = check_step(3, 0, 0, NULL, NULL, NULL, NULL);
    float *x = new_floats(3, COLS, BAD_ROW, BAD_COL, odd);
    struct norm_args args = {.step = step,
                             .rows = {3, ROWS_TOKEN},
                             .cols = COLS,
                             .eps = 1e-6f,
                             .a = x,
                             .scale = 1,
                             .n_outs = 1};
    args.out[0].is_normed = is_normed;
    args.out[0].act = check_act_new(kind, 3, COLS);
    launch_norm(&c->queue, &args);
    check_free(x);
    check_step_free(&step);
    return args.out[0].act;
}

static void check_rows_kernels(struct check *c)
{
    for (enum act_kind kind = ACT_INT8; kind <= ACT_CORES; kind++) {
        struct act clean = round_rows(c, kind, 1), bad = round_rows(c, kind, NAN);
        check_acts(c, "launch_act", &clean, &bad, 3, bad_block);
        for (int is_half = 0; is_half < 2; is_half++) {
            clean = gelu_rows(c, kind, 1, is_half), bad = gelu_rows(c, kind, NAN, is_half);
            check_acts(c, is_half ? "launch_gelu_mul of halves" : "launch_gelu_mul", &clean, &bad,
                       3, bad_block);
        }
        clean = norm_rows(c, kind, 1, false), bad = norm_rows(c, kind, NAN, false);
        check_acts(c, "launch_norm without a norm", &clean, &bad, 3, bad_block);
        clean = norm_rows(c, kind, 1, true), bad = norm_rows(c, kind, NAN, true);
        check_acts(c, "launch_norm", &clean, &bad, 3, bad_row);
    }
}

/* ---- Products of few rows --------------------------------------------------------------- */

/* Activations in which block 1 of row BAD_ROW is NaN, or no block. */
static struct act new_act(enum act_kind kind, int32_t rows, bool is_bad)
{
    struct rng rng = {14};
    float *x = malloc((size_t)(rows * COLS) * sizeof *x), odd[2] = {NAN, NAN};
    check_normal(&rng, x, (size_t)(rows * COLS), 1);
    struct act act = act_of_kind(x, rows, COLS, kind);
    if (is_bad) check_upload(act.scale + (BAD_ROW * COLS / ACT_BLOCK + 1) * 2, odd, sizeof odd);
    free(x);
    return act;
}

/* gelu(w x) * by, as activations. The bad number is in `by` or in the input of the weights. */
static struct act matvec_rows(struct check *c, enum format format, enum act_kind kind, int32_t rows,
                              float odd, bool is_input)
{
    struct rng rng = {15};
    enum cuda_layout layout = format_is_float(format) ? LAYOUT_ROWS : LAYOUT_TILES;
    struct step_view step = check_step(rows, 0, 0, NULL, NULL, NULL, NULL);
    float *by = new_floats(rows, COLS, BAD_ROW, BAD_COL, is_input ? 1 : odd);
    float *x = new_floats(rows, COLS, BAD_ROW, BAD_COL, is_input ? odd : 1);
    struct matvec_args args = {.step = step,
                               .rows = {rows, ROWS_TOKEN},
                               .n_w = 1,
                               .x = new_act(kind, rows, is_input && isnan(odd)),
                               .x_floats = x,
                               .epilogue = MATVEC_GELU_BY,
                               .by = by,
                               .by_cols = COLS,
                               .act = check_act_new(kind, rows, COLS)};
    args.w[0] = check_weight(c, &rng, format, layout, 1, COLS, COLS, 0.05f, NULL);
    launch_matvec(&c->queue, &args);
    check_weight_free(&args.w[0]);
    act_free(&args.x);
    check_free(by), check_free(x);
    check_step_free(&step);
    return args.act;
}

/* gelu(gate x) * (up x) of two chosen experts a row, as activations. */
static struct act expert_rows(struct check *c, enum format format, int32_t rows, float odd)
{
    struct rng rng = {16};
    enum cuda_layout layout = format_is_float(format) ? LAYOUT_ROWS : LAYOUT_TILES;
    int32_t ids[2 * ROWS_MOST];
    for (int32_t p = 0; p < 2 * rows; p++) ids[p] = p % 4;
    struct step_view step = check_step(rows, 0, 0, NULL, NULL, NULL, NULL);
    float *x = new_floats(rows, COLS, BAD_ROW, BAD_COL, odd);
    struct expert_args args = {.step = step,
                               .rows = {rows, ROWS_TOKEN},
                               .n_used = 2,
                               .ids = check_alloc(ids, (size_t)(2 * rows) * sizeof *ids),
                               .n_w = 2,
                               .x = new_act(ACT_INT8, rows, isnan(odd)),
                               .x_floats = x,
                               .is_gelu_mul = true,
                               .act = check_act_new(ACT_INT8, 2 * rows, COLS)};
    for (int k = 0; k < 2; k++)
        args.w[k] = check_weight(c, &rng, format, layout, 4, COLS, COLS, 0.05f, NULL);
    launch_experts_in(&c->queue, &args);
    for (int k = 0; k < 2; k++) check_weight_free(&args.w[k]);
    act_free(&args.x);
    check_free(x);
    check_free((void *)(uintptr_t)args.ids);
    check_step_free(&step);
    return args.act;
}

static void check_few_rows(struct check *c)
{
    static const enum format formats[] = {FORMAT_Q4_0, FORMAT_Q6_K, FORMAT_Q8_0, FORMAT_F16};
    static const int32_t counts[] = {3, ROWS_MOST};
    for (size_t i = 0; i < sizeof formats / sizeof *formats * 2; i++) {
        enum format f = formats[i / 2];
        int32_t n = counts[i % 2];
        for (enum act_kind kind = ACT_INT8; kind <= ACT_FINE; kind++) {
            struct act clean = matvec_rows(c, f, kind, n, 1, false);
            struct act bad = matvec_rows(c, f, kind, n, NAN, false);
            check_acts(c, "matvec's epilogue", &clean, &bad, n, bad_block);
            clean = matvec_rows(c, f, kind, n, 1, true);
            bad = matvec_rows(c, f, kind, n, NAN, true);
            check_acts(c, "matvec of a row with NaN", &clean, &bad, n, bad_row);
        }
        struct act clean = expert_rows(c, f, n, 1), bad = expert_rows(c, f, n, NAN);
        check_acts(c, "experts of a row with NaN", &clean, &bad, 2 * n,
                   (struct area){2 * BAD_ROW, 2, 0, COLS});
    }
}

/* ---- Products of many rows -------------------------------------------------------------- */

static void check_many_rows(struct check *c)
{
    enum { ROWS = 40 };
    for (int is_f16 = 0; is_f16 < 2; is_f16++) {
        uint16_t *half[2];
        for (int is_bad = 0; is_bad < 2; is_bad++) {
            struct rng rng = {17};
            struct gemm_args args = {.n_rows = ROWS, .n_w = 1, .half_cols = COLS};
            struct cuda_weight *w = &args.w[0];
            *w = check_weight(c, &rng, FORMAT_Q8_0, LAYOUT_TILES, 1, COLS, COLS, 0.01f, NULL);
            w->mirror_cols = COLS;
            w->mirror = check_alloc(NULL, COLS * COLS * sizeof *w->mirror);
            launch_mirror(&c->queue, w, 0, 0, COLS);
            float *x = new_floats(ROWS, COLS, BAD_ROW, BAD_COL, is_bad ? NAN : 1);
            args.x = check_act_new(is_f16 ? ACT_HALF : ACT_INT8, ROWS, COLS);
            launch_act(&c->queue, (struct step_view){0}, (struct rows){ROWS, ROWS_TOKEN}, x, COLS,
                       args.x, true);
            args.half = half[is_bad] = check_alloc(NULL, ROWS * COLS * sizeof *args.half);
            if (is_f16)
                launch_gemm_f16(&c->queue, &args);
            else
                launch_gemm_i8(&c->queue, &args);
            check_free(x);
            check_act_free(&args.x);
            check_weight_free(w);
        }
        check_values(c, is_f16 ? "gemm_f16" : "gemm_i8", FORMAT_F16, half[0], half[1], ROWS, COLS,
                     bad_row);
    }
}

/* The scale of a block becomes NaN. */
static void put_nan(enum format format, char *block)
{
    const uint16_t half = 0x7e00;
    int at = format == FORMAT_Q2_K   ? 80
             : format == FORMAT_Q3_K ? 108
             : format == FORMAT_Q6_K ? 208
                                     : 0;
    if (format == FORMAT_IQ1_M)
        iq1_m_put_half((uint8_t *)block, half);
    else
        memcpy(block + at, &half, sizeof half);
}

/* A weight of 8 rows in `format`, as a mirror. The scale of the block at BAD_ROW, BAD_COL is
 * NaN, or the value itself if the format is a float format. */
static uint16_t *new_mirror(struct check *c, enum format format, bool is_bad)
{
    enum { ROWS = 8 };
    struct rng rng = {18};
    const struct format_traits *traits = format_traits(format);
    size_t row_bytes = format_row_bytes(format, COLS), n = ROWS * COLS;
    float *x = malloc(n * sizeof *x);
    char *file = malloc(ROWS * row_bytes);
    check_normal(&rng, x, n, 1);
    if (format_is_float(format) && is_bad) x[BAD_ROW * COLS + BAD_COL] = NAN;
    traits->encode(x, NULL, file, (int64_t)n);
    if (!format_is_float(format) && is_bad) {
        char *block =
            file + BAD_ROW * row_bytes + BAD_COL / traits->block_elements * traits->block_bytes;
        put_nan(format, block);
    }
    struct cuda_weight w = {.format = format, .n_expert = 1, .rows = ROWS, .cols = COLS};
    w.layout = format_is_float(format) ? LAYOUT_ROWS : LAYOUT_TILES;
    struct tile_bytes bytes = tile_bytes_of(format, ROWS, COLS, 1);
    w.row_bytes = (int64_t)row_bytes;
    w.n_groups = 1, w.n_ktiles = COLS / TILE_COLS, w.mirror_cols = COLS;
    w.quants = check_alloc(NULL, bytes.quants ? bytes.quants : ROWS * row_bytes);
    if (bytes.high) w.high = check_alloc(NULL, bytes.high);
    if (bytes.scale) w.scale = check_alloc(NULL, bytes.scale);
    if (bytes.minus) w.minus = check_alloc(NULL, bytes.minus);
    w.mirror = check_alloc(NULL, n * sizeof *w.mirror);
    void *raw = check_alloc(file, ROWS * row_bytes);
    launch_repack(&c->queue, &w, 0, 0, ROWS, raw, (int64_t)row_bytes);
    launch_mirror(&c->queue, &w, 0, 0, ROWS);
    uint16_t *mirror = w.mirror;
    w.mirror = NULL;
    check_free(raw);
    check_weight_free(&w);
    free(x), free(file);
    return mirror;
}

static void check_mirrors(struct check *c)
{
    for (enum format f = 0; f < FORMAT_COUNT; f++) {
        if (f == FORMAT_MXFP4) continue; /* its scales are never NaN */
        int32_t block = format_traits(f)->block_elements;
        struct area area = {BAD_ROW, 1, BAD_COL / block * block, block};
        char label[64];
        snprintf(label, sizeof label, "mirror of %s", format_traits(f)->name);
        check_values(c, label, FORMAT_F16, new_mirror(c, f, false), new_mirror(c, f, true), 8, COLS,
                     area);
    }
}

/* ---- Caches ------------------------------------------------------------------------------- */

/* Keys and values of three rows of two heads at positions 0 .. 2, written by launch_kv_write
 * alone or together with the norm and rotation of the heads. They lie one after the other in page
 * 0. */
static void write_cache(struct check *c, enum format format, bool is_heads, float odd, void *out[2])
{
    enum { D = COLS / 2 };
    int32_t position[3] = {0, 1, 2}, sequence[3] = {0};
    struct step_view step = check_step(3, 0, 0, NULL, position, sequence, NULL);
    struct kv_cache cache = kv_cache_shape(format, 1, 2, D);
    size_t bytes = 3 * format_row_bytes(format, COLS);
    cache.table = check_alloc(&(int32_t){0}, sizeof(int32_t));
    cache.k = out[0] = check_alloc(NULL, bytes);
    cache.v = out[1] = check_alloc(NULL, bytes);
    float *k = new_floats(3, COLS, BAD_ROW, BAD_COL, odd);
    float *v = new_floats(3, COLS, BAD_ROW, BAD_COL, odd), *f = new_floats(1, D / 2, 1, 0, 0);
    if (is_heads) {
        struct heads_args args = {.step = step,
                                  .rows = {3, ROWS_TOKEN},
                                  .k = k,
                                  .v = v,
                                  .has_k = true,
                                  .inv_freq = f,
                                  .eps = 1e-6f,
                                  .cache = cache};
        launch_heads(&c->queue, &args);
    } else {
        launch_kv_write(&c->queue, step, (struct rows){3, ROWS_TOKEN}, k, v, cache);
    }
    check_free(k), check_free(v), check_free(f), check_free((void *)(uintptr_t)cache.table);
    check_step_free(&step);
}

static const enum format cache_formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0};

static void check_caches(struct check *c)
{
    for (int i = 0; i < 8; i++) {
        enum format format = cache_formats[i / 2];
        bool is_heads = i % 2;
        void *clean[2], *bad[2];
        write_cache(c, format, is_heads, 1, clean);
        write_cache(c, format, is_heads, NAN, bad);
        struct area area = bad_block;
        if (is_heads) area.first_col = 0, area.n_cols = COLS / 2; /* a norm over the head */
        for (int k = 0; k < 2; k++)
            check_values(c, is_heads ? "launch_heads" : "launch_kv_write", format, clean[k], bad[k],
                         3, COLS, area);
    }
}

/* ---- Attention ---------------------------------------------------------------------------- */

enum attention_input { IN_QUERY, IN_KEY, IN_VALUE };

/* Three rows with a head of COLS values: in decode each of its own sequence, in a prompt all of
 * one. The bad number is in the query of row BAD_ROW, or in a key or value at position 1 of
 * sequence BAD_ROW (in a prompt: sequence 0), which all rows of that sequence see. */
static struct act attend(struct check *c, enum format format, enum act_kind kind, bool is_prompt,
                         enum attention_input bad_input, float odd)
{
    enum { POSITIONS = KV_PAGE };
    int32_t table[3] = {0, 1, 2}; /* a page for each sequence */
    int32_t position[3] = {37, 38, 39}, sequence[3] = {0, is_prompt ? 0 : 1, is_prompt ? 0 : 2};
    struct rng rng = {19};
    size_t n = 3 * POSITIONS * COLS, bytes = n / COLS * format_row_bytes(format, COLS);
    float *x = malloc(n * sizeof *x);
    char *file = malloc(bytes);
    struct attention_args args = {.rows = {3, ROWS_TOKEN}, .n_heads = 1};
    args.cache = kv_cache_shape(format, 1, 1, COLS);
    args.cache.page_bytes = bytes / 3;
    args.cache.table = check_alloc(table, sizeof table);
    for (int is_v = 0; is_v < 2; is_v++) {
        check_normal(&rng, x, n, 0.2f);
        if (bad_input == (is_v ? IN_VALUE : IN_KEY))
            x[(sequence[BAD_ROW] * POSITIONS + 1) * COLS + BAD_COL] = odd;
        format_traits(format)->encode(x, NULL, file, (int64_t)n);
        *(is_v ? &args.cache.v : &args.cache.k) = check_alloc(file, bytes);
    }
    args.step = check_step(3, is_prompt ? 0 : 3, 0, NULL, position, sequence, NULL);
    float *q = new_floats(3, COLS, BAD_ROW, BAD_COL, bad_input == IN_QUERY ? odd : 1);
    args.q = q;
    args.act = check_act_new(kind, 3, COLS);
    args.scratch = check_alloc(NULL, attention_decode_scratch_bytes(3, 1, &args.cache));
    if (is_prompt)
        launch_attention_prefill(&c->queue, &args, 1);
    else
        launch_attention_decode(&c->queue, &args);
    check_free(args.cache.k), check_free(args.cache.v), check_free(q), check_free(args.scratch);
    check_free((void *)(uintptr_t)args.cache.table);
    check_step_free(&args.step);
    free(x), free(file);
    return args.act;
}

static void check_attention(struct check *c)
{
    static const enum act_kind kinds[] = {ACT_INT8, ACT_FINE, ACT_HALF};
    static const char *const names[] = {"a query", "a key", "a value"};
    for (int i = 0; i < 4 * 3 * 3 * 2; i++) {
        enum format format = cache_formats[i % 4];
        enum act_kind kind = kinds[i / 4 % 3];
        enum attention_input input = (enum attention_input)(i / 12 % 3);
        bool is_prompt = i / 36;
        struct act clean = attend(c, format, kind, is_prompt, input, 1);
        struct act bad = attend(c, format, kind, is_prompt, input, NAN);
        struct area area = bad_row;
        if (is_prompt && input != IN_QUERY) area.first_row = 0, area.n_rows = 3;
        if (input == IN_VALUE && format == FORMAT_Q8_0)
            area.first_col = BAD_COL / 32 * 32, area.n_cols = 32;
        else if (input == IN_VALUE)
            area.first_col = BAD_COL, area.n_cols = 1;
        char label[80];
        snprintf(label, sizeof label, "attention_%s with NaN in %s of %s",
                 is_prompt ? "prefill" : "decode", names[input], format_traits(format)->name);
        check_acts(c, label, &clean, &bad, 3, area);
    }
}

void check_round(struct check *c)
{
    check_rows_kernels(c);
    check_few_rows(c);
    check_many_rows(c);
    check_mirrors(c);
    check_caches(c);
    check_attention(c);
}
