/* Two products in one launch against the same products alone: the same bits. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/beside.h"
#include "cuda/check_tiles.h"

/* A layer with experts, for steps of up to `rows` rows. */
struct shape {
    enum format dense, experts;
    int rows, live, hidden, dense_cols, expert_cols, n_expert, n_used;
};

/* What the launches write. */
struct results {
    struct act dense_act, expert_act;
    float *z, *shares, *dense_down, *expert_down;
    int32_t *ids;
};

struct layer {
    struct check *check;
    struct shape shape;
    struct router_args router;
    struct beside_args gate_up, down;
    struct results own;
    uint32_t *arrived;
};

static struct results new_results(const struct shape *s)
{
    size_t pairs = (size_t)(s->rows * s->n_used);
    size_t outs = (size_t)(s->rows * s->hidden) * sizeof(float);
    return (struct results){.dense_act = act_empty(s->rows, s->dense_cols),
                            .expert_act = act_empty(s->rows * s->n_used, s->expert_cols),
                            .z = check_alloc(NULL, (size_t)(s->rows * s->n_expert) * sizeof(float)),
                            .shares = check_alloc(NULL, pairs * sizeof(float)),
                            .ids = check_alloc(NULL, pairs * sizeof(int32_t)),
                            .dense_down = check_alloc(NULL, outs),
                            .expert_down = check_alloc(NULL, outs)};
}

static bool free_results(struct results *r)
{
    return act_free(&r->dense_act) & act_free(&r->expert_act) & check_free(r->z) &
           check_free(r->shares) & check_free(r->ids) & check_free(r->dense_down) &
           check_free(r->expert_down);
}

/* A launch reads what those before it made. */
static void point_to(struct layer *l, const struct results *r)
{
    l->router.z = r->z;
    l->router.ids = r->ids;
    l->router.shares = r->shares;
    l->gate_up.dense.act = l->down.dense.x = r->dense_act;
    l->gate_up.experts.act = l->down.experts.x = r->expert_act;
    l->gate_up.experts.ids = l->down.experts.ids = r->ids;
    l->down.experts.shares = r->shares;
    l->down.dense.y[0] = r->dense_down;
    l->down.experts.out = r->expert_down;
}

static struct layer new_layer(struct check *c, const struct shape *s)
{
    struct layer l = {.check = c, .shape = *s, .own = new_results(s)};
    struct rng rng = {23};
    size_t bytes, n_x = (size_t)(s->rows * s->hidden);
    float *x, *floats = check_normal_device(&rng, n_x, 1, &x);
    uint32_t zeros[ROUTER_COUNTERS] = {0};
    struct step_view step = check_step(s->live, s->live, 0, NULL, NULL, NULL, NULL);
    struct rows rows = {.max = s->rows};
    l.router = (struct router_args){.step = step,
                                    .rows = rows,
                                    .x = floats,
                                    .n_used = s->n_used,
                                    .arrived = check_alloc(zeros, sizeof zeros)};
    l.router.w =
        check_weight(c, &rng, FORMAT_F32, LAYOUT_ROWS, 1, s->n_expert, s->hidden, 0.05f, NULL);
    struct beside_args both = {.rows = rows,
                               .dense = {.step = step, .rows = rows},
                               .experts = {.step = step, .rows = rows, .n_used = s->n_used}};
    l.gate_up = l.down = both;
    l.gate_up.dense.epilogue = MATVEC_GELU_MUL;
    l.gate_up.experts.is_gelu_mul = true;
    l.gate_up.dense.n_w = l.gate_up.experts.n_w = 2;
    l.down.dense.n_w = l.down.experts.n_w = 1;
    l.gate_up.dense.x = l.gate_up.experts.x = act_of(x, s->rows, s->hidden);
    for (int k = 0; k < 2; k++) {
        l.gate_up.dense.w[k] = weight_of_noise(s->dense, 1, s->dense_cols, s->hidden, &bytes);
        l.gate_up.experts.w[k] =
            weight_of_noise(s->experts, s->n_expert, s->expert_cols, s->hidden, &bytes);
    }
    l.down.dense.w[0] = weight_of_noise(s->dense, 1, s->hidden, s->dense_cols, &bytes);
    l.down.experts.w[0] =
        weight_of_noise(s->experts, s->n_expert, s->hidden, s->expert_cols, &bytes);
    point_to(&l, &l.own);
    free(x);
    return l;
}

static void free_layer(struct layer *l)
{
    check_free((void *)(uintptr_t)l->router.x);
    check_free(l->router.arrived);
    act_free(&l->gate_up.dense.x);
    check_weight_free(&l->router.w);
    check_weight_free(&l->down.dense.w[0]);
    check_weight_free(&l->down.experts.w[0]);
    for (int k = 0; k < 2; k++) {
        check_weight_free(&l->gate_up.dense.w[k]);
        check_weight_free(&l->gate_up.experts.w[k]);
    }
    check_step_free(&l->router.step);
    free_results(&l->own);
}

/* The choice is made by those who read the logits, where there are kernels for that. */
static void launch_late(struct layer *l)
{
    const struct queue *q = &l->check->queue;
    struct router_args router = l->router;
    struct beside_args gate_up = l->gate_up, down = l->down;
    router.is_late = true;
    gate_up.z = down.z = router.z;
    gate_up.scale = down.scale = router.scale;
    gate_up.experts.shares = down.experts.shares;
    launch_router(q, &router);
    launch_gate_up_beside(q, &gate_up);
    launch_down_beside(q, &down);
}

