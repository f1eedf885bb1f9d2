/* Experts for many rows: the sort of pairs, the grouped 8-bit product, the sum over experts. */
#include <stdio.h>
#include <string.h>

#include "cuda/check_act8.h"

struct routing {
    int32_t n_rows, n_used, n_expert;
    int32_t *ids; /* on the host */
    int32_t *device_ids;
    void *memory;
    struct expert_plan plan;
};

/* Random ids; `skew` of 8 go to expert 1. Some belong to no expert if that is wanted. */
static struct routing routing_make(struct check *c, struct rng *rng, int32_t n_rows, int32_t n_used,
                                   int32_t n_expert, uint32_t skew, bool is_clean)
{
    struct routing r = {.n_rows = n_rows, .n_used = n_used, .n_expert = n_expert};
    size_t n = (size_t)n_rows * (size_t)n_used;
    r.ids = malloc(n * sizeof *r.ids);
    for (size_t i = 0; i < n; i++) {
        r.ids[i] = (int32_t)rng_below(rng, (uint32_t)n_expert);
        if (rng_below(rng, 8) < skew && n_expert > 1) r.ids[i] = 1;
        if (!is_clean && rng_below(rng, 16) == 0)
            r.ids[i] = rng_below(rng, 2) ? -1 - r.ids[i] : n_expert + r.ids[i];
    }
    r.device_ids = check_alloc(r.ids, n * sizeof *r.ids);
    r.memory = check_alloc(NULL, expert_plan_bytes(n_rows, n_used, n_expert));
    r.plan = expert_plan_at(r.memory, n_rows, n_used, n_expert);
    launch_expert_sort(&c->queue, &r.plan, r.device_ids, n_rows, n_used, n_expert);
    return r;
}

static void routing_free(struct check *c, struct routing *r)
{
    check_free(r->device_ids);
    check_that(c, check_free(r->memory), "expert_sort wrote beyond its plan");
    free(r->ids);
}

static void check_sort(struct check *c, struct rng *rng, int32_t n_rows, int32_t n_used,
                       int32_t n_expert, uint32_t skew)
{
    struct routing r = routing_make(c, rng, n_rows, n_used, n_expert, skew, false);
    int32_t n = n_rows * n_used, n_found = 0, n_tile = 0;
    int32_t *first = malloc(((size_t)n_expert + 1) * sizeof *first);
    int32_t *pair = malloc((size_t)n * sizeof *pair);
    check_download(first, r.plan.first, ((size_t)n_expert + 1) * sizeof *first);
    check_download(pair, r.plan.pair, (size_t)n * sizeof *pair);
    check_download(&n_tile, r.plan.n_tile, sizeof n_tile);
    bool is_right = true;
    int32_t tile_at = 0;
    for (int32_t e = 0; e < n_expert; e++) {
        int32_t begin = n_found;
        is_right = is_right && first[e] == begin;
        for (int32_t p = 0; p < n; p++)
            if (r.ids[p] == e) is_right = pair[n_found++] == p && is_right;
        for (int32_t at = begin; at < n_found; at += EXPERT_TILE, tile_at++) {
            struct expert_tile tile = {-1, -1, -1, -1};
            int32_t most = n_found - at < EXPERT_TILE ? n_found - at : EXPERT_TILE;
            if (tile_at < n_tile) check_download(&tile, r.plan.tile + tile_at, sizeof tile);
            is_right = is_right && tile.expert == e && tile.first == at && tile.n == most;
            is_right = is_right && tile.step == EXPERT_TILE;
        }
    }
    is_right = is_right && first[n_expert] == n_found && n_tile == tile_at;
    check_that(c, is_right, "expert_sort: %d x %d rows of %d experts", n_rows, n_used, n_expert);
    free(first);
    free(pair);
    routing_free(c, &r);
}

struct grouped_case {
    int32_t n_rows, n_used, n_expert, cols, n_w;
    int32_t w_rows[2];
    enum format format[2];
    bool is_row_a_pair, is_half;
};

