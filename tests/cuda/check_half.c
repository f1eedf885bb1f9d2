/* Products of 1 to CROWD_ROWS_MAX rows on Hopper: against double precision on mirrors of the same
 * weights, bit for bit between numbers of rows and against mirrors, and their times at the shapes
 * of models. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/crowd.h"
#include "cuda/check_act.h"
#include "cuda/check_tiles.h"
#include "quant/format.h"

/* fp32 sums of exact products of fp16 values (check_gemm_f16.c). */
#define FP32_BUDGET 1e-10
/* With a minus the mirror rounds twice, to fp32 and to fp16: one value in thousands may differ. */
#define MINUS_BUDGET 1e-8

enum { ROWS = CROWD_ROWS_MAX };

static void *need(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes);
    if (!p) {
        puts("out of memory");
        exit(1);
    }
    return p;
}

static size_t padded_to_64(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Place of a value among those of ACT_CORES. */
static size_t core_place(size_t row, size_t col, size_t stride)
{
    size_t k = col % 64 / 16 * 16 + col % 2 * 8 + col % 16 / 4 * 2 + col % 4 / 2;
    size_t tile = row / 64 * (stride / 64) + col / 64;
    return ((tile * 8 + row % 64 / 8) * 8 + k / 8) * 64 + row % 8 * 8 + k % 8;
}

/* Rows of floats that fp16 holds -> activations on the device; spare rows are NaN. */
static struct act act_of_cores(const float *x, size_t rows, size_t cols, const float *scale)
{
    size_t stride = padded_to_64(cols), padded = padded_to_64(rows);
    uint16_t *values = need(padded * stride, sizeof *values);
    for (size_t r = 0; r < padded; r++)
        for (size_t k = 0; k < stride; k++)
            values[core_place(r, k, stride)] = r >= rows   ? 0xffff
                                               : k >= cols ? 0
                                                           : f32_to_f16(x[r * cols + k]);
    struct act act = {.kind = ACT_CORES,
                      .stride = (int32_t)stride,
                      .values = check_alloc(values, padded * stride * sizeof *values),
                      .scale = check_alloc(scale, rows * sizeof *scale)};
    free(values);
    return act;
}

static bool cores_free(struct act *act)
{
    bool is_whole = check_free(act->values);
    return check_free(act->scale) && is_whole;
}

/* What the mirror of w holds, as floats [rows][cols]. */
static float *mirror_of(struct check *c, struct cuda_weight *w)
{
    w->mirror_cols = (w->cols + 63) / 64 * 64;
    size_t rows = (size_t)w->rows, cols = (size_t)w->cols, stride = (size_t)w->mirror_cols;
    w->mirror = check_alloc(NULL, rows * stride * 2);
    launch_mirror(&c->queue, w, 0, 0, w->rows);
    uint16_t *mirror = need(rows * stride, sizeof *mirror);
    check_download(mirror, w->mirror, rows * stride * sizeof *mirror);
    float *values = need(rows * cols, sizeof *values);
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < cols; k++) values[r * cols + k] = f16_to_f32(mirror[r * stride + k]);
    free(mirror);
    check_free(w->mirror);
    w->mirror = NULL;
    return values;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

struct half_case {
    enum format format[3];
    int n_w, rows[3], cols;
};

static const struct half_case cases[] = {
    {{FORMAT_Q8_0}, 1, {128}, 64},
    {{FORMAT_Q8_0}, 1, {640}, 1024},
    {{FORMAT_Q4_0}, 1, {2560}, 2048},
    {{FORMAT_Q8_0, FORMAT_Q8_0, FORMAT_Q8_0}, 3, {257, 31, 130}, 352},
    {{FORMAT_Q4_0, FORMAT_Q4_0}, 2, {300, 300}, 4128},
    {{FORMAT_Q8_0, FORMAT_Q4_K, FORMAT_Q4_K}, 3, {136, 8, 72}, 768},
    {{FORMAT_Q4_1}, 1, {77}, 160},
    {{FORMAT_Q5_0}, 1, {1000}, 992},
    {{FORMAT_Q5_1}, 1, {200}, 96},
    {{FORMAT_Q5_K}, 1, {264}, 2560},
    {{FORMAT_Q6_K, FORMAT_Q6_K}, 2, {520, 264}, 1280},
    {{FORMAT_IQ4_NL}, 1, {90}, 320},
};

static const int counts[] = {1,  3,  8,  9,  16,  17,  25,  32,  33,
                             47, 63, 64, 65, 100, 128, 129, 191, 255};

struct half_data {
    const struct half_case *what;
    struct cuda_weight w[3];
    double *expected[3]; /* [ROWS][rows], without scales */
    float scale[ROWS];
    struct act x;
    bool has_minus;
};

static struct half_data data_make(struct check *c, const struct half_case *what)
{
    struct half_data d = {.what = what};
    struct rng rng = {.state = 31};
    size_t cols = (size_t)what->cols;
    float *x = need(ROWS * cols, sizeof *x);
    check_normal(&rng, x, ROWS * cols, 1);
    for (size_t i = 0; i < ROWS * cols; i++) x[i] = f16_to_f32(f32_to_f16(x[i]));
    for (int r = 0; r < ROWS; r++) d.scale[r] = ldexpf(1, (int)rng_below(&rng, 7) - 3);
    d.x = act_of_cores(x, ROWS, cols, d.scale);
    for (int k = 0; k < what->n_w; k++) {
        size_t rows = (size_t)what->rows[k];
        d.w[k] = check_weight(c, &rng, what->format[k], LAYOUT_TILES, 1, what->rows[k], what->cols,
                              0.05f, NULL);
        d.has_minus = d.has_minus || d.w[k].minus;
        float *w = mirror_of(c, &d.w[k]);
        d.expected[k] = need(ROWS * rows, sizeof(double));
        for (size_t t = 0; t < ROWS; t++)
            for (size_t r = 0; r < rows; r++) {
                double sums[4] = {0}; /* cols % 4 == 0 */
                for (size_t i = 0; i < cols; i += 4)
                    for (size_t j = 0; j < 4; j++)
                        sums[j] += (double)w[r * cols + i + j] * (double)x[t * cols + i + j];
                d.expected[k][t * rows + r] = sums[0] + sums[1] + sums[2] + sums[3];
            }
        free(w);
    }
    free(x);
    return d;
}

static void data_free(struct check *c, struct half_data *d)
{
    for (int k = 0; k < d->what->n_w; k++) {
        check_weight_free(&d->w[k]);
        free(d->expected[k]);
    }
    check_that(c, cores_free(&d->x), "half: activations overwritten");
}

/* Runs it; y[k] gets [n_rows][rows], to be freed. */
static void run(struct check *c, const struct half_data *d, int n_rows, float cap, float *y[3])
{
    struct gemm_args args = {.n_rows = n_rows, .n_w = d->what->n_w, .x = d->x, .cap = cap};
    memcpy(args.w, d->w, sizeof args.w);
    for (int k = 0; k < args.n_w; k++)
        args.y[k] = check_alloc(NULL, (size_t)(n_rows * args.w[k].rows) * sizeof(float));
    check_that(c, half_takes(&c->queue, &args), "half_takes");
    launch_half(&c->queue, &args);
    for (int k = 0; k < args.n_w; k++) {
        size_t n = (size_t)(n_rows * args.w[k].rows);
        y[k] = need(n, sizeof **y);
        check_download(y[k], args.y[k], n * sizeof **y);
        check_that(c, check_free(args.y[k]), "half %d rows: writes beyond weight %d", n_rows, k);
    }
}

static const char *name_of(const struct half_case *h)
{
    return format_traits(h->format[0])->name;
}

static void check_results(struct check *c, const struct half_data *d, float *const y[3])
{
    for (int k = 0; k < d->what->n_w; k++) {
        size_t rows = (size_t)d->what->rows[k];
        double *expected = need(ROWS * rows, sizeof *expected);
        for (size_t i = 0; i < ROWS * rows; i++)
            expected[i] = d->expected[k][i] * (double)d->scale[i / rows];
        double error = check_nmse(y[k], expected, ROWS * rows);
        check_that(c, error <= (d->has_minus ? MINUS_BUDGET : FP32_BUDGET),
                   "half %s %d x %d: weight %d nmse %.3g", name_of(d->what), d->what->rows[k],
                   d->what->cols, k, error);
        free(expected);
    }
}

static void check_counts(struct check *c, const struct half_data *d, float *const y[3])
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *few[3];
        run(c, d, counts[i], 0, few);
        for (int k = 0; k < d->what->n_w; k++) {
            size_t n = (size_t)(counts[i] * d->what->rows[k]);
            check_that(c, memcmp(few[k], y[k], n * sizeof **y) == 0,
                       "half %s %d x %d: %d rows have other bits than %d", name_of(d->what),
                       d->what->rows[k], d->what->cols, counts[i], ROWS);
            free(few[k]);
        }
    }
}

