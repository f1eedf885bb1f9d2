/* Matrix products in fp16: our own kernel, dense and grouped by expert, the same through cuBLAS
 * where it is installed, and the mirrors that both read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cublas.h"
#include "cuda/check.h"
#include "quant/format.h"

/* fp32 sums of exact products of fp16 values: the order of additions, and the tensor cores' own
 * truncation, cost about 2^-23 a partial sum. */
#define FP32_BUDGET 1e-10
/* One more rounding to fp16: 2^-12 at most, a squared mean of 2e-8. */
#define HALF_BUDGET 1e-7

static size_t padded_to_64(size_t n)
{
    return (n + 63) / 64 * 64;
}

static void *need(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes);
    if (!p) {
        puts("out of memory");
        exit(1);
    }
    return p;
}

/* ---- Mirrors ---------------------------------------------------------------------------- */

struct mirror_case {
    enum format format;
    int32_t n_expert, rows, cols;
    float scale;
    double budget;
};

/* In most formats scale * code is exact in fp32. Then the kernel rounds once, to fp16, and the
 * result is compared bit for bit. With an offset the sum may be rounded once or twice before,
 * which changes the last place of one fp16 value in thousands. Scales in blocks of 256 are
 * rounded to fp16 in the planes, and scale * code + offset may be smaller than its terms. */
#define WITH_MINUS 1e-9
#define ROUNDED_K 1e-6
static const struct mirror_case mirror_cases[] = {
    {FORMAT_Q4_0, 1, 17, 96, 1, 0},
    {FORMAT_Q4_1, 2, 24, 64, 1, WITH_MINUS},
    {FORMAT_Q5_0, 1, 9, 160, 0.02f, 0},
    {FORMAT_Q5_1, 1, 40, 288, 1, WITH_MINUS},
    {FORMAT_Q8_0, 3, 11, 352, 1, 0},
    {FORMAT_Q4_K, 1, 13, 512, 1, ROUNDED_K},
    {FORMAT_Q5_K, 2, 8, 256, 1, ROUNDED_K},
    {FORMAT_Q6_K, 1, 33, 768, 1, ROUNDED_K},
    {FORMAT_IQ4_NL, 1, 20, 96, 1, 0},
    {FORMAT_Q2_K, 1, 18, 768, 1, ROUNDED_K},
    {FORMAT_Q3_K, 1, 21, 512, 1, ROUNDED_K},
    {FORMAT_IQ4_XS, 2, 11, 256, 1, ROUNDED_K},
    {FORMAT_IQ3_XXS, 1, 9, 512, 1, ROUNDED_K},
    {FORMAT_IQ3_S, 1, 10, 256, 1, ROUNDED_K},
    {FORMAT_IQ2_XXS, 1, 11, 512, 1, ROUNDED_K},
    {FORMAT_IQ2_XS, 1, 12, 256, 1, ROUNDED_K},
    {FORMAT_IQ2_S, 2, 13, 256, 1, ROUNDED_K},
    {FORMAT_IQ1_S, 1, 14, 512, 1, ROUNDED_K},
    {FORMAT_IQ1_M, 1, 15, 256, 1, ROUNDED_K},
    {FORMAT_MXFP4, 1, 19, 96, 1, 0},
    {FORMAT_F16, 2, 5, 67, 1, 0},
    {FORMAT_BF16, 1, 3, 200, 1, 0},
    {FORMAT_BF16, 1, 40, 6400, 1, 0},
    {FORMAT_F32, 1, 7, 129, 1, 0},
    {FORMAT_F32, 1, 300, 2100, 5e4f, 0}, /* beyond fp16 */
};