static void launch_beside(const struct layer *l)
{
    const struct queue *q = &l->check->queue;
    launch_router(q, &l->router);
    launch_gate_up_beside(q, &l->gate_up);
    launch_down_beside(q, &l->down);
}

static void launch_alone(const struct layer *l)
{
    const struct queue *q = &l->check->queue;
    launch_matvec(q, &l->gate_up.dense);
    launch_matvec(q, &l->down.dense);
    launch_router(q, &l->router);
    launch_experts_in(q, &l->gate_up.experts);
    launch_experts_out(q, &l->down.experts);
}

static bool is_same_act(const struct act *a, const struct act *b, int rows)
{
    size_t n = (size_t)(rows * a->stride);
    return check_is_same(a->values, b->values, n) &&
           check_is_same(a->scale, b->scale, n / ACT_BLOCK * 2 * sizeof(float));
}

static void compare(struct check *c, const struct shape *s, const struct results *a,
                    const struct results *b, const char *how)
{
    size_t outs = (size_t)(s->live * s->hidden) * sizeof(float);
    bool is_dense = is_same_act(&a->dense_act, &b->dense_act, s->rows) &&
                    check_is_same(a->dense_down, b->dense_down, outs);
    check_that(c, is_dense, "beside%s: dense branch, %s, %d rows", how,
               format_traits(s->dense)->name, s->rows);
    bool is_routed = is_same_act(&a->expert_act, &b->expert_act, s->rows * s->n_used) &&
                     check_is_same(a->expert_down, b->expert_down, outs);
    check_that(c, is_routed, "beside%s: experts, %s, %d rows", how, format_traits(s->experts)->name,
               s->rows);
}

static void check_shape(struct check *c, const struct shape *s)
{
    struct layer l = new_layer(c, s);
    struct results alone = new_results(s), late = new_results(s);
    size_t pairs = (size_t)(s->live * s->n_used) * sizeof(float);
    for (int time = 0; time < 2; time++) launch_beside(&l); /* counters are as before */
    point_to(&l, &late);
    launch_late(&l);
    point_to(&l, &alone);
    launch_alone(&l);
    bool is_choice = check_is_same(l.own.ids, alone.ids, pairs) &&
                     check_is_same(l.own.shares, alone.shares, pairs);
    check_that(c, is_choice, "beside: choice of %d of %d rows", s->live, s->rows);
    compare(c, s, &l.own, &alone, "");
    compare(c, s, &late, &alone, ", late");
    check_that(c, free_results(&alone) & free_results(&late), "beside: wrote outside");
    free_layer(&l);
}

static void record_beside(void *user, int i)
{
    (void)i;
    launch_beside(user);
}

static void record_late(void *user, int i)
{
    (void)i;
    launch_late(user);
}

static void record_alone(void *user, int i)
{
    (void)i;
    launch_alone(user);
}

/* A layer of 26B-A4B; its weights stay in L2. */
static void time_formats(struct check *c, enum format dense, enum format experts)
{
    enum { LAUNCHES = 16 };
    for (int rows = 1; rows <= 8; rows *= 2) {
        struct shape s = {dense, experts, rows, rows, 2816, 2112, 704, 128, 8};
        struct layer l = new_layer(c, &s);
        double alone = graph_time(c, record_alone, &l, LAUNCHES);
        double beside = graph_time(c, record_beside, &l, LAUNCHES);
        double late = graph_time(c, record_late, &l, LAUNCHES);
        printf("26B router, gate and up, down, %s and %s, %d rows: alone %.1f us, beside %.1f us, "
               "with a late choice %.1f us\n",
               format_traits(dense)->name, format_traits(experts)->name, rows, alone * 1e6,
               beside * 1e6, late * 1e6);
        free_layer(&l);
    }
}

void check_beside(struct check *c)
{
    static const enum format formats[] = {FORMAT_Q4_0, FORMAT_Q8_0, FORMAT_Q6_K, FORMAT_Q4_K};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (int rows = 1; rows <= 8; rows *= 2) {
            struct shape s = {formats[i], formats[i], rows, rows > 2 ? rows - 1 : rows, 512, 768,
                              256,        40,         4};
            check_shape(c, &s);
            s.n_expert = 5; /* one of them has the pairs of nearly all rows */
            check_shape(c, &s);
        }
    static const enum format pairs[][2] = {{FORMAT_Q6_K, FORMAT_Q5_1}, /* dense, experts */
                                           {FORMAT_Q8_0, FORMAT_Q4_K},
                                           {FORMAT_Q5_K, FORMAT_IQ4_NL},
                                           {FORMAT_Q4_0, FORMAT_Q8_0}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int rows = 1; rows <= 8; rows += rows > 2 ? 2 : 1) {
            struct shape s = {pairs[i][0], pairs[i][1], rows, rows > 2 ? rows - 1 : rows, 512, 768,
                              256,         40,          4};
            check_shape(c, &s);
        }
    struct shape mixed = {FORMAT_Q8_0, FORMAT_Q4_0, 1, 1, 2816, 2112, 704, 128, 8};
    check_shape(c, &mixed);
    mixed.dense = FORMAT_Q4_0;
    check_shape(c, &mixed);
    if (c->is_perf) {
        time_formats(c, FORMAT_Q4_0, FORMAT_Q4_0);
        time_formats(c, FORMAT_Q6_K, FORMAT_Q5_1);
    }
}
