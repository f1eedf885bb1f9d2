/* launch_route beside the reference's own steps: the same ids, ties included, and shares. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/check.h"

/* Exponentials within an ulp, sums in the reference's order. */
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

/* Logits are multiples of `step` when it is not 0: ties. */
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

/* Whatever the logits are, ids are ids; NaN shows in the shares. */
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
    if (!c->is_perf) return;
    measure(c, 1);
    measure(c, 32);
    measure(c, 2048);
}