static void check_mirror(struct check *c, const struct mirror_case *m)
{
    struct rng rng = {.state = 77};
    bool is_plain = m->format == FORMAT_F16 || m->format == FORMAT_BF16 || m->format == FORMAT_F32;
    float *decoded;
    struct cuda_weight w = check_weight(c, &rng, m->format, is_plain ? LAYOUT_ROWS : LAYOUT_TILES,
                                        m->n_expert, m->rows, m->cols, m->scale, &decoded);
    w.mirror_cols = (int32_t)padded_to_64((size_t)m->cols);
    size_t n_rows = (size_t)m->n_expert * (size_t)m->rows, stride = (size_t)w.mirror_cols;
    w.mirror = check_alloc(NULL, n_rows * stride * 2);
    int32_t first = m->rows / 2; /* in two pieces, the second not at a multiple of 8 */
    for (int32_t e = 0; e < m->n_expert; e++) {
        launch_mirror(&c->queue, &w, e, 0, first);
        launch_mirror(&c->queue, &w, e, first, m->rows - first);
    }
    uint16_t *mirror = need(n_rows * stride, 2);
    check_download(mirror, w.mirror, n_rows * stride * 2);
    float *y = need(n_rows * stride, sizeof *y);
    double *expected = need(n_rows * stride, sizeof *expected);
    bool is_zero = true;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < stride; k++) {
            y[r * stride + k] = f16_to_f32(mirror[r * stride + k]);
            if (k >= (size_t)m->cols) {
                is_zero = is_zero && y[r * stride + k] == 0;
                continue;
            }
            float v = fminf(fmaxf(decoded[r * (size_t)m->cols + k], -65504.0f), 65504.0f);
            expected[r * stride + k] = (double)f16_to_f32(f32_to_f16(v));
        }
    double error = check_nmse(y, expected, n_rows * stride);
    check_that(c, error <= m->budget, "mirror of %s: nmse %.3g", format_traits(m->format)->name,
               error);
    check_that(c, is_zero, "mirror of %s: padding is not zero", format_traits(m->format)->name);
    uint16_t *device = w.mirror;
    w.mirror = NULL;
    check_that(c, check_free(device), "mirror of %s: writes beyond",
               format_traits(m->format)->name);
    check_weight_free(&w);
    free(mirror), free(y), free(expected), free(decoded);
}

/* ---- Operands --------------------------------------------------------------------------- */

/* `rows` rows of `cols` normal values in fp16, padded with zeros, on the device and as fp32. */
static uint16_t *random_halves(struct rng *rng, size_t rows, size_t cols, float **values)
{
    size_t stride = padded_to_64(cols);
    uint16_t *halves = need(rows * stride, sizeof *halves);
    *values = need(rows * stride, sizeof **values);
    for (size_t r = 0; r < rows; r++)
        for (size_t k = r * stride; k < r * stride + cols; k++) {
            halves[k] = f32_to_f16(rng_normal(rng));
            (*values)[k] = f16_to_f32(halves[k]);
        }
    uint16_t *device = check_alloc(halves, rows * stride * sizeof *halves);
    free(halves);
    return device;
}

struct operands {
    size_t n_x, stride;
    float *x, *w; /* host: [n_x][stride]; weight after weight, [n_expert][rows][stride] */
    float *scale;
    struct act act;
    struct cuda_weight views[3];
    uint16_t *mirror; /* device */
};

static struct operands operands_make(int32_t n_x, int32_t n_w, const int32_t *rows, int32_t cols,
                                     int32_t n_expert)
{
    struct rng rng = {.state = 5};
    struct operands o = {.n_x = (size_t)n_x, .stride = padded_to_64((size_t)cols)};
    size_t n = 0;
    for (int32_t k = 0; k < n_w; k++) n += (size_t)n_expert * (size_t)rows[k];
    uint16_t *x = random_halves(&rng, o.n_x, (size_t)cols, &o.x);
    o.mirror = random_halves(&rng, n, (size_t)cols, &o.w);
    o.scale = need(o.n_x, sizeof *o.scale);
    for (size_t r = 0; r < o.n_x; r++) o.scale[r] = ldexpf(1, (int)rng_below(&rng, 7) - 3);
    o.act = (struct act){.kind = ACT_HALF,
                         .stride = (int32_t)o.stride,
                         .values = x,
                         .scale = check_alloc(o.scale, o.n_x * sizeof *o.scale)};
    n = 0;
    for (int32_t k = 0; k < n_w; k++) {
        o.views[k] = (struct cuda_weight){.n_expert = n_expert,
                                          .rows = rows[k],
                                          .cols = cols,
                                          .mirror = o.mirror + n * o.stride,
                                          .mirror_cols = (int32_t)o.stride};
        n += (size_t)n_expert * (size_t)rows[k];
    }
    return o;
}

