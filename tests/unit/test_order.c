/* Orders of samplers (carat_sampling.samplers): against a definition that takes one sampler after
 * the other, by hand, and wherever the logits come from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/samplers.h"
#include "engine/order.h"
#include "engine/sample.h"
#include "support/samplers.h"

enum { N = 40, DRAWS = 3000, SMALL = 4 };

/* A random order of some samplers. */
static void draw_order(char *out, struct rng *r)
{
    char all[] = CARAT_SAMPLERS;
    int n = 0, n_left = (int)strlen(all);
    while (n_left > 0) {
        int i = (int)rng_below(r, (uint32_t)n_left);
        if (rng_below(r, 4)) out[n++] = all[i];
        all[i] = all[--n_left];
    }
    if (n == 0) out[n++] = '-';
    out[n] = '\0';
}

/* ---- By hand ---------------------------------------------------------------------------- */

#define PLAIN .temperature = 2, .top_p = 0.7f, .min_p = 0.4f

/* Probabilities 1/2, 1/4, 1/8, 1/8; at a temperature of 2 they are 0.37, 0.26, 0.18, 0.18. */
static void orders_do_what_they_do_by_hand(void **state)
{
    (void)state;
    const float logits[SMALL] = {logf(4), logf(2), 0, 0};
    const struct {
        struct carat_sampling p;
        bool is_possible[SMALL];
    } cases[] = {
        {{PLAIN, .samplers = "tp"}, {1, 1, 1, 0}}, /* 0.37 + 0.26 are not enough */
        {{PLAIN, .samplers = "pt"}, {1, 1, 0, 0}}, /* 0.50 + 0.25 are */
        {{PLAIN, .samplers = "tm"}, {1, 1, 1, 1}}, /* 0.18 is more than 0.4 of 0.37 */
        {{PLAIN, .samplers = "mt"}, {1, 1, 0, 0}}, /* 0.12 is less than 0.4 of 0.50 */
        {{PLAIN, .samplers = CARAT_SAMPLERS}, {1, 1, 1, 0}},
        {{PLAIN, .samplers = "edskypmxt"}, {1, 1, 0, 0}},
        {{PLAIN}, {1, 1, 1, 0}},
        /* 2/3 and 1/3 are left by min-p. */
        {{.temperature = 1, .top_p = 0.6f, .min_p = 0.4f, .samplers = "pm"}, {1, 1, 0, 0}},
        {{.temperature = 1, .top_p = 0.6f, .min_p = 0.4f, .samplers = "mp"}, {1, 0, 0, 0}},
        {{.temperature = 2, .xtc_probability = 1, .xtc_threshold = 0.15f, .samplers = "xt"},
         {0, 1, 1, 1}},
        {{.temperature = 2, .xtc_probability = 1, .xtc_threshold = 0.15f, .samplers = "tx"},
         {0, 0, 0, 1}},
        /* Without the first, 1/2, 1/4 and 1/4 are left. */
        {{.temperature = 1, .top_p = 0.4f, .xtc_probability = 1, .xtc_threshold = 0.2f}, {1}},
        {{.temperature = 1,
          .top_p = 0.4f,
          .xtc_probability = 1,
          .xtc_threshold = 0.2f,
          .samplers = "xp"},
         {0, 1, 0, 0}},
        {{.temperature = 1,
          .min_p = 0.6f,
          .xtc_probability = 1,
          .xtc_threshold = 0.2f,
          .samplers = "xm"},
         {0, 1, 0, 0}},
        /* The spread of all four is 0.575, that of the first two 0.347. */
        {{.temperature = 1, .top_k = 2, .top_n_sigma = 1.3f}, {1, 1, 0, 0}},
        {{.temperature = 1, .top_k = 2, .top_n_sigma = 1.3f, .samplers = "ks"}, {1, 0, 0, 0}},
        /* 1.75 bits are expected, which are nearest to 2 and then to 1; at a temperature of 4 1.98,
         * which are nearest to 1.95 and then to 2.20 (and farther from 1.70). */
        {{.temperature = 4, .typical_p = 0.3f, .samplers = "yt"}, {1, 1, 0, 0}},
        {{.temperature = 4, .typical_p = 0.3f, .samplers = "ty"}, {0, 1, 1, 0}},
        /* What is left out is off. */
        {{PLAIN, .samplers = "t"}, {1, 1, 1, 1}},
        {{PLAIN, .top_k = 1, .samplers = "-"}, {1, 1, 1, 1}},
        {{.samplers = "k"}, {1, 1, 1, 1}}, /* the temperature is 1 */
        {{.samplers = "kt"}, {1, 0, 0, 0}},
        {{.samplers = "pxt", .xtc_probability = 1, .xtc_threshold = 0.2f}, {1, 0, 0, 0}},
        {{.temperature = 1, .top_k = 1, .samplers = "epmx"}, {1, 1, 1, 1}},
        {{.temperature = 1, .typical_p = 0.2f, .samplers = "kt"}, {1, 1, 1, 1}},
        {{.temperature = 1, .top_n_sigma = 1, .samplers = "kt"}, {1, 1, 1, 1}},
        {{.temperature = 1, .xtc_probability = 1, .samplers = "kt"}, {1, 1, 1, 1}},
        {{.dynatemp_range = 1, .samplers = "k"}, {1, 1, 1, 1}},
        {{.temperature = 1, .top_k = 1, .mirostat = 2, .mirostat_tau = 9}, {1, 1, 1, 1}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct sampler *s = open_bound_sampler(cases[k].p, SMALL);
        bool was_picked[SMALL] = {0};
        for (int i = 0; i < 400; i++) was_picked[sample_pick(s, logits)] = true;
        for (int i = 0; i < SMALL; i++)
            if (was_picked[i] != cases[k].is_possible[i]) fail_msg("case %zu, id %d", k, i);
        sample_close(s);
    }
}

/* Ids 0 and 1 have come. What top-k keeps depends on whether they were lowered before. */
static void penalties_come_where_they_are_named(void **state)
{
    (void)state;
    const float logits[SMALL] = {4, 3, 2, 1};
    const struct {
        struct carat_sampling p;
        int expected;
    } cases[] = {
        {{.presence_penalty = 9}, 2},
        {{.presence_penalty = 9, .samplers = "ket"}, 2}, /* a temperature of 0 is last */
        {{.temperature = 1e-3f, .top_k = 2, .presence_penalty = 9, .samplers = "kte"}, 0},
        {{.temperature = 1e-3f, .top_k = 2, .presence_penalty = 9, .samplers = "ekt"}, 2},
        {{.temperature = 1e-3f, .top_k = 2, .presence_penalty = 9, .samplers = "kt"}, 0},
        {{.temperature = 1e-3f, .repeat_penalty = 3, .samplers = "te"}, 2},
        {{.temperature = 1e-3f, .presence_penalty = 1.5f, .samplers = "te"}, 0}, /* 4000 - 1.5 */
        {{.temperature = 1e-3f, .presence_penalty = 2.5f, .samplers = "et"}, 2},
        {{.temperature = 0, .repeat_penalty = 3, .samplers = "kt"}, 0},
        {{.temperature = 1e-3f, .dry_multiplier = 9, .samplers = "dt"}, 1},
        {{.temperature = 1e-3f, .dry_multiplier = 9, .samplers = "td"}, 0},
        {{.temperature = 1e-3f, .top_k = 1, .dry_multiplier = 9, .samplers = "kdt"}, 0},
        {{.temperature = 1e-3f, .dry_multiplier = 9, .samplers = "t"}, 0},
    };
    const int32_t come[] = {1, 1, 0, 1, 1}; /* so that DRY lowers id 0 */
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct sampler *s = open_bound_sampler(cases[k].p, SMALL);
        for (size_t i = 0; i < sizeof come / sizeof *come; i++) sample_accept(s, come[i]);
        for (int i = 0; i < 5; i++)
            if (sample_pick(s, logits) != cases[k].expected) fail_msg("case %zu", k);
        sample_close(s);
    }
}

