/* Products of a few rows: against double precision on the same rounded inputs, bit for bit
 * between numbers of rows, and their times at the shapes of the models. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/check_tiles.h"

/* More than MATVEC_ROWS_MAX, as the head may get. */
enum { ROWS = 90 };
static const int buckets[] = {1, 2, 4, 5, 7, 8, 16, 24, 32, 48, 64};
enum { N_BUCKETS = sizeof buckets / sizeof *buckets };

/* Sums of fp32 over a few hundred terms of one sign pattern: 1e-13 was seen. Scales in
 * blocks of 256 are rounded to fp16, 2^-12 at random: 2^-24 of each of two larger terms. */
static double budget_of(enum format f)
{
    return format_traits(f)->block_elements == 256 ? 1e-6 : 1e-11;
}

static double gelu_exactly(double a)
{
    return 0.5 * a * (1 + tanh(0.79788456080286536 * (a + 0.044715 * a * a * a)));
}

struct matvec_case {
    enum format format[3];
    enum matvec_epilogue epilogue;
    int n_w, rows[3], cols;
    enum act_kind kind; /* of rows and results: ACT_INT8, ACT_FINE */
};

struct matvec_data {
    struct matvec_case what;
    struct cuda_weight w[3];
    float *x; /* on the device, for LAYOUT_ROWS */
    struct act act;
    float *by;
    int by_cols;
    double *expected[3]; /* [ROWS][rows] */
};

static void make_data(struct check *c, struct matvec_data *d, uint64_t seed)
{
    struct rng rng = {seed};
    int cols = d->what.cols;
    float *x = malloc((size_t)(ROWS * cols) * sizeof *x), *by;
    check_normal(&rng, x, (size_t)(ROWS * cols), 1);
    bool is_tiles = format_traits(d->what.format[0])->block_elements > 1;
    if (is_tiles) d->act = act_of_kind(x, ROWS, cols, d->what.kind);
    d->x = check_alloc(x, (size_t)(ROWS * cols) * sizeof *x);
    for (int k = 0; k < d->what.n_w; k++) {
        float *values;
        int rows = d->what.rows[k];
        d->w[k] = check_weight(c, &rng, d->what.format[k], is_tiles ? LAYOUT_TILES : LAYOUT_ROWS, 1,
                               rows, cols, 0.05f, &values);
        double *y = d->expected[k] = calloc((size_t)(ROWS * rows), sizeof *y);
        for (int t = 0; t < ROWS; t++)
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < cols; i++)
                    y[t * rows + r] += (double)values[r * cols + i] * (double)x[t * cols + i];
        free(values);
    }
    int rows = d->what.rows[0];
    double *y = d->expected[0];
    if (d->what.epilogue == MATVEC_GELU_MUL)
        for (int i = 0; i < ROWS * rows; i++) y[i] = gelu_exactly(y[i]) * d->expected[1][i];
    d->by_cols = rows + 12;
    by = malloc((size_t)(ROWS * d->by_cols) * sizeof *by);
    check_normal(&rng, by, (size_t)(ROWS * d->by_cols), 1);
    if (d->what.epilogue == MATVEC_GELU_BY)
        for (int i = 0; i < ROWS * rows; i++)
            y[i] = gelu_exactly(y[i]) * (double)by[i / rows * d->by_cols + 5 + i % rows];
    d->by = check_alloc(by, (size_t)(ROWS * d->by_cols) * sizeof *by);
    free(by);
    free(x);
}

static void free_data(struct matvec_data *d)
{
    for (int k = 0; k < d->what.n_w; k++) {
        check_weight_free(&d->w[k]);
        free(d->expected[k]);
    }
    if (d->act.values) act_free(&d->act);
    check_free(d->x);
    check_free(d->by);
}

static struct matvec_args args_of(const struct matvec_data *d, int rows)
{
    struct matvec_args args = {.rows = {.max = rows},
                               .n_w = d->what.n_w,
                               .x = d->act,
                               .x_floats = d->x,
                               .epilogue = d->what.epilogue,
                               .by = d->by,
                               .by_cols = d->by_cols,
                               .second_col = 5};
    for (int k = 0; k < d->what.n_w; k++) args.w[k] = d->w[k];
    return args;
}

static bool is_untouched(const float *y, size_t n)
{
    const uint32_t *bits = (const uint32_t *)(const void *)y;
    for (size_t i = 0; i < n; i++)
        if (bits[i] != 0xffffffffu) return false;
    return true;
}

