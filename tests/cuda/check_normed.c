/* A norm and the product of its row in one launch against both alone: the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/check_tiles.h"

struct normed_shape {
    enum format format;
    int cols, rows;
    enum act_kind kind;
    enum matvec_epilogue epilogue;
    bool has_w_a, has_residual, is_normed;
    float scale;
    int poison; /* this column of a is NaN; -1: none */
};

struct pair {
    struct check *check;
    struct norm_args norm;
    struct matvec_args product;
    float *inputs[6];
};

struct pair_results {
    float *x, *y;
    struct act act;
};

static struct pair new_pair(struct check *c, const struct normed_shape *s)
{
    struct rng rng = {57};
    struct pair p = {.check = c};
    struct step_view step = check_step(1, 1, 0, NULL, NULL, NULL, NULL);
    size_t cols = (size_t)s->cols, bytes;
    float *a = malloc(cols * sizeof *a);
    check_normal(&rng, a, cols, 3);
    if (s->poison >= 0) a[s->poison] = NAN;
    p.inputs[0] = check_alloc(a, cols * sizeof *a);
    for (int i = 1; i < 4; i++) p.inputs[i] = check_normal_device(&rng, cols, 2, NULL);
    p.inputs[4] = check_normal_device(&rng, (size_t)s->rows + 9, 1, NULL);
    free(a);
    p.norm = (struct norm_args){.step = step,
                                .rows = {.max = 1},
                                .cols = s->cols,
                                .eps = 1e-6f,
                                .a = p.inputs[0],
                                .w_a = s->has_w_a ? p.inputs[1] : NULL,
                                .residual = s->has_residual ? p.inputs[2] : NULL,
                                .scale = s->scale,
                                .is_for_next = true,
                                .n_outs = 1};
    p.norm.out[0].is_normed = s->is_normed;
    p.norm.out[0].w = s->is_normed ? p.inputs[3] : NULL;
    p.norm.out[0].act = act_empty_of_kind(1, s->cols, s->kind);
    p.product = (struct matvec_args){.step = step,
                                     .rows = {.max = 1},
                                     .n_w = s->epilogue == MATVEC_GELU_MUL ? 2 : 1,
                                     .x = p.norm.out[0].act,
                                     .epilogue = s->epilogue,
                                     .by = p.inputs[4],
                                     .by_cols = s->rows + 9,
                                     .second_col = 5};
    for (int k = 0; k < p.product.n_w; k++)
        p.product.w[k] = weight_of_noise(s->format, 1, s->rows, s->cols, &bytes);
    return p;
}

static void free_pair(struct pair *p)
{
    check_step_free(&p->norm.step);
    act_free(&p->norm.out[0].act);
    for (int i = 0; i < 5; i++) check_free(p->inputs[i]);
    for (int k = 0; k < p->product.n_w; k++) check_weight_free(&p->product.w[k]);
}

static struct pair_results point_to_new(struct pair *p, const struct normed_shape *s)
{
    struct pair_results r = {.x = check_alloc(NULL, (size_t)s->cols * sizeof(float)),
                             .y = check_alloc(NULL, (size_t)s->rows * sizeof(float)),
                             .act = act_empty_of_kind(1, s->rows, s->kind)};
    p->norm.x_out = r.x;
    p->product.act = r.act;
    if (s->epilogue == MATVEC_STORE)
        p->product.y[0] = r.y;
    else
        p->product.out = r.y;
    return r;
}

static bool free_results(struct pair_results *r)
{
    return check_free(r->x) & check_free(r->y) & act_free(&r->act);
}

static void record_alone(void *user, int i)
{
    struct pair *p = user;
    (void)i;
    launch_norm(&p->check->queue, &p->norm);
    launch_matvec(&p->check->queue, &p->product);
}

static void record_together(void *user, int i)
{
    struct pair *p = user;
    (void)i;
    launch_matvec_normed(&p->check->queue, &p->norm, &p->product);
}

static void check_shape(struct check *c, const struct normed_shape *s)
{
    struct pair p = new_pair(c, s);
    struct pair_results alone = point_to_new(&p, s);
    record_alone(&p, 0);
    struct pair_results together = point_to_new(&p, s);
    bool is_taken = launch_matvec_normed(&c->queue, &p.norm, &p.product);
    const char *name = format_traits(s->format)->name;
    bool is_small = s->cols <= 3072 && s->rows <= 2048; /* a block a multiprocessor at most */
    check_that(c, is_taken == (is_small && c->queue.capability == 90), "normed: %s %d x %d taken",
               name, s->rows, s->cols);
    if (is_taken) {
        check_that(c, check_is_same(alone.x, together.x, (size_t)s->cols * sizeof(float)),
                   "normed: %s %d x %d, sum", name, s->rows, s->cols);
        check_that(c, check_is_same(alone.y, together.y, (size_t)s->rows * sizeof(float)),
                   "normed: %s %d x %d, product", name, s->rows, s->cols);
        size_t n = (size_t)alone.act.stride;
        check_that(c,
                   s->epilogue == MATVEC_STORE ||
                       (check_is_same(alone.act.values, together.act.values, n) &&
                        check_is_same(alone.act.scale, together.act.scale, n / 4)),
                   "normed: %s %d x %d, activations", name, s->rows, s->cols);
    }
    check_that(c, free_results(&alone) & free_results(&together), "normed: wrote outside");
    free_pair(&p);
}