/* ---- The definition --------------------------------------------------------------------- */

struct entry {
    double logit, p, key;
    int id;
};

static int by_logit(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

static int by_key(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key ? 1 : -1) : by_logit(a, b);
}

static void soften(struct entry *e, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += e[i].p = exp(e[i].logit - e[0].logit);
    for (int i = 0; i < n; i++) e[i].p /= sum;
}

static int keep_by_type(struct entry *e, int n, double share)
{
    double h = 0, held = 0;
    int kept = 0;
    for (int i = 0; i < n; i++) h -= e[i].p * log(e[i].p);
    for (int i = 0; i < n; i++) e[i].key = fabs(-log(e[i].p) - h);
    qsort(e, (size_t)n, sizeof *e, by_key);
    while (kept < n && !(held > share)) held += e[kept++].p;
    return kept;
}

static int keep_by_sigma(const struct entry *e, int n, double n_sigma)
{
    double mean = 0, variance = 0;
    int kept = 0;
    for (int i = 0; i < n; i++) mean += e[i].logit / n;
    for (int i = 0; i < n; i++) variance += pow(e[i].logit - mean, 2) / n;
    while (kept < n && e[kept].logit >= e[0].logit - n_sigma * sqrt(variance)) kept++;
    return kept;
}

static void heat(struct entry *e, int n, const struct carat_sampling *s)
{
    double low = fmax(0, (double)s->temperature - (double)s->dynatemp_range), h = 0;
    double high = (double)s->temperature + (double)s->dynatemp_range, t = high;
    for (int i = 0; i < n; i++) h -= e[i].p * log(e[i].p);
    if (n > 1) t = low + (high - low) * h / log(n);
    for (int i = 0; i < n; i++) e[i].logit /= t;
}

