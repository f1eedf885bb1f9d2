/* launch_route against the steps of the reference: the same ids, ties included, and the same
 * shares. launch_router against launch_matvec (check_matvec.c) and launch_route: the same bits.
 * launch_router_parts against double precision, next to launch_matmul_exact. */
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
    launch_route(r->queue, r->step, r->rows, r->z, 1, r->scale, r->ids, r->shares, r->n_expert,
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
    launch_route(r->queue, a->step, a->rows, a->z, 1, a->scale, a->ids, a->shares, a->w.rows,
                 a->n_used);
}

static bool is_same_choice(const struct chosen *a, const struct chosen *b,
                           const struct router_shape *s)
{
    size_t n_out = (size_t)s->rows * (size_t)s->n_used * 4;
    return check_is_same(a->z, b->z, (size_t)s->rows * (size_t)s->n * sizeof(float)) &&
           check_is_same(a->shares, b->shares, n_out) && check_is_same(a->ids, b->ids, n_out);
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

/* ---- The product for many rows ------------------------------------------------------------ */

/* Of the sum of |w x|, as router_many.cu says; and as a mean square of the logits: a few times that
 * of fp32, about 1e-13. */
#define PARTS_LIMIT ldexp(1, -18)
#define PARTS_BUDGET 1e-12
/* Below the normal range, where factors of two are lost. */
#define PARTS_LEAST ldexp(1, -126)

enum parts_trap {
    PARTS_PLAIN,
    PARTS_EXTREME, /* rows and experts of 2^-140 to 2^50, and values of a row by 2^40 apart */
    PARTS_NAN      /* in a row and in an expert, and an infinity in another of each */
};

struct parts_shape {
    int32_t rows, live, n, cols;
    enum parts_trap trap;
};

struct parts_data {
    float *x, *w; /* host */
    struct router_parts_args args;
};

static float trapped(const struct parts_shape *s, int32_t row, int32_t col, bool is_weight, float v)
{
    static const int powers[] = {0, -140, 50, -60, 20, -100, 3};
    int power = powers[(row + (is_weight ? 3 : 0)) % 7] - (row % 5 == 4 ? col % 3 * 20 : 0);
    if (s->trap == PARTS_EXTREME) return ldexpf(v, power);
    if (s->trap == PARTS_NAN && row == 2 && col == s->cols / 2) return NAN;
    if (s->trap == PARTS_NAN && row == 5 && col == s->cols - 1) return INFINITY;
    return v;
}

static struct parts_data new_parts(struct check *c, struct rng *rng, const struct parts_shape *s)
{
    struct parts_data d = {.w = NULL};
    size_t n_x = (size_t)s->rows * (size_t)s->cols, n_w = (size_t)s->n * (size_t)s->cols;
    d.args = (struct router_parts_args){
        .step = check_step(s->live, 0, 0, NULL, NULL, NULL, NULL),
        .rows = {s->rows, ROWS_TOKEN},
        .w = check_weight(c, rng, FORMAT_F32, LAYOUT_ROWS, 1, s->n, s->cols, 0.05f, &d.w),
        .z = check_alloc(NULL, (size_t)router_n_parts(s->cols) * (size_t)s->rows * (size_t)s->n *
                                   sizeof(float))};
    d.x = malloc(n_x * sizeof *d.x);
    check_normal(rng, d.x, n_x, 1);
    for (size_t i = 0; i < n_x; i++)
        d.x[i] = trapped(s, (int32_t)(i / (size_t)s->cols), (int32_t)(i % (size_t)s->cols), false,
                         d.x[i]);
    for (size_t i = 0; i < n_w; i++)
        d.w[i] = trapped(s, (int32_t)(i / (size_t)s->cols), (int32_t)(i % (size_t)s->cols), true,
                         d.w[i]);
    for (int32_t e = 0; e < s->n; e++)
        check_upload(d.args.w.quants + e * d.args.w.row_bytes, d.w + e * s->cols,
                     (size_t)s->cols * sizeof *d.w);
    d.args.x = check_alloc(d.x, n_x * sizeof *d.x);
    return d;
}

static bool free_parts(struct parts_data *d)
{
    free(d->x);
    free(d->w);
    check_weight_free(&d->args.w);
    check_step_free(&d->args.step);
    return check_free((void *)(uintptr_t)d->args.x) & check_free(d->args.z);
}

/* What the parts add up to, as launch_route does it; NULL: a row that does not live was written. */
static float *parts_summed(const struct parts_data *d, const struct parts_shape *s)
{
    size_t n_parts = (size_t)router_n_parts(s->cols), n = (size_t)s->rows * (size_t)s->n;
    float *z = malloc(n_parts * n * sizeof *z);
    bool is_kept = true;
    check_download(z, d->args.z, n_parts * n * sizeof *z);
    for (size_t k = 0; k < n_parts; k++)
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &z[k * n + i], sizeof bits);
            bool is_live = i < (size_t)s->live * (size_t)s->n;
            is_kept = is_kept && (is_live || bits == 0xffffffffu);
            if (k > 0 && is_live) z[i] += z[k * n + i];
        }
    if (is_kept) return z;
    free(z);
    return NULL;
}

