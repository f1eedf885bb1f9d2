/* Norms of heads, RoPE and the cache against the formulas of the reference. launch_heads must
 * write what the single kernels write one after another. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/check.h"
#include "cuda/check_pages.h"
#include "quant/format.h"

/* Sums of squares in fp32; sine and cosine to an ulp. */
#define GROUP_NORM_BUDGET 1e-12
#define ROPE_BUDGET 1e-13

enum { ROWS = 5, LIVE = 4, SLOTS = 3, SEQUENCES = 3 };

static const int32_t positions[ROWS] = {0, 130000, 131071, 262143, 9};
static const int32_t sequences[ROWS] = {2, 0, 1, 0, 0}, out_rows[ROWS] = {0, 2, 3, 4, 1};

struct heads_case {
    int32_t head_dim, n_heads, n_kv;
    enum format format;
    bool has_q, has_k, is_k_eq_v, is_half, is_out;
    int32_t turned; /* keys are values but for so many columns; 0: apart */
};

/* Frequencies as a model has them for `turned` of the pairs. The other pairs do not turn. */
static float *frequencies(int32_t half, int32_t turned)
{
    float *f = calloc((size_t)half, sizeof *f);
    for (int32_t i = 0; i < turned; i++) f[i] = powf(10000.0f, -(float)i / (float)half);
    return f;
}

static struct step_view new_step(void)
{
    return check_step(ROWS, 0, LIVE, NULL, positions, sequences, out_rows);
}

/* ---- One by one ---------------------------------------------------------------------------- */

static void check_group_norm(struct check *c, struct rng *rng, int32_t group, int32_t n_groups,
                             bool has_w)
{
    size_t cols = (size_t)(group * n_groups), n = ROWS * cols, n_live = LIVE * cols;
    float *x, *w, *device = check_normal_device(rng, n, 2, &x);
    float *device_w = check_normal_device(rng, (size_t)group, 1, &w);
    float *out = check_alloc(NULL, n * sizeof *out), *y = malloc(n * sizeof *y);
    double *want = malloc(n * sizeof *want);
    struct step_view step = check_step(LIVE, 0, 0, NULL, NULL, NULL, NULL);
    launch_group_norm(&c->queue, step, (struct rows){ROWS, ROWS_TOKEN}, device,
                      has_w ? device_w : NULL, out, (int32_t)cols, group, 1e-6f);
    check_download(y, out, n * sizeof *y);
    for (size_t g = 0; g < n_live; g += (size_t)group) {
        double sum = 0;
        for (int32_t j = 0; j < group; j++)
            sum += (double)x[g + (size_t)j] * (double)x[g + (size_t)j];
        for (int32_t j = 0; j < group; j++)
            want[g + (size_t)j] =
                (double)x[g + (size_t)j] / sqrt(sum / group + 1e-6) * (has_w ? (double)w[j] : 1);
    }
    double error = check_nmse(y, want, n_live);
    for (size_t i = n_live; i < n; i++)
        if (!isnan(y[i])) error = INFINITY;
    check_that(c, error < GROUP_NORM_BUDGET, "group norm: %d groups of %d: %g", n_groups, group,
               error);
    check_that(c, check_free(out), "group norm: %d groups of %d wrote outside", n_groups, group);
    check_free(device);
    check_free(device_w);
    check_step_free(&step);
    free(x);
    free(w);
    free(y);
    free(want);
}

static void check_rope(struct check *c, struct rng *rng, int32_t d, int32_t n_heads, bool is_out)
{
    int32_t half = d / 2, cols = d * n_heads;
    size_t n = ROWS * (size_t)cols, n_live = LIVE * (size_t)cols;
    float *x, *device = check_normal_device(rng, n, 2, &x), *f = frequencies(half, half);
    float *device_f = check_alloc(f, (size_t)half * sizeof *f);
    float *out = check_alloc(NULL, n * sizeof *out), *y = malloc(n * sizeof *y);
    double *want = malloc(n_live * sizeof *want);
    struct step_view step =
        is_out ? new_step() : check_step(LIVE, 0, 0, NULL, positions, NULL, NULL);
    launch_rope(&c->queue, step, (struct rows){ROWS, is_out ? ROWS_OUT : ROWS_TOKEN}, device,
                device_f, out, cols, d, is_out);
    check_download(y, out, n * sizeof *y);
    for (int32_t i = 0; i < LIVE * cols; i++) {
        int32_t r = i / cols, j = i % d, pair = j % half, other = j < half ? i + half : i - half;
        float angle = (float)(positions[is_out ? out_rows[r] : r] + is_out) * f[pair];
        double s = sin((double)angle) * (j < half ? -1 : 1);
        want[i] = (double)x[i] * cos((double)angle) + (double)x[other] * s;
    }
    double error = check_nmse(y, want, n_live);
    for (size_t i = n_live; i < n; i++)
        if (!isnan(y[i])) error = INFINITY;
    check_that(c, error < ROPE_BUDGET, "rope: %d heads of %d: %g", n_heads, d, error);
    check_that(c, check_free(out), "rope: %d heads of %d wrote outside", n_heads, d);
    check_free(device);
    check_free(device_f);
    check_step_free(&step);
    free(x);
    free(f);
    free(y);
    free(want);
}

