/* launch_norm against the same formula in double precision, and the rounding of its outputs bit
 * for bit. The bits of a row must not depend on how many rows the launch has. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/check.h"
#include "cuda/check_act.h"

/* Row sums in fp32 are right to a few 1e-7, which is 1e-14 as a mean square, plus a small
 * margin. */
#define NORM_BUDGET 1e-12

struct shape {
    int32_t rows, live, cols;
    bool has_w_a, is_normed, has_b, has_w_s, has_residual, has_x_out;
    float scale;
    int32_t n_outs;
    struct {
        bool is_normed, has_w;
        enum act_kind kind;
    } out[NORM_OUTS];
};

struct data {
    float *a, *b, *residual, *w[8]; /* host; w: of a, b, s, outs */
    bool is_half;                   /* a is fp16 with a scale a row */
};

static float *normal_floats(struct rng *rng, size_t n, float scale)
{
    float *x = malloc(n * sizeof *x);
    check_normal(rng, x, n, scale);
    return x;
}

static struct data new_data(struct rng *rng, const struct shape *s, bool is_half)
{
    size_t cols = (size_t)s->cols, n = (size_t)s->rows * cols;
    struct data d = {.a = normal_floats(rng, n, 3.0f)};
    for (size_t i = 0; is_half && i < n; i++) d.a[i] = f16_to_f32(f32_to_f16(d.a[i]));
    if (s->has_b) d.b = normal_floats(rng, n, 0.2f);
    if (s->has_residual) d.residual = normal_floats(rng, n, 10.0f);
    bool has[] = {s->has_w_a, s->has_b, s->has_w_s};
    for (int i = 0; i < 3; i++)
        if (has[i]) d.w[i] = normal_floats(rng, cols, 2.0f);
    for (int k = 0; k < s->n_outs; k++)
        if (s->out[k].has_w) d.w[3 + k] = normal_floats(rng, cols, 2.0f);
    return d;
}

static void free_data(struct data *d)
{
    free(d->a);
    free(d->b);
    free(d->residual);
    for (int i = 0; i < 8; i++) free(d->w[i]);
}

static void norm_row(const double *x, const float *w, double *y, int32_t n)
{
    double sum = 0;
    for (int32_t j = 0; j < n; j++) sum += x[j] * x[j];
    double r = 1 / sqrt(sum / n + (double)1e-6f);
    for (int32_t j = 0; j < n; j++) y[j] = x[j] * r * (w ? (double)w[j] : 1);
}

static void widen(const float *x, double *y, int32_t n)
{
    for (int32_t j = 0; j < n; j++) y[j] = (double)x[j];
}

/* The row's x' and outs, [cols] each. */
static void expect_row(const struct shape *s, const struct data *d, int32_t r, double *x,
                       double *outs)
{
    int32_t n = s->cols;
    size_t at = (size_t)r * (size_t)n;
    double *b = malloc((size_t)n * sizeof *b);
    widen(d->a + at, x, n);
    if (s->has_w_a || s->is_normed) norm_row(x, d->w[0], x, n);
    if (s->has_b) {
        widen(d->b + at, b, n);
        norm_row(b, d->w[1], b, n);
        for (int32_t j = 0; j < n; j++) x[j] += b[j];
    }
    if (s->has_w_s) norm_row(x, d->w[2], x, n);
    for (int32_t j = 0; j < n; j++)
        x[j] =
            (x[j] + (s->has_residual ? (double)d->residual[at + (size_t)j] : 0)) * (double)s->scale;
    for (int k = 0; k < s->n_outs; k++) {
        double *y = outs + (size_t)k * (size_t)n;
        if (s->out[k].is_normed)
            norm_row(x, d->w[3 + k], y, n);
        else
            memcpy(y, x, (size_t)n * sizeof *y);
    }
    free(b);
}

struct run {
    struct queue *queue;
    struct norm_args args;
    void *inputs[12];
    int n_inputs;
};

static float *upload(struct run *run, const float *x, size_t n)
{
    if (!x) return NULL;
    return run->inputs[run->n_inputs++] = check_alloc(x, n * sizeof *x);
}

