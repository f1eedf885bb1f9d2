/* A norm and the router that reads its row in one launch against both alone: the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/beside.h"
#include "cuda/check_tiles.h"

enum { OUTS = 3, ROUTED = 1 /* the router's out */ };

struct shape {
    int rows, live, cols, n_expert;
    bool has_w_a, has_residual, has_w_out;
    float scale;
    int poison; /* this column of the first row is NaN; -1: none */
};

struct results {
    float *x, *y[OUTS], *z, *shares;
    int32_t *ids;
    struct act act[OUTS];
};

struct pair {
    struct check *check;
    struct norm_args norm;
    struct router_args router;
    float *inputs[6];
    uint32_t *arrived;
};

static struct pair new_pair(struct check *c, const struct shape *s)
{
    struct rng rng = {91};
    struct pair p = {.check = c};
    struct step_view step = check_step(s->live, s->live, 0, NULL, NULL, NULL, NULL);
    size_t cols = (size_t)s->cols, n = (size_t)s->rows * cols;
    uint32_t zeros[ROUTER_COUNTERS] = {0};
    float *a = malloc(n * sizeof *a);
    check_normal(&rng, a, n, 3);
    if (s->poison >= 0) a[s->poison] = NAN;
    p.inputs[0] = check_alloc(a, n * sizeof *a);
    free(a);
    p.inputs[1] = check_normal_device(&rng, n, 2, NULL);
    for (int i = 2; i < 6; i++) p.inputs[i] = check_normal_device(&rng, cols, 2, NULL);
    p.norm = (struct norm_args){.step = step,
                                .rows = {.max = s->rows},
                                .cols = s->cols,
                                .eps = 1e-6f,
                                .a = p.inputs[0],
                                .w_a = s->has_w_a ? p.inputs[2] : NULL,
                                .is_normed = s->has_w_a,
                                .residual = s->has_residual ? p.inputs[1] : NULL,
                                .scale = s->scale,
                                .n_outs = OUTS};
    for (int k = 0; k < OUTS; k++) {
        p.norm.out[k].is_normed = true;
        if (k != ROUTED || s->has_w_out) p.norm.out[k].w = p.inputs[3 + k];
    }
    p.router = (struct router_args){
        .step = step, .rows = {.max = s->rows}, .n_used = s->n_expert < 8 ? 1 : 8, .is_late = true};
    p.router.w =
        check_weight(c, &rng, FORMAT_F32, LAYOUT_ROWS, 1, s->n_expert, s->cols, 0.05f, NULL);
    p.router.arrived = p.arrived = check_alloc(zeros, sizeof zeros);
    return p;
}

static bool free_pair(struct pair *p)
{
    bool is_whole = check_free(p->arrived);
    check_step_free(&p->norm.step);
    for (int i = 0; i < 6; i++) is_whole &= check_free(p->inputs[i]);
    check_weight_free(&p->router.w);
    return is_whole;
}

static struct results point_to_new(struct pair *p, const struct shape *s)
{
    size_t n = (size_t)(s->rows * s->cols), pairs = (size_t)(s->rows * p->router.n_used);
    struct results r = {.x = check_alloc(NULL, n * sizeof(float)),
                        .z = check_alloc(NULL, (size_t)(s->rows * s->n_expert) * sizeof(float)),
                        .shares = check_alloc(NULL, pairs * sizeof(float)),
                        .ids = check_alloc(NULL, pairs * sizeof(int32_t))};
    for (int k = 0; k < OUTS; k++) {
        if (k != ROUTED) r.act[k] = act_empty(s->rows, s->cols);
        if (k == ROUTED) r.y[k] = check_alloc(NULL, n * sizeof(float));
        p->norm.out[k].y = r.y[k];
        p->norm.out[k].act = r.act[k];
        if (k == ROUTED) p->norm.out[k].act.kind = ACT_NONE;
    }
    p->norm.x_out = r.x;
    p->router.x = r.y[ROUTED];
    p->router.z = r.z, p->router.shares = r.shares, p->router.ids = r.ids;
    return r;
}

static bool free_results(struct results *r)
{
    bool is_whole = check_free(r->x) & check_free(r->z) & check_free(r->shares) &
                    check_free(r->ids) & check_free(r->y[ROUTED]);
    for (int k = 0; k < OUTS; k++)
        if (k != ROUTED) is_whole &= act_free(&r->act[k]);
    return is_whole;
}

