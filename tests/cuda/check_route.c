/* launch_route against the steps of the reference: the same ids, ties included, and the same
 * shares. launch_router against launch_matvec (check_matvec.c) and launch_route: the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/check.h"

/* Exponentials are right to an ulp, and sums have the order of the reference. */
#define ROUTE_BUDGET 1e-12

struct route_run {
    struct queue *queue;
    struct step_view step;
    struct rows rows;
    float *z, *scale, *shares;
    int32_t *ids;
    int32_t n_expert, n_used;
};

static void launch_run(void *user)
{
    struct route_run *r = user;
    launch_route(r->queue, r->step, r->rows, r->z, r->scale, r->ids, r->shares, r->n_expert,
                 r->n_used);
}

static void expect_row(const float *z, const float *scale, int32_t n, int32_t n_used, int32_t *ids,
                       double *shares)
{
    float *p = malloc((size_t)n * sizeof *p), top = z[0];
    double sum = 0;
    for (int32_t e = 1; e < n; e++) top = fmaxf(top, z[e]);
    for (int32_t e = 0; e < n; e++) p[e] = expf(z[e] - top);
    for (int32_t s = 0; s < n_used; s++) {
        int32_t best = 0;
        for (int32_t e = 1; e < n; e++)
            if (p[e] > p[best]) best = e;
        ids[s] = best;
        shares[s] = exp((double)z[best] - (double)top);
        sum += shares[s];
        p[best] = -1.0f;
    }
    for (int32_t s = 0; s < n_used; s++)
        shares[s] = shares[s] / sum * (scale ? (double)scale[ids[s]] : 1);
    free(p);
}

/* Logits are multiples of `step` when it is not 0, so that there are ties. */
static void check_case(struct check *c, struct rng *rng, int32_t rows, int32_t n, int32_t n_used,
                       float step, bool has_scale)
{
    size_t n_z = (size_t)rows * (size_t)n, n_out = (size_t)rows * (size_t)n_used;
    int32_t live = rows > 1 ? rows - 1 : 1;
    float *z = malloc(n_z * sizeof *z), *scale = malloc((size_t)n * sizeof *scale);
    check_normal(rng, z, n_z, 3);
    check_normal(rng, scale, (size_t)n, 1);
    for (size_t i = 0; step > 0 && i < n_z; i++) z[i] = rintf(z[i] / step) * step;
    struct route_run run = {&c->queue,
                            check_step(live, 0, 0, NULL, NULL, NULL, NULL),
                            {rows, ROWS_TOKEN},
                            check_alloc(z, n_z * sizeof *z),
                            has_scale ? check_alloc(scale, (size_t)n * sizeof *scale) : NULL,
                            check_alloc(NULL, n_out * sizeof(float)),
                            check_alloc(NULL, n_out * sizeof(int32_t)),
                            n,
                            n_used};
    launch_run(&run);
    int32_t *ids = malloc(n_out * sizeof *ids), *want_ids = malloc(n_out * sizeof *ids);
    float *shares = malloc(n_out * sizeof *shares);
    double *want = malloc(n_out * sizeof *want);
    check_download(ids, run.ids, n_out * sizeof *ids);
    check_download(shares, run.shares, n_out * sizeof *shares);
    memset(want_ids, 0xff, n_out * sizeof *want_ids);
    for (int32_t r = 0; r < live; r++)
        expect_row(z + r * n, has_scale ? scale : NULL, n, n_used, want_ids + r * n_used,
                   want + r * n_used);
    double error = check_nmse(shares, want, (size_t)live * (size_t)n_used);
    check_that(c, memcmp(ids, want_ids, n_out * sizeof *ids) == 0 && error < ROUTE_BUDGET,
               "route: %d of %d, %d rows, step %g: %g", n_used, n, rows, (double)step, error);
    bool is_whole =
        check_free(run.z) & check_free(run.scale) & check_free(run.shares) & check_free(run.ids);
    check_that(c, is_whole, "route: %d of %d wrote outside", n_used, n);
    check_step_free(&run.step);
    free(z);
    free(scale);
    free(ids);
    free(want_ids);
    free(shares);
    free(want);
}

