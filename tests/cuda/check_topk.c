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

/* The marked ids, and bad values that no mask hides. */
static bool masked_row_is_right(const float *x, const uint64_t *mask, int32_t n,
                                const struct logit_pair *pairs, uint64_t *ranks)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        if ((mask[i / 64] >> i % 64 & 1) || !(x[i] < INFINITY)) ranks[count++] = rank_of(x[i], i);
    qsort(ranks, (size_t)count, sizeof *ranks, falling);
    for (int32_t i = 0; i < TOP_K; i++) {
        int32_t id = i < count ? (int32_t) ~(uint32_t)ranks[i] : -1;
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

/* Rows in any order, their masks of any density; ids without a mark are as if there were none. */
static void check_masked(struct check *c, struct rng *rng, int32_t rows, int32_t n_masks, int32_t n,
                         uint32_t one_in)
{
    size_t n_all = (size_t)rows * (size_t)n, n_pairs = (size_t)rows * TOP_K;
    size_t words = ((size_t)n + 63) / 64;
    float *x = malloc(n_all * sizeof *x);
    uint64_t *masks = calloc((size_t)n_masks * words, sizeof *masks);
    uint64_t *ranks = malloc((size_t)n * sizeof *ranks);
    struct logit_pair *pairs = malloc(n_pairs * sizeof *pairs);
    struct masked_rows which = {.n = n_masks};
    for (int32_t r = 0; r < rows; r++)
        fill(rng, (enum logits_kind)(r % LOGITS_KINDS), x + (size_t)r * (size_t)n, n);
    for (int32_t i = 0; i < n_masks; i++) {
        uint64_t *mask = masks + (size_t)i * words;
        which.row[i] = rows - 1 - i; /* falling: not the order of rows */
        for (int32_t id = 0; id < n; id++)
            if (rng_below(rng, one_in) == 0) mask[id / 64] |= (uint64_t)1 << id % 64;
    }
    float *logits = check_alloc(x, n_all * sizeof *x);
    uint64_t *bits = check_alloc(masks, (size_t)n_masks * words * sizeof *masks);
    struct logit_pair *out = check_alloc(NULL, n_pairs * sizeof *out);
    void *scratch = check_alloc(NULL, topk_scratch_bytes(n_masks));
    launch_topk_masked(&c->queue, &which, bits, logits, n, out, scratch);
    check_download(pairs, out, n_pairs * sizeof *pairs);
    for (int32_t i = 0; i < n_masks; i++) {
        const float *row = x + (size_t)which.row[i] * (size_t)n;
        const struct logit_pair *p = pairs + (size_t)which.row[i] * TOP_K;
        check_that(c, masked_row_is_right(row, masks + (size_t)i * words, n, p, ranks),
                   "topk: mask %d of %d on row %d, one in %u of %d ids", i, n_masks, which.row[i],
                   one_in, n);
    }
    for (int32_t r = 0; r < rows - n_masks; r++)
        check_that(c, pairs[r * TOP_K].id == -1 && isnan(pairs[r * TOP_K].logit),
                   "topk: row %d of %d has no mask", r, rows);
    bool is_whole = check_free(logits) & check_free(out) & check_free(scratch) & check_free(bits);
    check_that(c, is_whole, "topk: %d masks of %d wrote outside", n_masks, n);
    free(x);
    free(masks);
    free(ranks);
    free(pairs);
}

struct topk_run {
    struct queue *queue;
    struct masked_rows which;
    uint64_t *masks; /* NULL: without */
    struct step_view step;
    struct rows rows;
    float *logits;
    struct logit_pair *out;
    void *scratch;
};

static void launch_run(void *user)
{
    struct topk_run *r = user;
    if (r->masks)
        launch_topk_masked(r->queue, &r->which, r->masks, r->logits, 262144, r->out, r->scratch);
    else
        launch_topk(r->queue, r->step, r->rows, r->logits, 262144, r->out, r->scratch);
}

/* `one_in` 0: without masks. */
static void measure(struct check *c, int32_t rows, uint32_t one_in)
{
    struct rng rng = {3};
    size_t n = (size_t)rows * 262144, n_words = n / 64;
    uint64_t *masks = calloc(n_words, sizeof *masks);
    for (size_t i = 0; one_in && i < n; i++)
        if (rng_below(&rng, one_in) == 0) masks[i / 64] |= (uint64_t)1 << i % 64;
    struct topk_run run = {&c->queue,
                           {.n = rows},
                           one_in ? check_alloc(masks, n_words * sizeof *masks) : NULL,
                           check_step(rows, 0, rows, NULL, NULL, NULL, NULL),
                           {rows, ROWS_OUT},
                           check_normal_device(&rng, n, 4, NULL),
                           check_alloc(NULL, (size_t)rows * TOP_K * sizeof(struct logit_pair)),
                           check_alloc(NULL, topk_scratch_bytes(rows))};
    for (int32_t i = 0; one_in && i < rows; i++) run.which.row[i] = i;
    double warm = check_time_graph(c, launch_run, &run),
           cold = check_time(c, launch_run, &run, true);
    printf("topk %3d x 262144, one in %4u  in a graph %7.2f us  cold %7.2f us (bound %.2f us)\n",
           rows, one_in, warm * 1e6, cold * 1e6, 4.0 * (double)n / 4.67e12 * 1e6);
    if (run.masks) check_free(run.masks);
    free(masks);
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
    static const uint32_t densities[] = {1, 2, 50, 900, 3000, 50000};
    for (size_t i = 0; i < sizeof densities / sizeof *densities; i++) {
        check_masked(c, &rng, 10, 9, c->is_small ? 20000 : 262144, densities[i]);
        check_masked(c, &rng, 9, 8, 20003, densities[i]);
        check_masked(c, &rng, 64, 64, 1000, densities[i]);
    }
    if (!c->is_perf) return;
    static const int32_t rows[] = {1, 8, 32, 64, 128, 256};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) measure(c, rows[i], 0);
    for (size_t i = 0; i < 4; i++) {
        measure(c, rows[i], 2);
        measure(c, rows[i], 3000);
    }
}
