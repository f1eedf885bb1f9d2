/* Top-n-sigma, typical sampling, dynamic temperature, XTC, Mirostat and DRY as the sampler applies
 * them: against definitions that sort and sum as directly as possible, wherever the logits come
 * from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sample.h"
#include "support/cost.h"
#include "support/samplers.h"

enum { N = 40, DRAWS = 40000, LARGE = 262144 };

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

static void soften(struct entry *e, int n, double temperature)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += e[i].p = exp(e[i].logit / temperature);
    for (int i = 0; i < n; i++) e[i].p /= sum;
}

static double entropy_of(const struct entry *e, int n)
{
    double h = 0;
    for (int i = 0; i < n; i++) h -= e[i].p * log(e[i].p);
    return h;
}

static int cut_by_sigma(struct entry *e, int n, double n_sigma)
{
    double mean = 0, variance = 0;
    int kept = 0;
    for (int i = 0; i < n; i++) mean += e[i].logit / n;
    for (int i = 0; i < n; i++) variance += pow(e[i].logit - mean, 2) / n;
    while (kept < n && e[kept].logit >= e[0].logit - n_sigma * sqrt(variance)) kept++;
    return kept;
}

static int cut_by_type(struct entry *e, int n, double share)
{
    soften(e, n, 1.0);
    double h = entropy_of(e, n), held = 0;
    int kept = 0;
    for (int i = 0; i < n; i++) e[i].key = fabs(-log(e[i].p) - h);
    qsort(e, (size_t)n, sizeof *e, by_key);
    while (kept < n && !(held > share)) held += e[kept++].p;
    qsort(e, (size_t)kept, sizeof *e, by_logit);
    return kept;
}

static double temperature_of(struct entry *e, int n, const struct carat_sampling *s)
{
    double low = fmax(0, (double)s->temperature - (double)s->dynatemp_range);
    double high = (double)s->temperature + (double)s->dynatemp_range;
    double exponent = s->dynatemp_exponent == 0.0f ? 1.0 : (double)s->dynatemp_exponent;
    if (s->dynatemp_range == 0.0f || n == 1) return (double)s->temperature;
    soften(e, n, 1.0);
    return low + (high - low) * pow(entropy_of(e, n) / log(n), exponent);
}

/* The probabilities of all ids, of which some are not allowed (-infinity). `is_excluding`: XTC came
 * into play. */
static void define(const float *logits, const struct carat_sampling *s, bool is_excluding,
                   double *out)
{
    struct entry e[N];
    int n = 0, last = 0;
    for (int i = 0; i < N; i++) {
        out[i] = 0;
        if (logits[i] > -INFINITY) e[n++] = (struct entry){.logit = (double)logits[i], .id = i};
    }
    qsort(e, (size_t)n, sizeof *e, by_logit);
    if (s->top_n_sigma > 0.0f) n = cut_by_sigma(e, n, (double)s->top_n_sigma);
    if (s->top_k > 0 && s->top_k < n) n = s->top_k;
    if (s->typical_p > 0.0f && s->typical_p < 1.0f) n = cut_by_type(e, n, (double)s->typical_p);
    soften(e, n, temperature_of(e, n, s));
    double held = 0;
    for (int i = 0; s->top_p > 0.0f && i < n; i++) {
        held += e[i].p;
        if (held >= (double)s->top_p) n = i + 1;
    }
    while (n > 1 && e[n - 1].p < (double)s->min_p * e[0].p) n--;
    held = 0;
    for (int i = 0; i < n; i++) held += e[i].p;
    while (is_excluding && last + 1 < n && e[last + 1].p / held >= (double)s->xtc_threshold) last++;
    for (int i = 0; i < last; i++) held -= e[i].p;
    for (int i = last; i < n; i++) out[e[i].id] = e[i].p / held;
}

/* ---- Distributions ---------------------------------------------------------------------- */