static bool is_same(const struct results *a, const struct results *b, const struct shape *s)
{
    size_t n = (size_t)(s->rows * s->cols) * sizeof(float);
    bool is_right = check_is_same(a->x, b->x, n) && check_is_same(a->y[ROUTED], b->y[ROUTED], n);
    for (int k = 0; k < OUTS; k++) {
        size_t bytes = (size_t)(s->rows * a->act[k].stride);
        if (k != ROUTED)
            is_right = is_right && check_is_same(a->act[k].values, b->act[k].values, bytes) &&
                       check_is_same(a->act[k].scale, b->act[k].scale, bytes / 4);
    }
    return is_right && check_is_same(a->z, b->z, (size_t)(s->rows * s->n_expert) * sizeof(float));
}

static void record_alone(void *user, int i)
{
    struct pair *p = user;
    (void)i;
    launch_norm(&p->check->queue, &p->norm);
    launch_router(&p->check->queue, &p->router);
}

static void record_together(void *user, int i)
{
    struct pair *p = user;
    (void)i;
    launch_router_normed(&p->check->queue, &p->norm, &p->router);
}

static void check_shape(struct check *c, const struct shape *s)
{
    struct pair p = new_pair(c, s);
    struct results alone = point_to_new(&p, s);
    record_alone(&p, 0);
    struct results together = point_to_new(&p, s);
    bool is_taken = launch_router_normed(&c->queue, &p.norm, &p.router);
    bool is_wanted =
        s->cols <= 4096 && s->cols % 8 == 0 && choice_is_late(&c->queue, s->rows, p.router.n_used);
    check_that(c, is_taken == is_wanted, "router normed: %d x %d, %d rows taken", s->n_expert,
               s->cols, s->rows);
    if (is_taken)
        check_that(c, is_same(&alone, &together, s), "router normed: %d x %d, %d of %d rows",
                   s->n_expert, s->cols, s->live, s->rows);
    p.norm.x_out = p.inputs[1];
    if (s->has_residual)
        check_that(c, !launch_router_normed(&c->queue, &p.norm, &p.router),
                   "router normed: onto the sum");
    check_that(c, free_results(&alone) & free_results(&together) & free_pair(&p),
               "router normed: wrote outside");
}

static void time_all(struct check *c)
{
    enum { LAUNCHES = 16 };
    for (int rows = 1; rows <= 4; rows *= 2) {
        struct shape s = {rows, rows, 2816, 128, true, true, true, 1, -1};
        struct pair p = new_pair(c, &s);
        struct results r = point_to_new(&p, &s);
        double late = graph_time(c, record_alone, &p, LAUNCHES);
        double together = graph_time(c, record_together, &p, LAUNCHES);
        p.router.is_late = false;
        double alone = graph_time(c, record_alone, &p, LAUNCHES);
        printf("26B norm, router with choice %.2f us, without %.2f us, in one launch %.2f us\n",
               alone * 1e6, late * 1e6, together * 1e6);
        free_results(&r);
        free_pair(&p);
    }
}

void check_router_normed(struct check *c)
{
    static const struct shape shapes[] = {
        {1, 1, 2816, 128, true, true, true, 1, -1},    {2, 2, 2816, 128, true, true, true, 1, -1},
        {4, 3, 2816, 128, true, true, true, 0.5f, -1}, {3, 3, 512, 40, true, true, false, 1, -1},
        {4, 4, 4096, 128, true, false, true, 1, -1},   {1, 1, 264, 9, false, true, true, 2, -1},
        {2, 1, 96, 3, false, false, true, 1, -1},      {1, 1, 64, 128, true, true, true, 1, -1},
        {4, 4, 2816, 128, true, true, true, 1, 77},    {4, 0, 2816, 128, true, true, true, 1, -1},
        {1, 1, 2820, 128, true, true, true, 1, -1},    {1, 1, 5376, 128, true, true, true, 1, -1},
        {5, 5, 2816, 128, true, true, true, 1, -1},    {8, 7, 2816, 128, true, true, true, 1, -1},
        {9, 9, 2816, 128, true, true, true, 1, -1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(c, &shapes[i]);
    if (c->is_perf) time_all(c);
}
