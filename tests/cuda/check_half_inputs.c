/* Per-layer inputs with the norms around them in one launch on Hopper: against the four launches
 * that it stands for (check_norm.c, check_half.c), bit for bit between numbers of rows, and its
 * time after a product like that of down. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/act.h"
#include "backend/cuda/kernels/sm90/half_inputs.h"
#include "cuda/check_tiles.h"

/* Rows as fp16, and up's results, which four launches round to fp16. */
#define BUDGET 1e-6

enum { ROWS = 64, COLS_MAX = 2560 };

struct inputs_case {
    enum format format;
    int n_embd, n_ple;
};

static const struct inputs_case cases[] = {
    {FORMAT_Q8_0, 2560, 256}, {FORMAT_Q4_0, 1536, 256}, {FORMAT_Q6_K, 2560, 256},
    {FORMAT_Q5_1, 512, 224},  {FORMAT_Q4_K, 1024, 256}, {FORMAT_IQ4_NL, 2048, 96},
    {FORMAT_Q5_0, 1536, 32},
};

/* What four launches read and write, of ROWS rows; `one` is what one launch reads and writes. */
struct inputs_data {
    struct half_inputs_args one;
    struct gemm_args gate, up;
    struct norm_args before, after;
    void *allocated[16];
    int n_allocated;
};

static void *room(struct inputs_data *d, const void *host, size_t bytes)
{
    return d->allocated[d->n_allocated++] = check_alloc(host, bytes);
}

static float *normal(struct inputs_data *d, struct rng *rng, size_t n, float scale, float *wrong)
{
    float *x = calloc(n, sizeof *x);
    check_normal(rng, x, n, scale);
    if (wrong) x[n / ROWS * 13 + 5] = *wrong;
    float *on_device = room(d, x, n * sizeof *x);
    free(x);
    return on_device;
}

static struct act room_for_rows(struct inputs_data *d, int cols)
{
    return act_at(room(d, NULL, act_bytes(ROWS, cols)), ACT_CORES, ROWS, cols);
}

/* wrong: a value of row 13 of the residual, or NULL. */
static struct inputs_data data_make(struct check *c, const struct inputs_case *what, float *wrong)
{
    struct inputs_data d = {0};
    struct rng rng = {.state = 5};
    int32_t cols = what->n_embd, n_ple = what->n_ple;
    size_t n = (size_t)(ROWS * cols);
    uint16_t *half = calloc(n, sizeof *half);
    float scale[ROWS];
    for (size_t i = 0; i < n; i++)
        half[i] = f32_to_f16((float)rng_below(&rng, 2001) / 100.0f - 10.0f);
    for (int i = 0; i < ROWS; i++) scale[i] = ldexpf(1, (int)rng_below(&rng, 7) - 3);
    d.before = (struct norm_args){.rows = {ROWS, 0}, .cols = cols, .eps = 1e-6f, .scale = 1};
    d.before.a_half = room(&d, half, n * sizeof *half);
    d.before.a_scale = room(&d, scale, sizeof scale);
    d.before.is_normed = true;
    d.before.w_a = normal(&d, &rng, (size_t)cols, 1, NULL);
    d.before.residual = normal(&d, &rng, n, 3, wrong);
    d.after = d.before;
    d.before.x_out = room(&d, NULL, n * sizeof(float));
    d.before.n_outs = d.after.n_outs = 1;
    d.before.out[0].act = room_for_rows(&d, cols);
    d.after.a_half = room(&d, NULL, n * sizeof *half);
    d.after.residual = d.before.x_out;
    d.after.w_a = normal(&d, &rng, (size_t)cols, 1, NULL);
    d.after.scale = 0.37f;
    d.after.out[0].is_normed = true;
    d.after.out[0].w = normal(&d, &rng, (size_t)cols, 1, NULL);
    d.gate = (struct gemm_args){.n_w = 1, .x = d.before.out[0].act};
    d.gate.w[0] = check_weight(c, &rng, what->format, LAYOUT_TILES, 1, n_ple, cols, 0.05f, NULL);
    d.gate.by_cols = n_ple + 8;
    d.gate.by = normal(&d, &rng, (size_t)(ROWS * d.gate.by_cols), 2, NULL) + 4;
    d.gate.hidden = room_for_rows(&d, n_ple);
    d.up = (struct gemm_args){.n_w = 1, .x = d.gate.hidden, .half_cols = cols};
    d.up.w[0] = check_weight(c, &rng, what->format, LAYOUT_TILES, 1, cols, n_ple, 0.05f, NULL);
    d.up.half = (uint16_t *)(void *)(uintptr_t)d.after.a_half;
    d.after.a_scale = d.gate.hidden.scale;
    d.one = (struct half_inputs_args){.before = d.before,
                                      .after = d.after,
                                      .gate = d.gate.w[0],
                                      .up = d.up.w[0],
                                      .by = d.gate.by,
                                      .by_cols = d.gate.by_cols};
    d.one.before.x_out = NULL, d.one.before.out[0].act.values = NULL;
    d.one.after.a_half = NULL, d.one.after.residual = NULL, d.one.after.a_scale = NULL;
    free(half);
    return d;
}