/* Rows that several readers want, and what else does not belong together, are refused. */
static void check_refused(struct check *c)
{
    struct normed_shape s = {FORMAT_Q8_0, 256, 64, ACT_INT8, MATVEC_STORE, true, true, true, 1, -1};
    struct pair p = new_pair(c, &s);
    struct pair_results r = point_to_new(&p, &s);
    p.norm.is_for_next = false;
    check_that(c, !launch_matvec_normed(&c->queue, &p.norm, &p.product), "normed: other readers");
    p.norm.is_for_next = true;
    p.norm.rows.max = p.product.rows.max = 2;
    check_that(c, !launch_matvec_normed(&c->queue, &p.norm, &p.product), "normed: two rows");
    p.norm.rows.max = p.product.rows.max = 1;
    p.product.x.values = r.act.values;
    check_that(c, !launch_matvec_normed(&c->queue, &p.norm, &p.product), "normed: another row");
    p.product.x.values = p.norm.out[0].act.values;
    p.norm.x_out = p.inputs[2];
    check_that(c, !launch_matvec_normed(&c->queue, &p.norm, &p.product), "normed: onto the sum");
    p.norm.x_out = r.x;
    p.product.y[0] = p.inputs[0] + 32;
    check_that(c, !launch_matvec_normed(&c->queue, &p.norm, &p.product), "normed: onto the row");
    free_results(&r);
    free_pair(&p);
}

static void time_all(struct check *c)
{
    enum { LAUNCHES = 16 };
    static const struct {
        const char *name;
        struct normed_shape shape;
    } shapes[] = {
        {"E4B q", {FORMAT_Q8_0, 2560, 2048, ACT_FINE, MATVEC_STORE, true, true, true, 1, -1}},
        {"E4B per-layer gate",
         {FORMAT_Q8_0, 2560, 256, ACT_FINE, MATVEC_GELU_BY, true, true, false, 1, -1}},
        {"E2B per-layer gate",
         {FORMAT_Q8_0, 1536, 256, ACT_FINE, MATVEC_GELU_BY, true, true, false, 1, -1}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair p = new_pair(c, &shapes[i].shape);
        struct pair_results r = point_to_new(&p, &shapes[i].shape);
        double alone = graph_time(c, record_alone, &p, LAUNCHES);
        double together = graph_time(c, record_together, &p, LAUNCHES);
        printf("%-20s norm, product %.2f us, one launch %.2f us\n", shapes[i].name, alone * 1e6,
               together * 1e6);
        free_results(&r);
        free_pair(&p);
    }
}

void check_normed(struct check *c)
{
    static const enum format formats[] = {FORMAT_Q4_0, FORMAT_Q4_1, FORMAT_Q5_0,
                                          FORMAT_Q5_1, FORMAT_Q8_0, FORMAT_IQ4_NL,
                                          FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (int e = MATVEC_STORE; e <= MATVEC_GELU_BY; e++) {
            struct normed_shape s = {formats[i],
                                     512,
                                     200,
                                     e == MATVEC_GELU_MUL ? ACT_INT8 : ACT_FINE,
                                     (enum matvec_epilogue)e,
                                     true,
                                     true,
                                     true,
                                     0.5f,
                                     -1};
            check_shape(c, &s);
            s.kind = ACT_INT8, s.cols = 2816, s.rows = 96, s.scale = 1;
            check_shape(c, &s);
        }
    struct normed_shape odd[] = {
        {FORMAT_Q8_0, 2560, 2048, ACT_FINE, MATVEC_STORE, true, true, true, 1, -1},
        {FORMAT_Q8_0, 2560, 256, ACT_FINE, MATVEC_GELU_BY, true, true, false, 1, -1},
        {FORMAT_Q8_0, 1536, 256, ACT_INT8, MATVEC_GELU_MUL, true, true, true, 1, -1},
        {FORMAT_Q4_0, 3072, 24, ACT_INT8, MATVEC_STORE, false, true, true, 1, -1},
        {FORMAT_Q4_0, 96, 8, ACT_INT8, MATVEC_STORE, true, false, true, 1, -1},
        {FORMAT_Q8_0, 32, 3, ACT_FINE, MATVEC_STORE, false, false, false, 2, -1},
        {FORMAT_Q8_0, 2560, 512, ACT_INT8, MATVEC_STORE, true, true, true, 1, 77},
        {FORMAT_Q4_0, 1536, 512, ACT_INT8, MATVEC_GELU_MUL, true, true, true, 1, 1535},
        {FORMAT_Q8_0, 1536, 12288, ACT_INT8, MATVEC_GELU_MUL, true, true, true, 1, -1},
        {FORMAT_Q4_0, 5376, 64, ACT_FINE, MATVEC_STORE, true, true, true, 1, -1},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) check_shape(c, &odd[i]);
    check_refused(c);
    if (c->is_perf) time_all(c);
}