static void check_distribution(struct carat_sampling sampling, const float *logits)
{
    double usual[N], excluding[N];
    int counts[N] = {0};
    define(logits, &sampling, false, usual);
    define(logits, &sampling, true, excluding);
    sampling.seed = 99;
    struct sampler *s = open_bound_sampler(sampling, N);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = sample_pick(s, logits);
        assert_in_range(id, 0, N - 1);
        counts[id]++;
    }
    for (int i = 0; i < N; i++) {
        double share = (double)sampling.xtc_probability;
        double expected = share * excluding[i] + (1 - share) * usual[i];
        if (expected == 0) assert_int_equal(counts[i], 0);
        double spread = sqrt(DRAWS * expected * (1 - expected));
        assert_true(fabs(counts[i] - DRAWS * expected) <= 5 * spread + 1);
    }
    sample_close(s);
}

static const struct carat_sampling ways[] = {
    {.temperature = 1, .typical_p = 0.5f},
    {.temperature = 1.5f, .typical_p = 0.2f, .top_k = 20},
    {.temperature = 0.7f, .typical_p = 0.9f, .top_p = 0.9f},
    {.temperature = 1, .top_n_sigma = 1},
    {.temperature = 2, .top_n_sigma = 0.5f, .top_k = 12},
    {.temperature = 3, .top_n_sigma = 1.5f, .min_p = 0.05f},
    {.temperature = 1, .dynatemp_range = 0.5f},
    {.temperature = 1, .dynatemp_range = 2, .dynatemp_exponent = 0.5f, .top_k = 10},
    {.temperature = 0.5f, .dynatemp_range = 0.25f, .dynatemp_exponent = 3, .top_p = 0.8f},
    {.temperature = 0, .dynatemp_range = 2},
    {.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.1f},
    {.temperature = 1.5f, .xtc_probability = 0.5f, .xtc_threshold = 0.05f, .top_k = 20},
    {.temperature = 1, .xtc_probability = 0.3f, .xtc_threshold = 0.15f, .min_p = 0.02f},
    {.temperature = 2, .xtc_probability = 0.7f, .xtc_threshold = 0.05f, .top_p = 0.9f},
    {.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.5f},
    {.temperature = 1.2f,
     .top_n_sigma = 2,
     .top_k = 30,
     .typical_p = 0.8f,
     .dynatemp_range = 0.5f,
     .top_p = 0.95f,
     .min_p = 0.01f,
     .xtc_probability = 0.5f,
     .xtc_threshold = 0.1f},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void distributions_are_those_of_the_definition(void **state)
{
    (void)state;
    float logits[N];
    print_message("seed 99, %d draws, 5 standard deviations\n", DRAWS);
    for (size_t w = 0; w < WAYS; w++) {
        fill_logits(logits, N, 5 + w);
        for (int i = 0; i < N; i += 7) logits[i] = -INFINITY;
        check_distribution(ways[w], logits);
    }
}

/* Probabilities 1/2, 1/4, 1/8, 1/8: XTC at 0.2 leaves out the first. Typical sampling expects
 * 1.75 bits: 1/4 (2 bits) is nearest, then 1/2. */
static void small_cases_are_those_by_hand(void **state)
{
    (void)state;
    const float logits[] = {logf(4), logf(2), 0, 0};
    const struct {
        struct carat_sampling sampling;
        bool is_possible[4];
    } cases[] = {
        {{.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.2f}, {0, 1, 1, 1}},
        {{.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.3f}, {1, 1, 1, 1}},
        {{.temperature = 1, .xtc_probability = 1}, {0, 0, 0, 1}}, /* 0.1 */
        {{.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.51f}, {1, 1, 1, 1}},
        {{.temperature = 1, .typical_p = 0.2f}, {0, 1, 0, 0}},
        {{.temperature = 1, .typical_p = 0.3f}, {1, 1, 0, 0}},
        {{.temperature = 1, .typical_p = 0.8f}, {1, 1, 1, 0}},
        {{.temperature = 1, .top_n_sigma = 1}, {1, 0, 0, 0}}, /* a spread of 0.575 */
        {{.temperature = 1, .top_n_sigma = 1.3f}, {1, 1, 0, 0}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct sampler *s = open_bound_sampler(cases[k].sampling, 4);
        bool was_picked[4] = {0};
        for (int i = 0; i < 400; i++) was_picked[sample_pick(s, logits)] = true;
        assert_memory_equal(was_picked, cases[k].is_possible, sizeof was_picked);
        sample_close(s);
    }
}

/* Each seed decides anew whether the first choices are dropped. */
static void xtc_comes_into_play_in_its_share_of_seeds(void **state)
{
    (void)state;
    enum { SEEDS = 40000 };
    const float logits[] = {3, 3, 0, 0};
    for (int tenths = 1; tenths <= 10; tenths += 3) {
        int n_first = 0;
        double p = tenths / 10.0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct sampler *s = open_bound_sampler(
                (struct carat_sampling){
                    .temperature = 1, .xtc_probability = (float)p, .seed = seed},
                4);
            n_first += sample_pick(s, logits) == 0; /* dropped if XTC is in play */
            sample_close(s);
        }
        double expected = SEEDS * (1 - p) * 0.476287; /* e^3 / (2 e^3 + 2) */
        assert_true(fabs(n_first - expected) <= 5 * sqrt(SEEDS * 0.25) * (p < 1));
    }
}

static void neutral_values_change_nothing(void **state)
{
    (void)state;
    static const struct carat_sampling plain[] = {
        {.temperature = 1, .top_k = 20, .top_p = 0.9f, .seed = 3},
        {.temperature = 1.3f, .min_p = 0.05f, .seed = 4},
        {.temperature = 0},
    };
    float logits[N];
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) {
        for (int way = 0; way < 6; way++) {
            struct carat_sampling p = plain[k];
            p.typical_p = 1;
            p.top_n_sigma = way % 2 ? -1 : 0;
            p.xtc_threshold = way < 3 ? 0.1f : 0.6f;
            p.xtc_probability = way < 3 ? 0 : 1; /* a threshold above 0.5 is off too */
            p.dynatemp_exponent = 2;
            p.dry_base = 3;
            p.dry_allowed_length = 1;
            p.dry_penalty_last_n = -1;
            p.mirostat_tau = 3;
            struct sampler *a = open_bound_sampler(plain[k], N), *b = open_bound_sampler(p, N);
            assert_int_equal(sample_draws_first(a), sample_draws_first(b));
            assert_int_equal(sample_takes_best(a, 30), sample_takes_best(b, 30));
            for (uint64_t i = 0; i < 300; i++) {
                fill_logits(logits, N, i);
                int32_t id = sample_pick(a, logits);
                assert_int_equal(sample_pick(b, logits), id);
                sample_accept(a, id);
                sample_accept(b, id);
            }
            sample_close(a);
            sample_close(b);
        }
    }
}