static void operands_free(struct check *c, struct operands *o)
{
    bool is_whole = check_free(o->act.values);
    is_whole = check_free(o->act.scale) && is_whole;
    is_whole = check_free(o->mirror) && is_whole;
    check_that(c, is_whole, "gemm_f16: inputs overwritten");
    free(o->x), free(o->w), free(o->scale);
}

/* Row `w_row` of the stacked weights times row `x_row`, without the row's scale. */
static double dot(const struct operands *o, size_t x_row, size_t w_row)
{
    const float *x = o->x + x_row * o->stride, *w = o->w + w_row * o->stride;
    double sums[4] = {0}; /* the stride is a multiple of 64 */
    for (size_t k = 0; k < o->stride; k += 4)
        for (size_t i = 0; i < 4; i++) sums[i] += (double)x[k + i] * (double)w[k + i];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

/* ---- Results ---------------------------------------------------------------------------- */

struct results {
    size_t n_rows, half_cols;
    float *y[3];
    uint16_t *half; /* device */
};

static struct results results_make(size_t n_rows, int32_t n_w, const int32_t *rows, bool is_half,
                                   int32_t half_cols)
{
    struct results r = {.n_rows = n_rows, .half_cols = (size_t)half_cols};
    if (is_half) r.half = check_alloc(NULL, n_rows * r.half_cols * 2);
    for (int32_t k = 0; !is_half && k < n_w; k++)
        r.y[k] = check_alloc(NULL, n_rows * (size_t)rows[k] * sizeof(float));
    return r;
}

/* expected[k]: [n_rows][rows[k]] without the scales; row r's scale is scale[r]. */
static void results_compare(struct check *c, struct results *r, int32_t n_w, const int32_t *rows,
                            double *const *expected, const float *scale, const char *label)
{
    uint16_t *half = need(r->n_rows * r->half_cols, sizeof *half);
    if (r->half) check_download(half, r->half, r->n_rows * r->half_cols * 2);
    size_t col = 0;
    for (int32_t k = 0; k < n_w; k++) {
        size_t n = (size_t)rows[k];
        float *y = need(r->n_rows * n, sizeof *y);
        if (!r->half) check_download(y, r->y[k], r->n_rows * n * sizeof *y);
        for (size_t i = 0; i < r->n_rows; i++)
            for (size_t j = 0; j < n; j++)
                y[i * n + j] = r->half ? f16_to_f32(half[i * r->half_cols + col + j])
                                       : y[i * n + j] / scale[i];
        double error = check_nmse(y, expected[k], r->n_rows * n);
        check_that(c, error <= (r->half ? HALF_BUDGET : FP32_BUDGET), "%s: weight %d nmse %.3g",
                   label, k, error);
        free(y);
        col += n;
    }
    bool is_kept = true; /* columns that belong to no weight */
    for (size_t i = 0; r->half && i < r->n_rows; i++)
        for (size_t j = col; j < r->half_cols; j++)
            is_kept = is_kept && half[i * r->half_cols + j] == 0xffff;
    check_that(c, is_kept, "%s: writes columns that are not its own", label);
    free(half);
    bool is_whole = check_free(r->half);
    for (int k = 0; k < 3; k++) is_whole = check_free(r->y[k]) && is_whole;
    check_that(c, is_whole, "%s: writes beyond its results", label);
}

/* ---- Dense ------------------------------------------------------------------------------ */

struct dense_case {
    int32_t n_rows, n_w, rows[3], cols, spare_cols;
};

static const struct dense_case dense_cases[] = {
    {1, 1, {8}, 64, 0},
    {3, 1, {257}, 100, 0},
    {17, 3, {64, 31, 33}, 192, 3},
    {65, 2, {136, 136}, 704, 8},
    {130, 3, {512, 128, 128}, 320, 0},
    {128, 1, {128}, 4096, 0},
    {300, 1, {777}, 256, 5},
    {97, 2, {300, 20}, 1088, 0},
    {512, 1, {640}, 128, 0},
    {2048, 1, {264}, 64, 0},
};

static void multiply(struct check *c, struct cublas *cublas, const struct gemm_args *args)
{
    if (cublas)
        cublas_multiply(cublas, &c->queue, args);
    else
        launch_gemm_f16(&c->queue, args);
}

static void check_dense(struct check *c, struct cublas *cublas, const struct dense_case *d)
{
    struct operands o = operands_make(d->n_rows, d->n_w, d->rows, d->cols, 1);
    double *expected[3] = {0};
    size_t before = 0;
    for (int32_t k = 0; k < d->n_w; k++) {
        size_t n = (size_t)d->rows[k];
        expected[k] = need(o.n_x * n, sizeof(double));
        for (size_t i = 0; i < o.n_x; i++)
            for (size_t j = 0; j < n; j++) expected[k][i * n + j] = dot(&o, i, before + j);
        before += n;
    }
    float *ones = need(o.n_x, sizeof *ones);
    for (size_t i = 0; i < o.n_x; i++) ones[i] = 1;
    for (int way = 0; way < 3; way++) {
        bool is_half = way == 1, is_unscaled = way == 2;
        int32_t half_cols = (int32_t)before + d->spare_cols;
        struct results r = results_make(o.n_x, d->n_w, d->rows, is_half, half_cols);
        struct gemm_args args = {.n_rows = d->n_rows,
                                 .n_w = d->n_w,
                                 .x = o.act,
                                 .is_unscaled = is_unscaled,
                                 .half = r.half,
                                 .half_cols = half_cols};
        memcpy(args.w, o.views, sizeof args.w);
        memcpy(args.y, r.y, sizeof args.y);
        if (cublas) check_that(c, cublas_takes(args.n_w, args.half != NULL, true), "cublas_takes");
        multiply(c, cublas, &args);
        char label[80];
        snprintf(label, sizeof label, "%s %s %d x %d x %d", cublas ? "cublas" : "gemm_f16",
                 is_half       ? "half"
                 : is_unscaled ? "fp32 without scales"
                               : "fp32",
                 d->n_rows, (int)before, d->cols);
        results_compare(c, &r, d->n_w, d->rows, expected, is_unscaled ? ones : o.scale, label);
    }
    free(ones);
    for (int k = 0; k < 3; k++) free(expected[k]);
    operands_free(c, &o);
}

/* ---- Grouped ---------------------------------------------------------------------------- */

struct grouped_case {
    int32_t n_rows, n_used, n_expert, n_w, rows[2], cols;
    bool is_row_a_pair;
};

static const struct grouped_case grouped_cases[] = {
    {1, 2, 8, 2, {24, 24}, 128, false},  {40, 3, 5, 2, {88, 88}, 192, false},
    {300, 2, 4, 1, {130}, 96, true},     {150, 8, 16, 1, {280}, 128, true},
    {700, 1, 3, 2, {264, 9}, 64, false},
};

/* Chooses an expert for each pair and sorts the pairs by expert. Low experts are chosen more
 * often, the last but one never. */
static struct expert_plan plan_make(int32_t n_rows, int32_t n_used, int32_t n_expert, int32_t *ids)
{
    int32_t n_pairs = n_rows * n_used, tiles_max = n_pairs / EXPERT_TILE + n_expert;
    struct rng rng = {.state = 9};
    for (int32_t p = 0; p < n_pairs; p++) {
        uint32_t n = (uint32_t)n_expert, low = rng_below(&rng, n), other = rng_below(&rng, n);
        ids[p] = (int32_t)(p % 3 == 0 && other < low ? other : low);
        if (n_expert > 2 && ids[p] == n_expert - 2) ids[p] = 0;
    }
    int32_t *first = need((size_t)n_expert + 1, 4), *pair = need((size_t)n_pairs, 4);
    struct expert_tile *tile = need((size_t)tiles_max, sizeof *tile);
    int32_t n = 0, n_tile = 0;
    for (int32_t e = 0; e < n_expert; e++) {
        first[e] = n;
        for (int32_t p = 0; p < n_pairs; p++)
            if (ids[p] == e) pair[n++] = p;
        for (int32_t at = first[e]; at < n; at += EXPERT_TILE, n_tile++) {
            int32_t most = n - at < EXPERT_TILE ? n - at : EXPERT_TILE;
            tile[n_tile] = (struct expert_tile){e, at, most, EXPERT_TILE};
        }
    }
    first[n_expert] = n;
    struct expert_plan plan = {.first = check_alloc(first, ((size_t)n_expert + 1) * 4),
                               .pair = check_alloc(pair, (size_t)n_pairs * 4),
                               .tile = check_alloc(tile, (size_t)n_tile * sizeof *tile),
                               .n_tile = check_alloc(&n_tile, 4)};
    free(first), free(pair), free(tile);
    return plan;
}

static void plan_free(struct expert_plan *plan)
{
    check_free(plan->first), check_free(plan->pair);
    check_free(plan->tile), check_free(plan->n_tile);
}

static void check_grouped(struct check *c, const struct grouped_case *g)
{
    int32_t n_pairs = g->n_rows * g->n_used;
    int32_t *ids = need((size_t)n_pairs, sizeof *ids);
    struct expert_plan plan = plan_make(g->n_rows, g->n_used, g->n_expert, ids);
    struct operands o = operands_make(g->is_row_a_pair ? n_pairs : g->n_rows, g->n_w, g->rows,
                                      g->cols, g->n_expert);
    double *expected[3] = {0};
    float *scale = need((size_t)n_pairs, sizeof *scale);
    size_t before = 0;
    int32_t half_cols = 0;
    for (int32_t k = 0; k < g->n_w; k++) {
        size_t n = (size_t)g->rows[k];
        expected[k] = need((size_t)n_pairs * n, sizeof(double));
        for (int32_t p = 0; p < n_pairs; p++) {
            size_t row = (size_t)(g->is_row_a_pair ? p : p / g->n_used);
            scale[p] = o.scale[row];
            for (size_t j = 0; j < n; j++)
                expected[k][(size_t)p * n + j] = dot(&o, row, before + (size_t)ids[p] * n + j);
        }
        before += n * (size_t)g->n_expert;
        half_cols += g->rows[k];
    }
    for (int is_half = 0; is_half < 2; is_half++) {
        struct results r = results_make((size_t)n_pairs, g->n_w, g->rows, is_half, half_cols);
        struct grouped_args args = {.n_rows = g->n_rows,
                                    .n_used = g->n_used,
                                    .plan = plan,
                                    .n_w = g->n_w,
                                    .x = o.act,
                                    .half = r.half,
                                    .is_row_a_pair = g->is_row_a_pair,
                                    .half_cols = half_cols};
        memcpy(args.w, o.views, sizeof args.w);
        memcpy(args.y, r.y, sizeof args.y);
        launch_grouped_f16(&c->queue, &args);
        char label[80];
        snprintf(label, sizeof label, "grouped_f16 %s %d x %d x %d", is_half ? "half" : "fp32",
                 n_pairs, half_cols, g->cols);
        results_compare(c, &r, g->n_w, g->rows, expected, scale, label);
    }
    for (int k = 0; k < 3; k++) free(expected[k]);
    free(scale), free(ids);
    plan_free(&plan);
    operands_free(c, &o);
}

/* ---- Time ------------------------------------------------------------------------------- */

/* mma.sync fp16 with fp32 accumulation from registers, measured on an H200. */
#define MMA_TFLOPS 641.0
#define READ_BYTES_S 4.67e12

/* n values that repeat after a million: the multiplier cannot tell them from random ones. */
static void *device_halves(size_t n)
{
    enum { PERIOD = 1000003 };
    struct rng rng = {.state = 21};
    uint16_t *host = need(n, sizeof *host);
    for (size_t i = 0; i < n; i++)
        host[i] = i < PERIOD ? f32_to_f16(rng_normal(&rng)) : host[i - PERIOD];
    void *device = check_alloc(host, n * sizeof *host);
    free(host);
    return device;
}

struct timed {
    struct check *c;
    struct cublas *cublas;
    struct gemm_args dense;
    struct grouped_args grouped;
};

static void run_dense(void *user)
{
    struct timed *t = user;
    multiply(t->c, t->cublas, &t->dense);
}

static void run_grouped(void *user)
{
    struct timed *t = user;
    launch_grouped_f16(&t->c->queue, &t->grouped);
}

static void print_time(const char *label, double s, double flop, double bytes)
{
    double bound = fmax(flop / (MMA_TFLOPS * 1e12), bytes / READ_BYTES_S);
    printf("%-44s %8.1f us %6.1f TFLOP/s (bound %7.1f us)\n", label, s * 1e6, flop / s / 1e12,
           bound * 1e6);
    fflush(stdout);
}

static struct act half_of(int32_t stride, void *values, float *scale)
{
    return (struct act){.kind = ACT_HALF, .stride = stride, .values = values, .scale = scale};
}

static void time_dense(struct check *c, struct cublas *cublas)
{
    static const int32_t shapes[][2] = {{20480, 2560}, {2560, 10240}, {4096, 2560},
                                        {2560, 4096},  {30720, 3840}, {3840, 15360}};
    static const int32_t rows[] = {2048, 512, 8192, 130};
    uint16_t *w = device_halves((size_t)30720 * 3840), *x = device_halves((size_t)8192 * 15360);
    float *scale = device_halves(8192 * 2);
    void *y = check_alloc(NULL, (size_t)8192 * 30720 * 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows * 6 * 4; i++) {
        int32_t n = rows[i / 24], m = shapes[i / 4 % 6][0], k = shapes[i / 4 % 6][1];
        bool is_half = i % 4 < 2, is_own = i % 2 == 0;
        if (!is_own && !cublas) continue;
        struct timed t = {.c = c, .cublas = is_own ? NULL : cublas};
        t.dense = (struct gemm_args){.n_rows = n,
                                     .n_w = 1,
                                     .x = half_of(k, x, scale),
                                     .half_cols = m,
                                     .half = is_half ? y : NULL};
        t.dense.y[0] = is_half ? NULL : y;
        t.dense.w[0] = (struct cuda_weight){
            .n_expert = 1, .rows = m, .cols = k, .mirror = w, .mirror_cols = k};
        char label[80];
        snprintf(label, sizeof label, "%-8s %4d x %5d x %5d -> %s", is_own ? "gemm_f16" : "cublas",
                 n, m, k, is_half ? "half" : "fp32");
        double s = check_time(c, run_dense, &t, false);
        print_time(label, s, 2.0 * n * m * k, 2.0 * m * k);
    }
    check_free(w), check_free(x), check_free(scale), check_free(y);
}

/* 26B-A4B: 128 experts of 704 (gate and up) x 2816, 8 used. */
static void time_grouped(struct check *c)
{
    enum { EXPERTS = 128, USED = 8, HIDDEN = 2816, INNER = 704 };
    static const int32_t rows[] = {2048, 512, 8192};
    uint16_t *w = device_halves((size_t)EXPERTS * 2 * INNER * HIDDEN);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t n = rows[i], pairs = n * USED, *ids = need((size_t)pairs, 4);
        struct expert_plan plan = plan_make(n, USED, EXPERTS, ids);
        uint16_t *x = device_halves((size_t)pairs * HIDDEN);
        float *scale = device_halves((size_t)pairs * 2);
        void *y = check_alloc(NULL, (size_t)pairs * HIDDEN * 4);
        for (int is_out = 0; is_out < 2; is_out++) {
            int32_t k = is_out ? INNER : HIDDEN, m = is_out ? HIDDEN : INNER;
            struct timed t = {.c = c};
            t.grouped = (struct grouped_args){.n_rows = n,
                                              .n_used = USED,
                                              .plan = plan,
                                              .n_w = is_out ? 1 : 2,
                                              .x = half_of(k, x, scale),
                                              .is_row_a_pair = is_out};
            for (int32_t j = 0; j < t.grouped.n_w; j++)
                t.grouped.w[j] =
                    (struct cuda_weight){.n_expert = EXPERTS,
                                         .rows = m,
                                         .cols = k,
                                         .mirror_cols = k,
                                         .mirror = w + (size_t)j * EXPERTS * INNER * HIDDEN};
            t.grouped.half_cols = m * t.grouped.n_w;
            for (int is_half = 1; is_half >= 0; is_half--) {
                t.grouped.half = is_half ? y : NULL;
                t.grouped.y[0] = is_half ? NULL : y;
                t.grouped.y[1] = is_half ? NULL : (float *)y + (size_t)pairs * INNER;
                char label[80];
                snprintf(label, sizeof label, "grouped %-8s %4d rows -> %s",
                         is_out ? "down" : "gate, up", n, is_half ? "half" : "fp32");
                double s = check_time(c, run_grouped, &t, false), values = (double)m * k;
                values *= t.grouped.n_w;
                print_time(label, s, 2 * pairs * values, 2 * EXPERTS * values);
            }
        }
        plan_free(&plan);
        check_free(x), check_free(scale), check_free(y);
        free(ids);
    }
    check_free(w);
}