/* fp16 results are fp32 results without their scales, rounded; capped ones as the host caps. */
static void check_forms(struct check *c, const struct half_data *d, float *const y[3])
{
    enum { N = 70, SPARE = 3 };
    int half_cols = SPARE;
    for (int k = 0; k < d->what->n_w; k++) half_cols += d->what->rows[k];
    struct gemm_args args = {.n_rows = N, .n_w = d->what->n_w, .x = d->x, .half_cols = half_cols};
    memcpy(args.w, d->w, sizeof args.w);
    size_t n_half = (size_t)(N * half_cols);
    args.half = check_alloc(NULL, n_half * 2);
    launch_half(&c->queue, &args);
    uint16_t *half = need(n_half, sizeof *half);
    check_download(half, args.half, n_half * 2);
    bool is_whole = check_free(args.half), is_right = true, is_capped = true;
    float *capped[3];
    run(c, d, N, 1.5f, capped);
    for (int t = 0; t < N; t++) {
        const uint16_t *at = half + t * half_cols;
        for (int k = 0; k < d->what->n_w; k++) {
            int rows = d->what->rows[k];
            for (int r = 0; r < rows; r++, at++) {
                float v = y[k][t * rows + r];
                is_right = is_right && *at == f32_to_f16(v / d->scale[t]);
                is_capped =
                    is_capped && fabsf(capped[k][t * rows + r] - 1.5f * tanhf(v / 1.5f)) < 1e-5f;
            }
        }
        for (int i = 0; i < SPARE; i++) is_right = is_right && at[i] == 0xffff;
    }
    check_that(c, is_whole && is_right, "half %s: fp16 results", name_of(d->what));
    check_that(c, is_capped, "half %s: capped results", name_of(d->what));
    for (int k = 0; k < d->what->n_w; k++) free(capped[k]);
    free(half);
}