static void data_free(struct check *c, struct inputs_data *d)
{
    bool is_whole = true;
    for (int i = 0; i < d->n_allocated; i++) is_whole = check_free(d->allocated[i]) && is_whole;
    check_that(c, is_whole, "half_inputs: inputs overwritten");
    check_weight_free(&d->gate.w[0]);
    check_weight_free(&d->up.w[0]);
}

static void start(struct check *c, struct inputs_data *d, bool is_one, int n_rows)
{
    d->gate.n_rows = d->up.n_rows = d->one.n_rows = n_rows;
    d->before.rows.max = d->after.rows.max = n_rows;
    d->after.step = d->before.step;
    if (is_one) {
        launch_half_inputs(&c->queue, &d->one);
        return;
    }
    launch_norm(&c->queue, &d->before);
    launch_half(&c->queue, &d->gate);
    launch_half(&c->queue, &d->up);
    launch_norm(&c->queue, &d->after);
}

struct results {
    float x[ROWS * COLS_MAX], y[ROWS * COLS_MAX], scale[ROWS];
    uint16_t values[ROWS * COLS_MAX];
};

/* Whether nothing else was written. */
static bool run(struct check *c, struct inputs_data *d, bool is_one, int n_rows,
                struct results *out)
{
    int cols = d->before.cols;
    size_t n = (size_t)(n_rows * cols);
    struct norm_args *after = is_one ? &d->one.after : &d->after;
    struct step_view step = check_step(n_rows, n_rows, 0, NULL, NULL, NULL, NULL);
    d->before.step = step;
    after->x_out = check_alloc(NULL, n * sizeof(float));
    after->out[0].y = check_alloc(NULL, n * sizeof(float));
    void *memory = check_alloc(NULL, act_bytes(ROWS, cols));
    after->out[0].act = act_at(memory, ACT_CORES, ROWS, cols);
    d->one.n_rows = n_rows;
    check_that(c, half_inputs_takes(&c->queue, &d->one), "half_inputs_takes");
    start(c, d, is_one, n_rows);
    check_download(out->x, after->x_out, n * sizeof(float));
    check_download(out->y, after->out[0].y, n * sizeof(float));
    check_download(out->values, after->out[0].act.values, ROWS * (size_t)cols * 2);
    check_download(out->scale, after->out[0].act.scale, (size_t)n_rows * sizeof(float));
    bool is_whole = check_free(after->x_out);
    is_whole = check_free(after->out[0].y) && is_whole;
    check_step_free(&step);
    return check_free(memory) && is_whole;
}

static double distance(const float *a, const float *b, int n)
{
    double error = 0, all = 0;
    for (int i = 0; i < n; i++) {
        double x = (double)a[i], y = (double)b[i];
        error += (x - y) * (x - y), all += y * y;
    }
    return error / all;
}

/* Place of a value among those of ACT_CORES, of up to 64 rows. */
static size_t core_place(size_t row, size_t col)
{
    size_t k = col % 64 / 16 * 16 + col % 2 * 8 + col % 16 / 4 * 2 + col % 4 / 2;
    return ((col / 64 * 8 + row / 8) * 8 + k / 8) * 64 + row % 8 * 8 + k % 8;
}

/* Whether rows are y as fp16 with scales of a power of two that bring the largest into [1, 2), or
 * next to it: it is found before the last rounding. */
static bool are_rounded(const struct results *r, int n_rows, int cols)
{
    bool is_right = true;
    for (int t = 0; t < n_rows; t++) {
        float most = 0, scale = r->scale[t];
        for (int k = 0; k < cols; k++) {
            float y = r->y[t * cols + k],
                  v = f16_to_f32(r->values[core_place((size_t)t, (size_t)k)]);
            most = fmaxf(most, fabsf(y));
            is_right = is_right && v == f16_to_f32(f32_to_f16(y / scale));
        }
        is_right = is_right && most >= scale * 0.9999f && most < scale * 2.0001f;
    }
    return is_right;
}

static void check_case(struct check *c, const struct inputs_case *what)
{
    static const int counts[] = {1, 3, 8, 9, 17, 33, 63};
    static struct results one, four, few;
    struct inputs_data d = data_make(c, what, NULL);
    const char *name = format_traits(what->format)->name;
    int cols = what->n_embd, all = ROWS * cols;
    bool is_whole = run(c, &d, true, ROWS, &one) && run(c, &d, false, ROWS, &four);
    double x = distance(one.x, four.x, all), y = distance(one.y, four.y, all);
    check_that(c, is_whole, "half_inputs %s %d: writes elsewhere", name, cols);
    check_that(c, x <= BUDGET && y <= BUDGET, "half_inputs %s %d: nmse %.3g, %.3g", name, cols, x,
               y);
    check_that(c, are_rounded(&one, ROWS, cols), "half_inputs %s %d: activations", name, cols);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t n = (size_t)(counts[i] * cols);
        is_whole = run(c, &d, true, counts[i], &few);
        bool is_same = memcmp(few.x, one.x, n * sizeof *one.x) == 0 &&
                       memcmp(few.y, one.y, n * sizeof *one.y) == 0 &&
                       memcmp(few.scale, one.scale, (size_t)counts[i] * sizeof *one.scale) == 0;
        check_that(c, is_whole && is_same && are_rounded(&few, counts[i], cols),
                   "half_inputs %s %d: %d rows", name, cols, counts[i]);
    }
    data_free(c, &d);
}

