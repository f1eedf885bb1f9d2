/* Products of many rows with their experts on Hopper: bit for bit what launch_grouped_f16 makes on
 * mirrors of the same weights, and their times at the shapes of 26B-A4B. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/check_act8.h"
#include "quant/format.h"

/* With a minus the mirror rounds twice, to fp32 and to fp16: one value in thousands may differ. */
#define MINUS_BUDGET 1e-6

struct experts_case {
    enum format format[2];
    int32_t n_w, rows[2], cols, n_rows, n_used, n_expert;
    bool is_row_a_pair;
    uint32_t skew; /* of eight ids, how many go to expert 1 */
};

static const struct experts_case cases[] = {
    {{FORMAT_Q4_0}, 1, {8}, 64, 1, 1, 1, false, 0},
    {{FORMAT_Q4_0, FORMAT_Q4_0}, 2, {704, 704}, 192, 300, 8, 16, false, 1},
    {{FORMAT_Q4_0}, 1, {2816}, 704, 40, 8, 16, true, 1},
    {{FORMAT_Q4_0, FORMAT_Q4_0}, 2, {136, 136}, 704, 700, 2, 5, false, 3},
    {{FORMAT_Q8_0, FORMAT_Q8_0}, 2, {72, 72}, 320, 300, 2, 4, false, 5},
    {{FORMAT_Q8_0}, 1, {520}, 352, 60, 3, 7, true, 0},
    {{FORMAT_Q8_0, FORMAT_Q8_0}, 2, {300, 20}, 96, 150, 1, 3, false, 0},
    {{FORMAT_Q4_K, FORMAT_Q6_K}, 2, {31, 20}, 768, 129, 3, 7, false, 2},
    {{FORMAT_Q4_1, FORMAT_Q4_1}, 2, {77, 77}, 160, 260, 2, 3, false, 0},
    {{FORMAT_Q5_0}, 1, {264}, 992, 50, 4, 33, true, 0},
    {{FORMAT_Q5_1}, 1, {133}, 96, 100, 4, 3, true, 0},
    {{FORMAT_Q5_K, FORMAT_Q5_K}, 2, {264, 264}, 512, 90, 4, 9, false, 4},
    {{FORMAT_Q6_K, FORMAT_Q6_K}, 2, {40, 40}, 512, 77, 7, 600, false, 1},
    {{FORMAT_IQ4_NL, FORMAT_IQ4_NL}, 2, {64, 64}, 96, 171, 2, 3, false, 0},
    {{FORMAT_IQ4_NL}, 1, {90}, 320, 171, 2, 2, true, 0},
};

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* Place of a column in a row of ACT_STEPS. */
static size_t step_place(size_t col)
{
    return col / 16 * 16 + col % 2 * 8 + col % 16 / 4 * 2 + col % 4 / 2;
}

static struct act act_of_halves(const uint16_t *values, size_t rows, size_t stride,
                                enum act_kind kind)
{
    uint16_t *turned = malloc(rows * stride * sizeof *turned);
    for (size_t i = 0; i < rows * stride; i++) {
        size_t col = i % stride;
        turned[i - col + (kind == ACT_STEPS ? step_place(col) : col)] = values[i];
    }
    float *scale = malloc(rows * sizeof *scale);
    for (size_t r = 0; r < rows; r++) scale[r] = ldexpf(1, (int)(r % 7) - 3);
    struct act act = {.kind = kind,
                      .stride = (int32_t)stride,
                      .values = check_alloc(turned, rows * stride * sizeof *turned),
                      .scale = check_alloc(scale, rows * sizeof *scale)};
    free(turned), free(scale);
    return act;
}