static void check_case(struct check *c, const struct half_case *what)
{
    struct half_data d = data_make(c, what);
    float *y[3];
    run(c, &d, ROWS, 0, y);
    check_results(c, &d, y);
    check_counts(c, &d, y);
    check_forms(c, &d, y);
    for (int k = 0; k < what->n_w; k++) free(y[k]);
    data_free(c, &d);
}

/* Rows with a single one give back the columns of the weight: they are the mirror's. With a minus
 * the mirror rounds twice, so a few values may be a place apart. */
static void check_bits(struct check *c, enum format format)
{
    enum { OUT = 200, COLS = 256 };
    struct rng rng = {.state = 8};
    struct cuda_weight w = check_weight(c, &rng, format, LAYOUT_TILES, 1, OUT, COLS, 1, NULL);
    float *mirror = mirror_of(c, &w), ones[COLS];
    float *x = need(COLS * COLS, sizeof *x), *y = need(COLS * OUT, sizeof *y);
    for (int i = 0; i < COLS; i++) x[i * COLS + i] = ones[i] = 1;
    struct act act = act_of_cores(x, COLS, COLS, ones);
    struct gemm_args args = {.n_rows = COLS, .n_w = 1, .w = {w}, .x = act};
    args.y[0] = check_alloc(NULL, COLS * OUT * sizeof *y);
    launch_half(&c->queue, &args);
    check_download(y, args.y[0], COLS * OUT * sizeof *y);
    int n_other = 0, n_far = 0;
    for (int k = 0; k < COLS; k++)
        for (int r = 0; r < OUT; r++) {
            float a = y[k * OUT + r], b = mirror[r * COLS + k];
            n_other += a != b;
            n_far += !(fabsf(a - b) <= fabsf(b) * 0x1p-10f + 0x1p-24f);
        }
    check_that(c, n_far == 0 && n_other <= (w.minus ? COLS * OUT / 500 : 0),
               "half %s: %d of %d weights are not the mirror's, %d far from it",
               format_traits(format)->name, n_other, COLS * OUT, n_far);
    check_free(args.y[0]);
    cores_free(&act);
    check_weight_free(&w);
    free(mirror), free(x), free(y);
}

/* ---- gelu of results ------------------------------------------------------------------------- */

/* fp16 values, and gelu within 1e-9 (gelu.cuh). */
#define GATED_BUDGET 1e-7

