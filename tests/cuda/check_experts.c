/* Products with chosen experts: against double precision, bit for bit between numbers of rows,
 * and with an id that belongs to no expert. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/check_tiles.h"

enum { ROWS = MATVEC_ROWS_MAX, USED = 4, EXPERTS = 12 };

static double gelu_exactly(double a)
{
    return 0.5 * a * (1 + tanh(0.79788456080286536 * (a + 0.044715 * a * a * a)));
}

struct expert_data {
    struct cuda_weight gate, up, down;
    struct act x, x_down;
    float *floats, *floats_down;
    int32_t *ids;
    float *shares;
    double *expected_gate, *expected_up, *expected_down; /* [pairs][ff], [pairs][ff], [rows][h] */
    int h, ff;
};

/* Distinct experts for each row, as a router chooses them. */
static void choose(struct rng *rng, int32_t *ids)
{
    for (int r = 0; r < ROWS; r++)
        for (int s = 0; s < USED; s++) {
            bool is_new = false;
            while (!is_new) {
                ids[r * USED + s] = (int32_t)rng_below(rng, EXPERTS);
                is_new = true;
                for (int i = 0; i < s; i++)
                    is_new = is_new && ids[r * USED + i] != ids[r * USED + s];
            }
        }
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void make_data(struct check *c, struct expert_data *d, enum format format, int h, int ff)
{
    enum { PAIRS = ROWS * USED };
    struct rng rng = {(uint64_t)format + 9};
    bool is_tiles = format_traits(format)->block_elements > 1;
    enum cuda_layout layout = is_tiles ? LAYOUT_TILES : LAYOUT_ROWS;
    float *gate, *up, *down, shares[PAIRS];
    int32_t ids[PAIRS];
    size_t n_x = (size_t)(ROWS * h), n_down = (size_t)(PAIRS * ff);
    float *x = malloc(n_x * sizeof *x), *x_down = malloc(n_down * sizeof *x);
    d->h = h, d->ff = ff;
    check_normal(&rng, x, n_x, 1);
    check_normal(&rng, x_down, n_down, 1);
    check_normal(&rng, shares, PAIRS, 1);
    choose(&rng, ids);
    if (is_tiles) {
        d->x = act_of(x, ROWS, h);
        d->x_down = act_of(x_down, PAIRS, ff);
    }
    d->gate = check_weight(c, &rng, format, layout, EXPERTS, ff, h, 0.05f, &gate);
    d->up = check_weight(c, &rng, format, layout, EXPERTS, ff, h, 0.05f, &up);
    d->down = check_weight(c, &rng, format, layout, EXPERTS, h, ff, 0.05f, &down);
    d->expected_gate = malloc(n_down * sizeof(double));
    d->expected_up = malloc(n_down * sizeof(double));
    d->expected_down = calloc(n_x, sizeof(double));
    for (int p = 0; p < PAIRS; p++) {
        size_t at = (size_t)ids[p] * (size_t)(ff * h);
        for (int j = 0; j < ff; j++) {
            size_t row = at + (size_t)(j * h);
            d->expected_gate[p * ff + j] = dot(gate + row, x + p / USED * h, h);
            d->expected_up[p * ff + j] = dot(up + row, x + p / USED * h, h);
        }
        for (int j = 0; j < h; j++)
            d->expected_down[p / USED * h + j] +=
                (double)shares[p] * dot(down + at + j * ff, x_down + p * ff, ff);
    }
    d->floats = check_alloc(x, n_x * sizeof *x);
    d->floats_down = check_alloc(x_down, n_down * sizeof *x);
    d->ids = check_alloc(ids, sizeof ids);
    d->shares = check_alloc(shares, sizeof shares);
    free(gate);
    free(up);
    free(down);
    free(x);
    free(x_down);
}

static void free_data(struct expert_data *d)
{
    check_weight_free(&d->gate);
    check_weight_free(&d->up);
    check_weight_free(&d->down);
    if (d->x.values) {
        act_free(&d->x);
        act_free(&d->x_down);
    }
    check_free(d->floats);
    check_free(d->floats_down);
    check_free(d->ids);
    check_free(d->shares);
    free(d->expected_gate);
    free(d->expected_up);
    free(d->expected_down);
}

struct expert_results {
    float *gate, *up, *fused, *down;
};

static struct expert_results take_results(int h, int ff)
{
    size_t pairs = (size_t)(ROWS * USED * ff) * sizeof(float);
    return (struct expert_results){malloc(pairs), malloc(pairs), malloc(pairs),
                                   malloc((size_t)(ROWS * h) * sizeof(float))};
}

static void give_results(struct expert_results *r)
{
    free(r->gate);
    free(r->up);
    free(r->fused);
    free(r->down);
}

/* Unfused, fused, and down; false when guards, rows beyond the live ones or activations are wrong.
 * */
static bool run_all(struct check *c, const struct expert_data *d, int max, int live,
                    struct expert_results *r)
{
    size_t n = (size_t)(max * USED * d->ff) * sizeof(float), n_y = (size_t)(max * d->h);
    struct step_view step = check_step(live, live, 0, NULL, NULL, NULL, NULL);
    struct expert_args args = {.step = step,
                               .rows = {.max = max},
                               .n_used = USED,
                               .ids = d->ids,
                               .n_w = 2,
                               .w = {d->gate, d->up},
                               .x = d->x,
                               .x_floats = d->floats};
    args.y[0] = check_alloc(NULL, n);
    args.y[1] = check_alloc(NULL, n);
    launch_experts_in(&c->queue, &args);
    check_download(r->gate, args.y[0], n);
    check_download(r->up, args.y[1], n);
    bool is_right = check_free(args.y[0]);
    is_right = check_free(args.y[1]) && is_right;

    args.is_gelu_mul = true;
    args.out = check_alloc(NULL, n);
    args.act = act_empty(max * USED, d->ff);
    launch_experts_in(&c->queue, &args);
    check_download(r->fused, args.out, n);
    is_right = is_right && act_fits(&args.act, r->fused, live * USED, d->ff);
    is_right = act_free(&args.act) && is_right;
    is_right = check_free(args.out) && is_right;

    struct expert_args out = {.step = step,
                              .rows = {.max = max},
                              .n_used = USED,
                              .ids = d->ids,
                              .shares = d->shares,
                              .n_w = 1,
                              .w = {d->down},
                              .x = d->x_down,
                              .x_floats = d->floats_down};
    out.out = check_alloc(NULL, n_y * sizeof(float));
    launch_experts_out(&c->queue, &out);
    check_download(r->down, out.out, n_y * sizeof(float));
    is_right = check_free(out.out) && is_right;
    for (size_t i = (size_t)(live * d->h); i < n_y; i++) is_right = is_right && isnan(r->down[i]);
    check_step_free(&step);
    return is_right;
}

static void check_format(struct check *c, enum format format, int h, int ff)
{
    static const int maxes[] = {1, 3, 8, 17, 32};
    const char *name = format_traits(format)->name;
    struct expert_data d = {0};
    make_data(c, &d, format, h, ff);
    struct expert_results all = take_results(h, ff), some = take_results(h, ff);
    check_that(c, run_all(c, &d, ROWS, ROWS, &all), "experts %s: outputs of 64 rows", name);
    /* As check_matvec: fp32 sums, or scales rounded to fp16. */
    double budget = format_traits(format)->block_elements == 256 ? 1e-6 : 1e-11;
    size_t n = (size_t)(ROWS * USED * ff);
    double gate = check_nmse(all.gate, d.expected_gate, n);
    double up = check_nmse(all.up, d.expected_up, n);
    for (size_t i = 0; i < n; i++) d.expected_up[i] *= gelu_exactly(d.expected_gate[i]);
    double fused = check_nmse(all.fused, d.expected_up, n);
    double down = check_nmse(all.down, d.expected_down, (size_t)(ROWS * h));
    check_that(c, gate < budget && up < budget && fused < budget && down < budget,
               "experts %s: %g %g %g %g", name, gate, up, fused, down);
    for (size_t i = 0; i < sizeof maxes / sizeof *maxes; i++) {
        int live = maxes[i] > 1 ? maxes[i] - 1 : 1;
        size_t m = (size_t)(live * USED * ff) * sizeof(float);
        bool is_right = run_all(c, &d, maxes[i], live, &some);
        is_right = is_right && memcmp(all.gate, some.gate, m) == 0 &&
                   memcmp(all.up, some.up, m) == 0 && memcmp(all.fused, some.fused, m) == 0 &&
                   memcmp(all.down, some.down, (size_t)(live * h) * sizeof(float)) == 0;
        check_that(c, is_right, "experts %s: bits of %d rows", name, maxes[i]);
    }
    /* A wrong id makes its own pair and row NaN and changes nothing else. */
    int32_t wrong[2] = {EXPERTS, -7};
    check_upload(d.ids + 1 * USED, wrong, sizeof wrong);
    struct expert_results bad = take_results(h, ff);
    run_all(c, &d, 3, 3, &bad);
    bool is_right = true;
    for (int i = 0; i < 3 * USED * ff; i++) {
        bool is_wrong = i / ff == USED || i / ff == USED + 1;
        is_right = is_right && (is_wrong ? isnan(bad.gate[i]) && isnan(bad.fused[i])
                                         : bad.gate[i] == all.gate[i] && bad.up[i] == all.up[i]);
    }
    for (int i = 0; i < 3 * h; i++)
        is_right = is_right && (i / h == 1 ? isnan(bad.down[i]) : bad.down[i] == all.down[i]);
    check_that(c, is_right, "experts %s: wrong ids", name);
    give_results(&all);
    give_results(&some);
    give_results(&bad);
    free_data(&d);
}

/* ---- Time ------------------------------------------------------------------------------------ */

struct expert_run {
    struct check *check;
    struct expert_args args;
    bool is_out;
    const int32_t *ids; /* ids of one launch after those of another */
};

static void record_experts(void *user, int i)
{
    struct expert_run *r = user;
    struct expert_args args = r->args;
    args.ids = r->ids + i * ROWS * args.n_used;
    if (r->is_out)
        launch_experts_out(&r->check->queue, &args);
    else
        launch_experts_in(&r->check->queue, &args);
}

/* The 26B: 128 experts, 8 used, 2816 x 704. Every launch of a graph chooses again. */
static void time_shape(struct check *c, bool is_out)
{
    enum { N = 128, K = 8, H = 2816, FF = 704, LAUNCHES = 16 };
    static const int rows[] = {1, 4, 8, 32, 64};
    size_t bytes, second = 0;
    struct rng rng = {11};
    struct expert_run run = {.check = c, .is_out = is_out};
    int32_t *ids = malloc(LAUNCHES * ROWS * K * sizeof *ids);
    for (int i = 0; i < LAUNCHES * ROWS * K; i++)
        ids[i] = (int32_t)rng_below(&rng, N / K) * K + i % K;
    run.ids = check_alloc(ids, LAUNCHES * ROWS * K * sizeof *ids);
    size_t n_x = (size_t)ROWS * K * H;
    float *x = malloc(n_x * sizeof *x);
    check_normal(&rng, x, n_x, 1);
    run.args.n_used = K;
    run.args.shares = check_alloc(x, ROWS * K * sizeof *x);
    run.args.x = is_out ? act_of(x, ROWS * K, FF) : act_of(x, ROWS, H);
    run.args.n_w = is_out ? 1 : 2;
    run.args.w[0] = weight_of_noise(FORMAT_Q4_0, N, is_out ? H : FF, is_out ? FF : H, &bytes);
    if (!is_out) run.args.w[1] = weight_of_noise(FORMAT_Q4_0, N, FF, H, &second);
    run.args.is_gelu_mul = !is_out;
    if (is_out)
        run.args.out = check_alloc(NULL, ROWS * H * sizeof(float));
    else
        run.args.act = act_empty(ROWS * K, FF);
    for (size_t b = 0; b < sizeof rows / sizeof *rows; b++) {
        double experts = 0;
        for (int i = 0; i < LAUNCHES; i++) {
            bool is_used[N] = {0};
            for (int j = 0; j < rows[b] * K; j++) {
                int32_t id = ids[i * ROWS * K + j];
                experts += !is_used[id];
                is_used[id] = true;
            }
        }
        double read = (double)(bytes + second) / N * experts / LAUNCHES;
        struct step_view step = check_step(rows[b], rows[b], 0, NULL, NULL, NULL, NULL);
        run.args.step = step, run.args.rows.max = rows[b];
        double s = graph_time(c, record_experts, &run, LAUNCHES);
        printf("26B q4_0 experts %-3s %2d rows %6.1f us %5.0f GB/s, "
               "bound %5.1f us (%.0f experts)\n",
               is_out ? "out" : "in", rows[b], s * 1e6, read / s / 1e9, read / 4.67e6,
               experts / LAUNCHES);
        check_step_free(&step);
    }
    check_weight_free(&run.args.w[0]);
    if (is_out)
        check_free(run.args.out);
    else {
        check_weight_free(&run.args.w[1]);
        act_free(&run.args.act);
    }
    act_free(&run.args.x);
    check_free((void *)(uintptr_t)run.args.shares);
    check_free((void *)(uintptr_t)run.ids);
    free(ids);
    free(x);
}

void check_experts(struct check *c)
{
    check_format(c, FORMAT_Q4_0, 448, 96);
    check_format(c, FORMAT_Q8_0, 320, 160);
    check_format(c, FORMAT_Q4_K, 512, 256);
    check_format(c, FORMAT_Q6_K, 256, 256);
    check_format(c, FORMAT_Q2_K, 512, 256);
    check_format(c, FORMAT_Q3_K, 256, 512);
    check_format(c, FORMAT_IQ3_XXS, 512, 256);
    check_format(c, FORMAT_IQ3_S, 256, 512);
    check_format(c, FORMAT_IQ2_S, 512, 256);
    check_format(c, FORMAT_IQ4_NL, 320, 64);
    check_format(c, FORMAT_IQ4_XS, 512, 256);
    check_format(c, FORMAT_Q5_0, 128, 96);
    check_format(c, FORMAT_MXFP4, 320, 160);
    check_format(c, FORMAT_F16, 200, 72);
    if (!c->is_perf) return;
    time_shape(c, false);
    time_shape(c, true);
}
