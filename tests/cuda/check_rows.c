/* Look-ups, elementwise steps, gelu and activations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/check.h"
#include "cuda/check_act.h"
#include "quant/format.h"

/* The exponential and the division are the chip's approximate ones, right to about 1e-6 of a value;
 * the op's budget is 1e-9. */
#define GELU_BUDGET 1e-12
/* tanhf is right to two ulps; the small values of a row add little to the error. */
#define SOFTCAP_BUDGET 1e-13
/* Sums of 256 squares in fp32. */
#define PLE_BUDGET 1e-12

static float *floats(struct rng *rng, size_t n, float scale)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    check_normal(rng, x, n, scale);
    return x;
}

static float *download(const float *device, size_t n)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    check_download(x, device, n * sizeof *x);
    return x;
}

static bool is_poison(const float *x, size_t first, size_t n)
{
    for (size_t i = first; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        if (bits != ~0u) return false;
    }
    return true;
}

/* ---- Elementwise -------------------------------------------------------------------------- */

/* Result on the device of op 0: add, 1: scale, 2: softcap in place. */
static float *run_element(struct check *c, int op, const float *a, const float *b,
                          struct step_view step, int32_t rows, int32_t cols, bool *is_whole)
{
    size_t n = (size_t)rows * (size_t)cols;
    struct rows all = {rows, ROWS_TOKEN};
    float *x = check_alloc(a, n * sizeof *x), *x1 = check_alloc(b, n * sizeof *x);
    float *y = check_alloc(NULL, n * sizeof *y);
    if (op == 0) launch_add(&c->queue, step, all, x, x1, y, cols);
    if (op == 1) launch_scale(&c->queue, step, all, x, 0.7f, y, cols);
    if (op == 2) launch_softcap(&c->queue, step, all, x, 30.0f, y, cols);
    float *result = download(y, n);
    *is_whole = check_free(x) & check_free(x1) & check_free(y);
    return result;
}

static void check_elements(struct check *c, struct rng *rng, int32_t rows, int32_t live,
                           int32_t cols)
{
    size_t n = (size_t)rows * (size_t)cols, n_live = (size_t)live * (size_t)cols;
    float *a = floats(rng, n, 20), *b = floats(rng, n, 2), *want = malloc(n * sizeof *want);
    double *exact = malloc(n * sizeof *exact);
    struct step_view step = check_step(live, 0, 0, NULL, NULL, NULL, NULL);
    for (int op = 0; op < 3; op++) {
        bool is_whole;
        float *y = run_element(c, op, a, b, step, rows, cols, &is_whole);
        for (size_t i = 0; i < n_live; i++) {
            want[i] = op == 0 ? a[i] + b[i] : 0.7f * a[i];
            exact[i] = 30 * tanh((double)a[i] / 30);
        }
        bool is_right = op < 2 ? memcmp(y, want, n_live * sizeof *y) == 0
                               : check_nmse(y, exact, n_live) < SOFTCAP_BUDGET;
        check_that(c, is_right && is_poison(y, n_live, n) && is_whole, "element op %d: %d x %d", op,
                   rows, cols);
        free(y);
    }
    check_step_free(&step);
    free(a);
    free(b);
    free(want);
    free(exact);
}

static void check_gather(struct check *c, struct rng *rng, int32_t cols)
{
    enum { TOKENS = 9, OUTS = 4, LIVE = 3 };
    const int32_t out_row[OUTS] = {1, 4, 8, 0};
    size_t n = OUTS * (size_t)cols, row_bytes = (size_t)cols * sizeof(float);
    float *x = floats(rng, TOKENS * (size_t)cols, 1), *device = check_alloc(x, TOKENS * row_bytes);
    float *y = check_alloc(NULL, OUTS * row_bytes);
    struct step_view step = check_step(TOKENS, 0, LIVE, NULL, NULL, NULL, out_row);
    launch_gather_rows(&c->queue, step, device, y, cols, OUTS);
    float *result = download(y, n);
    bool is_right = is_poison(result, LIVE * (size_t)cols, n);
    for (size_t r = 0; r < LIVE; r++)
        is_right = is_right && memcmp(result + r * (size_t)cols,
                                      x + (size_t)out_row[r] * (size_t)cols, row_bytes) == 0;
    is_right = check_free(device) & check_free(y) & is_right;
    check_that(c, is_right, "gather: %d columns", cols);
    check_step_free(&step);
    free(result);
    free(x);
}