/* Whatever the logits are, ids are valid; NaN shows in the shares. */
static void check_nan(struct check *c)
{
    enum { N = 128, USED = 8 };
    float z[N], shares[USED];
    int32_t ids[USED];
    for (int i = 0; i < N; i++) z[i] = NAN;
    struct route_run run = {&c->queue,
                            check_step(1, 0, 0, NULL, NULL, NULL, NULL),
                            {1, ROWS_TOKEN},
                            check_alloc(z, sizeof z),
                            NULL,
                            check_alloc(NULL, sizeof shares),
                            check_alloc(NULL, sizeof ids),
                            N,
                            USED};
    launch_run(&run);
    check_download(ids, run.ids, sizeof ids);
    check_download(shares, run.shares, sizeof shares);
    bool is_right = true;
    for (int s = 0; s < USED; s++)
        is_right = is_right && ids[s] >= 0 && ids[s] < N && isnan(shares[s]);
    check_that(c, is_right, "route: NaN");
    check_free(run.z);
    check_free(run.shares);
    check_free(run.ids);
    check_step_free(&run.step);
}

static void measure(struct check *c, int32_t rows)
{
    struct rng rng = {5};
    struct route_run run = {&c->queue,
                            check_step(rows, 0, 0, NULL, NULL, NULL, NULL),
                            {rows, ROWS_TOKEN},
                            check_normal_device(&rng, (size_t)rows * 128, 3, NULL),
                            NULL,
                            check_alloc(NULL, (size_t)rows * 8 * 4),
                            check_alloc(NULL, (size_t)rows * 8 * 4),
                            128,
                            8};
    printf("route %5d rows, 8 of 128  in a graph %7.2f us (bound: latency)\n", rows,
           check_time_graph(c, launch_run, &run) * 1e6);
    check_free(run.z);
    check_free(run.shares);
    check_free(run.ids);
    check_step_free(&run.step);
}

/* ---- Product and choice in one launch ---------------------------------------------------- */

/* Launches one after the other, as in the layers of a step. */
enum { TURNS = 4 };

enum router_trap {
    TRAP_NONE,
    TRAP_TIES,      /* experts 2 k and 2 k + 1 have the same weights */
    TRAP_NAN_ROW,   /* the input of the first row is NaN */
    TRAP_NAN_EXPERT /* the weights of one expert are NaN */
};

struct router_shape {
    int32_t rows, live, n, n_used, cols;
    bool has_scale;
    enum router_trap trap;
};

struct chosen {
    float *z, *shares;
    int32_t *ids;
};

struct router_run {
    struct queue *queue;
    struct router_args args;
};

static struct chosen new_chosen(const struct router_shape *s)
{
    size_t n_out = (size_t)s->rows * (size_t)s->n_used;
    return (struct chosen){check_alloc(NULL, (size_t)s->rows * (size_t)s->n * sizeof(float)),
                           check_alloc(NULL, n_out * sizeof(float)),
                           check_alloc(NULL, n_out * sizeof(int32_t))};
}

static bool free_chosen(struct chosen *c)
{
    return check_free(c->z) & check_free(c->shares) & check_free(c->ids);
}

static struct router_args to(const struct router_args *args, const struct chosen *chosen)
{
    struct router_args a = *args;
    a.z = chosen->z;
    a.shares = chosen->shares;
    a.ids = chosen->ids;
    return a;
}

static void launch_one(void *user)
{
    struct router_run *r = user;
    launch_router(r->queue, &r->args);
}

static void launch_two(void *user)
{
    struct router_run *r = user;
    const struct router_args *a = &r->args;
    struct matvec_args product = {.step = a->step,
                                  .rows = a->rows,
                                  .n_w = 1,
                                  .w = {a->w},
                                  .y = {a->z},
                                  .x_floats = a->x,
                                  .epilogue = MATVEC_STORE};
    launch_matvec(r->queue, &product);
    launch_route(r->queue, a->step, a->rows, a->z, a->scale, a->ids, a->shares, a->w.rows,
                 a->n_used);
}

static bool is_same(const void *a, const void *b, size_t bytes)
{
    char *x = malloc(bytes), *y = malloc(bytes);
    check_download(x, a, bytes);
    check_download(y, b, bytes);
    bool is_it = memcmp(x, y, bytes) == 0;
    free(x);
    free(y);
    return is_it;
}