/* Runs with rows.max and `live` rows. y[k]: all rows come back. */
static bool run_case(struct check *c, const struct matvec_data *d, int max, int live, float *y[3])
{
    bool is_store = d->what.epilogue == MATVEC_STORE, is_right = true;
    struct matvec_args args = args_of(d, max);
    args.step = check_step(live, live, 0, NULL, NULL, NULL, NULL);
    float *device[3] = {0};
    for (int k = 0; k < (is_store ? d->what.n_w : 1); k++) {
        size_t n = (size_t)(max * d->what.rows[k]);
        device[k] = check_alloc(NULL, n * sizeof(float));
        if (is_store)
            args.y[k] = device[k];
        else
            args.out = device[k];
    }
    if (!is_store) args.act = act_empty_of_kind(max, d->what.rows[0], d->what.kind);
    launch_matvec(&c->queue, &args);
    for (int k = 0; k < (is_store ? d->what.n_w : 1); k++) {
        size_t rows = (size_t)d->what.rows[k];
        check_download(y[k], device[k], (size_t)max * rows * sizeof(float));
        is_right =
            is_right && is_untouched(y[k] + (size_t)live * rows, (size_t)(max - live) * rows);
        is_right = check_free(device[k]) && is_right;
    }
    if (!is_store) {
        is_right = is_right && act_fits(&args.act, y[0], live, d->what.rows[0]);
        is_right = act_free(&args.act) && is_right;
    }
    check_step_free(&args.step);
    return is_right;
}

static void check_case(struct check *c, struct matvec_case what)
{
    struct matvec_data d = {.what = what};
    char name[32];
    snprintf(name, sizeof name, "%s%s", format_traits(what.format[0])->name,
             what.kind == ACT_FINE ? " fine" : "");
    make_data(c, &d, (uint64_t)(what.cols + what.rows[0] + (int)what.format[0]));
    float *all[3], *some[3];
    int n_y = what.epilogue == MATVEC_STORE ? what.n_w : 1;
    for (int k = 0; k < 3; k++) {
        all[k] = malloc((size_t)(ROWS * what.rows[k]) * sizeof(float) + 1);
        some[k] = malloc((size_t)(ROWS * what.rows[k]) * sizeof(float) + 1);
    }
    bool is_right = run_case(c, &d, ROWS, ROWS, all);
    check_that(c, is_right, "matvec %s %dx%d epilogue %d: outputs of all rows", name, what.rows[0],
               what.cols, what.epilogue);
    for (int k = 0; k < n_y; k++) {
        double nmse = check_nmse(all[k], d.expected[k], (size_t)(ROWS * what.rows[k]));
        check_that(c, nmse < budget_of(what.format[k]), "matvec %s %dx%d epilogue %d y%d: %g", name,
                   what.rows[k], what.cols, what.epilogue, k, nmse);
    }
    for (int b = 0; b < N_BUCKETS; b++) {
        int live = buckets[b] > 2 ? buckets[b] - 1 : buckets[b];
        is_right = run_case(c, &d, buckets[b], live, some);
        for (int k = 0; k < n_y; k++)
            is_right = is_right &&
                       memcmp(some[k], all[k], (size_t)(live * what.rows[k]) * sizeof(float)) == 0;
        check_that(c, is_right, "matvec %s %dx%d epilogue %d: bits of %d rows", name, what.rows[0],
                   what.cols, what.epilogue, buckets[b]);
    }
    for (int k = 0; k < 3; k++) {
        free(all[k]);
        free(some[k]);
    }
    free_data(&d);
}

/* ---- Time ----------------------------------------------------------------------------------- */

enum { COPIES = 16, LAUNCHES = 16 };
struct matvec_run {
    struct check *check;
    int n; /* copies of the weights, more than the L2 holds together */
    struct matvec_args args[COPIES];
};

static void record_matvec(void *user, int i)
{
    struct matvec_run *r = user;
    launch_matvec(&r->check->queue, &r->args[i % r->n]);
}