/* Rows of both forms; row 1 has a NaN. */
static void make_acts(struct rng *rng, int32_t n_rows, int32_t cols, struct act *halves,
                      struct act *steps)
{
    size_t rows = (size_t)n_rows, stride = ((size_t)cols + 63) / 64 * 64;
    uint16_t *values = calloc(rows * stride, sizeof *values);
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < (size_t)cols; k++)
            values[r * stride + k] = f32_to_f16(rng_normal(rng));
    if (rows > 1) values[stride + (size_t)cols / 2] = 0x7e00;
    *halves = act_of_halves(values, rows, stride, ACT_HALF);
    *steps = act_of_halves(values, rows, stride, ACT_STEPS);
    free(values);
}

/* Some ids are of no expert. */
static int32_t *make_ids(struct rng *rng, const struct experts_case *e)
{
    size_t n = (size_t)(e->n_rows * e->n_used);
    int32_t *ids = malloc(n * sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)rng_below(rng, (uint32_t)e->n_expert);
        if (rng_below(rng, 8) < e->skew && e->n_expert > 1) ids[i] = 1;
        if (rng_below(rng, 16) == 0) ids[i] = rng_below(rng, 2) ? -1 - ids[i] : e->n_expert;
    }
    return ids;
}

static struct expert_plan make_plan(struct check *c, const struct experts_case *e,
                                    const int32_t *ids, bool is_even)
{
    void *memory = check_alloc(NULL, expert_plan_bytes(e->n_rows, e->n_used, e->n_expert));
    struct expert_plan plan = expert_plan_at(memory, e->n_rows, e->n_used, e->n_expert);
    plan.is_even = is_even;
    launch_expert_sort(&c->queue, &plan, ids, e->n_rows, e->n_used, e->n_expert);
    return plan;
}

/* ---- Even tiles ------------------------------------------------------------------------------ */

/* Each place of `pair` is in one tile, and tiles become no wider. */
static void check_tiles(struct check *c, const struct experts_case *e,
                        const struct expert_plan *plan)
{
    int32_t n_tile, n = e->n_rows * e->n_used, last = HALF_TILE;
    int32_t *first = malloc((size_t)(e->n_expert + 1) * sizeof *first);
    char *is_met = calloc((size_t)n + 1, 1);
    check_download(&n_tile, plan->n_tile, sizeof n_tile);
    check_download(first, plan->first, (size_t)(e->n_expert + 1) * sizeof *first);
    bool is_right = n_tile >= 0 && n_tile <= n;
    size_t bytes = (size_t)(is_right ? n_tile : 0) * sizeof(struct expert_tile);
    struct expert_tile *tile = malloc(bytes + 1);
    check_download(tile, plan->tile, bytes);
    for (int32_t t = 0; is_right && t < n_tile; t++) {
        int32_t id = tile[t].expert, begin = first[id], all = first[id + 1] - begin;
        int32_t n_tiles = (all + HALF_TILE - 1) / HALF_TILE;
        int32_t step = ((all + n_tiles - 1) / n_tiles + 7) / 8 * 8, at = tile[t].first;
        int32_t width = (step + HALF_WIDTH - 1) / HALF_WIDTH * HALF_WIDTH;
        is_right = width <= last && (at - begin) % step == 0 && at < first[id + 1];
        is_right = is_right && tile[t].step == step;
        is_right = is_right && tile[t].n == (first[id + 1] - at < step ? first[id + 1] - at : step);
        last = width;
        for (int32_t i = at; i < at + step && i < first[id + 1]; i++) is_met[i]++;
    }
    for (int32_t i = 0; i < n; i++) is_right = is_right && is_met[i] == (i < first[e->n_expert]);
    check_that(c, is_right, "even tiles: %d x %d rows of %d experts", e->n_rows, e->n_used,
               e->n_expert);
    free(first), free(is_met), free(tile);
}

/* ---- Results --------------------------------------------------------------------------------- */

static bool is_nan_half(uint16_t h)
{
    return (h & 0x7fff) > 0x7c00;
}