static bool is_same_choice(const struct chosen *a, const struct chosen *b,
                           const struct router_shape *s)
{
    size_t n_out = (size_t)s->rows * (size_t)s->n_used * 4;
    return is_same(a->z, b->z, (size_t)s->rows * (size_t)s->n * sizeof(float)) &&
           is_same(a->shares, b->shares, n_out) && is_same(a->ids, b->ids, n_out);
}

/* Ids of live rows are there. What comes after them is unchanged. */
static bool has_ids(const struct chosen *chosen, const struct router_shape *s)
{
    int32_t n = s->rows * s->n_used, *ids = malloc((size_t)n * sizeof *ids);
    check_download(ids, chosen->ids, (size_t)n * sizeof *ids);
    bool is_right = true;
    for (int32_t i = 0; i < n; i++)
        is_right =
            is_right && (i < s->live * s->n_used ? ids[i] >= 0 && ids[i] < s->n : ids[i] == -1);
    free(ids);
    return is_right;
}

static bool is_at_rest(const uint32_t *arrived)
{
    uint32_t counters[ROUTER_COUNTERS];
    check_download(counters, arrived, sizeof counters);
    for (int i = 0; i < ROUTER_COUNTERS; i++)
        if (counters[i]) return false;
    return true;
}

/* Everything but the results. */
static struct router_args new_router(struct check *c, struct rng *rng, const struct router_shape *s,
                                     uint32_t *arrived)
{
    float *x, *values;
    struct router_args a = {
        .step = check_step(s->live, 0, 0, NULL, NULL, NULL, NULL),
        .rows = {s->rows, ROWS_TOKEN},
        .w = check_weight(c, rng, FORMAT_F32, LAYOUT_ROWS, 1, s->n, s->cols, 0.05f, &values),
        .scale = s->has_scale ? check_normal_device(rng, (size_t)s->n, 1, NULL) : NULL,
        .n_used = s->n_used,
        .arrived = arrived};
    float *device = check_normal_device(rng, (size_t)s->rows * (size_t)s->cols, 1, &x);
    size_t row_bytes = (size_t)s->cols * sizeof *values;
    for (int32_t e = 1; e < s->n && s->trap == TRAP_TIES; e += 2)
        check_upload(a.w.quants + e * a.w.row_bytes, values + (e - 1) * s->cols, row_bytes);
    for (int32_t i = 0; i < s->cols; i++) x[i] = NAN;
    if (s->trap == TRAP_NAN_ROW) check_upload(device, x, row_bytes);
    if (s->trap == TRAP_NAN_EXPERT)
        check_upload(a.w.quants + s->n / 2 * a.w.row_bytes, x, row_bytes);
    a.x = device;
    free(x);
    free(values);
    return a;
}

static bool free_router(struct router_args *a)
{
    check_weight_free(&a->w);
    check_step_free(&a->step);
    return check_free((void *)(uintptr_t)a->x) & check_free((void *)(uintptr_t)a->scale);
}

/* The last live row by itself, computed by another kernel, has the bits that it has among
 * others. */
static bool is_same_alone(struct check *c, const struct router_args *args, const struct chosen *all,
                          const struct router_shape *s)
{
    struct router_shape one = *s;
    one.rows = one.live = 1;
    struct chosen alone = new_chosen(&one);
    struct router_args a = to(args, &alone);
    int32_t r = s->live - 1;
    a.step = check_step(1, 0, 0, NULL, NULL, NULL, NULL);
    a.rows.max = 1;
    a.x += (size_t)r * (size_t)s->cols;
    launch_router(&c->queue, &a);
    struct chosen row = {all->z + r * s->n, all->shares + r * s->n_used, all->ids + r * s->n_used};
    bool is_right = is_same_choice(&alone, &row, &one);
    check_step_free(&a.step);
    return is_right & free_chosen(&alone);
}