static void check_concat(struct check *c, struct rng *rng, int32_t a_cols, int32_t b_cols)
{
    enum { ALL = 5, LIVE = 4 };
    size_t cols = (size_t)(a_cols + b_cols), n_a = (size_t)a_cols, n_b = (size_t)b_cols;
    float *a = floats(rng, ALL * n_a, 1), *b = floats(rng, ALL * n_b, 1);
    float *device_a = check_alloc(a, ALL * n_a * sizeof *a);
    float *device_b = check_alloc(b, ALL * n_b * sizeof *b);
    struct concat_args args = {.step = check_step(LIVE, 0, 0, NULL, NULL, NULL, NULL),
                               .rows = {ALL, ROWS_TOKEN},
                               .a = device_a,
                               .b = device_b,
                               .cols = (int32_t)cols,
                               .b_cols = b_cols,
                               .y = check_alloc(NULL, ALL * cols * sizeof *a)};
    launch_concat(&c->queue, &args);
    float *y = download(args.y, ALL * cols);
    bool is_right = is_poison(y, LIVE * cols, ALL * cols);
    for (size_t r = 0; r < LIVE; r++) {
        is_right &= memcmp(y + r * cols, a + r * n_a, n_a * sizeof *a) == 0;
        is_right &= memcmp(y + r * cols + n_a, b + r * n_b, n_b * sizeof *b) == 0;
    }
    is_right = check_free(device_a) & check_free(device_b) & check_free(args.y) & is_right;
    check_that(c, is_right, "concat: %d and %d columns", a_cols, b_cols);
    check_step_free(&args.step);
    free(a);
    free(b);
    free(y);
}

/* ---- Look-ups ------------------------------------------------------------------------------ */

enum { TABLE_ROWS = 50, LOOK_ROWS = 5, LOOK_LIVE = 4 };

static const int32_t look_ids[LOOK_ROWS] = {3, 49, 0, 17, 5},
                     look_out_row[LOOK_ROWS] = {1, 0, 4, 3, 2};

static void check_embed(struct check *c, struct rng *rng, enum format format,
                        enum cuda_layout layout, int32_t first_col, int32_t cols, bool is_out)
{
    enum { TABLE_COLS = 768 };
    float *values;
    struct cuda_weight table =
        check_weight(c, rng, format, layout, 1, TABLE_ROWS, TABLE_COLS, 1, &values);
    size_t n = LOOK_ROWS * (size_t)cols;
    struct embed_args args = {.step = check_step(is_out ? LOOK_ROWS : LOOK_LIVE, 0, LOOK_LIVE,
                                                 look_ids, NULL, NULL, look_out_row),
                              .rows = {LOOK_ROWS, is_out ? ROWS_OUT : ROWS_TOKEN},
                              .table = table,
                              .scale = 39.2f,
                              .first_col = first_col,
                              .cols = cols,
                              .y = check_alloc(NULL, n * sizeof(float))};
    launch_embed(&c->queue, &args);
    float *y = download(args.y, n);
    bool is_right = is_poison(y, LOOK_LIVE * (size_t)cols, n);
    double error = 0, size = 0;
    for (int32_t r = 0; r < LOOK_LIVE; r++) {
        const float *row = values + look_ids[is_out ? look_out_row[r] : r] * TABLE_COLS + first_col;
        for (int32_t j = 0; j < cols; j++) {
            float want = 39.2f * row[j], got = y[r * cols + j];
            error += ((double)got - (double)want) * ((double)got - (double)want);
            size += (double)want * (double)want;
        }
    }
    error /= size;
    /* In tiles the scales in blocks of 256 are products rounded to fp16, with an error of up to
     * 2^-11. A value is the difference of two such terms, which may be a few times larger than
     * it. */
    bool is_rounded = layout == LAYOUT_TILES && format_traits(format)->block_elements == 256;
    is_right = is_right && (is_rounded ? error < 1e-6 : error == 0);
    is_right = check_free(args.y) && is_right;
    check_that(c, is_right, "embed: %s layout %d, columns %d + %d: %g", format_traits(format)->name,
               (int)layout, first_col, cols, error);
    free(y);
    free(values);
    check_step_free(&args.step);
    check_weight_free(&table);
}

