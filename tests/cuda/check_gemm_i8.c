/* Products of many rows with 8-bit activations: all forms, ragged shapes, several weights in one
 * call, fp32 and fp16 results. Expected values are computed in double precision from the same
 * rounded activations. */
#include <stdio.h>
#include <string.h>

#include "cuda/check_act8.h"

static const enum format formats[] = {FORMAT_Q8_0,   FORMAT_Q4_0,    FORMAT_Q4_1,   FORMAT_Q5_0,
                                      FORMAT_Q5_1,   FORMAT_IQ4_NL,  FORMAT_Q4_K,   FORMAT_Q5_K,
                                      FORMAT_Q6_K,   FORMAT_Q3_K,    FORMAT_IQ4_XS, FORMAT_MXFP4,
                                      FORMAT_Q2_K,   FORMAT_IQ3_XXS, FORMAT_IQ3_S,  FORMAT_IQ2_XXS,
                                      FORMAT_IQ2_XS, FORMAT_IQ2_S,   FORMAT_IQ1_S,  FORMAT_IQ1_M};

struct product_case {
    int32_t n_rows, cols, n_w;
    int32_t w_rows[3];
    enum format format[3];
    bool is_half;
};

struct product_data {
    struct gemm_args args;
    struct act8 x;
    float *w[3];
};

/* Compares part k, whose rows of results start at `y` and lie `stride` apart. */
static void compare(struct check *c, const struct product_case *p, const struct product_data *d,
                    int k, const float *y, int32_t stride)
{
    size_t n = (size_t)p->n_rows * (size_t)p->w_rows[k];
    double *expected = malloc(n * sizeof *expected);
    float *found = malloc(n * sizeof *found);
    for (int32_t t = 0; t < p->n_rows; t++)
        for (int32_t r = 0; r < p->w_rows[k]; r++) {
            size_t at = (size_t)t * (size_t)p->w_rows[k] + (size_t)r;
            expected[at] = act8_dot(d->x.values + (size_t)t * (size_t)p->cols,
                                    d->w[k] + (size_t)r * (size_t)p->cols, p->cols);
            found[at] = y[(size_t)t * (size_t)stride + (size_t)r];
        }
    double error = check_nmse(found, expected, n), budget = act8_budget(p->format[k]);
    if (p->is_half) budget += 1e-7; /* fp16: 2^-12 at most, a third of its square on average */
    check_that(c, error <= budget, "gemm_i8 %s%s, %d x (%d) %d x %d: NMSE %.2g above %.2g",
               format_traits(p->format[k])->name, p->is_half ? " fp16" : "", p->n_rows, k,
               p->w_rows[k], p->cols, error, budget);
    free(expected);
    free(found);
}

static void compare_all(struct check *c, const struct product_case *p, const struct product_data *d)
{
    const struct gemm_args *a = &d->args;
    size_t n_max = (size_t)p->n_rows * (size_t)(p->w_rows[0] + p->w_rows[1] + p->w_rows[2]);
    float *y = malloc(n_max * sizeof *y);
    uint16_t *half = malloc(n_max * sizeof *half);
    if (p->is_half) {
        check_download(half, a->half, n_max * sizeof *half);
        for (size_t i = 0; i < n_max; i++) y[i] = f16_to_f32(half[i]);
    }
    int32_t column = 0;
    for (int k = 0; k < p->n_w; column += p->w_rows[k++]) {
        if (p->is_half) {
            compare(c, p, d, k, y + column, a->half_cols);
        } else {
            check_download(y, a->y[k], (size_t)p->n_rows * (size_t)p->w_rows[k] * sizeof *y);
            compare(c, p, d, k, y, p->w_rows[k]);
        }
    }
    free(y);
    free(half);
}

static void run_case(struct check *c, struct rng *rng, const struct product_case *p)
{
    struct product_data d = {.x = act8_make(rng, p->n_rows, p->cols)};
    struct gemm_args *a = &d.args;
    *a = (struct gemm_args){.n_rows = p->n_rows, .n_w = p->n_w, .x = d.x.act};
    for (int k = 0; k < p->n_w; k++) {
        a->w[k] = check_weight(c, rng, p->format[k], LAYOUT_TILES, 1, p->w_rows[k], p->cols, 0.05f,
                               &d.w[k]);
        a->half_cols += p->w_rows[k];
        size_t bytes = (size_t)p->n_rows * (size_t)p->w_rows[k] * sizeof(float);
        if (!p->is_half) a->y[k] = check_alloc(NULL, bytes);
    }
    if (p->is_half)
        a->half = check_alloc(NULL, (size_t)p->n_rows * (size_t)a->half_cols * sizeof *a->half);
    launch_gemm_i8(&c->queue, a);
    compare_all(c, p, &d);
    bool is_whole = check_free(a->half);
    for (int k = 0; k < p->n_w; k++) {
        is_whole = check_free(a->y[k]) && is_whole;
        check_weight_free(&a->w[k]);
        free(d.w[k]);
    }
    check_that(c, is_whole, "gemm_i8 wrote beyond its results");
    act8_free(&d.x);
}