/* Rows of no expert keep the poison in both. */
static void compare(struct check *c, const struct experts_case *e, const uint16_t *expected,
                    const uint16_t *found, size_t n, bool has_minus)
{
    size_t n_different = 0, n_nan = 0;
    double error = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_nan = is_nan_half(expected[i]);
        if (is_nan != is_nan_half(found[i])) n_nan++;
        if (is_nan) continue;
        if (expected[i] != found[i]) n_different++;
        double x = (double)f16_to_f32(expected[i]), d = x - (double)f16_to_f32(found[i]);
        error += d * d, sum += x * x;
    }
    error = sum > 0 ? error / sum : error;
    check_that(c, n_nan == 0 && (has_minus ? error <= MINUS_BUDGET : n_different == 0),
               "half_experts %s, %d x %d rows, %d experts of %d x %d%s: %zu of %zu differ, NMSE "
               "%.2g, %zu NaN",
               format_traits(e->format[0])->name, e->n_rows, e->n_used, e->n_expert, e->rows[0],
               e->cols, e->n_w > 1 ? " twice" : "", n_different, n, error, n_nan);
}

static void make_mirror(struct check *c, struct cuda_weight *w)
{
    w->mirror_cols = (w->cols + 63) / 64 * 64;
    w->mirror =
        check_alloc(NULL, (size_t)w->n_expert * (size_t)w->rows * (size_t)w->mirror_cols * 2);
    for (int32_t e = 0; e < w->n_expert; e++) launch_mirror(&c->queue, w, e, 0, w->rows);
}

static void check_experts_of(struct check *c, struct rng *rng, const struct experts_case *e)
{
    struct act halves, steps;
    int32_t n_pairs = e->n_rows * e->n_used;
    make_acts(rng, e->is_row_a_pair ? n_pairs : e->n_rows, e->cols, &halves, &steps);
    int32_t *ids = make_ids(rng, e);
    int32_t *on_device = check_alloc(ids, (size_t)n_pairs * sizeof *ids);
    struct grouped_args args = {
        .n_rows = e->n_rows, .n_used = e->n_used, .n_w = e->n_w, .is_row_a_pair = e->is_row_a_pair};
    bool has_minus = false;
    for (int k = 0; k < e->n_w; k++) {
        args.w[k] = check_weight(c, rng, e->format[k], LAYOUT_TILES, e->n_expert, e->rows[k],
                                 e->cols, 0.05f, NULL);
        make_mirror(c, &args.w[k]);
        has_minus = has_minus || args.w[k].minus;
        args.half_cols += e->rows[k];
    }
    size_t n = (size_t)n_pairs * (size_t)args.half_cols;
    uint16_t *expected = malloc(n * 2), *found = malloc(n * 2);
    for (int way = 0; way < 2; way++) {
        args.plan = make_plan(c, e, on_device, way == 1);
        args.x = way == 1 ? steps : halves;
        args.half = check_alloc(NULL, n * 2);
        if (way == 1)
            launch_grouped_half(&c->queue, &args);
        else
            launch_grouped_f16(&c->queue, &args);
        check_download(way == 1 ? found : expected, args.half, n * 2);
        if (way == 1) check_tiles(c, e, &args.plan);
        check_that(c, check_free(args.half), "half_experts wrote beyond its results");
        check_that(c, check_free(args.plan.first), "expert_sort wrote beyond its plan");
    }
    compare(c, e, expected, found, n, has_minus);
    for (int k = 0; k < e->n_w; k++) {
        check_free(args.w[k].mirror);
        args.w[k].mirror = NULL;
        check_weight_free(&args.w[k]);
    }
    check_free(halves.values), check_free(halves.scale);
    check_free(steps.values), check_free(steps.scale);
    check_free(on_device);
    free(ids), free(expected), free(found);
}

/* ---- Time ------------------------------------------------------------------------------------ */

enum { HIDDEN = 2816, WIDTH = 704, EXPERTS = 128, USED = 8 };