static void check_router_case(struct check *c, struct rng *rng, const struct router_shape *s,
                              uint32_t *arrived)
{
    struct router_args args = new_router(c, rng, s, arrived);
    struct chosen want = new_chosen(s), got[TURNS];
    for (int k = 0; k < TURNS; k++) got[k] = new_chosen(s);
    struct router_run run = {&c->queue, to(&args, &want)};
    launch_two(&run);
    for (int k = 0; k < TURNS; k++) {
        struct router_args a = to(&args, &got[k]);
        launch_router(&c->queue, &a);
    }
    bool is_right = has_ids(&want, s) && is_at_rest(arrived);
    for (int k = 0; k < TURNS; k++) is_right = is_right && is_same_choice(&got[k], &want, s);
    check_that(c, is_right, "router: %d of %d x %d, %d of %d rows, trap %d", s->n_used, s->n,
               s->cols, s->live, s->rows, s->trap);
    if (s->live)
        check_that(c, is_same_alone(c, &args, &want, s), "router: %d of %d rows, the last alone",
                   s->live, s->rows);
    bool is_whole = free_chosen(&want) & free_router(&args);
    for (int k = 0; k < TURNS; k++) is_whole &= free_chosen(&got[k]);
    check_that(c, is_whole, "router: %d of %d, %d rows wrote outside", s->n_used, s->n, s->rows);
}

/* Recorded and replayed: seconds of the launch, and of the two launches that it replaces. */
static void check_replay(struct check *c, int32_t rows, uint32_t *arrived)
{
    struct rng rng = {6};
    struct router_shape s = {rows, rows, 128, 8, 2816, true, TRAP_NONE};
    struct router_args args = new_router(c, &rng, &s, arrived);
    struct chosen one = new_chosen(&s), two = new_chosen(&s);
    struct router_run run_one = {&c->queue, to(&args, &one)};
    struct router_run run_two = {&c->queue, to(&args, &two)};
    double seconds = check_time_graph(c, launch_one, &run_one),
           both = check_time_graph(c, launch_two, &run_two);
    check_that(c, is_same_choice(&one, &two, &s) && has_ids(&one, &s) && is_at_rest(arrived),
               "router: %d rows, replayed", rows);
    if (c->is_perf)
        printf("router %4d rows, 8 of 128 x 2816  in a graph %7.2f us, as two launches %7.2f us "
               "(bound: latency)\n",
               rows, seconds * 1e6, both * 1e6);
    bool is_whole = free_chosen(&one) & free_chosen(&two) & free_router(&args);
    check_that(c, is_whole, "router: %d rows, replayed, wrote outside", rows);
}

static void check_router(struct check *c)
{
    static const struct router_shape shapes[] = {{1, 1, 128, 8, 2816, true, TRAP_NONE},
                                                 {3, 2, 128, 8, 2816, true, TRAP_TIES},
                                                 {17, 17, 128, 8, 2816, true, TRAP_NAN_ROW},
                                                 {64, 64, 128, 8, 2816, true, TRAP_TIES},
                                                 {64, 9, 128, 7, 704, false, TRAP_NONE},
                                                 {8, 8, 128, 6, 704, true, TRAP_NAN_EXPERT},
                                                 {9, 8, 8, 2, 64, true, TRAP_NONE},
                                                 {17, 3, 8, 8, 70, false, TRAP_TIES},
                                                 {64, 63, 100, 5, 257, true, TRAP_NAN_EXPERT},
                                                 {3, 3, 100, 1, 2816, false, TRAP_TIES},
                                                 {1, 1, 100, 4, 33, true, TRAP_NAN_ROW},
                                                 {2, 2, 3, 3, 256, true, TRAP_NONE},
                                                 {16, 0, 128, 8, 256, true, TRAP_NONE}};
    struct rng rng = {78};
    uint32_t zeros[ROUTER_COUNTERS] = {0}, *arrived = check_alloc(zeros, sizeof zeros);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_router_case(c, &rng, &shapes[i], arrived);
    if (!c->is_small)
        for (int32_t rows = 1; rows <= MATVEC_ROWS_MAX; rows *= 4) check_replay(c, rows, arrived);
    check_that(c, check_free(arrived), "router: wrote outside the counters");
}

void check_route(struct check *c)
{
    struct rng rng = {77};
    check_case(c, &rng, 1, 128, 8, 0, true);
    check_case(c, &rng, 17, 128, 8, 0, true);
    check_case(c, &rng, 300, 128, 8, 0.5f, true);
    check_case(c, &rng, 3, 8, 2, 0, false);
    check_case(c, &rng, 3, 8, 8, 1, true);
    check_case(c, &rng, 9, 100, 1, 0.25f, false);
    check_case(c, &rng, 5, 1024, 16, 0.125f, true);
    check_case(c, &rng, 2, 300, 40, 0, true);
    check_nan(c);
    check_router(c);
    if (!c->is_perf) return;
    measure(c, 1);
    measure(c, 32);
    measure(c, 2048);
}