/* One sampler on sorted entries with their probabilities. Id 1 has come three times. */
static int define_step(char c, struct entry *e, int n, const struct carat_sampling *s)
{
    double held = 0;
    int kept = 0;
    switch (c) {
    case 'e':
        for (int i = 0; i < n; i++) {
            if (e[i].id != 1) continue;
            double f = (double)s->repeat_penalty;
            e[i].logit = e[i].logit > 0 ? e[i].logit / f : e[i].logit * f;
            e[i].logit -= 3 * (double)s->frequency_penalty + (double)s->presence_penalty;
        }
        return n;
    case 'd': /* that continues two of id 1, of which one is allowed */
        for (int i = 0; i < n; i++)
            if (e[i].id == 1) e[i].logit -= (double)s->dry_multiplier * 2;
        return n;
    case 's': return keep_by_sigma(e, n, (double)s->top_n_sigma);
    case 'k': return s->top_k < n ? s->top_k : n;
    case 'y': return keep_by_type(e, n, (double)s->typical_p);
    case 't': heat(e, n, s); return n;
    case 'p':
        while (kept < n && held < (double)s->top_p) held += e[kept++].p;
        return kept;
    case 'm':
        while (n > 1 && e[n - 1].p < (double)s->min_p * e[0].p) n--;
        return n;
    default:
        while (kept + 1 < n && e[kept + 1].p >= (double)s->xtc_threshold) kept++;
        memmove(e, e + kept, (size_t)(n - kept) * sizeof *e);
        return n - kept;
    }
}