static double gelu_at(double x)
{
    return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* What the next product is to read: gelu(w[0] x) times w[1] x, or times `by`. */
struct gated_data {
    struct half_data half;
    double *expected; /* [ROWS][out] */
    float *by;        /* on the device, [ROWS][by_cols], from column 4 on; NULL: none */
    int32_t out, by_cols;
    float scale; /* of all rows, where there is no `by` */
};

static struct gated_data gated_make(struct check *c, const struct half_case *what)
{
    struct gated_data d = {.half = data_make(c, what), .out = what->rows[0]};
    size_t out = (size_t)d.out, n_by = ROWS * (out + 8);
    struct rng rng = {.state = 77};
    float *by = need(n_by, sizeof *by);
    check_normal(&rng, by, n_by, 3);
    d.by_cols = d.out + 8;
    if (what->n_w == 1) d.by = check_alloc(by, n_by * sizeof *by);
    d.expected = need(ROWS * out, sizeof(double));
    double most = 0;
    for (size_t i = 0; i < ROWS * out; i++) {
        double scale = (double)d.half.scale[i / out], gate = d.half.expected[0][i] * scale;
        double times =
            d.by ? (double)by[i / out * (out + 8) + 4 + i % out] : d.half.expected[1][i] * scale;
        d.expected[i] = gelu_at(gate) * times;
        most = fmax(most, fabs(d.expected[i]));
    }
    d.scale = ldexpf(1, (int)ceil(log2(most)) - 10); /* as loose as bounds are */
    free(by);
    return d;
}

/* The rows that the next product reads; whether its spare columns are zeros. */
static float *run_gated(struct check *c, const struct gated_data *d, int n_rows, bool *is_right)
{
    size_t stride = padded_to_64((size_t)d->out), padded = padded_to_64((size_t)n_rows);
    struct act hidden = {.kind = ACT_CORES,
                         .stride = (int32_t)stride,
                         .values = check_alloc(NULL, padded * stride * 2),
                         .scale = check_alloc(NULL, (size_t)n_rows * sizeof(float))};
    struct gemm_args args = {.n_rows = n_rows,
                             .n_w = d->half.what->n_w,
                             .x = d->half.x,
                             .hidden = hidden,
                             .hidden_scale = d->scale,
                             .by = d->by ? d->by + 4 : NULL,
                             .by_cols = d->by_cols};
    memcpy(args.w, d->half.w, sizeof args.w);
    *is_right = *is_right && half_gates(&c->queue, &args);
    launch_half(&c->queue, &args);
    uint16_t *values = need(padded * stride, sizeof *values);
    float *scale = need((size_t)n_rows, sizeof *scale);
    check_download(values, hidden.values, padded * stride * 2);
    check_download(scale, hidden.scale, (size_t)n_rows * sizeof *scale);
    *is_right = cores_free(&hidden) && *is_right;
    size_t out = (size_t)d->out;
    float *y = need((size_t)n_rows * out, sizeof *y);
    for (size_t r = 0; r < (size_t)n_rows; r++) {
        *is_right = *is_right && (d->by || scale[r] == d->scale);
        for (size_t k = 0; k < stride; k++) {
            uint16_t value = values[core_place(r, k, stride)];
            if (k < out)
                y[r * out + k] = f16_to_f32(value) * scale[r];
            else
                *is_right = *is_right && (value & 0x7fff) == 0;
        }
    }
    free(values), free(scale);
    return y;
}

static void check_gated(struct check *c, const struct half_case *what)
{
    struct gated_data d = gated_make(c, what);
    size_t out = (size_t)d.out;
    bool is_right = true, is_alike = true;
    float *y = run_gated(c, &d, ROWS, &is_right);
    double error = check_nmse(y, d.expected, ROWS * out);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *few = run_gated(c, &d, counts[i], &is_right);
        is_alike = is_alike && memcmp(few, y, (size_t)counts[i] * out * sizeof *y) == 0;
        free(few);
    }
    check_that(c, error <= GATED_BUDGET, "half %s %d x %d%s: gelu nmse %.3g", name_of(what),
               what->rows[0], what->cols, d.by ? " by" : "", error);
    check_that(c, is_right && is_alike, "half %s %d x %d%s: gelu%s%s", name_of(what), what->rows[0],
               what->cols, d.by ? " by" : "", is_right ? "" : " writes elsewhere",
               is_alike ? "" : " depends on other rows");
    free(y), free(d.expected);
    if (d.by) check_that(c, check_free(d.by), "half: gelu writes `by`");
    data_free(c, &d.half);
}