static void check_look_ups(struct check *c, struct rng *rng)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        enum format format = (enum format)f;
        check_embed(c, rng, format, LAYOUT_FILE, 0, 768, f % 2 == 0);
        check_embed(c, rng, format, LAYOUT_FILE, 256, 256, f % 2 == 1);
        check_embed(c, rng, format, LAYOUT_FILE, 36, 50, false);
        bool is_plain = format == FORMAT_F32 || format == FORMAT_F16 || format == FORMAT_BF16;
        check_embed(c, rng, format, is_plain ? LAYOUT_ROWS : LAYOUT_TILES, 0, 768, true);
    }
}

/* Powers of two as factors of rows of `n` values, on the device; the values are divided by them. */
static float *factors_of_rows(float *values, size_t rows, size_t n, float **host)
{
    *host = malloc(rows * sizeof **host);
    for (size_t r = 0; r < rows; r++) {
        (*host)[r] = ldexpf(1.0f, (int)(r % 7) - 4);
        for (size_t j = 0; j < n; j++) values[r * n + j] /= (*host)[r];
    }
    return check_alloc(*host, rows * sizeof **host);
}

/* Rows without their factors, which the kernel is given, have the same bits: y. */
static void check_ple_factors(struct check *c, struct ple_args p, float *a, const float *y)
{
    size_t n = LOOK_ROWS * (size_t)p.cols;
    float *factors;
    float *device = factors_of_rows(a, LOOK_ROWS, (size_t)p.cols, &factors);
    p.a_scale = device;
    p.a = check_alloc(a, n * sizeof *a);
    p.y = check_alloc(NULL, n * sizeof *a);
    launch_ple(&c->queue, &p);
    float *again = download(p.y, n);
    bool is_whole = check_free(device) & check_free(p.y) & check_free((void *)(uintptr_t)p.a);
    check_that(c, memcmp(again, y, n * sizeof *y) == 0 && is_whole, "ple: factors of rows, %d",
               p.cols);
    free(again);
    free(factors);
}

static void check_ple(struct check *c, struct rng *rng, enum format format, int32_t group,
                      int32_t n_groups, bool is_out)
{
    int32_t cols = group * n_groups, first_col = 512;
    int32_t table_cols = (first_col + cols + 255) / 256 * 256;
    float *values, *w = floats(rng, (size_t)group, 1);
    struct cuda_weight table =
        check_weight(c, rng, format, LAYOUT_FILE, 1, TABLE_ROWS, table_cols, 1, &values);
    size_t n = LOOK_ROWS * (size_t)cols, n_live = LOOK_LIVE * (size_t)cols;
    float *a = floats(rng, n, 50);
    struct ple_args p = {.step = check_step(is_out ? LOOK_ROWS : LOOK_LIVE, 0, LOOK_LIVE, look_ids,
                                            NULL, NULL, look_out_row),
                         .rows = {LOOK_ROWS, is_out ? ROWS_OUT : ROWS_TOKEN},
                         .a = check_alloc(a, n * sizeof *a),
                         .w = check_alloc(w, (size_t)group * sizeof *w),
                         .in_scale = 0.02f,
                         .eps = 1e-6f,
                         .e_scale = 16.0f,
                         .out_scale = 0.70710678f,
                         .table = table,
                         .first_col = first_col,
                         .cols = cols,
                         .group = group,
                         .y = check_alloc(NULL, n * sizeof(float))};
    launch_ple(&c->queue, &p);
    double *want = malloc(n_live * sizeof *want);
    for (int32_t i = 0; i < LOOK_LIVE * n_groups; i++) {
        const float *x = a + (size_t)i * (size_t)group;
        int32_t r = i / n_groups, id = look_ids[is_out ? look_out_row[r] : r];
        const float *e =
            values + (size_t)id * (size_t)table_cols + first_col + i % n_groups * group;
        double sum = 0;
        for (int32_t j = 0; j < group; j++) sum += (double)x[j] * (double)x[j] * 0.02 * 0.02;
        for (int32_t j = 0; j < group; j++)
            want[i * group + j] = ((double)x[j] * 0.02 / sqrt(sum / group + 1e-6) * (double)w[j] +
                                   16.0 * (double)e[j]) *
                                  0.70710678;
    }
    float *y = download(p.y, n);
    double error = check_nmse(y, want, n_live);
    check_ple_factors(c, p, a, y);
    bool is_whole =
        check_free(p.y) & check_free((void *)(uintptr_t)p.a) & check_free((void *)(uintptr_t)p.w);
    check_that(c, error < PLE_BUDGET && is_poison(y, n_live, n) && is_whole,
               "ple: %s %d groups of %d: %g", format_traits(format)->name, n_groups, group, error);
    check_step_free(&p.step);
    check_weight_free(&table);
    free(values);
    free(w);
    free(a);
    free(y);
    free(want);
}