static void define(const float *logits, const struct carat_sampling *s, double *out)
{
    struct entry e[N];
    int n = 0;
    for (int i = 0; i < N; i++) {
        out[i] = 0;
        if (logits[i] > -INFINITY) e[n++] = (struct entry){.logit = (double)logits[i], .id = i};
    }
    for (const char *c = s->samplers; *c; c++) {
        qsort(e, (size_t)n, sizeof *e, by_logit);
        soften(e, n);
        if (*c != '-') n = define_step(*c, e, n, s);
    }
    qsort(e, (size_t)n, sizeof *e, by_logit);
    soften(e, n);
    for (int i = 0; i < n; i++) out[e[i].id] = e[i].p;
}

static const struct carat_sampling busy = {.temperature = 1.6f,
                                           .top_k = 12,
                                           .top_p = 0.9f,
                                           .min_p = 0.04f,
                                           .repeat_penalty = 1.3f,
                                           .presence_penalty = 0.25f,
                                           .frequency_penalty = 0.5f,
                                           .typical_p = 0.85f,
                                           .top_n_sigma = 1.5f,
                                           .xtc_probability = 1,
                                           .xtc_threshold = 0.12f,
                                           .dry_multiplier = 0.75f,
                                           .dry_base = 2,
                                           .dry_allowed_length = 1};

static void distributions_are_those_of_the_definition(void **state)
{
    (void)state;
    enum { ORDERS = 150 };
    struct rng r = {31};
    float logits[N];
    print_message("seed 31, %d orders, %d draws, 5 standard deviations\n", ORDERS, DRAWS);
    for (int k = 0; k < ORDERS; k++) {
        struct carat_sampling p = busy;
        double expected[N];
        int counts[N] = {0};
        if (k % 3 == 0) p.dynatemp_range = 0.9f;
        p.seed = (uint64_t)k;
        draw_order(p.samplers, &r);
        fill_logits(logits, N, 500 + (uint64_t)k);
        for (int i = 3; i < N; i += 7) logits[i] = -INFINITY;
        logits[1] = fabsf(logits[1]) + 2; /* so that penalties matter */
        define(logits, &p, expected);
        struct sampler *s = open_bound_sampler(p, N);
        for (int i = 0; i < 3; i++) sample_accept(s, 1);
        for (int i = 0; i < DRAWS; i++) counts[sample_pick(s, logits)]++;
        for (int i = 0; i < N; i++) {
            double spread = sqrt(DRAWS * expected[i] * (1 - expected[i]));
            bool is_near = fabs(counts[i] - DRAWS * expected[i]) <= 5 * spread + 1;
            if (!is_near || (expected[i] == 0 && counts[i]))
                fail_msg("%s, id %d: %d of %g", p.samplers, i, counts[i], DRAWS * expected[i]);
        }
        sample_close(s);
    }
}

/* ---- The same --------------------------------------------------------------------------- */

static void picks_are_the_same(struct carat_sampling a, struct carat_sampling b)
{
    struct sampler *s[] = {open_bound_sampler(a, N), open_bound_sampler(b, N)};
    float logits[N];
    assert_int_equal(sample_draws_first(s[0]), sample_draws_first(s[1]));
    assert_int_equal(sample_takes_best(s[0], 30), sample_takes_best(s[1], 30));
    for (uint64_t i = 0; i < 200; i++) {
        fill_logits(logits, N, i);
        int32_t id = sample_pick(s[0], logits);
        if (sample_pick(s[1], logits) != id) fail_msg("%s and %s", a.samplers, b.samplers);
        for (int k = 0; k < 2; k++) sample_accept(s[k], id % 5);
    }
    sample_close(s[0]);
    sample_close(s[1]);
}

/* Letters of samplers that are off make no difference, wherever they are; nor does a temperature
 * before top-k, or what is besides a temperature of 0. */