/* a as fp16 and scales of 1/4, 1/2, 1, 2 in turn. */
static void upload_halves(struct run *run, const float *a, size_t rows, size_t cols)
{
    uint16_t *halves = malloc(rows * cols * sizeof *halves);
    float *scale = malloc(rows * sizeof *scale);
    for (size_t r = 0; r < rows; r++) scale[r] = ldexpf(1, (int)(r % 4) - 2);
    for (size_t i = 0; i < rows * cols; i++) halves[i] = f32_to_f16(a[i] / scale[i / cols]);
    run->args.a_half = check_alloc(halves, rows * cols * sizeof *halves);
    run->args.a_scale = upload(run, scale, rows);
    run->inputs[run->n_inputs++] = (float *)(void *)run->args.a_half;
    free(halves), free(scale);
}

static struct run new_run(struct check *c, const struct shape *s, const struct data *d)
{
    struct run run = {.queue = &c->queue};
    size_t cols = (size_t)s->cols, n = (size_t)s->rows * cols;
    struct norm_args *p = &run.args;
    p->step = check_step(s->live, 0, 0, NULL, NULL, NULL, NULL);
    p->rows.max = s->rows;
    p->cols = s->cols;
    p->eps = 1e-6f;
    p->a = upload(&run, d->a, n);
    if (d->is_half) upload_halves(&run, d->a, (size_t)s->rows, cols);
    p->b = upload(&run, d->b, n);
    p->residual = upload(&run, d->residual, n);
    p->w_a = upload(&run, d->w[0], cols);
    p->w_b = upload(&run, d->w[1], cols);
    p->w_s = upload(&run, d->w[2], cols);
    p->is_normed = s->is_normed;
    p->scale = s->scale;
    if (s->has_x_out) p->x_out = check_alloc(NULL, n * sizeof(float));
    p->n_outs = s->n_outs;
    for (int k = 0; k < s->n_outs; k++) {
        p->out[k].is_normed = s->out[k].is_normed;
        p->out[k].w = upload(&run, d->w[3 + k], cols);
        p->out[k].y = check_alloc(NULL, n * sizeof(float));
        p->out[k].act = check_act_new(s->out[k].kind, s->rows, s->cols);
    }
    return run;
}

static bool free_run(struct run *run)
{
    bool is_whole = check_free(run->args.x_out);
    for (int i = 0; i < run->n_inputs; i++) is_whole = check_free(run->inputs[i]) && is_whole;
    for (int k = 0; k < run->args.n_outs; k++) {
        is_whole = check_free(run->args.out[k].y) && is_whole;
        is_whole = check_act_free(&run->args.out[k].act) && is_whole;
    }
    check_step_free(&run->args.step);
    return is_whole;
}

static void launch_run(void *user)
{
    struct run *run = user;
    launch_norm(run->queue, &run->args);
}

static float *download(const float *x, const struct shape *s)
{
    size_t n = (size_t)s->rows * (size_t)s->cols;
    float *y = malloc(n * sizeof *y);
    check_download(y, x, n * sizeof *y);
    for (size_t i = (size_t)s->live * (size_t)s->cols; i < n; i++)
        if (!isnan(y[i])) y[0] = NAN; /* a dead row was written */
    return y;
}

static void compare(struct check *c, const struct shape *s, const struct data *d,
                    const struct run *run)
{
    size_t cols = (size_t)s->cols, live = (size_t)s->live, n_outs = (size_t)s->n_outs;
    double *x = malloc(live * cols * sizeof *x), *row = malloc((n_outs + 1) * cols * sizeof *row);
    double *outs = malloc((n_outs + 1) * live * cols * sizeof *outs);
    for (size_t r = 0; r < live; r++) {
        expect_row(s, d, (int32_t)r, x + r * cols, row);
        for (size_t k = 0; k < n_outs; k++)
            memcpy(outs + (k * live + r) * cols, row + k * cols, cols * sizeof *row);
    }
    if (s->has_x_out) {
        float *y = download(run->args.x_out, s);
        double error = check_nmse(y, x, live * cols);
        check_that(c, error < NORM_BUDGET, "norm: %d x %d x_out %g", s->rows, s->cols, error);
        free(y);
    }
    for (size_t k = 0; k < n_outs; k++) {
        float *y = download(run->args.out[k].y, s);
        double error = check_nmse(y, outs + k * live * cols, live * cols);
        check_that(c, error < NORM_BUDGET, "norm: %d x %d out %d %g", s->rows, s->cols, (int)k,
                   error);
        if (s->out[k].kind != ACT_NONE)
            check_that(c, check_act_is(&run->args.out[k].act, y, s->rows, s->live, s->cols),
                       "norm: %d x %d act %d of kind %d", s->rows, s->cols, (int)k,
                       (int)s->out[k].kind);
        free(y);
    }
    free(x);
    free(row);
    free(outs);
}