/* ---- Activations --------------------------------------------------------------------------- */

struct gelu_case {
    int32_t rows, live, cols, second_col, half_div;
    bool is_half, is_all_live, has_y;
    enum act_kind kind;
};

struct gelu_run {
    struct queue *queue;
    struct gelu_mul_args args;
    float *a, *b, *scale; /* host; the input of the kernel as floats */
};

static struct gelu_run new_gelu(struct check *c, struct rng *rng, const struct gelu_case *k)
{
    size_t rows = (size_t)k->rows, cols = (size_t)k->cols, b_cols = cols + (size_t)k->second_col;
    struct gelu_run run = {.queue = &c->queue,
                           .a = floats(rng, rows * cols, 3),
                           .b = floats(rng, rows * b_cols, 2),
                           .scale = floats(rng, rows, 1)};
    struct gelu_mul_args *p = &run.args;
    p->step = check_step(k->live, 0, 0, NULL, NULL, NULL, NULL);
    p->rows.max = k->rows;
    p->is_all_live = k->is_all_live;
    p->cols = k->cols;
    p->b_cols = (int32_t)b_cols;
    p->second_col = k->second_col;
    p->half_div = k->half_div;
    if (k->is_half) {
        uint16_t *half = malloc(rows * 2 * cols * sizeof *half);
        for (size_t r = 0; r < rows; r++) {
            run.scale[r] = ldexpf(1.0f, (int)(r % 5) - 2);
            float scale = run.scale[r / (size_t)k->half_div];
            for (size_t j = 0; j < cols; j++) {
                half[r * 2 * cols + j] = f32_to_f16(run.a[r * cols + j]);
                half[(r * 2 + 1) * cols + j] = f32_to_f16(run.b[r * cols + j]);
                run.a[r * cols + j] = scale * f16_to_f32(half[r * 2 * cols + j]);
                run.b[r * cols + j] = scale * f16_to_f32(half[(r * 2 + 1) * cols + j]);
            }
        }
        p->half = check_alloc(half, rows * 2 * cols * sizeof *half);
        p->half_scale = check_alloc(run.scale, rows * sizeof(float));
        free(half);
    } else {
        p->a = check_alloc(run.a, rows * cols * sizeof(float));
        p->b = check_alloc(run.b, rows * b_cols * sizeof(float));
    }
    if (k->has_y) p->y = check_alloc(NULL, rows * cols * sizeof(float));
    p->act = check_act_new(k->kind, k->rows, k->cols);
    return run;
}

static bool free_gelu(struct gelu_run *run)
{
    struct gelu_mul_args *p = &run->args;
    bool is_whole = check_free((void *)(uintptr_t)p->a) & check_free((void *)(uintptr_t)p->b) &
                    check_free((void *)(uintptr_t)p->half) & check_free(p->y) &
                    check_free((void *)(uintptr_t)p->half_scale) & check_act_free(&p->act);
    check_step_free(&p->step);
    free(run->a);
    free(run->b);
    free(run->scale);
    return is_whole;
}

static void launch_gelu(void *user)
{
    struct gelu_run *run = user;
    launch_gelu_mul(run->queue, &run->args);
}