/* The same pages each time. */
static struct check_pages new_pages(enum format format, int32_t slots, int32_t n_heads,
                                    int32_t head_dim, int32_t turned)
{
    struct rng rng = {3};
    struct kv_cache shape = kv_cache_shape(format, slots, n_heads, head_dim);
    kv_share(&shape, turned);
    struct check_pages pages = check_pages_new(&rng, &shape, SEQUENCES);
    check_pages_upload(&pages);
    return pages;
}

static void check_kv_write(struct check *c, struct rng *rng, enum format format, int32_t n_heads,
                           int32_t head_dim, int32_t turned)
{
    size_t cols = (size_t)(n_heads * head_dim), n = ROWS * cols;
    struct check_pages pages = new_pages(format, SLOTS, n_heads, head_dim, turned);
    float *x[2], *device[2];
    for (int i = 0; i < 2; i++) device[i] = check_normal_device(rng, n, i ? 1e-3f : 5, &x[i]);
    struct step_view step = check_step(LIVE, 0, 0, NULL, positions, sequences, NULL);
    launch_kv_write(&c->queue, step, (struct rows){ROWS, ROWS_TOKEN}, device[0], device[1],
                    pages.device);
    for (size_t t = 0; t < LIVE; t++) {
        size_t offset = kv_offset(&pages.host, sequences[t], positions[t]);
        check_share_columns(&pages.host, x[0] + t * cols, x[1] + t * cols);
        for (int i = 0; i < 2; i++)
            check_cell_write(&pages.host, (char *)(i ? pages.host.v : pages.host.k) + offset,
                             i == 1, x[i] + t * cols);
    }
    free(x[0]), free(x[1]);
    check_that(c, check_pages_same(&pages), "kv_write: %s, %d heads of %d, %d turned",
               format_traits(format)->name, n_heads, head_dim, turned);
    for (int i = 0; i < 2; i++) check_free(device[i]);
    check_that(c, check_pages_free(&pages), "kv_write: wrote outside");
    check_step_free(&step);
}

/* ---- All in one ---------------------------------------------------------------------------- */

struct heads_run {
    struct queue *queue;
    struct heads_args args;
    float *parts[3]; /* q, k, v in fp32 on the device */
    struct check_pages pages;
};

/* q, k and v next to each other in fp16 rows, each row with a power of two as its scale. `parts`
 * gets the values. */
static void as_halves(struct heads_run *run, float *const host[3], int32_t rows)
{
    struct heads_args *p = &run->args;
    int32_t d = p->cache.head_dim, widths[3] = {p->n_heads * d, p->cache.n_heads * d,
                                                p->is_k_eq_v ? 0 : p->cache.n_heads * d};
    int32_t cols = widths[0] + widths[1] + widths[2];
    uint16_t *half = malloc((size_t)rows * (size_t)cols * sizeof *half);
    float *scale = malloc((size_t)rows * sizeof *scale);
    p->q_col = 0, p->k_col = widths[0], p->v_col = widths[0] + widths[1];
    p->half_cols = cols;
    for (int32_t r = 0; r < rows; r++) {
        scale[r] = ldexpf(1, r % 7 - 3);
        int32_t at = r * cols;
        for (int i = 0; i < 3; i++)
            for (int32_t j = 0; j < widths[i]; j++, at++) {
                half[at] = f32_to_f16(host[i][r * widths[i] + j]);
                host[i][r * widths[i] + j] = scale[r] * f16_to_f32(half[at]);
            }
    }
    for (int i = 0; i < 3; i++)
        check_upload(run->parts[i], host[i], (size_t)rows * (size_t)widths[i] * sizeof(float));
    p->half = check_alloc(half, (size_t)rows * (size_t)cols * sizeof *half);
    p->half_scale = check_alloc(scale, (size_t)rows * sizeof *scale);
    free(half);
    free(scale);
}