static const struct half_case gated_cases[] = {
    {{FORMAT_Q8_0, FORMAT_Q8_0}, 2, {640, 640}, 1024},
    {{FORMAT_Q4_0, FORMAT_Q4_0}, 2, {300, 300}, 416},
    {{FORMAT_Q5_K, FORMAT_Q5_K}, 2, {72, 72}, 256},
    {{FORMAT_Q8_0}, 1, {256}, 2560},
    {{FORMAT_Q6_K}, 1, {200}, 512},
    {{FORMAT_Q4_0}, 1, {64}, 96},
};

/* A row that is not finite stays alone. */
static void check_nan(struct check *c)
{
    static const struct half_case what = {{FORMAT_Q8_0}, 1, {136}, 192};
    struct half_data d = data_make(c, &what);
    float *y[3], *z[3], nan_scale = NAN;
    run(c, &d, 20, 0, y);
    check_upload(d.x.scale + 7, &nan_scale, sizeof nan_scale);
    run(c, &d, 20, 0, z);
    bool is_right = true;
    for (int i = 0; i < 20 * 136; i++)
        is_right = is_right && (i / 136 == 7 ? isnan(z[0][i]) : memcmp(&y[0][i], &z[0][i], 4) == 0);
    check_that(c, is_right, "half: a row of NaN");
    free(y[0]), free(z[0]);
    data_free(c, &d);
}

/* ---- More than 64 rows ----------------------------------------------------------------------- */

/* Shapes whose passes are wide (half.cu: is_wide) have no expectation of their own: rows have the
 * bits of passes of 64, which the cases above know. Columns are whole blocks of every format. */
struct wide_case {
    int n_w, rows[3], cols;
    bool is_gated;
};

static const struct wide_case wide_cases[] = {
    {3, {3000, 1203, 765}, 4352, false},  /* three teams, four slices */
    {1, {8452}, 4352, false},             /* four, three */
    {2, {8452, 8452}, 1280, true},        /* three, one */
    {2, {12676, 12676}, 1280, true},      /* four, one */
    {2, {4228, 4228}, 4352, true},        /* four, three */
    {1, {12676}, 1280, false},            /* three, one; from 129 rows on four */
    {3, {3000, 1203, 765}, 1280, false},  /* passes of 64: slices are short */
    {2, {12676, 12676}, 1024 + 32, true}, /* of 17 tiles, the last of which is half one */
};

static const int wide_counts[] = {65,  66,  71,  72,  73,  80,  96,  97,  120, 127,
                                  128, 129, 136, 144, 160, 192, 193, 247, 255, 256};

enum wide_form { WIDE_FLOATS, WIDE_CAPPED, WIDE_HALVES, WIDE_GATED };

struct wide_data {
    const struct wide_case *what;
    enum format format;
    struct cuda_weight w[3];
    struct act x;
    uint16_t *values; /* of x, on the host */
    size_t all;       /* results of a row, or its columns in the next product */
};

static struct wide_data wide_make(const struct wide_case *what, enum format format)
{
    struct wide_data d = {.what = what, .format = format};
    struct rng rng = {.state = 12};
    size_t bytes, stride = padded_to_64((size_t)what->cols), n = ROWS * stride;
    float scale[ROWS];
    for (int r = 0; r < ROWS; r++) scale[r] = ldexpf(1, r % 7 - 3);
    d.values = need(n, sizeof *d.values);
    for (size_t i = 0; i < n; i++) d.values[i] = (uint16_t)(rng_next(&rng) & 0xbfff);
    d.x = (struct act){.kind = ACT_CORES,
                       .stride = (int32_t)stride,
                       .values = check_alloc(d.values, n * sizeof *d.values),
                       .scale = check_alloc(scale, sizeof scale)};
    for (int k = 0; k < what->n_w; k++) {
        d.w[k] = weight_of_noise(format, 1, what->rows[k], what->cols, &bytes);
        d.all += (size_t)what->rows[k];
    }
    if (what->is_gated) d.all = padded_to_64((size_t)what->rows[0]);
    return d;
}

static void wide_free(struct wide_data *d)
{
    for (int k = 0; k < d->what->n_w; k++) check_weight_free(&d->w[k]);
    cores_free(&d->x);
    free(d->values);
}

/* The same of rows first .. first + n - 1; first is a multiple of 64. */
static struct gemm_args wide_args(const struct wide_data *d, int first, int n)
{
    struct gemm_args args = {.n_rows = n, .n_w = d->what->n_w, .x = d->x};
    args.x.values = (uint16_t *)d->x.values + (size_t)(first * d->x.stride);
    args.x.scale += first;
    memcpy(args.w, d->w, sizeof args.w);
    return args;
}