struct timed {
    struct check *c;
    struct grouped_args args;
};

static void run_half(void *user)
{
    struct timed *t = user;
    launch_grouped_half(&t->c->queue, &t->args);
}

static void run_mirrors(void *user)
{
    struct timed *t = user;
    launch_grouped_f16(&t->c->queue, &t->args);
}

static double seconds_of(struct timed *t, const struct experts_case *e, const int32_t *ids,
                         struct act x, bool is_mirror)
{
    t->args.plan = make_plan(t->c, e, ids, !is_mirror);
    t->args.x = x;
    double s = check_time_graph(t->c, is_mirror ? run_mirrors : run_half, t);
    check_free(t->args.plan.first);
    return s;
}

static void time_experts(struct check *c, struct rng *rng, enum format format, bool is_down,
                         bool has_mirror)
{
    static const int32_t counts[] = {4096, 2048, 1024, 512, 128, 64, 16};
    int32_t rows = is_down ? HIDDEN : WIDTH, cols = is_down ? WIDTH : HIDDEN;
    struct timed t = {.c = c};
    t.args.n_used = USED, t.args.is_row_a_pair = is_down, t.args.n_w = is_down ? 1 : 2;
    t.args.half_cols = rows * t.args.n_w;
    double bytes = 0;
    for (int k = 0; k < t.args.n_w; k++) {
        t.args.w[k] = act8_weight(rng, format, EXPERTS, rows, cols);
        if (has_mirror) make_mirror(c, &t.args.w[k]);
        bytes += (double)format_row_bytes(format, cols) * rows * EXPERTS;
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int32_t n = counts[i], n_pairs = n * USED;
        struct experts_case e = {.n_rows = n, .n_used = USED, .n_expert = EXPERTS};
        struct act halves, steps;
        make_acts(rng, is_down ? n_pairs : n, cols, &halves, &steps);
        int32_t *ids = make_ids(rng, &e), *on_device;
        for (int32_t p = 0; p < n_pairs; p++) ids[p] = (int32_t)rng_below(rng, EXPERTS);
        on_device = check_alloc(ids, (size_t)n_pairs * sizeof *ids);
        t.args.n_rows = n;
        t.args.half = check_alloc(NULL, (size_t)n_pairs * (size_t)t.args.half_cols * 2);
        double flop = 2.0 * n_pairs * rows * cols * t.args.n_w;
        double s = seconds_of(&t, &e, on_device, steps, false);
        double before = has_mirror ? seconds_of(&t, &e, on_device, halves, true) : 0;
        printf("  %s %s %4d rows: %7.1f us %6.1f TFLOP/s %6.0f GB/s; mirrors %7.1f us\n",
               format_traits(format)->name, is_down ? "down    " : "gate, up", n, s * 1e6,
               flop / s / 1e12, bytes / s / 1e9, before * 1e6);
        fflush(stdout);
        check_free(t.args.half), check_free(on_device);
        check_free(halves.values), check_free(halves.scale);
        check_free(steps.values), check_free(steps.scale);
        free(ids);
    }
    for (int k = 0; k < t.args.n_w; k++) {
        if (has_mirror) check_free(t.args.w[k].mirror);
        t.args.w[k].mirror = NULL;
        check_weight_free(&t.args.w[k]);
    }
}

void check_half_experts(struct check *c)
{
    struct rng rng = {62};
    if (c->queue.capability != 90) {
        check_that(c, true, "half_experts");
        puts("half_experts: not a Hopper, skipped");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_experts_of(c, &rng, &cases[i]);
    if (!c->is_perf) return;
    time_experts(c, &rng, FORMAT_Q4_0, false, true);
    time_experts(c, &rng, FORMAT_Q4_0, true, true);
    time_experts(c, &rng, FORMAT_Q8_0, false, false);
    time_experts(c, &rng, FORMAT_Q8_0, true, false);
}