/* Each row of this run, computed alone, has the same bits. */
static void compare_alone(struct check *c, const struct shape *s, const struct run *run)
{
    size_t row_bytes = (size_t)s->cols * sizeof(float);
    float *together = malloc((size_t)s->rows * row_bytes), *alone = malloc(row_bytes);
    check_download(together, run->args.out[0].y, (size_t)s->rows * row_bytes);
    struct run one = *run;
    for (int32_t r = 0; r < s->live; r += 1 + s->live / 3) {
        size_t at = (size_t)r * (size_t)s->cols;
        one.args.rows.max = 1;
        one.args.a = run->args.a + at;
        if (run->args.a_half) {
            one.args.a_half = run->args.a_half + at;
            one.args.a_scale = run->args.a_scale + r;
        }
        one.args.b = run->args.b ? run->args.b + at : NULL;
        one.args.residual = run->args.residual ? run->args.residual + at : NULL;
        launch_run(&one);
        check_download(alone, run->args.out[0].y, row_bytes);
        check_that(c, memcmp(alone, together + at, row_bytes) == 0,
                   "norm: row %d of %d x %d alone has other bits", r, s->rows, s->cols);
    }
    free(together);
    free(alone);
}

static void check_shape(struct check *c, struct rng *rng, const struct shape *s, bool is_half)
{
    struct data d = new_data(rng, s, is_half);
    struct run run = new_run(c, s, &d);
    launch_run(&run);
    compare(c, s, &d, &run);
    if (s->n_outs > 0) compare_alone(c, s, &run);
    check_that(c, free_run(&run), "norm: %d x %d wrote outside", s->rows, s->cols);
    free_data(&d);
}

static const char *kind_name(enum act_kind kind)
{
    return kind == ACT_INT8 ? "int8" : kind == ACT_FINE ? "fine" : "fp16";
}

static void measure(struct check *c, int32_t rows, int32_t cols, enum act_kind kind, bool is_half)
{
    struct rng rng = {7};
    struct shape s = {.rows = rows,
                      .live = rows,
                      .cols = cols,
                      .has_w_a = true,
                      .has_residual = true,
                      .has_x_out = true,
                      .scale = 1,
                      .n_outs = 1,
                      .out = {{true, true, kind}}};
    struct data d = new_data(&rng, &s, is_half);
    struct run run = new_run(c, &s, &d);
    check_free(run.args.out[0].y);
    run.args.out[0].y = NULL;
    double warm = check_time_graph(c, launch_run, &run),
           cold = check_time(c, launch_run, &run, true);
    double bytes =
        (double)rows * ((is_half ? 10.0 : 12.0) * cols + (double)check_act_row_bytes(kind, cols));
    printf("norm %5d x %5d %s%s  in a graph %7.2f us  cold %7.2f us %6.0f GB/s (bound %.2f us)\n",
           rows, cols, kind_name(kind), is_half ? " of fp16" : "", warm * 1e6, cold * 1e6,
           bytes / cold / 1e9, bytes / 4.67e12 * 1e6);
    free_run(&run);
    free_data(&d);
}

static void measure_all(struct check *c)
{
    measure(c, 1, 1536, ACT_INT8, false);
    measure(c, 1, 2560, ACT_INT8, false);
    measure(c, 1, 2560, ACT_FINE, false);
    measure(c, 1, 3840, ACT_INT8, false);
    measure(c, 1, 5376, ACT_INT8, false);
    measure(c, 32, 2560, ACT_INT8, false);
    measure(c, 2048, 2560, ACT_HALF, false);
    measure(c, 2048, 2560, ACT_INT8, false);
    measure(c, 2048, 3840, ACT_HALF, false);
    measure(c, 2048, 5376, ACT_HALF, false);
    measure(c, 2048, 1536, ACT_HALF, true);
    measure(c, 2048, 2560, ACT_HALF, true);
    measure(c, 2048, 2816, ACT_HALF, true);
    measure(c, 2048, 3840, ACT_HALF, true);
    measure(c, 2048, 5376, ACT_HALF, true);
    measure(c, 512, 2560, ACT_HALF, true);
    measure(c, 128, 2560, ACT_HALF, true);
    measure(c, 65, 2560, ACT_HALF, true);
    measure(c, 128, 3840, ACT_HALF, true);
}