static void without_temperature_the_likeliest_token_is_taken(void **state)
{
    (void)state;
    float logits[N];
    struct sampler *s = open_bound_sampler((struct carat_sampling){.typical_p = 0.1f,
                                                                   .top_n_sigma = 1,
                                                                   .xtc_probability = 1,
                                                                   .xtc_threshold = 0.01f,
                                                                   .mirostat = 2},
                                           N);
    for (uint64_t seed = 0; seed < 100; seed++) {
        int32_t best = 0;
        fill_logits(logits, N, seed);
        for (int32_t i = 1; i < N; i++)
            if (logits[i] > logits[best]) best = i;
        assert_int_equal(sample_pick(s, logits), best);
    }
    sample_close(s);
}

/* A dynamic temperature has no meaning with Mirostat, and without it is not 0. */
static void a_temperature_of_0_stays_0_with_mirostat(void **state)
{
    (void)state;
    const float logits[4] = {1, 1.5f, 1, 1};
    struct carat_sampling p = {.dynatemp_range = 5, .mirostat = 2, .mirostat_tau = 10};
    struct sampler *greedy = open_bound_sampler(p, 4);
    p.mirostat = 0;
    struct sampler *dynamic = open_bound_sampler(p, 4);
    int n_others = 0;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sample_pick(greedy, logits), 1);
        n_others += sample_pick(dynamic, logits) != 1;
    }
    assert_true(n_others > 30);
    sample_close(greedy);
    sample_close(dynamic);
}