/* Rows of pairs without an expert keep the poison that check_alloc put there. */
static void compare_grouped(struct check *c, const struct grouped_case *g, const struct routing *r,
                            const struct act8 *x, const float *w, int k, const float *y,
                            int32_t stride)
{
    size_t n = 0, rows = (size_t)g->w_rows[k], cols = (size_t)g->cols;
    size_t n_pairs = (size_t)g->n_rows * (size_t)g->n_used;
    double *expected = malloc(n_pairs * rows * sizeof *expected);
    float *found = malloc(n_pairs * rows * sizeof *found);
    bool is_untouched = true;
    for (size_t p = 0; p < n_pairs; p++) {
        const float *result = y + p * (size_t)stride;
        bool is_known = r->ids[p] >= 0 && r->ids[p] < g->n_expert;
        size_t from = g->is_row_a_pair ? p : p / (size_t)g->n_used;
        for (size_t j = 0; j < rows; j++) {
            if (!is_known) {
                is_untouched = is_untouched && isnan(result[j]);
                continue;
            }
            expected[n] = act8_dot(x->values + from * cols,
                                   w + ((size_t)r->ids[p] * rows + j) * cols, g->cols);
            found[n++] = result[j];
        }
    }
    double error = check_nmse(found, expected, n);
    double budget = act8_budget(g->format[k]) + (g->is_half ? 1e-7 : 0);
    check_that(c, error <= budget && is_untouched,
               "grouped_i8 %s%s, %d x %d rows, %d experts of %d x %d: NMSE %.2g%s",
               format_traits(g->format[k])->name, g->is_half ? " fp16" : "", g->n_rows, g->n_used,
               g->n_expert, g->w_rows[k], g->cols, error, is_untouched ? "" : ", wrong rows");
    free(expected);
    free(found);
}

static void run_grouped(struct check *c, struct rng *rng, const struct grouped_case *g)
{
    struct routing r = routing_make(c, rng, g->n_rows, g->n_used, g->n_expert, 3, false);
    size_t n_pairs = (size_t)g->n_rows * (size_t)g->n_used;
    struct act8 x = act8_make(rng, g->is_row_a_pair ? (int32_t)n_pairs : g->n_rows, g->cols);
    struct grouped_args a = {.n_rows = g->n_rows,
                             .n_used = g->n_used,
                             .plan = r.plan,
                             .n_w = g->n_w,
                             .x = x.act,
                             .is_row_a_pair = g->is_row_a_pair};
    float *w[2] = {0};
    for (int k = 0; k < g->n_w; k++) {
        a.w[k] = check_weight(c, rng, g->format[k], LAYOUT_TILES, g->n_expert, g->w_rows[k],
                              g->cols, 0.05f, &w[k]);
        a.half_cols += g->w_rows[k];
        if (!g->is_half) a.y[k] = check_alloc(NULL, n_pairs * (size_t)g->w_rows[k] * sizeof(float));
    }
    size_t n_half = n_pairs * (size_t)a.half_cols;
    if (g->is_half) a.half = check_alloc(NULL, n_half * sizeof *a.half);
    launch_grouped_i8(&c->queue, &a);
    float *y = malloc(n_half * sizeof *y);
    uint16_t *half = malloc(n_half * sizeof *half);
    if (g->is_half) check_download(half, a.half, n_half * sizeof *half);
    for (size_t i = 0; g->is_half && i < n_half; i++) y[i] = f16_to_f32(half[i]);
    int32_t column = 0;
    bool is_whole = true;
    for (int k = 0; k < g->n_w; column += g->w_rows[k++]) {
        if (!g->is_half) check_download(y, a.y[k], n_pairs * (size_t)g->w_rows[k] * sizeof(float));
        compare_grouped(c, g, &r, &x, w[k], k, g->is_half ? y + column : y,
                        g->is_half ? a.half_cols : g->w_rows[k]);
        is_whole = check_free(a.y[k]) && is_whole;
        check_weight_free(&a.w[k]);
        free(w[k]);
    }
    is_whole = check_free(a.half) && is_whole;
    check_that(c, is_whole, "grouped_i8 wrote beyond its results");
    free(y);
    free(half);
    act8_free(&x);
    routing_free(c, &r);
}