static void time_case(struct check *c, const char *name, struct matvec_case what)
{
    static const int rows[] = {1, 4, 8, 16, 32, 64};
    struct matvec_run run = {.check = c};
    size_t bytes = 0, part;
    int n = 1, outs = 0;
    struct rng rng = {3};
    float *x = malloc((size_t)(ROWS * what.cols) * sizeof *x);
    check_normal(&rng, x, (size_t)(ROWS * what.cols), 1);
    float *device_x = check_alloc(x, (size_t)(ROWS * what.cols) * sizeof *x);
    struct act act = act_of_kind(x, ROWS, what.cols, what.kind);
    for (int k = 0; k < what.n_w; k++) outs = what.rows[k] > outs ? what.rows[k] : outs;
    float *y = check_alloc(NULL, (size_t)(ROWS * outs) * sizeof *y);
    struct act out = act_empty_of_kind(ROWS, what.rows[0], what.kind);
    for (int i = 0; i < n; i++) {
        struct matvec_args *a = &run.args[i];
        *a = (struct matvec_args){.n_w = what.n_w,
                                  .x = act,
                                  .x_floats = device_x,
                                  .epilogue = what.epilogue,
                                  .by = y,
                                  .by_cols = outs};
        for (int k = 0; k < what.n_w; k++) {
            a->w[k] = weight_of_noise(what.format[k], 1, what.rows[k], what.cols, &part);
            a->y[k] = y;
            if (i == 0) bytes += part;
        }
        if (what.epilogue != MATVEC_STORE) a->act = out;
        double fitting = 250e6 / (double)bytes;
        if (i == 0) n = fitting < 1 ? 1 : fitting > COPIES ? COPIES : (int)fitting;
    }
    printf("%-28s %6.1f MB bound %6.1f us:", name, (double)bytes / 1e6, (double)bytes / 4.67e6);
    double first = 0;
    for (size_t b = 0; b < sizeof rows / sizeof *rows; b++) {
        struct step_view step = check_step(rows[b], rows[b], 0, NULL, NULL, NULL, NULL);
        for (int i = 0; i < n; i++) run.args[i].step = step, run.args[i].rows.max = rows[b];
        run.n = n;
        double s = graph_time(c, record_matvec, &run, LAUNCHES);
        if (b == 0) first = s;
        printf(" %d: %.1f us", rows[b], s * 1e6);
        check_step_free(&step);
    }
    printf(" | 1 row %.0f GB/s %.0f %%\n", (double)bytes / first / 1e9,
           (double)bytes / first / 4.67e10);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < what.n_w; k++) check_weight_free(&run.args[i].w[k]);
    act_free(&act);
    act_free(&out);
    check_free(y);
    check_free(device_x);
    free(x);
}