static void orders_that_mean_the_same_give_the_same(void **state)
{
    (void)state;
    static const struct {
        struct carat_sampling p;
        const char *orders[5];
    } cases[] = {
        {{.temperature = 1, .top_k = 20, .top_p = 0.9f},
         {"", CARAT_SAMPLERS, "edskypmxt", "tkp", "xkpedsymt"}},
        {{.temperature = 0.6f, .top_k = 20, .top_p = 0.9f, .min_p = 0.1f},
         {"", CARAT_SAMPLERS, "tkpm", "ktpm", "xtskpm"}},
        {{.temperature = 1.3f, .repeat_penalty = 1.2f, .dry_multiplier = 1, .min_p = 0.1f},
         {"", CARAT_SAMPLERS, "edtm", "edsktm", "edtskm"}},
        {{.temperature = 1, .top_n_sigma = 1.2f, .top_k = 9, .xtc_probability = 0.5f},
         {"", CARAT_SAMPLERS, "skx", "skxt", "sktx"}},
        {{.typical_p = 0.3f, .top_k = 3, .xtc_probability = 1, .repeat_penalty = 2},
         {"", "edskypmxt", "xykte", "et", "te"}},
        {{.temperature = 1, .mirostat = 2, .top_k = 3, .presence_penalty = 1},
         {"", "edskypmxt", "te", "xkte", "e"}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        for (int i = 1; i < 5; i++) {
            struct carat_sampling a = cases[k].p, b = a;
            a.seed = b.seed = k;
            memcpy(b.samplers, cases[k].orders[i], strlen(cases[k].orders[i]) + 1);
            picks_are_the_same(a, b);
        }
    }
}

static int compare_pairs(const void *left, const void *right)
{
    const struct logit_pair *a = left, *b = right;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int32_t pick_from(int way, struct sampler *s, const float *row, const int32_t *ids,
                         int32_t n)
{
    float masked[N];
    struct logit_pair pairs[N];
    for (int i = 0; i < N; i++) masked[i] = -INFINITY;
    for (int i = 0; i < n; i++) masked[ids[i]] = row[ids[i]];
    for (int i = 0; i < N; i++) pairs[i] = (struct logit_pair){.logit = masked[i], .id = i};
    qsort(pairs, N, sizeof *pairs, compare_pairs);
    if (way == 0) return sample_pick_listed(s, row, ids, n);
    if (way == 1) return sample_pick_known(s, pairs, N);
    if (way == 2) return sample_pick(s, masked);
    int32_t id = sample_takes_best(s, 30) ? sample_pick_best(s, pairs, 30) : SAMPLE_UNDECIDED;
    return id == SAMPLE_UNDECIDED ? sample_pick(s, masked) : id;
}

/* With top-k first, pairs and rows give the same too. Otherwise they differ from lists, and a mask
 * decides which of them is used. */
static void a_seed_gives_one_answer_wherever_logits_come_from(void **state)
{
    (void)state;
    struct rng r = {77};
    int n_pairs = 0;
    for (int round = 0; round < 300; round++) {
        struct carat_sampling p = busy;
        struct sampler *s[4];
        char order[SAMPLERS_SIZE] = "k";
        draw_order(round % 2 ? order + 1 : order, &r);
        char *other = strchr(order + 1, 'k');
        if (round % 2 && other) memmove(other, other + 1, strlen(other));
        if (order[0] == 'k' && order[1] == '-') order[1] = '\0';
        p.xtc_probability = 0.5f;
        p.seed = (uint64_t)round;
        memcpy(p.samplers, order, sizeof order);
        for (int k = 0; k < 4; k++) s[k] = open_bound_sampler(p, N);
        int n_ways = order[0] == 'k' ? 4 : 2;
        n_pairs += sample_takes_best(s[3], 30);
        for (uint64_t i = 0; i < 40; i++) {
            float row[N];
            int32_t ids[N], n = 0;
            fill_logits(row, N, i);
            for (int32_t j = 0; j < N; j++)
                if (j == 3 || (j * 7 + (int)i) % 5) ids[n++] = j;
            int32_t id = pick_from(0, s[0], row, ids, n);
            for (int k = 1; k < n_ways; k++)
                if (pick_from(k, s[k], row, ids, n) != id) fail_msg("%s, way %d", order, k);
            for (int k = 0; k < 4; k++) sample_accept(s[k], id % 5);
        }
        for (int k = 0; k < 4; k++) sample_close(s[k]);
    }
    print_message("pairs were enough in %d of 300 orders\n", n_pairs);
    assert_true(n_pairs > 100);
}

/* ---- Extremes --------------------------------------------------------------------------- */

/* One of them becomes 1. */
static float extreme_logit(int kind, struct rng *r)
{
    switch (kind) {
    case 0: return 0;
    case 1: return -30;
    case 2: return rng_below(r, 2) ? 1e30f : -1e30f;
    case 3: return 1e-30f * rng_normal(r);
    case 4: return rng_below(r, 20) ? -INFINITY : 5;
    case 5: return -INFINITY;
    default: return 30.0f * tanhf(rng_normal(r));
    }
}

static float extreme(float low, float high, float neutral, struct rng *r)
{
    const float some[] = {low, high, neutral, low + (high - low) * (float)rng_unit(r)};
    return some[rng_below(r, 4)];
}

/* Whatever is asked for, an id that is possible is picked. */
static void extremes_still_pick_a_possible_id(void **state)
{
    (void)state;
    enum { ROUNDS = 20000 };
    struct rng r = {2026};
    for (int round = 0; round < ROUNDS; round++) {
        struct carat_sampling p = {.temperature =
                                       extreme(1e-38f, 100, 1, &r) * (float)(rng_below(&r, 5) > 0),
                                   .top_k = (int32_t)rng_below(&r, 3) * 20,
                                   .top_p = extreme(1e-38f, 1, 1, &r),
                                   .min_p = extreme(0, 1, 0, &r),
                                   .repeat_penalty = extreme(0.01f, 100, 1, &r),
                                   .presence_penalty = extreme(-100, 100, 0, &r),
                                   .frequency_penalty = extreme(-100, 100, 0, &r),
                                   .repeat_last_n = (int32_t)rng_below(&r, 3) - 1,
                                   .seed = (uint64_t)round,
                                   .typical_p = extreme(1e-38f, 1, 1, &r),
                                   .top_n_sigma = extreme(1e-38f, 100, 0, &r),
                                   .xtc_probability = extreme(0, 1, 0, &r),
                                   .xtc_threshold = extreme(1e-38f, 0.5f, 0.1f, &r),
                                   .dynatemp_range = extreme(0, 100, 0, &r),
                                   .dynatemp_exponent = extreme(1e-38f, 100, 1, &r),
                                   .dry_multiplier = extreme(0, 100, 0, &r),
                                   .dry_base = extreme(1, 100, 1.75f, &r),
                                   .dry_allowed_length = 1,
                                   .mirostat = rng_below(&r, 8) ? 0 : 2,
                                   .mirostat_tau = extreme(1e-38f, 100, 5, &r),
                                   .mirostat_eta = extreme(1e-38f, 100, 0.1f, &r)};
        int kind = (int)rng_below(&r, 7);
        float logits[N];
        if (rng_below(&r, 4)) draw_order(p.samplers, &r);
        struct sampler *s = open_bound_sampler(p, N);
        for (int step = 0; step < 6; step++) {
            int32_t ids[N];
            for (int i = 0; i < N; i++) ids[i] = i;
            for (int i = 0; i < N; i++) logits[i] = extreme_logit(kind, &r);
            logits[7] = 1;
            int32_t id = step % 2 ? sample_pick(s, logits) : sample_pick_listed(s, logits, ids, N);
            if (id < 0 || id >= N || logits[id] == -INFINITY)
                fail_msg("round %d, kind %d, order %s: %d", round, kind, p.samplers, id);
            sample_accept(s, id);
        }
        logits[3] = NAN;
        assert_int_equal(sample_pick(s, logits), -1);
        sample_close(s);
    }
}

/* ---- Names ------------------------------------------------------------------------------ */

static void names_and_letters_are_those_of_llama_cpp(void **state)
{
    (void)state;
    struct carat_error err;
    char out[SAMPLERS_SIZE];
    const char *names = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
    assert_int_equal(samplers_read_names(out, names, strlen(names), "x", &err), CARAT_OK);
    assert_string_equal(out, "edskypmxt");
    for (const char *c = out; *c; c++) assert_non_null(strstr(names, sampler_name(*c)));
    assert_null(sampler_name('a'));
    names = "temp;top-k;nucleus;typical;min-p;top-n-sigma;adaptive_p";
    assert_int_equal(samplers_read_names(out, names, strlen(names), "x", &err), CARAT_OK);
    assert_string_equal(out, "tkpyms");
    assert_int_equal(samplers_read_names(out, "none", 4, "x", &err), CARAT_OK);
    assert_string_equal(out, "-");
    assert_int_equal(samplers_read_names(out, "", 0, "x", &err), CARAT_OK);
    assert_string_equal(out, "-");
    assert_int_equal(samplers_read_letters(out, "pkta", 4, "x", &err), CARAT_OK);
    assert_string_equal(out, "pkt");
    assert_int_equal(samplers_read_letters(out, "", 0, "x", &err), CARAT_OK);
    assert_string_equal(out, "-");
}

static void wrong_orders_are_refused(void **state)
{
    (void)state;
    static const struct {
        bool is_letters;
        const char *text, *message;
    } cases[] = {
        {false, "top_k;infill", "x: no sampler is called \"infill\""},
        {false, "top_k;;xtc", "x: no sampler is called \"\""},
        {false, "top_k;top_", "x: no sampler is called \"top_\""},
        {false, "top_k;top_kk", "x: no sampler is called \"top_kk\""},
        {false, "Top_K", "x: no sampler is called \"Top_K\""},
        {false, "xtc;top_k;xtc", "x: xtc is there twice"},
        {false, "typical;typ_p", "x: typ_p is there twice"},
        {false, "a\x1b[2J", "x: no sampler is called \"a\""},
        {true, "kq", "x: no sampler has the letter \"q\""},
        {true, "k\xC3\xA9z", "x: no sampler has the letter \"\xC3\xA9\""},
        {true, "ktk", "x: top_k is there twice"},
        {true, "top_k", "x: no sampler has the letter \"o\""},
        {true, "-", "x: no sampler has the letter \"-\""},
    };
    struct carat_error err;
    char out[SAMPLERS_SIZE];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].text);
        int status = cases[i].is_letters ? samplers_read_letters(out, cases[i].text, n, "x", &err)
                                         : samplers_read_names(out, cases[i].text, n, "x", &err);
        assert_int_equal(status, CARAT_EUSAGE);
        assert_string_equal(err.message, cases[i].message);
        if (strstr(err.message, "no sampler")) assert_non_null(strstr(err.hint, "top_n_sigma"));
    }
    struct carat_sampling p = {.samplers = "kk"};
    assert_int_equal(sample_check(&p, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "samplers: top_k is there twice");
    memset(p.samplers, 'a', sizeof p.samplers);
    assert_int_equal(sample_check(&p, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "samplers: a text of at most 15 letters expected");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_do_what_they_do_by_hand),
        cmocka_unit_test(penalties_come_where_they_are_named),
        cmocka_unit_test(distributions_are_those_of_the_definition),
        cmocka_unit_test(orders_that_mean_the_same_give_the_same),
        cmocka_unit_test(a_seed_gives_one_answer_wherever_logits_come_from),
        cmocka_unit_test(extremes_still_pick_a_possible_id),
        cmocka_unit_test(names_and_letters_are_those_of_llama_cpp),
        cmocka_unit_test(wrong_orders_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