/* is_half: of values that fp16 holds, with scales. */
static void check_sum(struct check *c, struct rng *rng, int32_t n_rows, int32_t n_used,
                      int32_t cols, bool is_half)
{
    size_t n_pairs = (size_t)n_rows * (size_t)n_used, n = n_pairs * (size_t)cols;
    size_t n_out = (size_t)n_rows * (size_t)cols;
    float *x = malloc(n * sizeof *x), *shares = malloc(n_pairs * sizeof *shares);
    float *scale = malloc(n_pairs * sizeof *scale);
    uint16_t *half = malloc(n * sizeof *half);
    float *y = malloc(n_out * sizeof *y);
    double *expected = malloc(n_out * sizeof *expected);
    check_normal(rng, x, n, 1);
    check_normal(rng, shares, n_pairs, 1);
    for (size_t i = 0; i < n_pairs; i++) scale[i] = is_half && i % 3 ? 0.25f : 1;
    for (size_t i = 0; i < n; i++) {
        half[i] = f32_to_f16(x[i]);
        if (is_half) x[i] = f16_to_f32(half[i]);
    }
    for (size_t i = 0; i < n_out; i++) {
        size_t t = i / (size_t)cols, col = i % (size_t)cols;
        expected[i] = 0;
        for (size_t s = t * (size_t)n_used; s < (t + 1) * (size_t)n_used; s++)
            expected[i] += (double)(shares[s] * scale[s]) * (double)x[s * (size_t)cols + col];
    }
    void *on[5] = {check_alloc(x, n * sizeof *x), check_alloc(half, n * sizeof *half),
                   check_alloc(scale, n_pairs * sizeof *scale),
                   check_alloc(shares, n_pairs * sizeof *shares),
                   check_alloc(NULL, n_out * sizeof *y)};
    struct expert_sum_args args = {.x = is_half ? NULL : on[0],
                                   .half = is_half ? on[1] : NULL,
                                   .scale = is_half ? on[2] : NULL,
                                   .shares = on[3],
                                   .y = on[4],
                                   .n_used = n_used,
                                   .cols = cols};
    launch_expert_sum(&c->queue, &args, n_rows);
    check_download(y, args.y, n_out * sizeof *y);
    double error = check_nmse(y, expected, n_out);
    /* a handful of fp32 roundings */
    check_that(c, error <= 1e-13, "expert_sum %d x %d x %d: NMSE %.2g", n_rows, n_used, cols,
               error);
    bool is_whole = true;
    for (int i = 0; i < 5; i++) is_whole = check_free(on[i]) && is_whole;
    check_that(c, is_whole, "expert_sum wrote beyond its rows");
    free(x), free(half), free(scale);
    free(shares);
    free(y);
    free(expected);
}

/* ---- Time: 26B-A4B ------------------------------------------------------------------------ */

enum { HIDDEN = 2816, WIDTH = 704, EXPERTS = 128, USED = 8 };

struct timed {
    struct check *c;
    struct routing *r;
    struct grouped_args args;
    struct expert_sum_args sum;
};

static void run_sort(void *user)
{
    struct timed *t = user;
    launch_expert_sort(&t->c->queue, &t->r->plan, t->r->device_ids, t->r->n_rows, USED, EXPERTS);
}

static void run_product(void *user)
{
    struct timed *t = user;
    launch_grouped_i8(&t->c->queue, &t->args);
}

static void run_sum(void *user)
{
    struct timed *t = user;
    launch_expert_sum(&t->c->queue, &t->sum, t->r->n_rows);
}