/* clang-format off */
#define STORE(f, r, c) {{FORMAT_##f}, MATVEC_STORE, 1, {r}, c, ACT_INT8}
#define PAIR(f, r, c) {{FORMAT_##f, FORMAT_##f}, MATVEC_GELU_MUL, 2, {r, r}, c, ACT_INT8}
#define BY(f, r, c) {{FORMAT_##f}, MATVEC_GELU_BY, 1, {r}, c, ACT_INT8}
#define QKV(f, q, k, c)                                                                            \
    {{FORMAT_##f, FORMAT_##f, FORMAT_##f}, MATVEC_STORE, 3, {q, k, k}, c, ACT_INT8}
/* clang-format on */

/* What the model wants in more than 8 bits. */
static bool is_fine(const char *name)
{
    return strstr(name, "qkv") || strstr(name, "ple gate") || strstr(name, "ple up") ||
           strstr(name, "head");
}

static void time_all(struct check *c)
{
    static const struct {
        const char *name;
        struct matvec_case what;
    } cases[] = {
        {"E4B q8_0 qkv", QKV(Q8_0, 2048, 512, 2560)},
        {"12B q4_k q k, q6_k v",
         {{FORMAT_Q4_K, FORMAT_Q4_K, FORMAT_Q6_K},
          MATVEC_STORE,
          3,
          {4096, 2048, 2048},
          3840,
          ACT_FINE}},
        {"E4B q8_0 o", STORE(Q8_0, 2560, 2048)},
        {"E4B q8_0 o global", STORE(Q8_0, 2560, 4096)},
        {"E4B q8_0 gate/up", PAIR(Q8_0, 10240, 2560)},
        {"E4B q8_0 down", STORE(Q8_0, 2560, 10240)},
        {"E4B q8_0 ple gate", BY(Q8_0, 256, 2560)},
        {"E4B q8_0 ple up", STORE(Q8_0, 2560, 256)},
        {"E4B q8_0 head", STORE(Q8_0, 262144, 2560)},
        {"E4B bf16 ple projection", STORE(BF16, 10752, 2560)},
        {"E4B q4_0 gate/up", PAIR(Q4_0, 10240, 2560)},
        {"E4B q4_0 down", STORE(Q4_0, 2560, 10240)},
        {"12B q4_0 qkv", QKV(Q4_0, 4096, 2048, 3840)},
        {"12B q4_0 o", STORE(Q4_0, 3840, 4096)},
        {"12B q4_0 gate/up", PAIR(Q4_0, 15360, 3840)},
        {"12B q4_0 down", STORE(Q4_0, 3840, 15360)},
        {"12B q6_k head", STORE(Q6_K, 262144, 3840)},
        {"12B q4_k gate/up", PAIR(Q4_K, 15360, 3840)},
        {"12B q5_k gate/up", PAIR(Q5_K, 15360, 3840)},
        {"12B q6_k gate/up", PAIR(Q6_K, 15360, 3840)},
        {"12B q3_k gate/up", PAIR(Q3_K, 15360, 3840)},
        {"12B q2_k gate/up", PAIR(Q2_K, 15360, 3840)},
        {"12B q4_k down", STORE(Q4_K, 3840, 15360)},
        {"12B q6_k down", STORE(Q6_K, 3840, 15360)},
        {"E4B q5_0 gate/up", PAIR(Q5_0, 10240, 2560)},
        {"E4B q6_k down", STORE(Q6_K, 2560, 10240)},
        {"26B q4_0 gate/up", PAIR(Q4_0, 2112, 2816)},
        {"26B q4_0 down", STORE(Q4_0, 2816, 2112)},
        {"26B f32 router", STORE(F32, 128, 2816)},
        {"31B q4_0 gate/up", PAIR(Q4_0, 21504, 5376)},
        {"31B q4_0 down", STORE(Q4_0, 5376, 21504)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct matvec_case what = cases[i].what;
        time_case(c, cases[i].name, what);
        if (!is_fine(cases[i].name)) continue;
        what.kind = ACT_FINE;
        time_case(c, "  with 16 bits", what);
    }
}

/* In 8 bits, and in 16 where activations are rounded at all. */
static void check_both(struct check *c, struct matvec_case what)
{
    check_case(c, what);
    if (format_traits(what.format[0])->block_elements == 1) return;
    what.kind = ACT_FINE;
    check_case(c, what);
}

/* Products of rows in 16 bits are nearer to those of unrounded rows. */
static void check_nearness(struct check *c)
{
    enum { NEAR_ROWS = 4, OUTS = 64, COLS = 512 };
    struct rng rng = {11};
    float x[NEAR_ROWS * COLS], rounded[NEAR_ROWS * COLS], *values, y[NEAR_ROWS * OUTS];
    double expected[NEAR_ROWS * OUTS] = {0}, nmse[2];
    check_normal(&rng, x, NEAR_ROWS * COLS, 1);
    struct cuda_weight w =
        check_weight(c, &rng, FORMAT_Q8_0, LAYOUT_TILES, 1, OUTS, COLS, 0.05f, &values);
    for (int i = 0; i < NEAR_ROWS * OUTS; i++)
        for (int j = 0; j < COLS; j++)
            expected[i] += (double)values[i % OUTS * COLS + j] * (double)x[i / OUTS * COLS + j];
    struct step_view step = check_step(NEAR_ROWS, NEAR_ROWS, 0, NULL, NULL, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        memcpy(rounded, x, sizeof x);
        struct act act = act_of_kind(rounded, NEAR_ROWS, COLS, i ? ACT_FINE : ACT_INT8);
        float *device = check_alloc(NULL, sizeof y);
        struct matvec_args args = {
            .step = step, .rows = {.max = NEAR_ROWS}, .n_w = 1, .w = {w}, .y = {device}, .x = act};
        launch_matvec(&c->queue, &args);
        check_download(y, device, sizeof y);
        nmse[i] = check_nmse(y, expected, NEAR_ROWS * OUTS);
        check_free(device);
        act_free(&act);
    }
    check_that(c, nmse[0] > 1e-6 && nmse[0] < 1e-4, "matvec of 8 bits: %g", nmse[0]);
    check_that(c, nmse[1] < 1e-9, "matvec of 16 bits: %g", nmse[1]);
    check_step_free(&step);
    check_weight_free(&w);
    free(values);
}

/* Logits that are capped where they are made have the bits of launch_softcap. */
static void check_cap(struct check *c, enum format format, enum act_kind kind, int32_t rows)
{
    enum { OUTS = 203, COLS = 512 };
    struct rng rng = {12};
    bool is_tiles = format_traits(format)->block_elements > 1;
    struct cuda_weight w = check_weight(c, &rng, format, is_tiles ? LAYOUT_TILES : LAYOUT_ROWS, 1,
                                        OUTS, COLS, 1.5f, NULL);
    size_t n = (size_t)rows * OUTS;
    float *x, *device = check_normal_device(&rng, (size_t)rows * COLS, 1, &x);
    struct matvec_args args = {.step = check_step(rows, rows, 0, NULL, NULL, NULL, NULL),
                               .rows = {.max = rows},
                               .n_w = 1,
                               .w = {w},
                               .y = {check_alloc(NULL, n * sizeof *x)},
                               .x_floats = device};
    if (is_tiles) args.x = act_of_kind(x, rows, COLS, kind);
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    launch_matvec(&c->queue, &args);
    launch_softcap(&c->queue, args.step, args.rows, args.y[0], 30.0f, args.y[0], OUTS);
    check_download(want, args.y[0], n * sizeof *want);
    args.cap = 30.0f;
    launch_matvec(&c->queue, &args);
    check_download(got, args.y[0], n * sizeof *got);
    check_that(c, memcmp(got, want, n * sizeof *got) == 0, "matvec %s capped: %d rows",
               format_traits(format)->name, rows);
    check_free(args.y[0]);
    check_free(device);
    if (is_tiles) act_free(&args.x);
    check_step_free(&args.step);
    check_weight_free(&w);
    free(x);
    free(want);
    free(got);
}

static void check_caps(struct check *c)
{
    static const int32_t rows[] = {1, 4, 7, 33};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_cap(c, FORMAT_Q8_0, ACT_FINE, rows[i]);
        check_cap(c, FORMAT_Q6_K, ACT_INT8, rows[i]);
        check_cap(c, FORMAT_BF16, ACT_NONE, rows[i]);
        check_cap(c, FORMAT_F32, ACT_NONE, rows[i]);
    }
}

void check_matvec(struct check *c)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        enum format x = (enum format)f;
        int block = format_traits(x)->block_elements, cols = block > 32 ? 768 : 416;
        check_both(c,
                   (struct matvec_case){{x, x, x}, MATVEC_STORE, 3, {75, 40, 8}, cols, ACT_INT8});
        check_both(c, (struct matvec_case){{x, x}, MATVEC_GELU_MUL, 2, {96, 96}, cols, ACT_INT8});
        check_both(c, (struct matvec_case){{x}, MATVEC_GELU_BY, 1, {160}, cols, ACT_INT8});
    }
    /* A few columns are one slice. Then: several units a block, 8 slices, 4 slices with GELU as the
     * epilogue, two formats. */
    check_both(c, (struct matvec_case)STORE(Q8_0, 2560, 64));
    check_both(c, (struct matvec_case)STORE(Q8_0, 30000, 128));
    check_both(c, (struct matvec_case)STORE(Q4_0, 264, 2816));
    /* Columns whose activations hardly fit: three and four rows, two rows. */
    check_both(c, (struct matvec_case)STORE(Q8_0, 72, 10240));
    check_both(c, (struct matvec_case)STORE(Q4_0, 40, 21504));
    /* Some of the first four rows leave no room for a third block, for which there is work: stages
     * are halved on Hopper (sm90/matvec_halves.cu). */
    check_case(c, (struct matvec_case)STORE(Q4_0, 4300, 4992));
    check_case(c, (struct matvec_case)STORE(Q5_K, 4300, 4864));
    check_both(c, (struct matvec_case)PAIR(Q4_0, 224, 2816));
    check_both(c, (struct matvec_case)BY(F32, 256, 1536));
    check_both(c, (struct matvec_case)STORE(BF16, 4200, 300));
    check_both(
        c,
        (struct matvec_case){
            {FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_Q6_K}, MATVEC_STORE, 3, {64, 32, 32}, 512, ACT_INT8});
    /* Two formats in one launch (sm90/matvec_mixed.cu): 4 slices; more units than fit at once. */
    check_both(c, (struct matvec_case){{FORMAT_Q4_K, FORMAT_Q4_K, FORMAT_Q6_K},
                                       MATVEC_STORE,
                                       3,
                                       {520, 264, 264},
                                       768,
                                       ACT_FINE});
    check_case(c, (struct matvec_case){{FORMAT_Q5_1, FORMAT_IQ4_NL, FORMAT_IQ4_NL},
                                       MATVEC_STORE,
                                       3,
                                       {15000, 7000, 7000},
                                       96,
                                       ACT_FINE});
    check_case(c, (struct matvec_case){{FORMAT_Q8_0, FORMAT_Q5_0, FORMAT_Q5_0},
                                       MATVEC_STORE,
                                       3,
                                       {72, 40, 8},
                                       10240,
                                       ACT_FINE});
    check_nearness(c);
    check_caps(c);
    if (c->is_perf) time_all(c);
}