/* Results as floats or halves, rows of d->all of them; whether nothing else was written. */
static bool run_plain(struct check *c, const struct wide_data *d, int first, int n,
                      enum wide_form form, void *out)
{
    struct gemm_args args = wide_args(d, first, n);
    size_t size = form == WIDE_HALVES ? 2 : 4, bytes = (size_t)n * d->all * size;
    char *memory = check_alloc(NULL, bytes);
    if (form == WIDE_CAPPED) args.cap = 1000;
    if (form == WIDE_HALVES) args.half = (uint16_t *)(void *)memory;
    args.half_cols = (int32_t)d->all;
    size_t before = 0;
    for (int k = 0; k < args.n_w; before += (size_t)(n * args.w[k++].rows))
        if (!args.half) args.y[k] = (float *)(void *)memory + before;
    launch_half(&c->queue, &args);
    check_download(out, memory, bytes);
    return check_free(memory);
}

/* Rows of the next product, in natural order, and their scales. */
static bool run_gated_wide(struct check *c, const struct wide_data *d, int first, int n,
                           uint16_t *out, float *scale)
{
    struct gemm_args args = wide_args(d, first, n);
    int32_t padded = (int32_t)padded_to_64((size_t)n);
    size_t bytes = (size_t)padded * d->all * 2;
    args.hidden = (struct act){.kind = ACT_CORES,
                               .stride = (int32_t)d->all,
                               .values = check_alloc(NULL, bytes),
                               .scale = check_alloc(NULL, (size_t)n * sizeof(float))};
    args.hidden_scale = 0x1p14f;
    bool is_right = half_gates(&c->queue, &args);
    launch_half(&c->queue, &args);
    uint16_t *values = need(bytes, 1);
    check_download(values, args.hidden.values, bytes);
    check_download(scale, args.hidden.scale, (size_t)n * sizeof *scale);
    check_act_order(values, padded, args.hidden.stride);
    memcpy(out, values, (size_t)n * d->all * 2);
    for (size_t i = (size_t)n * d->all; i < (size_t)padded * d->all; i++)
        is_right = is_right && values[i] == 0xffff;
    free(values);
    return cores_free(&args.hidden) && is_right;
}

static bool run_wide(struct check *c, const struct wide_data *d, int first, int n,
                     enum wide_form form, char *out)
{
    if (form != WIDE_GATED) return run_plain(c, d, first, n, form, out);
    size_t values = (size_t)n * d->all * 2;
    return run_gated_wide(c, d, first, n, (uint16_t *)(void *)out, (float *)(void *)(out + values));
}

/* What run_wide gives, a weight after the other: whether rows of weight k are those of `row`, which
 * has all weights' results of a row next to each other. */
static bool is_same(const struct wide_data *d, const char *some, int n, const char *const *piece,
                    enum wide_form form)
{
    size_t size = form == WIDE_FLOATS || form == WIDE_CAPPED ? 4 : 2, at = 0;
    bool is_apart = size == 4; /* fp32: a matrix for each weight */
    int parts = is_apart ? d->what->n_w : 1;
    for (int k = 0; k < parts; k++) {
        size_t row = (is_apart ? (size_t)d->what->rows[k] : d->all) * size;
        for (int i = 0; i < n; i += 64) {
            size_t rows = (size_t)(n - i < 64 ? n - i : 64);
            const char *from = piece[i / 64] + 64 * at;
            if (memcmp(some + (size_t)n * at + (size_t)i * row, from, rows * row) != 0)
                return false;
        }
        at += row;
    }
    if (form != WIDE_GATED) return true;
    for (int i = 0; i < n; i++)
        if (memcmp(some + (size_t)n * at + 4 * i, piece[i / 64] + 64 * at + 4 * (i % 64), 4) != 0)
            return false;
    return true;
}

