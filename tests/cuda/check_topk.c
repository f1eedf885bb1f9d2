/* launch_topk against a sort of the whole row: the same ids and logits, in the same order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/check.h"

enum logits_kind {
    LOGITS_NORMAL, /* as a model gives them */
    LOGITS_COARSE, /* many equal ones */
    LOGITS_EQUAL,
    LOGITS_RISING,
    LOGITS_MASKED,  /* minus infinity but for a few */
    LOGITS_NAN,     /* some NaN, some infinite */
    LOGITS_CLUSTER, /* the largest all in one of the kernel's groups */
    LOGITS_ZEROS,   /* 0 and -0, which are equal */
    LOGITS_KINDS
};

static void fill(struct rng *rng, enum logits_kind kind, float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        float z = 4 * rng_normal(rng);
        switch (kind) {
        case LOGITS_NORMAL: x[i] = 30 * tanhf(z / 30); break;
        case LOGITS_COARSE: x[i] = rintf(z); break;
        case LOGITS_EQUAL: x[i] = 1.5f; break;
        case LOGITS_RISING: x[i] = (float)i - 1000; break;
        case LOGITS_MASKED: x[i] = rng_below(rng, 5000) ? -INFINITY : z; break;
        case LOGITS_NAN:
            x[i] = rng_below(rng, 3000) ? z : rng_below(rng, 2) ? NAN : INFINITY;
            break;
        case LOGITS_CLUSTER: x[i] = i % 16384 < 8 ? 1e6f + z : z; break;
        default: x[i] = rng_below(rng, 2) ? 0.0f : -0.0f; break;
        }
    }
}

static uint64_t rank_of(float x, int32_t id)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof bits);
    bits = isnan(x) ? ~0u : bits >> 31 ? ~bits : bits | 1u << 31;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

static int falling(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static bool row_is_right(const float *x, int32_t n, const struct logit_pair *pairs, uint64_t *ranks)
{
    for (int32_t i = 0; i < n; i++) ranks[i] = rank_of(x[i], i);
    qsort(ranks, (size_t)n, sizeof *ranks, falling);
    for (int32_t i = 0; i < TOP_K; i++) {
        int32_t id = i < n ? (int32_t) ~(uint32_t)ranks[i] : -1;
        if (pairs[i].id != id) return false;
        float want = id < 0 ? -INFINITY : x[id];
        if (isnan(want) ? !isnan(pairs[i].logit) : pairs[i].logit != want) return false;
    }
    return true;
}

static void check_case(struct check *c, struct rng *rng, int32_t rows, int32_t live, int32_t n,
                       enum logits_kind first)
{
    size_t n_all = (size_t)rows * (size_t)n, n_pairs = (size_t)rows * TOP_K;
    float *x = malloc(n_all * sizeof *x);
    uint64_t *ranks = malloc((size_t)n * sizeof *ranks);
    struct logit_pair *pairs = malloc(n_pairs * sizeof *pairs);
    for (int32_t r = 0; r < rows; r++)
        fill(rng, (enum logits_kind)(((int)first + r) % LOGITS_KINDS), x + (size_t)r * (size_t)n,
             n);
    float *logits = check_alloc(x, n_all * sizeof *x);
    struct logit_pair *out = check_alloc(NULL, n_pairs * sizeof *out);
    void *scratch = check_alloc(NULL, topk_scratch_bytes(rows));
    struct step_view step = check_step(rows, 0, live, NULL, NULL, NULL, NULL);
    launch_topk(&c->queue, step, (struct rows){rows, ROWS_OUT}, logits, n, out, scratch);
    check_download(pairs, out, n_pairs * sizeof *pairs);
    for (int32_t r = 0; r < rows; r++) {
        const struct logit_pair *p = pairs + (size_t)r * TOP_K;
        bool is_right = r < live ? row_is_right(x + (size_t)r * (size_t)n, n, p, ranks)
                                 : p[0].id == -1 && isnan(p[0].logit);
        check_that(c, is_right, "topk: row %d of %d, %d logits of kind %d", r, rows, n,
                   ((int)first + r) % LOGITS_KINDS);
    }
    bool is_whole = check_free(logits) & check_free(out) & check_free(scratch);
    check_that(c, is_whole, "topk: %d rows of %d wrote outside", rows, n);
    check_step_free(&step);
    free(x);
    free(ranks);
    free(pairs);
}

struct topk_run {
    struct queue *queue;
    struct step_view step;
    struct rows rows;
    float *logits;
    struct logit_pair *out;
    void *scratch;
};

static void launch_run(void *user)
{
    struct topk_run *r = user;
    launch_topk(r->queue, r->step, r->rows, r->logits, 262144, r->out, r->scratch);
}

static void measure(struct check *c, int32_t rows)
{
    struct rng rng = {3};
    size_t n = (size_t)rows * 262144;
    struct topk_run run = {&c->queue,
                           check_step(rows, 0, rows, NULL, NULL, NULL, NULL),
                           {rows, ROWS_OUT},
                           check_normal_device(&rng, n, 4, NULL),
                           check_alloc(NULL, (size_t)rows * TOP_K * sizeof(struct logit_pair)),
                           check_alloc(NULL, topk_scratch_bytes(rows))};
    double warm = check_time_graph(c, launch_run, &run),
           cold = check_time(c, launch_run, &run, true);
    printf("topk %3d x 262144  in a graph %7.2f us  cold %7.2f us (bound %.2f us)\n", rows,
           warm * 1e6, cold * 1e6, 4.0 * (double)n / 4.67e12 * 1e6);
    check_free(run.logits);
    check_free(run.out);
    check_free(run.scratch);
    check_step_free(&run.step);
}

void check_topk(struct check *c)
{
    struct rng rng = {99};
    check_case(c, &rng, 1, 1, 262144, LOGITS_NORMAL);
    check_case(c, &rng, 9, 8, 262144, LOGITS_NORMAL);
    check_case(c, &rng, 8, 8, 151936, LOGITS_EQUAL);
    check_case(c, &rng, 8, 8, 300001, LOGITS_NORMAL);
    check_case(c, &rng, 17, 16, 1000, LOGITS_NORMAL);
    check_case(c, &rng, 8, 8, 512, LOGITS_NORMAL);
    check_case(c, &rng, 8, 8, 101, LOGITS_NORMAL);
    check_case(c, &rng, 67, 65, 20003, LOGITS_NORMAL);
    check_case(c, &rng, 128, 97, 5000, LOGITS_COARSE);
    if (!c->is_small) check_case(c, &rng, 1024, 999, 1537, LOGITS_NAN);
    if (!c->is_perf) return;
    measure(c, 1);
    measure(c, 8);
    measure(c, 32);
    measure(c, 64);
    measure(c, 128);
    measure(c, 256);
}