/* A row that is not finite stays alone. */
static void check_nan(struct check *c)
{
    static struct results clean, wrong;
    float nan = NAN;
    struct inputs_data a = data_make(c, &cases[0], NULL), b = data_make(c, &cases[0], &nan);
    int cols = cases[0].n_embd;
    run(c, &a, true, ROWS, &clean);
    run(c, &b, true, ROWS, &wrong);
    bool is_right = true;
    for (int i = 0; i < ROWS * cols; i++)
        is_right = is_right && (i / cols == 13 ? isnan(wrong.y[i]) : wrong.y[i] == clean.y[i]);
    for (int i = 0; i < ROWS; i++) is_right = is_right && (i == 13) == isnan(wrong.scale[i]);
    check_that(c, is_right, "half_inputs: a row of NaN");
    data_free(c, &a);
    data_free(c, &b);
}

/* ---- Time ------------------------------------------------------------------------------------ */

enum { COPIES = 48, DOWNS = 12 };

struct timed {
    struct check *c;
    struct inputs_data data;
    struct cuda_weight gate[COPIES], up[COPIES];
    struct gemm_args down[DOWNS];
    int n_rows;
    bool is_one, is_down_alone;
};

static void record(void *user, int i)
{
    struct timed *t = user;
    struct inputs_data *d = &t->data;
    t->down[i % DOWNS].n_rows = t->n_rows;
    launch_half(&t->c->queue, &t->down[i % DOWNS]);
    d->one.gate = d->gate.w[0] = t->gate[i % COPIES];
    d->one.up = d->up.w[0] = t->up[i % COPIES];
    if (!t->is_down_alone) start(t->c, d, t->is_one, t->n_rows);
}

static void time_shape(struct check *c, const struct inputs_case *what)
{
    static const int rows[] = {9, 16, 32, 64};
    static struct timed t;
    struct inputs_data *d = &t.data;
    int cols = what->n_embd;
    size_t bytes, n = (size_t)(ROWS * cols);
    *d = data_make(c, what, NULL);
    struct cuda_weight first[2] = {d->gate.w[0], d->up.w[0]};
    t.c = c;
    struct act x = room_for_rows(d, 4 * cols), out = room_for_rows(d, cols);
    float *x_out = room(d, NULL, n * sizeof(float));
    fill_random(x.values, act_bytes(ROWS, 4 * cols));
    d->after.x_out = d->one.after.x_out = x_out;
    d->after.out[0].act = d->one.after.out[0].act = out;
    for (int i = 0; i < COPIES; i++) {
        t.gate[i] = weight_of_noise(what->format, 1, what->n_ple, cols, &bytes);
        t.up[i] = weight_of_noise(what->format, 1, cols, what->n_ple, &bytes);
    }
    for (int i = 0; i < DOWNS; i++) {
        t.down[i] = (struct gemm_args){.n_w = 1, .x = x, .half_cols = cols};
        t.down[i].w[0] = weight_of_noise(what->format, 1, cols, 4 * cols, &bytes);
        t.down[i].half = (uint16_t *)(void *)(uintptr_t)d->before.a_half;
    }
    printf("after down of %d, us, one launch (four):", cols);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double us[3];
        struct step_view step = check_step(rows[i], rows[i], 0, NULL, NULL, NULL, NULL);
        d->before.step = step, t.n_rows = rows[i];
        for (int k = 0; k < 3; k++) {
            t.is_down_alone = k == 0, t.is_one = k == 1;
            us[k] = graph_time(c, record, &t, COPIES) * 1e6;
        }
        printf("  %d: %.2f (%.2f)", rows[i], us[1] - us[0], us[2] - us[0]);
        check_step_free(&step);
    }
    puts("");
    for (int i = 0; i < COPIES; i++) check_weight_free(&t.gate[i]), check_weight_free(&t.up[i]);
    for (int i = 0; i < DOWNS; i++) check_weight_free(&t.down[i].w[0]);
    d->gate.w[0] = first[0], d->up.w[0] = first[1];
    data_free(c, d);
}

void check_half_inputs(struct check *c)
{
    struct gemm_args none = {.n_rows = 1, .x = {.kind = ACT_CORES}};
    if (!half_takes(&c->queue, &none)) {
        check_that(c, c->queue.capability != 90, "half_takes");
        puts("half_inputs: for Hopper only");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(c, &cases[i]);
    check_nan(c);
    if (!c->is_perf) return;
    time_shape(c, &cases[0]);
    time_shape(c, &cases[1]);
}