static void check_wide_form(struct check *c, const struct wide_data *d, enum wide_form form)
{
    static const char *const names[] = {"fp32", "capped", "fp16", "gelu"};
    size_t row = d->all * 4 + 4;
    char *piece[ROWS / 64], *some = need(ROWS, row);
    bool is_whole = true;
    for (int i = 0; i < ROWS / 64; i++) {
        piece[i] = need(64, row);
        is_whole = run_wide(c, d, 64 * i, 64, form, piece[i]) && is_whole;
    }
    for (size_t i = 0; i < sizeof wide_counts / sizeof *wide_counts; i++) {
        int n = wide_counts[i];
        memset(some, 0xff, ROWS * row);
        is_whole = run_wide(c, d, 0, n, form, some) && is_whole;
        check_that(c, is_same(d, some, n, (const char *const *)piece, form),
                   "half %s %d x %d, %s: %d rows have other bits than 64",
                   format_traits(d->format)->name, d->what->rows[0], d->what->cols, names[form], n);
    }
    check_that(c, is_whole, "half %s %d x %d, %s: writes elsewhere", format_traits(d->format)->name,
               d->what->rows[0], d->what->cols, names[form]);
    for (int i = 0; i < ROWS / 64; i++) free(piece[i]);
    free(some);
}

/* A row of NaN among many stays alone. */
static void check_wide_nan(struct check *c, struct wide_data *d)
{
    enum { N = 99, BAD = 70 };
    size_t all = d->all, stride = (size_t)d->x.stride;
    float *y = need(N * all, sizeof *y), *z = need(N * all, sizeof *z);
    bool is_right = run_plain(c, d, 0, N, WIDE_FLOATS, y);
    for (size_t k = 0; k < stride; k++) d->values[core_place(BAD, k, stride)] = 0x7e00;
    check_upload(d->x.values, d->values, ROWS * stride * sizeof *d->values);
    is_right = run_plain(c, d, 0, N, WIDE_FLOATS, z) && is_right;
    size_t at = 0;
    for (int k = 0; k < d->what->n_w; k++)
        for (int r = 0; r < N; r++)
            for (int i = 0; i < d->what->rows[k]; i++, at++)
                is_right = is_right && (r == BAD ? isnan(z[at]) : memcmp(&y[at], &z[at], 4) == 0);
    check_that(c, is_right, "half: a row of NaN among %d", N);
    free(y), free(z);
}

static void check_wide(struct check *c, const struct wide_case *what, enum format format)
{
    struct wide_data d = wide_make(what, format);
    if (what->is_gated) {
        check_wide_form(c, &d, WIDE_GATED);
    } else {
        check_wide_form(c, &d, WIDE_FLOATS);
        if (format == FORMAT_Q8_0) check_wide_form(c, &d, WIDE_CAPPED);
        check_wide_form(c, &d, WIDE_HALVES);
        check_wide_nan(c, &d);
    }
    wide_free(&d);
}

/* The first shapes, one for either number of teams, in a format of each form; the others in two, or
 * in the one that has blocks of 32. */
static void check_many_rows(struct check *c)
{
    static const enum format formats[] = {FORMAT_Q8_0, FORMAT_Q4_K,   FORMAT_Q4_0, FORMAT_Q5_0,
                                          FORMAT_Q5_K, FORMAT_IQ4_NL, FORMAT_Q6_K};
    enum { SHAPES = sizeof wide_cases / sizeof *wide_cases, FORMATS = 7, FIRST = 2 };
    for (int i = 0; i < (c->is_small ? 1 : SHAPES); i++)
        for (int k = 0; k < (c->is_small ? 1 : i < FIRST ? FORMATS : 2); k++)
            if (wide_cases[i].cols % format_traits(formats[k])->block_elements == 0)
                check_wide(c, &wide_cases[i], formats[k]);
}

/* ---- Time ------------------------------------------------------------------------------------ */

enum { COPIES_MAX = 64 };

struct timed {
    struct check *c;
    struct gemm_args half[COPIES_MAX];
    struct matvec_args matvec[COPIES_MAX];
    int n_copies;
};

static void record_half(void *user, int i)
{
    struct timed *t = user;
    launch_half(&t->c->queue, &t->half[i % t->n_copies]);
}

static void record_matvec(void *user, int i)
{
    struct timed *t = user;
    launch_matvec(&t->c->queue, &t->matvec[i % t->n_copies]);
}

struct shape {
    const char *name;
    enum format format;
    int n_w, rows[3], cols;
};