/* clang-format off */
/* a is fp16; a few and many rows. */
static void check_halves(struct check *c, struct rng *rng)
{
    static const struct shape halves[] = {
        {9, 8, 2560, true, true, false, false, true, true, 1, 1, {{true, true, ACT_HALF}}},
        {513, 511, 76, true, true, false, false, true, true, 1, 1, {{true, true, ACT_HALF}}},
        {600, 600, 1536, true, true, false, false, true, true, 0.7f, 2,
         {{false, false, ACT_HALF}, {true, true, ACT_INT8}}},
        {514, 514, 2560, true, true, false, false, true, true, 1, 2,
         {{true, true, ACT_HALF}, {true, false, ACT_FINE}}},
        {515, 400, 2816, false, true, false, false, true, true, 0.3f, 3,
         {{true, true, ACT_HALF}, {true, true, ACT_NONE}, {true, true, ACT_INT8}}},
        {512, 512, 3840, true, true, false, false, true, true, 1, 1, {{true, true, ACT_HALF}}},
        {512, 509, 4100, true, true, false, false, true, true, 1, 1, {{true, true, ACT_HALF}}},
        {530, 530, 5376, true, true, false, false, true, false, 2, 1, {{true, true, ACT_HALF}}},
        {140, 133, 5376, true, true, false, false, true, true, 2, 1, {{false, false, ACT_HALF}}},
        {135, 133, 2816, true, true, false, false, true, true, 1, 4,
         {{true, true, ACT_HALF}, {true, false, ACT_NONE}, {true, true, ACT_HALF},
          {false, false, ACT_HALF}}},
    };
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
        check_shape(c, rng, &halves[i], true);
}

void check_norm(struct check *c)
{
    static const struct shape shapes[] = {
        {1, 1, 2560, true, false, false, false, true, true, 1, 1, {{true, true, ACT_INT8}}},
        {3, 2, 40, true, false, false, false, true, true, 1, 1, {{true, true, ACT_INT8}}},
        {17, 17, 1536, false, false, false, false, false, false, 1, 1, {{true, true, ACT_HALF}}},
        {17, 15, 1536, false, false, false, false, false, false, 1, 1, {{true, true, ACT_CORES}}},
        {3, 3, 2563, true, false, true, false, true, true, 1, 1, {{true, true, ACT_CORES}}},
        {17,
         9,
         3840,
         true,
         false,
         false,
         false,
         true,
         true,
         0.7f,
         2,
         {{true, true, ACT_HALF}, {false, false, ACT_INT8}}},
        {3,
         3,
         2816,
         true,
         false,
         true,
         true,
         true,
         true,
         0.3f,
         4,
         {{true, true, ACT_INT8},
          {true, false, ACT_NONE},
          {true, true, ACT_HALF},
          {false, false, ACT_NONE}}},
        {2, 2, 5376, true, false, false, false, true, true, 1, 1, {{true, true, ACT_INT8}}},
        {1, 1, 2560, true, false, false, false, true, true, 1, 1, {{true, true, ACT_FINE}}},
        {64, 61, 5376, true, false, true, true, true, true, 1, 1, {{true, true, ACT_FINE}}},
        {150, 147, 3840, true, false, false, false, true, true, 1, 1, {{true, true, ACT_FINE}}},
        {4, 3, 76, true, false, false, false, true, true, 0.5f, 2,
         {{false, false, ACT_FINE}, {true, true, ACT_FINE}}},
        {150, 147, 5376, true, false, true, true, true, true, 1, 1, {{true, true, ACT_HALF}}},
        {200,
         190,
         2560,
         true,
         false,
         true,
         false,
         true,
         true,
         1,
         2,
         {{true, true, ACT_INT8}, {true, true, ACT_HALF}}},
        {140, 133, 2816, true, true, true, true, true, true, 0.3f, 1, {{true, true, ACT_HALF}}},
        {140, 140, 3840, true, true, true, false, true, true, 1, 2,
         {{true, true, ACT_HALF}, {true, false, ACT_NONE}}},
        {133, 130, 2560, true, true, false, true, true, true, 1, 1, {{true, true, ACT_NONE}}},
        {140, 133, 101, false, true, false, false, false, true, 1, 1, {{true, true, ACT_INT8}}},
        {3, 3, 20000, true, false, false, true, true, true, 1, 1, {{true, true, ACT_HALF}}},
        {5, 4, 7, false, true, true, false, true, true, 2, 1, {{true, false, ACT_INT8}}},
    };
    struct rng rng = {41};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(c, &rng, &shapes[i], false);
    check_halves(c, &rng);
    if (c->is_perf) measure_all(c);
}
/* clang-format on */