/* Rows of a without their factors, which the kernel is given, have the same bits: y. */
static void check_gelu_factors(struct check *c, const struct gelu_run *run, const float *y)
{
    struct gelu_mul_args p = run->args;
    size_t n = (size_t)p.rows.max * (size_t)p.cols;
    float *factors;
    float *device = factors_of_rows(run->a, (size_t)p.rows.max, (size_t)p.cols, &factors);
    p.a_scale = device;
    p.a = check_alloc(run->a, n * sizeof *y);
    p.y = check_alloc(NULL, n * sizeof *y);
    p.act = check_act_new(p.act.kind, p.rows.max, p.cols);
    launch_gelu_mul(run->queue, &p);
    float *again = download(p.y, n);
    bool is_whole = check_free(device) & check_free(p.y) & check_free((void *)(uintptr_t)p.a) &
                    check_act_free(&p.act);
    check_that(c, memcmp(again, y, n * sizeof *y) == 0 && is_whole,
               "gelu: factors of rows, %d x %d", p.rows.max, p.cols);
    free(again);
    free(factors);
}

/* The products against double precision, then their rounding bit for bit; and launch_act. */
static void check_gelu(struct check *c, struct rng *rng, const struct gelu_case *k)
{
    struct gelu_run run = new_gelu(c, rng, k);
    launch_gelu(&run);
    int32_t live = k->is_all_live ? k->rows : k->live;
    size_t n = (size_t)k->rows * (size_t)k->cols, n_live = (size_t)live * (size_t)k->cols;
    size_t b_cols = k->is_half ? (size_t)k->cols : (size_t)k->cols + (size_t)k->second_col;
    double *want = malloc(n_live * sizeof *want);
    for (size_t i = 0; i < n_live; i++) {
        size_t r = i / (size_t)k->cols,
               j = i % (size_t)k->cols + (k->is_half ? 0 : (size_t)k->second_col);
        double a = (double)run.a[i], u = 0.79788456080286536 * (a + 0.044715 * a * a * a);
        want[i] = 0.5 * a * (1 + tanh(u)) * (double)run.b[r * b_cols + j];
    }
    float *y = download(run.args.y, n);
    double error = check_nmse(y, want, n_live);
    check_that(c, error < GELU_BUDGET && is_poison(y, n_live, n), "gelu: %d x %d: %g", k->rows,
               k->cols, error);
    if (k->kind != ACT_NONE) {
        check_that(c, check_act_is(&run.args.act, y, k->rows, live, k->cols),
                   "gelu: %d x %d act of kind %d", k->rows, k->cols, (int)k->kind);
        struct act act = check_act_new(k->kind, k->rows, k->cols);
        launch_act(&c->queue, run.args.step, run.args.rows, run.args.y, k->cols, act,
                   k->is_all_live);
        bool is_right = check_act_is(&act, y, k->rows, live, k->cols);
        check_that(c, check_act_free(&act) && is_right, "act: %d x %d of kind %d", k->rows, k->cols,
                   (int)k->kind);
    }
    if (!k->is_half) check_gelu_factors(c, &run, y);
    check_that(c, free_gelu(&run), "gelu: %d x %d wrote outside", k->rows, k->cols);
    free(y);
    free(want);
}

/* Zeros, the ends of the range, and values that are not finite. */
static void check_act_limits(struct check *c)
{
    enum { COLS = 64 };
    float x[5][COLS] = {{0}};
    for (int j = 0; j < COLS; j++) {
        x[1][j] = ldexpf(1.0f + (float)j / COLS, 126) * (j % 2 ? 1.0f : -1.0f);
        x[2][j] = ldexpf(1.0f + (float)j / COLS, -120);
        x[3][j] = (float)(j - 31) + 0.5f; /* ties */
        x[4][j] = j == 7 ? INFINITY : 1.0f;
    }
    struct rows rows = {5, ROWS_TOKEN};
    float *device = check_alloc(x, sizeof x);
    for (int kind = ACT_INT8; kind <= ACT_CORES; kind++) {
        struct act act = check_act_new((enum act_kind)kind, 5, COLS);
        launch_act(&c->queue, (struct step_view){0}, rows, device, COLS, act, true);
        float scale[5 * 4];
        size_t per_row = act_is_half((enum act_kind)kind) ? 1 : 4;
        check_download(scale, act.scale, 5 * per_row * sizeof *scale);
        check_that(c, scale[0] == (per_row == 1 ? 1.0f : 0.0f), "act: zeros, kind %d", kind);
        check_that(c, isnan(scale[4 * per_row]), "act: infinity, kind %d", kind);
        for (size_t i = per_row; i < 4 * per_row; i++)
            check_that(c, isfinite(scale[i]) && (per_row > 1 || scale[i] > 0),
                       "act: scale %g of kind %d", (double)scale[i], kind);
        check_that(c, check_act_free(&act), "act: wrote outside");
    }
    check_free(device);
}