static void time_product(struct check *c, struct rng *rng, struct timed *t, enum format format,
                         bool is_down)
{
    int32_t n_rows = t->r->n_rows, rows = is_down ? HIDDEN : WIDTH, cols = is_down ? WIDTH : HIDDEN;
    size_t n_pairs = (size_t)n_rows * USED;
    struct act8 x = act8_make(rng, is_down ? (int32_t)n_pairs : n_rows, cols);
    t->args = (struct grouped_args){.n_rows = n_rows,
                                    .n_used = USED,
                                    .plan = t->r->plan,
                                    .n_w = is_down ? 1 : 2,
                                    .x = x.act,
                                    .is_row_a_pair = is_down};
    for (int k = 0; k < t->args.n_w; k++) {
        t->args.w[k] = act8_weight(rng, format, EXPERTS, rows, cols);
        t->args.y[k] = check_alloc(NULL, n_pairs * (size_t)rows * sizeof(float));
    }
    double s = check_time(c, run_product, t, false);
    double ops = 2.0 * (double)n_pairs * rows * cols * t->args.n_w;
    printf("  grouped_i8 %s %s %d rows: %.1f us, %.1f TOP/s (ceiling 372)\n",
           format_traits(format)->name, is_down ? "down" : "gate, up", n_rows, s * 1e6,
           ops / s / 1e12);
    for (int k = 0; k < t->args.n_w; k++) {
        check_free(t->args.y[k]);
        check_weight_free(&t->args.w[k]);
    }
    act8_free(&x);
}

static void time_layer(struct check *c, struct rng *rng, int32_t n_rows)
{
    struct routing r = routing_make(c, rng, n_rows, USED, EXPERTS, 0, true);
    struct timed t = {.c = c, .r = &r};
    printf("  expert_sort %d rows: %.1f us\n", n_rows, check_time(c, run_sort, &t, false) * 1e6);
    time_product(c, rng, &t, FORMAT_Q4_0, false);
    time_product(c, rng, &t, FORMAT_Q4_0, true);
    time_product(c, rng, &t, FORMAT_Q8_0, true);
    size_t bytes = (size_t)n_rows * HIDDEN * sizeof(float), n_pairs = (size_t)n_rows * USED;
    float *shares = calloc(n_pairs, sizeof *shares);
    float *on[3] = {check_alloc(NULL, bytes * USED), check_alloc(shares, n_pairs * sizeof *shares),
                    check_alloc(NULL, bytes)};
    t.sum = (struct expert_sum_args){
        .x = on[0], .shares = on[1], .y = on[2], .n_used = USED, .cols = HIDDEN};
    double s = check_time(c, run_sum, &t, false);
    printf("  expert_sum %d rows: %.1f us, %.0f GB/s (4670)\n", n_rows, s * 1e6,
           (double)bytes * (USED + 1) / s / 1e9);
    for (int i = 0; i < 3; i++) check_free(on[i]);
    free(shares);
    routing_free(c, &r);
}

void check_moe(struct check *c)
{
    struct rng rng = {62};
    check_sort(c, &rng, 1, 1, 1, 0);
    check_sort(c, &rng, 17, 3, 5, 0);
    check_sort(c, &rng, 300, 2, 4, 5);
    check_sort(c, &rng, 257, 8, 128, 1);
    check_sort(c, &rng, 77, 7, 1024, 0);
    check_sort(c, &rng, 1, 8, 33, 8);
    const struct grouped_case cases[] = {
        {37, 3, 5, 96, 1, {40}, {FORMAT_Q8_0}, false, false},
        {300, 2, 4, 320, 2, {72, 72}, {FORMAT_Q4_0, FORMAT_Q4_0}, false, false},
        {300, 2, 4, 64, 2, {72, 72}, {FORMAT_Q4_0, FORMAT_Q4_0}, false, true},
        {129, 3, 7, 256, 2, {31, 20}, {FORMAT_Q4_K, FORMAT_Q6_K}, false, false},
        {100, 4, 3, 96, 1, {133}, {FORMAT_Q5_1}, true, false},
        {1, 2, 9, 32, 1, {8}, {FORMAT_IQ4_NL}, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_grouped(c, &rng, &cases[i]);
    for (int is_half = 0; is_half < 2; is_half++) {
        check_sum(c, &rng, 3, 2, 2816, is_half);
        check_sum(c, &rng, 17, 8, 131, is_half);
    }
    if (c->is_perf) {
        time_layer(c, &rng, 2048);
        time_layer(c, &rng, 128);
    }
}