static struct heads_run new_run(struct check *c, struct rng *rng, const struct heads_case *k,
                                int32_t rows, int32_t slots, struct step_view step)
{
    struct heads_run run = {.queue = &c->queue};
    struct heads_args *p = &run.args;
    size_t d = (size_t)k->head_dim, n_q = (size_t)(rows * k->n_heads) * d;
    size_t n_kv = (size_t)(rows * k->n_kv) * d;
    float *host[3],
        *f = frequencies(k->head_dim / 2, k->head_dim > 256 ? k->head_dim / 8 : k->head_dim / 2);
    for (int i = 0; i < 3; i++)
        run.parts[i] = check_normal_device(rng, i ? n_kv : n_q, 2, &host[i]);
    p->step = step;
    p->rows = (struct rows){rows, k->is_out ? ROWS_OUT : ROWS_TOKEN};
    p->has_q = k->has_q;
    p->has_k = k->has_k;
    p->is_k_eq_v = k->is_k_eq_v;
    p->w_q = check_normal_device(rng, d, 1, NULL);
    p->w_k = check_normal_device(rng, d, 1, NULL);
    p->inv_freq = check_alloc(f, d / 2 * sizeof *f);
    p->eps = 1e-6f;
    p->n_heads = k->n_heads;
    p->ahead = !k->has_k; /* as a drafter has it */
    run.pages = new_pages(k->format, slots, k->n_kv, k->head_dim, k->turned);
    p->cache = run.pages.device;
    if (k->has_q) p->q_out = check_alloc(NULL, n_q * sizeof(float));
    if (k->is_half) {
        as_halves(&run, host, rows);
    } else {
        p->q = k->has_q ? run.parts[0] : NULL;
        p->k = k->has_k ? run.parts[1] : NULL;
        p->v = k->is_k_eq_v ? run.parts[1] : run.parts[2];
    }
    /* As a layer has it that reads the cache of another: no table. */
    if (!k->has_k) p->cache = (struct kv_cache){.head_dim = k->head_dim};
    for (int i = 0; i < 3; i++) free(host[i]);
    free(f);
    return run;
}

static bool free_run(struct heads_run *run)
{
    struct heads_args *p = &run->args;
    const void *owned[] = {p->w_q,        p->w_k,        p->inv_freq,   p->q_out,     p->half,
                           p->half_scale, run->parts[0], run->parts[1], run->parts[2]};
    bool is_whole = check_pages_free(&run->pages);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        is_whole = check_free((void *)(uintptr_t)owned[i]) && is_whole;
    return is_whole;
}

static void launch_run(void *user)
{
    struct heads_run *run = user;
    launch_heads(run->queue, &run->args);
}

static void check_all_in_one(struct check *c, struct rng *rng, const struct heads_case *k)
{
    struct step_view step = new_step();
    struct heads_run run = new_run(c, rng, k, ROWS, SLOTS, step);
    struct heads_args *p = &run.args;
    int32_t d = k->head_dim, cols[2] = {k->n_heads * d, k->n_kv * d};
    if (!k->is_out) check_upload((void *)(uintptr_t)step.counts, &(int32_t){LIVE}, sizeof(int32_t));
    launch_run(&run);
    float *a = check_alloc(NULL, ROWS * (size_t)cols[0] * sizeof *a);
    float *b = check_alloc(NULL, ROWS * (size_t)cols[0] * sizeof *b);
    float *k_out = check_alloc(NULL, ROWS * (size_t)cols[1] * sizeof *a);
    float *v_out = check_alloc(NULL, ROWS * (size_t)cols[1] * sizeof *a);
    struct check_pages pages = new_pages(k->format, SLOTS, k->n_kv, d, k->turned);
    if (k->has_q) {
        launch_group_norm(&c->queue, step, p->rows, run.parts[0], p->w_q, a, cols[0], d, p->eps);
        launch_rope(&c->queue, step, p->rows, a, p->inv_freq, b, cols[0], d, p->ahead);
        check_that(c, check_is_same(b, p->q_out, ROWS * (size_t)cols[0] * sizeof *a),
                   "heads: q of %d, %s", d, format_traits(k->format)->name);
    }
    if (k->has_k) {
        launch_group_norm(&c->queue, step, p->rows, run.parts[1], p->w_k, a, cols[1], d, p->eps);
        launch_rope(&c->queue, step, p->rows, a, p->inv_freq, k_out, cols[1], d, p->ahead);
        launch_group_norm(&c->queue, step, p->rows, run.parts[k->is_k_eq_v ? 1 : 2], NULL, v_out,
                          cols[1], d, p->eps);
        launch_kv_write(&c->queue, step, p->rows, k_out, v_out, pages.device);
    }
    check_that(c, check_is_same(pages.device_pool, run.pages.device_pool, pages.pool_bytes),
               "heads: cache %s of %d", format_traits(k->format)->name, d);
    bool is_whole = check_free(a) & check_free(b) & check_free(k_out) & check_free(v_out) &
                    check_pages_free(&pages);
    check_that(c, free_run(&run) && is_whole, "heads: %d wrote outside", d);
    check_step_free(&step);
}