/* Zeros stand for what carat.h says: the same ids as with these values, others with others. */
static void zeros_have_the_defaults_of_the_header(void **state)
{
    (void)state;
    static const struct carat_sampling some[][3] = {
        {{.dry_multiplier = 0.5f}, {.dry_base = 1.75f}, {.dry_base = 2.5f}},
        {{.dry_multiplier = 0.5f}, {.dry_allowed_length = 2}, {.dry_allowed_length = 3}},
        {{.mirostat = 2}, {.mirostat_tau = 5}, {.mirostat_tau = 4.5f}},
        {{.mirostat = 2}, {.mirostat_eta = 0.1f}, {.mirostat_eta = 0.2f}},
        {{.dynatemp_range = 0.9f}, {.dynatemp_exponent = 1}, {.dynatemp_exponent = 2}},
        {{.xtc_probability = 1}, {.xtc_threshold = 0.1f}, {.xtc_threshold = 0.2f}},
    };
    float logits[N];
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        struct sampler *s[3];
        struct rng r = {k};
        int n_others = 0;
        for (int i = 0; i < 3; i++) {
            struct carat_sampling p = some[k][0], given = some[k][i];
            p.temperature = p.mirostat ? 8 : 1;
            if (i > 0) {
                p.dry_base = given.dry_base;
                p.dry_allowed_length = given.dry_allowed_length;
                p.mirostat_tau = given.mirostat_tau;
                p.mirostat_eta = given.mirostat_eta;
                p.dynatemp_exponent = given.dynatemp_exponent;
                p.xtc_threshold = given.xtc_threshold;
            }
            s[i] = open_bound_sampler(p, N);
        }
        for (uint64_t round = 0; round < 2000; round++) {
            int32_t next = (int32_t)rng_below(&r, 3); /* short repetitions */
            fill_logits(logits, N, round);
            int32_t id = sample_pick(s[0], logits);
            assert_int_equal(sample_pick(s[1], logits), id);
            n_others += sample_pick(s[2], logits) != id;
            for (int i = 0; i < 3; i++) sample_accept(s[i], next);
        }
        print_message("case %zu: %d others\n", k, n_others);
        assert_true(n_others > 0);
        for (int i = 0; i < 3; i++) sample_close(s[i]);
    }
}

/* ---- Mirostat --------------------------------------------------------------------------- */

/* Keeps what has at most `bits` of surprise, draws, and moves `bits` towards the target. */
static int define_mirostat(const float *logits, const struct carat_sampling *s, struct rng *r,
                           double *bits)
{
    struct entry e[N];
    int n = N, drawn = 0;
    for (int i = 0; i < N; i++) e[i] = (struct entry){.logit = (double)logits[i], .id = i};
    qsort(e, N, sizeof *e, by_logit);
    soften(e, N, (double)s->temperature);
    while (n > 1 && -log2(e[n - 1].p) > *bits) n--;
    soften(e, n, (double)s->temperature);
    double point = rng_unit(r);
    while (drawn + 1 < n && (point -= e[drawn].p) >= 0) drawn++;
    *bits -= (double)s->mirostat_eta * (-log2(e[drawn].p) - (double)s->mirostat_tau);
    return e[drawn].id;
}