struct timed_mirror {
    struct check *c;
    struct cuda_weight w;
};

static void run_mirror(void *user)
{
    struct timed_mirror *t = user;
    launch_mirror(&t->c->queue, &t->w, 0, 0, t->w.rows);
}

static void time_mirror(struct check *c)
{
    static const enum format formats[] = {FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_Q6_K, FORMAT_BF16};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct rng rng = {.state = 3};
        bool is_plain = formats[i] == FORMAT_BF16;
        struct timed_mirror t = {.c = c};
        t.w = check_weight(c, &rng, formats[i], is_plain ? LAYOUT_ROWS : LAYOUT_TILES, 1, 7680,
                           3840, 1, NULL);
        t.w.mirror_cols = t.w.cols;
        size_t n = (size_t)t.w.rows * (size_t)t.w.cols;
        t.w.mirror = check_alloc(NULL, n * 2);
        double s = check_time(c, run_mirror, &t, true);
        double bytes = (double)(n * 2 + (size_t)t.w.rows * format_row_bytes(formats[i], 3840));
        printf("mirror of %-4s 7680 x 3840 %7.1f us %7.1f GB/s (copy: 4220)\n",
               format_traits(formats[i])->name, s * 1e6, bytes / s / 1e9);
        check_weight_free(&t.w);
    }
}