struct parts_error {
    double most; /* of the sum of |w x| */
    double nmse;
    bool is_nan_right; /* where, and nowhere else */
};

static struct parts_error parts_error_of(const struct parts_data *d, const struct parts_shape *s,
                                         const float *z)
{
    struct parts_error error = {.is_nan_right = true};
    double squares = 0, all = 0;
    for (int32_t r = 0; r < s->live; r++)
        for (int32_t e = 0; e < s->n; e++) {
            const float *x = d->x + r * s->cols, *w = d->w + e * s->cols;
            double want = 0, size = 0, got = (double)z[r * s->n + e];
            for (int32_t k = 0; k < s->cols; k++) {
                want += (double)x[k] * (double)w[k];
                size += fabs((double)x[k] * (double)w[k]);
            }
            if (!isfinite(size) != (isnan(got) != 0)) error.is_nan_right = false;
            if (!isfinite(size)) continue;
            double lost = fmax(fabs(got - want) - PARTS_LEAST, 0);
            error.most = fmax(error.most, lost > 0 ? lost / size : 0);
            squares += lost * lost;
            all += want * want;
        }
    error.nmse = all > 0 ? squares / all : 0;
    return error;
}

/* The same rows and weights by launch_matmul_exact. */
static struct parts_error exact_error_of(struct check *c, const struct parts_data *d,
                                         const struct parts_shape *s)
{
    size_t n = (size_t)s->rows * (size_t)s->n;
    float *device = check_alloc(NULL, n * sizeof(float)), *z = malloc(n * sizeof *z);
    struct exact_args args = {
        .step = d->args.step, .rows = d->args.rows, .w = d->args.w, .x = d->args.x, .y = device};
    launch_matmul_exact(&c->queue, &args);
    check_download(z, device, n * sizeof *z);
    check_free(device);
    struct parts_error error = parts_error_of(d, s, z);
    free(z);
    return error;
}

/* A row has the same bits in another place and among fewer rows. */
static bool is_same_elsewhere(struct check *c, const struct parts_data *d,
                              const struct parts_shape *s, const float *z)
{
    struct parts_data some = *d;
    struct parts_shape less = *s;
    int32_t first = s->live / 3;
    less.rows = less.live = s->live - first;
    some.args.x += (size_t)first * (size_t)s->cols;
    some.args.rows.max = less.rows;
    some.args.step = check_step(less.live, 0, 0, NULL, NULL, NULL, NULL);
    some.args.z = check_alloc(NULL, (size_t)router_n_parts(s->cols) * (size_t)less.rows *
                                        (size_t)s->n * sizeof(float));
    launch_router_parts(&c->queue, &some.args);
    float *again = parts_summed(&some, &less);
    bool is_same =
        again && memcmp(again, z + first * s->n, (size_t)less.rows * (size_t)s->n * sizeof *z) == 0;
    free(again);
    check_step_free(&some.args.step);
    return check_free(some.args.z) && is_same;
}