static void mirostat_picks_what_its_definition_picks(void **state)
{
    (void)state;
    static const struct carat_sampling some[] = {
        {.temperature = 1, .mirostat = 2, .mirostat_tau = 5, .mirostat_eta = 0.1f, .seed = 1},
        {.temperature = 1, .mirostat = 2, .mirostat_tau = 0.5f, .mirostat_eta = 0.5f, .seed = 2},
        {.temperature = 2, .mirostat = 2, .mirostat_tau = 2, .mirostat_eta = 1, .seed = 3},
        /* what drops tokens besides it has no meaning */
        {.temperature = 1.5f,
         .mirostat = 2,
         .mirostat_tau = 3,
         .mirostat_eta = 0.2f,
         .top_k = 1,
         .top_p = 0.1f,
         .min_p = 0.9f,
         .typical_p = 0.1f,
         .top_n_sigma = 0.1f,
         .xtc_probability = 1,
         .dynatemp_range = 1,
         .seed = 4},
    };
    float logits[N];
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        struct sampler *s = open_bound_sampler(some[k], N);
        struct rng r = {some[k].seed};
        double bits = 2 * (double)some[k].mirostat_tau;
        assert_false(sample_takes_best(s, N));
        for (uint64_t i = 0; i < 500; i++) {
            fill_logits(logits, N, i);
            assert_int_equal(sample_pick(s, logits), define_mirostat(logits, &some[k], &r, &bits));
        }
        sample_close(s);
    }
}

/* ---- Where the logits come from --------------------------------------------------------- */