/* A row has the same bits alone and among others, in every variant of the kernel. */
static void check_independence(struct check *c, struct rng *rng)
{
    enum { ROWS = 300, COLS = 448, W_ROWS = 200 };
    struct act8 x = act8_make(rng, ROWS, COLS);
    struct cuda_weight w =
        check_weight(c, rng, FORMAT_Q8_0, LAYOUT_TILES, 1, W_ROWS, COLS, 0.05f, NULL);
    static float all[ROWS * W_ROWS], few[ROWS * W_ROWS];
    float *y = check_alloc(NULL, sizeof all);
    struct gemm_args args = {.n_rows = ROWS, .n_w = 1, .w = {w}, .x = x.act, .y = {y}};
    launch_gemm_i8(&c->queue, &args);
    check_download(all, y, sizeof all);
    const int32_t counts[] = {1, 20, 40, 100, 128, 161, ROWS};
    int32_t capability = c->queue.capability;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        args.n_rows = counts[i];
        if (counts[i] == ROWS) c->queue.capability = 89; /* little shared memory: fewer stages */
        launch_gemm_i8(&c->queue, &args);
        size_t bytes = (size_t)counts[i] * W_ROWS * sizeof *few;
        check_download(few, y, bytes);
        check_that(c, memcmp(few, all, bytes) == 0, "gemm_i8: %d rows differ from %d", counts[i],
                   ROWS);
    }
    c->queue.capability = capability;
    check_free(y);
    check_weight_free(&w);
    act8_free(&x);
}

/* ---- Time ------------------------------------------------------------------------------- */

struct timed {
    struct check *c;
    struct gemm_args args;
};

static void run_timed(void *user)
{
    struct timed *t = user;
    launch_gemm_i8(&t->c->queue, &t->args);
}

/* Hot: weights and activations are in the L2 cache from the launch before, as far as they fit.
 * Cold: the cache is flushed before each launch. */
static void time_shape(struct check *c, struct rng *rng, enum format format, int32_t n_rows,
                       int32_t w_rows, int32_t cols, bool is_half)
{
    struct act8 x = act8_make(rng, n_rows, cols);
    struct timed t = {.c = c, .args = {.n_rows = n_rows, .n_w = 1, .x = x.act}};
    t.args.w[0] = act8_weight(rng, format, 1, w_rows, cols);
    float *y = check_alloc(NULL, (size_t)n_rows * (size_t)w_rows * sizeof *y);
    t.args.y[0] = y;
    if (is_half) t.args.half = (uint16_t *)(void *)y;
    t.args.half_cols = w_rows;
    double hot = check_time(c, run_timed, &t, false), cold = check_time(c, run_timed, &t, true);
    double ops = 2.0 * n_rows * w_rows * cols;
    printf("  gemm_i8 %-6s%s %5d x %6d x %5d  %8.1f us  %6.1f TOP/s (ceiling 372), cold %8.1f us\n",
           format_traits(format)->name, is_half ? " fp16" : "     ", n_rows, w_rows, cols,
           hot * 1e6, ops / hot / 1e12, cold * 1e6);
    fflush(stdout);
    check_free(y);
    check_weight_free(&t.args.w[0]);
    act8_free(&x);
}

static void time_shapes(struct check *c, struct rng *rng)
{
    const int32_t n_rows[] = {130, 512, 2048};
    /* E4B: up, down, q k v, o */
    const int32_t shapes[][2] = {{10240, 2560}, {2560, 10240}, {3072, 2560}, {2560, 2048}};
    const enum format some[] = {FORMAT_Q8_0, FORMAT_Q4_0};
    for (int f = 0; f < 2; f++)
        for (int s = 0; s < 4; s++)
            for (int n = 0; n < 3; n++)
                time_shape(c, rng, some[f], n_rows[n], shapes[s][0], shapes[s][1], false);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        time_shape(c, rng, formats[f], 2048, 10240, 2560, false);
    time_shape(c, rng, FORMAT_Q8_0, 96, 10240, 2560, false);
    time_shape(c, rng, FORMAT_Q8_0, 8192, 10240, 2560, false);
    time_shape(c, rng, FORMAT_Q8_0, 2048, 10240, 2560, true);
    time_shape(c, rng, FORMAT_Q4_0, 2048, 15360, 3840, false); /* 12B */
    int32_t capability = c->queue.capability;
    c->queue.capability = 89;
    printf("  with the stages of GeForce chips:\n");
    time_shape(c, rng, FORMAT_Q8_0, 2048, 10240, 2560, false);
    time_shape(c, rng, FORMAT_Q4_0, 2048, 10240, 2560, false);
    c->queue.capability = capability;
}

void check_gemm_i8(struct check *c)
{
    struct rng rng = {61};
    const int32_t n_rows[] = {1, 3, 17, 65, 130, 200};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        int32_t unit = format_traits(formats[f])->block_elements;
        for (size_t i = 0; i < sizeof n_rows / sizeof *n_rows; i++) {
            struct product_case p = {.n_rows = n_rows[i], .n_w = 1, .format = {formats[f]}};
            p.cols = unit * (unit == 32 ? 1 + 2 * (int32_t)i : 1 + (int32_t)i % 2);
            p.w_rows[0] = i == 0 ? 3 : i == 1 ? 40 : i == 2 ? 129 : i == 3 ? 264 : 134;
            run_case(c, &rng, &p);
        }
    }
    for (int is_half = 0; is_half < 2; is_half++) {
        struct product_case same = {
            130, 320, 3, {140, 36, 20}, {FORMAT_Q8_0, FORMAT_Q8_0, FORMAT_Q8_0}, is_half};
        struct product_case mixed = {
            70, 512, 3, {72, 41, 24}, {FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_Q4_K}, is_half};
        struct product_case pair = {33, 96, 2, {15, 31}, {FORMAT_Q4_0, FORMAT_Q4_0}, is_half};
        run_case(c, &rng, &same);
        run_case(c, &rng, &mixed);
        run_case(c, &rng, &pair);
    }
    check_independence(c, &rng);
    if (c->is_perf) time_shapes(c, &rng);
}