static void check_parts_case(struct check *c, struct rng *rng, const struct parts_shape *s)
{
    struct parts_data d = new_parts(c, rng, s);
    launch_router_parts(&c->queue, &d.args);
    float *z = parts_summed(&d, s);
    check_that(c, z, "router of many rows: %d of %d rows: wrote others", s->live, s->rows);
    if (z) {
        struct parts_error error = parts_error_of(&d, s, z), exact = exact_error_of(c, &d, s);
        bool is_right = error.most <= PARTS_LIMIT && error.nmse <= PARTS_BUDGET;
        check_that(c, is_right && error.is_nan_right,
                   "router of many rows: %d x %d x %d, trap %d: %.3g of |w x|, nmse %.3g", s->rows,
                   s->n, s->cols, (int)s->trap, error.most, error.nmse);
        if (s->trap != PARTS_NAN && s->live)
            check_that(c, is_same_elsewhere(c, &d, s, z), "router of many rows: %d rows elsewhere",
                       s->live);
        if (c->is_perf)
            printf("router %4d x %3d x %4d, trap %d: error %.2g of |w x|, rms %.2g; in fp32 %.2g, "
                   "rms %.2g\n",
                   s->rows, s->n, s->cols, (int)s->trap, error.most, sqrt(error.nmse), exact.most,
                   sqrt(exact.nmse));
    }
    free(z);
    check_that(c, free_parts(&d), "router of many rows: wrote outside");
}

struct parts_run {
    struct queue *queue;
    struct router_parts_args args;
};

static void launch_parts(void *user)
{
    struct parts_run *r = user;
    launch_router_parts(r->queue, &r->args);
}

static void launch_exact(void *user)
{
    struct parts_run *r = user;
    struct exact_args args = {
        .step = r->args.step, .rows = r->args.rows, .w = r->args.w, .x = r->args.x, .y = r->args.z};
    launch_matmul_exact(r->queue, &args);
}

static void measure_parts(struct check *c, int32_t rows)
{
    struct rng rng = {9};
    struct parts_shape s = {rows, rows, 128, 2816, PARTS_PLAIN};
    struct parts_data d = new_parts(c, &rng, &s);
    struct parts_run run = {&c->queue, d.args};
    double seconds = check_time_graph(c, launch_parts, &run),
           exact = check_time_graph(c, launch_exact, &run);
    printf("router %4d rows x 128 x 2816  in a graph %7.2f us, in fp32 %7.2f us (bound %.2f us)\n",
           rows, seconds * 1e6, exact * 1e6, 3 * 2.0 * rows * 128 * 2816 / 641e12 * 1e6);
    free_parts(&d);
}

static void check_parts(struct check *c)
{
    static const struct parts_shape shapes[] = {
        {65, 65, 128, 2816, PARTS_PLAIN},    {300, 290, 128, 2816, PARTS_PLAIN},
        {130, 129, 128, 704, PARTS_EXTREME}, {70, 64, 8, 64, PARTS_PLAIN},
        {66, 65, 100, 36, PARTS_EXTREME},    {129, 100, 3, 4, PARTS_PLAIN},
        {80, 80, 128, 2816, PARTS_NAN},      {67, 66, 127, 1028, PARTS_NAN},
        {64, 63, 64, 2820, PARTS_EXTREME},   {128, 0, 16, 256, PARTS_PLAIN}};
    struct rng rng = {79};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_parts_case(c, &rng, &shapes[i]);
    if (!c->is_perf) return;
    measure_parts(c, 128);
    measure_parts(c, 512);
    measure_parts(c, 2048);
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
    check_parts(c);
    if (!c->is_perf) return;
    measure(c, 1);
    measure(c, 32);
    measure(c, 2048);
}