static int compare_pairs(const void *left, const void *right)
{
    const struct logit_pair *a = left, *b = right;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool allow(void *user, int32_t id)
{
    (void)user, (void)id;
    return true;
}

/* One pick: from the row in which others are -infinity, from a list of ids, from pairs in any
 * order, and from the best pairs if they will do. */
static int32_t pick_from(int way, struct sampler *s, const float *row, const int32_t *ids,
                         int32_t n)
{
    float masked[N];
    struct logit_pair pairs[N];
    for (int i = 0; i < N; i++) masked[i] = -INFINITY;
    for (int i = 0; i < n; i++) masked[ids[i]] = row[ids[i]];
    for (int i = 0; i < N; i++) pairs[i] = (struct logit_pair){.logit = masked[i], .id = i};
    qsort(pairs, N, sizeof *pairs, compare_pairs);
    if (way == 0) return sample_pick(s, masked);
    if (way == 1) return sample_pick_listed(s, row, ids, n);
    if (way == 2) return sample_pick_known(s, pairs, N);
    assert_int_equal(sample_pick_best_allowed(s, pairs, N, allow, NULL), SAMPLE_UNDECIDED);
    assert_int_equal(sample_pick_allowed(s, row, allow, NULL), SAMPLE_UNDECIDED);
    int32_t id = sample_takes_best(s, 32) ? sample_pick_best(s, pairs, 32) : SAMPLE_UNDECIDED;
    return id == SAMPLE_UNDECIDED ? sample_pick(s, masked) : id;
}

static void a_seed_gives_one_answer_wherever_logits_come_from(void **state)
{
    (void)state;
    float row[N];
    for (size_t w = 0; w <= WAYS; w++) {
        struct carat_sampling p =
            w < WAYS ? ways[w] : (struct carat_sampling){.temperature = 1, .mirostat = 2};
        struct sampler *s[4];
        p.seed = w;
        p.dry_multiplier = w % 2 ? 1.0f : 0.0f;
        p.dry_allowed_length = 1;
        if (w % 3 == 0) p.presence_penalty = 0.5f;
        for (int k = 0; k < 4; k++) s[k] = open_bound_sampler(p, N);
        for (uint64_t i = 0; i < 100; i++) {
            int32_t ids[N], n = 0, id = 0;
            fill_logits(row, N, i);
            for (int32_t j = 0; j < N; j++)
                if (j == 3 || (j * 7 + (int)i) % 5) ids[n++] = j;
            /* Where all of the vocabulary is in play, rows differ from lists: a mask decides. */
            for (int k = p.top_k ? 0 : 1; k < (p.top_k ? 4 : 3); k++) {
                int32_t found = pick_from(k, s[k], row, ids, n);
                if (k > (p.top_k ? 0 : 1)) assert_int_equal(found, id);
                id = found;
            }
            for (int k = 0; k < 4; k++) sample_accept(s[k], id % 5);
        }
        for (int k = 0; k < 4; k++) sample_close(s[k]);
    }
}

/* What DRY lowers is not among the likeliest any more: then the pairs are not enough, or the best
 * of the others is taken. */
static void best_pairs_are_enough_with_dry(void **state)
{
    (void)state;
    enum { VOCAB = 3000, PAIRS = 128, ROUNDS = 400 };
    static float row[VOCAB];
    static struct logit_pair pairs[VOCAB];
    static const struct carat_sampling some[] = {
        {.temperature = 0, .dry_multiplier = 0.8f},
        {.temperature = 1, .top_k = 40, .dry_multiplier = 3, .dry_allowed_length = 1, .seed = 3},
        {.temperature = 1, .top_k = 64, .dry_multiplier = 100, .repeat_penalty = 1.1f},
        {.temperature = 1,
         .top_k = 40,
         .typical_p = 0.7f,
         .dry_multiplier = 2,
         .dry_penalty_last_n = 50},
    };
    for (size_t w = 0; w < sizeof some / sizeof *some; w++) {
        struct carat_sampling without = some[w];
        without.dry_multiplier = 0;
        struct sampler *a = open_bound_sampler(some[w], VOCAB),
                       *b = open_bound_sampler(some[w], VOCAB);
        struct sampler *c = open_bound_sampler(without, VOCAB);
        int n_undecided = 0, n_other = 0;
        assert_true(sample_takes_best(a, PAIRS));
        for (int round = 0; round < ROUNDS; round++) {
            fill_logits(row, VOCAB, 100 + (uint64_t)(round % 3)); /* a loop of three */
            for (int i = 0; i < VOCAB; i++)
                pairs[i] = (struct logit_pair){.logit = row[i], .id = i};
            qsort(pairs, VOCAB, sizeof *pairs, compare_pairs);
            int32_t id = sample_pick_best(a, pairs, PAIRS), expected = sample_pick(b, row);
            n_undecided += id == SAMPLE_UNDECIDED;
            if (id == SAMPLE_UNDECIDED) id = sample_pick(a, row);
            assert_int_equal(id, expected);
            n_other += id != sample_pick(c, row);
            sample_accept(a, id);
            sample_accept(b, id);
            sample_accept(c, id);
        }
        print_message("way %zu: %d of %d undecided, %d others\n", w, n_undecided, ROUNDS, n_other);
        assert_true(n_undecided < ROUNDS / 10 && n_other > ROUNDS / 20);
        sample_close(a);
        sample_close(b);
        sample_close(c);
    }
}

/* ---- Limits and costs ------------------------------------------------------------------- */

static void only_a_lowered_token_can_still_be_picked(void **state)
{
    (void)state;
    const float logits[4] = {1, 2, 3, 4};
    const int32_t only = 2;
    struct sampler *s = open_bound_sampler(
        (struct carat_sampling){
            .temperature = 1, .dry_multiplier = 100, .dry_base = 100, .dry_allowed_length = 1},
        4);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(sample_pick_listed(s, logits, &only, 1), only);
        sample_accept(s, only);
    }
    sample_close(s);
}