/* ---- Speed --------------------------------------------------------------------------------- */

static void measure_gelu(struct check *c, struct rng *rng, const struct gelu_case *k)
{
    struct gelu_run run = new_gelu(c, rng, k);
    double warm = check_time_graph(c, launch_gelu, &run),
           cold = check_time(c, launch_gelu, &run, true);
    double bytes = (double)k->rows * ((k->is_half ? 4.0 : 8.0) * k->cols +
                                      (double)check_act_row_bytes(k->kind, k->cols));
    printf(
        "gelu %5d x %5d %s -> %s  in a graph %7.2f us  cold %7.2f us %6.0f GB/s (bound %.2f us)\n",
        k->rows, k->cols, k->is_half ? "fp16" : "fp32", k->kind == ACT_INT8 ? "int8" : "fp16",
        warm * 1e6, cold * 1e6, bytes / cold / 1e9, bytes / 4.67e12 * 1e6);
    free_gelu(&run);
}

struct one_run {
    struct check *c;
    int op; /* 0: softcap, 1: embed, 2: ple, 3: add */
    struct step_view step;
    struct rows rows;
    float *x, *y;
    int32_t cols;
    struct embed_args embed;
    struct ple_args ple;
};

static void launch_one(void *user)
{
    struct one_run *r = user;
    if (r->op == 0) launch_softcap(&r->c->queue, r->step, r->rows, r->x, 30.0f, r->x, r->cols);
    if (r->op == 1) launch_embed(&r->c->queue, &r->embed);
    if (r->op == 2) launch_ple(&r->c->queue, &r->ple);
    if (r->op == 3) launch_add(&r->c->queue, r->step, r->rows, r->x, r->x, r->y, r->cols);
}

static void measure_one(struct check *c, struct rng *rng, int op, int32_t rows, int32_t cols)
{
    static const char *const names[] = {"softcap", "embed", "ple", "add"};
    int32_t *ids = calloc((size_t)rows, sizeof *ids);
    for (int32_t r = 0; r < rows; r++) ids[r] = r % TABLE_ROWS;
    size_t n = (size_t)rows * (size_t)cols;
    struct one_run run = {.c = c, .op = op, .rows = {rows, ROWS_TOKEN}, .cols = cols};
    run.step = check_step(rows, 0, rows, ids, NULL, NULL, NULL);
    float *x = floats(rng, n, 10);
    run.x = check_alloc(x, n * sizeof *x);
    run.y = check_alloc(NULL, n * sizeof *x);
    struct cuda_weight table = {0};
    if (op == 1 || op == 2)
        table = check_weight(c, rng, FORMAT_Q8_0, LAYOUT_FILE, 1, TABLE_ROWS, cols, 1, NULL);
    run.embed = (struct embed_args){run.step, run.rows, table, 50, 0, cols, run.y};
    run.ple = (struct ple_args){run.step, run.rows, run.x, NULL, NULL, 0.02f, 1e-6f,
                                16,       0.7f,     table, 0,    cols, 256,   run.y};
    double warm = check_time_graph(c, launch_one, &run),
           cold = check_time(c, launch_one, &run, true);
    double bytes = (double)n * (op == 3 ? 12 : op == 2 ? 9 : op == 1 ? 5 : 8);
    printf("%-7s %5d x %6d  in a graph %7.2f us  cold %7.2f us %6.0f GB/s (bound %.2f us)\n",
           names[op], rows, cols, warm * 1e6, cold * 1e6, bytes / cold / 1e9,
           bytes / 4.67e12 * 1e6);
    check_free(run.x);
    check_free(run.y);
    check_step_free(&run.step);
    if (table.quants) check_weight_free(&table);
    free(x);
    free(ids);
}