/* More rows than multiprocessors, in halves, against the same values in fp32, of which another
 * kernel makes the same bits. */
static void check_many(struct check *c, struct rng *rng, const struct heads_case *k)
{
    int32_t rows = c->queue.n_sm + 8, live = rows - 3, slots = kv_pages(6 * rows);
    int32_t *position = malloc((size_t)rows * sizeof *position);
    int32_t *sequence = malloc((size_t)rows * sizeof *sequence);
    int32_t *out_row = malloc((size_t)rows * sizeof *out_row);
    for (int32_t r = 0; r < rows; r++) {
        position[r] = 5 * r + r / 8;
        sequence[r] = r % SEQUENCES;
        out_row[r] = rows - 1 - r;
    }
    struct step_view step = check_step(rows, 0, live, NULL, position, sequence, out_row);
    if (!k->is_out) check_upload((void *)(uintptr_t)step.counts, &live, sizeof live);
    struct heads_run run = new_run(c, rng, k, rows, slots, step), floats = run;
    struct heads_args *p = &floats.args;
    size_t bytes = (size_t)(rows * k->n_heads * k->head_dim) * sizeof(float);
    floats.pages = new_pages(k->format, slots, k->n_kv, k->head_dim, k->turned);
    p->cache = floats.pages.device;
    p->half = NULL;
    p->q = run.parts[0], p->k = run.parts[1], p->v = run.parts[k->is_k_eq_v ? 1 : 2];
    if (k->has_q) p->q_out = check_alloc(NULL, bytes);
    launch_run(&run);
    launch_run(&floats);
    check_that(c, !k->has_q || check_is_same(p->q_out, run.args.q_out, bytes),
               "heads: q of %d, many rows", k->head_dim);
    check_that(c,
               check_is_same(floats.pages.device_pool, run.pages.device_pool, run.pages.pool_bytes),
               "heads: cache of %d, many rows", k->head_dim);
    bool is_whole = check_pages_free(&floats.pages);
    if (k->has_q) is_whole = check_free(p->q_out) && is_whole;
    check_that(c, free_run(&run) && is_whole, "heads: many rows of %d wrote outside", k->head_dim);
    check_step_free(&step);
    free(position), free(sequence), free(out_row);
}

static void measure(struct check *c, const struct heads_case *k, int32_t rows)
{
    struct rng rng = {8};
    int32_t *position = malloc((size_t)rows * sizeof *position);
    int32_t *sequence = calloc((size_t)rows, sizeof *sequence);
    for (int32_t r = 0; r < rows; r++) position[r] = 3000 + r;
    struct step_view step = check_step(rows, 0, rows, NULL, position, sequence, sequence);
    struct heads_run run = new_run(c, &rng, k, rows, kv_pages(rows) + 1, step);
    size_t cell = format_row_bytes(k->format, k->n_kv * k->head_dim);
    double warm = check_time_graph(c, launch_run, &run),
           cold = check_time(c, launch_run, &run, true);
    double bytes = (double)rows *
                       ((k->n_heads + 2 * k->n_kv) * (k->is_half ? 2.0 : 4.0) + k->n_heads * 4.0) *
                       k->head_dim +
                   (double)rows * 2 * (double)cell;
    printf("heads %5d rows, %d + 2 x %d of %d, %s  in a graph %7.2f us  cold %7.2f us %6.0f GB/s "
           "(bound %.2f us)\n",
           rows, k->n_heads, k->n_kv, k->head_dim, k->is_half ? "fp16" : "fp32", warm * 1e6,
           cold * 1e6, bytes / cold / 1e9, bytes / 4.67e12 * 1e6);
    free_run(&run);
    check_step_free(&step);
    free(position);
    free(sequence);
}