static void values_out_of_range_are_refused_by_name(void **state)
{
    (void)state;
    const struct {
        struct carat_sampling p;
        const char *message;
    } cases[] = {
        {{.typical_p = 1.5f}, "typical_p: 0 to 1 expected, 1.5 found"},
        {{.top_n_sigma = -2}, "top_n_sigma: -1 to 100 expected, -2 found"},
        {{.xtc_probability = -0.5f}, "xtc_probability: 0 to 1 expected, -0.5 found"},
        {{.xtc_threshold = NAN}, "xtc_threshold: 0 to 1 expected, nan found"},
        {{.dynatemp_range = -1}, "dynatemp_range: 0 to 100 expected, -1 found"},
        {{.dynatemp_exponent = 101}, "dynatemp_exponent: 0 to 100 expected, 101 found"},
        {{.dry_multiplier = INFINITY}, "dry_multiplier: 0 to 100 expected, inf found"},
        {{.dry_base = 0.5f}, "dry_base: 1 to 100 expected, 0.5 found"},
        {{.dry_allowed_length = -1},
         "dry_allowed_length: 0 (2) or up to 1048576 expected, -1 found"},
        {{.dry_penalty_last_n = -2},
         "dry_penalty_last_n: -1 (all) or up to 1048576 expected, -2 found"},
        {{.mirostat = 1}, "mirostat: 0 (off) or 2 expected, 1 found"},
        {{.mirostat_tau = -1}, "mirostat_tau: 0 to 100 expected, -1 found"},
        {{.mirostat_eta = 1000}, "mirostat_eta: 0 to 100 expected, 1000 found"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct carat_error err;
        assert_int_equal(sample_check(&cases[i].p, &err), CARAT_EUSAGE);
        assert_string_equal(err.message, cases[i].message);
    }
}

/* Bounds are loose, as in test_sample. */
static void speed(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct carat_sampling p;
    } some[] = {
        {"top-k 64, top-p 0.95", {.temperature = 1, .top_k = 64, .top_p = 0.95f}},
        {"the same, typical", {.temperature = 1, .top_k = 64, .top_p = 0.95f, .typical_p = 0.8f}},
        {"the same, XTC", {.temperature = 1, .top_k = 64, .top_p = 0.95f, .xtc_probability = 1}},
        {"the same, sigma", {.temperature = 1, .top_k = 64, .top_p = 0.95f, .top_n_sigma = 1}},
        {"top-k, top-p, temp 0.8",
         {.temperature = 0.8f, .top_k = 64, .top_p = 0.95f, .samplers = "kpt"}},
        {"top-p, temp 0.8, top-k",
         {.temperature = 0.8f, .top_k = 64, .top_p = 0.95f, .samplers = "ptk"}},
        {"top-k off, typical", {.temperature = 1, .typical_p = 0.8f}},
        {"top-k off, XTC", {.temperature = 1, .xtc_probability = 1}},
        {"Mirostat", {.temperature = 1, .mirostat = 2}},
    };
    float *logits = mem_alloc(LARGE, sizeof *logits);
    fill_logits(logits, LARGE, 23);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct sampler *s = open_bound_sampler(some[i].p, LARGE);
        double best = 1e9;
        for (int round = 0; round < 10; round++) {
            double begin = cost_cpu_seconds();
            sample_pick(s, logits);
            double seconds = cost_cpu_seconds() - begin;
            if (seconds < best) best = seconds;
        }
        print_message("%-22s %8.0f us\n", some[i].name, best * 1e6);
        assert_true(best < 1.0);
        sample_close(s);
    }
    mem_free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions_are_those_of_the_definition),
        cmocka_unit_test(small_cases_are_those_by_hand),
        cmocka_unit_test(xtc_comes_into_play_in_its_share_of_seeds),
        cmocka_unit_test(neutral_values_change_nothing),
        cmocka_unit_test(without_temperature_the_likeliest_token_is_taken),
        cmocka_unit_test(a_temperature_of_0_stays_0_with_mirostat),
        cmocka_unit_test(zeros_have_the_defaults_of_the_header),
        cmocka_unit_test(mirostat_picks_what_its_definition_picks),
        cmocka_unit_test(a_seed_gives_one_answer_wherever_logits_come_from),
        cmocka_unit_test(best_pairs_are_enough_with_dry),
        cmocka_unit_test(only_a_lowered_token_can_still_be_picked),
        cmocka_unit_test(values_out_of_range_are_refused_by_name),
        cmocka_unit_test(speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