static void measure(struct check *c, struct rng *rng)
{
    static const struct gelu_case gelus[] = {
        {1, 1, 10240, 0, 1, false, false, false, ACT_INT8},
        {2048, 2048, 10240, 0, 1, true, false, false, ACT_HALF},
        {2048, 2048, 10240, 0, 1, true, false, false, ACT_INT8},
        {2048, 2048, 15360, 0, 1, true, false, false, ACT_HALF},
        {2048, 2048, 21504, 0, 1, true, false, false, ACT_HALF},
        {16384, 16384, 704, 0, 8, true, true, false, ACT_HALF},
        {2048, 2048, 256, 256, 1, false, false, false, ACT_HALF},
    };
    for (size_t i = 0; i < sizeof gelus / sizeof *gelus; i++) measure_gelu(c, rng, &gelus[i]);
    measure_one(c, rng, 0, 1, 262144);
    measure_one(c, rng, 0, 32, 262144);
    measure_one(c, rng, 1, 1, 2560);
    measure_one(c, rng, 1, 2048, 2560);
    measure_one(c, rng, 2, 1, 5888);
    measure_one(c, rng, 2, 2048, 5888);
    measure_one(c, rng, 3, 1, 2560);
    measure_one(c, rng, 3, 2048, 2560);
}

void check_rows(struct check *c)
{
    static const struct gelu_case gelus[] = {
        {1, 1, 10240, 0, 1, false, false, true, ACT_INT8},
        {3, 2, 704, 0, 1, true, false, true, ACT_INT8},
        {17, 17, 2112, 256, 1, false, false, true, ACT_HALF},
        {17, 17, 2112, 256, 1, false, false, true, ACT_CORES},
        {64, 61, 10240, 0, 1, true, false, true, ACT_CORES},
        {24, 3, 704, 0, 8, true, true, true, ACT_HALF},
        {3, 3, 10240, 0, 1, true, false, true, ACT_HALF},
        {2, 1, 21504, 0, 1, true, false, true, ACT_HALF},
        {2, 2, 30000, 0, 1, false, false, true, ACT_HALF},
        {5, 4, 44, 3, 1, false, false, true, ACT_INT8},
        {64, 61, 256, 512, 1, false, false, true, ACT_FINE},
        {1, 1, 2560, 0, 1, false, false, true, ACT_FINE},
        {3, 2, 101, 12, 1, false, false, true, ACT_FINE},
        {5, 4, 101, 12, 1, false, false, true, ACT_HALF},
        {5, 4, 101, 12, 1, false, false, true, ACT_CORES},
        {3, 3, 33, 0, 1, false, false, true, ACT_NONE},
    };
    struct rng rng = {23};
    check_elements(c, &rng, 1, 1, 2560);
    check_elements(c, &rng, 3, 2, 101);
    check_elements(c, &rng, 17, 16, 1500);
    check_elements(c, &rng, 2, 1, 262144);
    check_gather(c, &rng, 2560);
    check_gather(c, &rng, 37);
    check_concat(c, &rng, 1536, 1536);
    check_concat(c, &rng, 37, 300);
    check_look_ups(c, &rng);
    check_ple(c, &rng, FORMAT_Q8_0, 256, 23, false);
    check_ple(c, &rng, FORMAT_Q5_K, 256, 3, true);
    check_ple(c, &rng, FORMAT_F16, 32, 9, false);
    check_ple(c, &rng, FORMAT_Q4_0, 512, 2, true);
    check_ple(c, &rng, FORMAT_BF16, 20, 5, false);
    for (size_t i = 0; i < sizeof gelus / sizeof *gelus; i++) check_gelu(c, &rng, &gelus[i]);
    check_act_limits(c);
    if (c->is_perf) measure(c, &rng);
}