void check_heads(struct check *c)
{
    static const struct heads_case cases[] = {
        {256, 8, 2, FORMAT_F16, true, true, false, false, false, 0},
        {512, 8, 2, FORMAT_F16, true, true, false, true, false, 0},
        {512, 16, 1, FORMAT_Q8_0, true, true, true, false, false, 0},
        {512, 4, 1, FORMAT_BF16, true, true, true, true, true, 0},
        {256, 8, 1, FORMAT_F32, true, false, false, false, true, 0},
        {256, 3, 1, FORMAT_Q8_0, false, true, false, true, false, 0},
        {128, 4, 2, FORMAT_Q8_0, true, true, false, false, false, 0},
        {64, 5, 1, FORMAT_Q8_0, true, true, false, false, false, 0},
        {32, 4, 2, FORMAT_Q8_0, true, true, false, true, false, 0},
        {32, 3, 1, FORMAT_F16, true, true, true, false, false, 0},
    };
    static const struct heads_case models[] = {
        {256, 8, 2, FORMAT_F16, true, true, false, false, false, 0},
        {512, 8, 2, FORMAT_F16, true, true, false, false, false, 0},
        {256, 8, 2, FORMAT_F16, true, true, false, true, false, 0},
        {512, 8, 2, FORMAT_F16, true, true, false, true, false, 0},
        {256, 16, 8, FORMAT_F16, true, true, false, true, false, 0},
        {512, 16, 1, FORMAT_F16, true, true, true, false, false, 128},
        {512, 16, 2, FORMAT_F16, true, true, true, true, true, 128},
        {512, 8, 4, FORMAT_F32, true, true, true, false, false, 128},
        {512, 8, 4, FORMAT_BF16, false, true, true, true, false, 128},
        {512, 16, 2, FORMAT_Q8_0, true, true, true, true, false, 256},
        {512, 16, 1, FORMAT_Q8_0, true, true, true, false, true, 256},
        {256, 8, 2, FORMAT_F16, true, true, true, true, false, 64},
    };
    struct rng rng = {61};
    static const int32_t groups[][2] = {{256, 8},  {512, 3},  {32, 5}, {64, 2}, {128, 9},
                                        {2560, 1}, {8192, 1}, {40, 3}, {20, 7}, {1024, 2}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        check_group_norm(c, &rng, groups[i][0], groups[i][1], i % 2 == 0);
    static const int32_t heads[][2] = {{256, 8}, {512, 3}, {32, 5}, {64, 2}, {128, 9}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        check_rope(c, &rng, heads[i][0], heads[i][1], i % 2 == 1);
    static const enum format formats[] = {FORMAT_F16, FORMAT_BF16, FORMAT_F32, FORMAT_Q8_0};
    for (int i = 0; i < 4; i++) {
        check_kv_write(c, &rng, formats[i], 2, 256, 0);
        check_kv_write(c, &rng, formats[i], 3, 32, 0);
        check_kv_write(c, &rng, formats[i], 4, 512, 0);
        check_kv_write(c, &rng, formats[i], 4, 512, 256);
        if (formats[i] == FORMAT_Q8_0) continue;
        check_kv_write(c, &rng, formats[i], 4, 512, 128);
        check_kv_write(c, &rng, formats[i], 1, 512, 448);
        check_kv_write(c, &rng, formats[i], 3, 128, 64);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_all_in_one(c, &rng, &cases[i]);
    static const struct heads_case many[] = {
        {256, 8, 2, FORMAT_F16, true, true, false, true, false, 0},
        {256, 16, 8, FORMAT_F16, true, true, false, true, false, 0},
        {256, 5, 3, FORMAT_F16, true, true, false, true, true, 0},
        {256, 8, 2, FORMAT_F16, true, false, false, true, true, 0},
        {256, 3, 1, FORMAT_F16, false, true, false, true, false, 0},
        {512, 8, 2, FORMAT_F16, true, true, false, true, false, 0},
        {512, 16, 1, FORMAT_F16, true, true, true, true, false, 0},
        {512, 8, 2, FORMAT_Q8_0, true, true, false, true, false, 0},
        {512, 16, 1, FORMAT_F16, true, true, true, true, false, 128},
        {512, 32, 4, FORMAT_F16, false, true, true, true, false, 128},
    };
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) check_many(c, &rng, &many[i]);
    for (int i = 0; c->is_perf && i < 5; i++) {
        if (!models[i].is_half) measure(c, &models[i], 1);
        measure(c, &models[i], 2048);
    }
}