static const struct shape shapes[] = {
    {"E4B q k v", FORMAT_Q8_0, 3, {2048, 512, 512}, 2560},
    {"E4B attention output", FORMAT_Q8_0, 1, {2560}, 2048},
    {"E4B gate and up", FORMAT_Q8_0, 2, {10240, 10240}, 2560},
    {"E4B down", FORMAT_Q8_0, 1, {2560}, 10240},
    {"E4B per-layer gate", FORMAT_Q8_0, 1, {256}, 2560},
    {"E4B per-layer up", FORMAT_Q8_0, 1, {2560}, 256},
    {"E4B head", FORMAT_Q8_0, 1, {262144}, 2560},
    {"E2B gate and up", FORMAT_Q8_0, 2, {6144, 6144}, 1536},
    {"E2B down", FORMAT_Q8_0, 1, {1536}, 6144},
    {"12B q k v", FORMAT_Q4_0, 3, {4096, 2048, 2048}, 3840},
    {"12B attention output", FORMAT_Q4_0, 1, {3840}, 4096},
    {"12B gate and up", FORMAT_Q4_0, 2, {15360, 15360}, 3840},
    {"12B down", FORMAT_Q4_0, 1, {3840}, 15360},
    {"31B gate and up", FORMAT_Q4_0, 2, {21504, 21504}, 5376},
    {"31B down", FORMAT_Q4_0, 1, {5376}, 21504},
};

static void time_shape(struct check *c, const struct shape *s)
{
    static const int rows[] = {1, 8, 16, 32, 64, 65, 80, 96, 128, 160, 192, 256};
    struct timed t = {.c = c};
    size_t bytes = 0, all = 0;
    int n_out = 0;
    for (int k = 0; k < s->n_w; k++) n_out += s->rows[k];
    float *y = check_alloc(NULL, (size_t)(ROWS * n_out) * sizeof *y);
    size_t stride = padded_to_64((size_t)s->cols);
    struct act x = {.kind = ACT_CORES, .stride = (int32_t)stride};
    x.values = check_alloc(NULL, ROWS * stride * 2);
    fill_random(x.values, ROWS * stride * 2);
    x.scale = check_alloc(NULL, ROWS * sizeof(float));
    struct act x8 = act_empty(ROWS, s->cols);
    while (t.n_copies < COPIES_MAX && (all < 300u << 20 || t.n_copies < 2)) {
        struct gemm_args *half = &t.half[t.n_copies];
        struct matvec_args *matvec = &t.matvec[t.n_copies++];
        *half = (struct gemm_args){.n_w = s->n_w, .x = x};
        *matvec = (struct matvec_args){.n_w = s->n_w, .x = x8};
        int before = 0;
        for (int k = 0; k < s->n_w; k++) {
            half->w[k] = matvec->w[k] = weight_of_noise(s->format, 1, s->rows[k], s->cols, &bytes);
            half->y[k] = matvec->y[k] = y + ROWS * before;
            before += s->rows[k];
            all += bytes;
        }
    }
    size_t one = all / (size_t)t.n_copies;
    printf("%-22s %6.1f MB, bound %5.1f us:", s->name, (double)one / 1e6, (double)one / 4.45e6);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct step_view step = check_step(rows[i], rows[i], 0, NULL, NULL, NULL, NULL);
        for (int k = 0; k < t.n_copies; k++) {
            t.half[k].n_rows = t.matvec[k].rows.max = rows[i];
            t.matvec[k].step = step;
        }
        int n = one > 300u << 20 ? 4 : 24;
        printf("  %d: %.1f", rows[i], graph_time(c, record_half, &t, n) * 1e6);
        if (rows[i] <= MATVEC_ROWS_MAX)
            printf(" (%.1f)", graph_time(c, record_matvec, &t, n) * 1e6);
        fflush(stdout);
        check_step_free(&step);
    }
    puts("");
    for (int i = 0; i < t.n_copies; i++)
        for (int k = 0; k < s->n_w; k++) check_weight_free(&t.half[i].w[k]);
    cores_free(&x);
    act_free(&x8);
    check_free(y);
}

void check_half(struct check *c)
{
    struct gemm_args none = {.n_rows = 1, .x = {.kind = ACT_CORES}};
    if (!half_takes(&c->queue, &none)) {
        check_that(c, c->queue.capability != 90, "half_takes");
        puts("half: for Hopper only");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!c->is_small || cases[i].cols < 1000) check_case(c, &cases[i]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_bits(c, cases[i].format[0]);
    check_bits(c, FORMAT_Q4_K);
    for (size_t i = 0; i < sizeof gated_cases / sizeof *gated_cases; i++)
        check_gated(c, &gated_cases[i]);
    check_nan(c);
    check_many_rows(c);
    if (!c->is_perf) return;
    puts("us a launch in a graph, cold weights; in brackets launch_matvec:");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) time_shape(c, &shapes[i]);
}