/* ---- All -------------------------------------------------------------------------------- */

static void check_row_scale(struct check *c, int cols)
{
    enum { ROWS = 5 };
    size_t n = (size_t)ROWS * (size_t)cols;
    float scale[ROWS] = {1, 0.5f, 4, 1, 0.25f}, *y = need(n, sizeof *y);
    for (size_t i = 0; i < n; i++) y[i] = (float)(i % 97);
    float *device = check_alloc(y, n * sizeof *y), *by = check_alloc(scale, sizeof scale);
    launch_row_scale(&c->queue, device, by, ROWS, cols);
    check_download(y, device, n * sizeof *y);
    bool is_right = true;
    for (size_t i = 0; i < n; i++)
        is_right = is_right && y[i] == scale[i / (size_t)cols] * (float)(i % 97);
    check_that(c, is_right && check_free(device) && check_free(by), "row_scale of %d", cols);
    free(y);
}

void check_gemm_f16(struct check *c)
{
    check_row_scale(c, 1500);
    check_row_scale(c, 257);
    for (size_t i = 0; i < sizeof mirror_cases / sizeof *mirror_cases; i++)
        check_mirror(c, &mirror_cases[i]);
    struct queue queue = c->queue; /* 80: the variant for little shared memory */
    for (int is_lean = 0; is_lean < 2; is_lean++) {
        if (is_lean) c->queue.capability = 80;
        for (size_t i = 0; i < sizeof dense_cases / sizeof *dense_cases; i++)
            check_dense(c, NULL, &dense_cases[i]);
        for (size_t i = 0; i < sizeof grouped_cases / sizeof *grouped_cases; i++)
            check_grouped(c, &grouped_cases[i]);
    }
    c->queue = queue;
    struct cublas *cublas = NULL;
    void *workspace = check_alloc(NULL, CUBLAS_WORKSPACE_BYTES);
    if (c->is_own || cublas_open(&cublas, NULL)) {
        printf("gemm_f16: %s, its part is skipped\n", c->is_own ? "no cuBLAS wanted" : "no cuBLAS");
    } else {
        printf("gemm_f16: cuBLAS %d\n", cublas_version(cublas));
        int status = cublas_set_stream(cublas, &c->queue, workspace, CUBLAS_WORKSPACE_BYTES);
        check_that(c, status == 0, "cublas_set_stream: %d", status);
        for (size_t i = 0; i < sizeof dense_cases / sizeof *dense_cases; i++)
            check_dense(c, cublas, &dense_cases[i]);
    }
    if (c->is_perf) {
        time_mirror(c);
        time_grouped(c);
        time_dense(c, cublas);
    }
    cublas_close(cublas);
    check_that(c, check_free(workspace), "cuBLAS writes beyond its workspace");
}
