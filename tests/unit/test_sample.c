/* The sampler against exact probabilities, its parameters, and its speed. */
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
#include "engine/logprob.h"
#include "engine/sample.h"
#include "support/cost.h"
#include "support/samplers.h"

enum { N = 40, DRAWS = 40000, LARGE = 262144 };

static struct carat_sampling plain(void)
{
    return (struct carat_sampling){.temperature = 1.0f,
                                   .top_p = 1.0f,
                                   .repeat_penalty = 1.0f,
                                   .repeat_last_n = 64,
                                   .seed = 99};
}

static struct sampler *open_sampler(struct carat_sampling sampling, int32_t n_vocab)
{
    struct sampler *s;
    struct carat_error err;
    struct sampler_options options = {.n_vocab = n_vocab, .sampling = sampling};
    assert_int_equal(sample_open(&s, &options, &err), CARAT_OK);
    return s;
}

/* ---- The definition, written as directly as possible ---- */

struct entry {
    double p;
    int id;
};

static int by_p(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? 1 : -1) : x->id - y->id;
}

static void normalise(struct entry *e, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += e[i].p;
    for (int i = 0; i < n; i++) e[i].p /= sum;
}

static void exact(const float *logits, const struct carat_sampling *s, double *out)
{
    struct entry e[N];
    for (int i = 0; i < N; i++)
        e[i] = (struct entry){exp((double)logits[i] / (double)s->temperature), i};
    qsort(e, N, sizeof *e, by_p);
    int n = s->top_k > 0 && s->top_k < N ? s->top_k : N;
    normalise(e, n);
    double held = 0;
    for (int i = 0; i < n; i++) {
        held += e[i].p;
        if (held >= (double)s->top_p) n = i + 1;
    }
    while (n > 1 && e[n - 1].p < (double)s->min_p * e[0].p) n--;
    normalise(e, n);
    for (int i = 0; i < N; i++) out[i] = 0;
    for (int i = 0; i < n; i++) out[e[i].id] = e[i].p;
}

static void check_distribution(struct carat_sampling sampling)
{
    float logits[N];
    double expected[N];
    int counts[N] = {0};
    fill_logits(logits, N, 5);
    exact(logits, &sampling, expected);
    struct sampler *s = open_sampler(sampling, N);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = sample_pick(s, logits);
        assert_in_range(id, 0, N - 1);
        counts[id]++;
    }
    for (int i = 0; i < N; i++) {
        if (expected[i] == 0) assert_int_equal(counts[i], 0);
        double spread = sqrt(DRAWS * expected[i] * (1 - expected[i]));
        assert_true(fabs(counts[i] - DRAWS * expected[i]) <= 5 * spread + 1);
    }
    sample_close(s);
}

static void test_distributions(void **state)
{
    (void)state;
    print_message("seed 99, %d draws, 5 standard deviations\n", DRAWS);
    struct carat_sampling s = plain();
    check_distribution(s);
    s.top_k = 64; /* more than there are */
    check_distribution(s);
    s.top_k = 5;
    check_distribution(s);
    s.temperature = 2.5f;
    check_distribution(s);
    s.temperature = 0.3f;
    check_distribution(s);
    s = plain();
    s.top_p = 0.8f;
    check_distribution(s);
    s.top_k = 10;
    check_distribution(s);
    s.top_p = 0.95f;
    s.temperature = 1.7f;
    check_distribution(s);
    s = plain();
    s.min_p = 0.1f;
    check_distribution(s);
    s.top_k = 20;
    check_distribution(s);
    s.top_p = 0.9f;
    s.top_k = 0;
    check_distribution(s);
    s.top_p = 1e-9f; /* only the best */
    check_distribution(s);
}

static void test_greedy(void **state)
{
    (void)state;
    float logits[] = {1.0f, 3.0f, -2.0f, 3.0f, 0.0f};
    struct carat_sampling s = plain();
    s.temperature = 0.0f;
    struct sampler *greedy = open_sampler(s, 5);
    assert_int_equal(sample_pick(greedy, logits), 1); /* ties: the lowest id */
    logits[0] = 4.0f;
    assert_int_equal(sample_pick(greedy, logits), 0);
    sample_close(greedy);
    s.temperature = 1.0f;
    s.top_k = 1;
    greedy = open_sampler(s, 5);
    for (int i = 0; i < 50; i++) assert_int_equal(sample_pick(greedy, logits), 0);
    sample_close(greedy);
}

static void test_repeatable(void **state)
{
    (void)state;
    float logits[N];
    fill_logits(logits, N, 6);
    struct sampler *a = open_sampler(plain(), N), *b = open_sampler(plain(), N);
    int differs = 0;
    struct carat_sampling other = plain();
    other.seed = 100;
    struct sampler *c = open_sampler(other, N);
    for (int i = 0; i < 200; i++) {
        int32_t id = sample_pick(a, logits);
        assert_int_equal(id, sample_pick(b, logits));
        differs += id != sample_pick(c, logits);
    }
    assert_true(differs > 0);
    sample_close(a);
    sample_close(b);
    sample_close(c);
}

static void test_logprob(void **state)
{
    (void)state;
    float logits[N];
    fill_logits(logits, N, 8);
    double sum = 0;
    for (int i = 0; i < N; i++) sum += exp((double)logits[i]);
    struct carat_sampling sampling = plain();
    sampling.temperature = 3.0f; /* log-probs are before temperature and cuts */
    sampling.top_k = 10;
    struct sampler *s = open_sampler(sampling, N);
    for (int i = 0; i < 100; i++) {
        int32_t id = sample_pick(s, logits);
        float logprob = logprob_compute(logits, N, id, NULL, 0);
        assert_true(fabs((double)logprob - ((double)logits[id] - log(sum))) < 1e-5);
    }
    sample_close(s);
}

static void test_bias(void **state)
{
    (void)state;
    float logits[] = {5.0f, 4.0f, 3.0f, 2.0f};
    const struct carat_logit_bias bias[] = {{0, -20000.0f}, {2, -INFINITY}, {3, 100.0f}};
    const int32_t suppressed[] = {3};
    struct sampler_options o = {.n_vocab = 4, .sampling = plain(), .bias = bias, .n_bias = 3};
    struct carat_error err;
    struct sampler *s;
    assert_int_equal(sample_open(&s, &o, &err), CARAT_OK);
    for (int i = 0; i < 50; i++) assert_int_equal(sample_pick(s, logits), 3);
    assert_true(logits[0] == 5.0f);
    sample_close(s);
    o.suppressed = suppressed;
    o.n_suppressed = 1;
    assert_int_equal(sample_open(&s, &o, &err), CARAT_OK);
    /* 0 and 2 are banned, 3 is suppressed whatever its bias. */
    for (int i = 0; i < 50; i++) assert_int_equal(sample_pick(s, logits), 1);
    sample_close(s);
}

static int32_t greedy_after(struct carat_sampling sampling, const float *logits, int32_t n,
                            const int32_t *accepted, int n_accepted)
{
    sampling.temperature = 0.0f;
    struct sampler *s = open_sampler(sampling, n);
    for (int i = 0; i < n_accepted; i++) sample_accept(s, accepted[i]);
    int32_t id = sample_pick(s, logits);
    sample_close(s);
    return id;
}

static void test_penalties(void **state)
{
    (void)state;
    const float logits[] = {4.0f, 3.5f, 3.0f, -1.0f};
    const int32_t zero[] = {0}, many[] = {0, 0, 0, 1}, moved[] = {0, 1, 1};
    struct carat_sampling s = plain();
    assert_int_equal(greedy_after(s, logits, 4, many, 4), 0);
    s.repeat_penalty = 1.2f; /* 4 / 1.2 = 3.33 */
    assert_int_equal(greedy_after(s, logits, 4, zero, 1), 1);
    s = plain();
    s.presence_penalty = 0.4f;
    assert_int_equal(greedy_after(s, logits, 4, many, 3), 0); /* 3.6 */
    s.presence_penalty = 0.6f;
    assert_int_equal(greedy_after(s, logits, 4, many, 3), 1); /* 3.4 */
    s = plain();
    s.frequency_penalty = 0.1f;
    assert_int_equal(greedy_after(s, logits, 4, many, 3), 0); /* 3.7 */
    s.frequency_penalty = 0.2f;
    assert_int_equal(greedy_after(s, logits, 4, many, 3), 1); /* 3.4 */
    s.repeat_last_n = 2;                                      /* the 0 is out of sight */
    s.frequency_penalty = 2.0f;
    assert_int_equal(greedy_after(s, logits, 4, moved, 3), 0);
    s.repeat_last_n = -1;
    assert_int_equal(greedy_after(s, logits, 4, moved, 3), 2);
    s.repeat_last_n = 0; /* 64 */
    assert_int_equal(greedy_after(s, logits, 4, moved, 3), 2);
    /* Negative logits go further down. */
    const float negative[] = {-1.0f, -1.1f};
    s = plain();
    s.repeat_penalty = 1.5f;
    assert_int_equal(greedy_after(s, negative, 2, zero, 1), 1);
}

/* The counts of the last n tokens stay right whatever tokens come. */
static void test_ring(void **state)
{
    (void)state;
    enum { WINDOW = 7, IDS = 5 };
    struct carat_sampling sampling = plain();
    sampling.temperature = 0.0f;
    sampling.repeat_last_n = WINDOW;
    sampling.frequency_penalty = 1.0f;
    struct sampler *s = open_sampler(sampling, IDS);
    float logits[IDS] = {0};
    int32_t all[500];
    struct rng r = {3};
    for (int i = 0; i < 500; i++) {
        all[i] = (int32_t)rng_below(&r, IDS);
        sample_accept(s, all[i]);
        int counts[IDS] = {0}, best = 0;
        for (int k = i < WINDOW ? 0 : i - WINDOW + 1; k <= i; k++) counts[all[k]]++;
        for (int id = 1; id < IDS; id++)
            if (counts[id] < counts[best]) best = id;
        assert_int_equal(sample_pick(s, logits), best);
    }
    sample_accept(s, -1); /* ignored */
    sample_accept(s, IDS);
    sample_close(s);
}

static void test_not_finite(void **state)
{
    (void)state;
    float logits[200];
    struct carat_sampling sampling = plain();
    for (int k = 0; k < 3; k++) {
        sampling.top_k = k == 0 ? 0 : k == 1 ? 5 : 1;
        struct sampler *s = open_sampler(sampling, 200);
        for (int at = 0; at < 200; at += 33) {
            fill_logits(logits, 200, 1);
            logits[at] = NAN;
            assert_int_equal(sample_pick(s, logits), -1);
            logits[at] = INFINITY;
            assert_int_equal(sample_pick(s, logits), -1);
            logits[at] = -INFINITY; /* a ban */
            int32_t id = sample_pick(s, logits);
            assert_true(id >= 0 && id != at);
        }
        for (int i = 0; i < 200; i++) logits[i] = -INFINITY;
        assert_int_equal(sample_pick(s, logits), -1);
        sample_close(s);
    }
}

/* The k best are found wherever they are, and ties keep the lowest ids. */
static void test_top_k(void **state)
{
    (void)state;
    float *logits = mem_alloc(LARGE, sizeof *logits);
    struct carat_sampling sampling = plain();
    sampling.temperature = 100.0f; /* nearly evenly among the k */
    sampling.top_k = 8;
    struct sampler *s = open_sampler(sampling, LARGE);
    struct rng r = {17};
    for (int round = 0; round < 20; round++) {
        fill_logits(logits, LARGE, (uint64_t)round);
        int32_t best[8];
        for (int i = 0; i < 8; i++) {
            best[i] = (int32_t)rng_below(&r, LARGE);
            logits[best[i]] = 100.0f;
        }
        for (int i = 0; i < 40; i++) {
            int32_t id = sample_pick(s, logits);
            bool is_best = false;
            for (int k = 0; k < 8; k++) is_best = is_best || id == best[k];
            assert_true(is_best || logits[id] > 10.0f); /* two of the eight may coincide */
        }
    }
    for (int i = 0; i < LARGE; i++) logits[i] = 1.0f;
    for (int i = 0; i < 40; i++) assert_in_range(sample_pick(s, logits), 0, 7);
    sample_close(s);
    mem_free(logits);
}

static void expect_usage(struct carat_sampling sampling, const char *name)
{
    struct carat_error err = {0};
    assert_int_equal(sample_check(&sampling, &err), CARAT_EUSAGE);
    assert_non_null(strstr(err.message, name));
}

static void test_parameters(void **state)
{
    (void)state;
    struct carat_sampling s = plain();
    struct carat_error err;
    assert_int_equal(sample_check(&s, &err), CARAT_OK);
#define BAD(field, value)                                                                          \
    do {                                                                                           \
        s = plain();                                                                               \
        s.field = (value);                                                                         \
        expect_usage(s, #field);                                                                   \
    } while (0)
    BAD(temperature, -0.1f);
    BAD(temperature, NAN);
    BAD(temperature, INFINITY);
    BAD(top_k, -1);
    BAD(top_p, 1.1f);
    BAD(top_p, -0.1f);
    BAD(top_p, NAN);
    BAD(min_p, 2.0f);
    BAD(repeat_penalty, -1.0f);
    BAD(repeat_penalty, 0.001f);
    BAD(presence_penalty, INFINITY);
    BAD(frequency_penalty, NAN);
    BAD(repeat_last_n, -2);
    BAD(repeat_last_n, INT32_MAX);
#undef BAD
    struct sampler *sampler;
    const struct carat_logit_bias bad_id = {N, 0.0f};
    const float bad_biases[] = {NAN, INFINITY, 10001.0f};
    struct sampler_options o = {.n_vocab = N, .sampling = plain(), .bias = &bad_id, .n_bias = 1};
    assert_int_equal(sample_open(&sampler, &o, &err), CARAT_EUSAGE);
    for (size_t i = 0; i < sizeof bad_biases / sizeof *bad_biases; i++) {
        const struct carat_logit_bias bad_value = {0, bad_biases[i]};
        o.bias = &bad_value;
        assert_int_equal(sample_open(&sampler, &o, &err), CARAT_EUSAGE);
    }
    o.n_bias = CARAT_BIAS_MAX + 1;
    assert_int_equal(sample_open(&sampler, &o, &err), CARAT_EUSAGE);
    const int32_t bad = -1;
    o = (struct sampler_options){
        .n_vocab = N, .sampling = plain(), .suppressed = &bad, .n_suppressed = 1};
    assert_int_equal(sample_open(&sampler, &o, &err), CARAT_EUSAGE);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    long before = mem_blocks_live();
    const struct carat_logit_bias bias = {1, 1.0f};
    struct sampler_options o = {.n_vocab = N, .sampling = plain(), .bias = &bias, .n_bias = 1};
    o.sampling.repeat_penalty = 1.1f;
    for (long n = 0;; n++) {
        struct sampler *s;
        struct carat_error err;
        mem_fail_after(n);
        int status = sample_open(&s, &o, &err);
        bool failed = mem_fail_after(-1);
        assert_int_equal(status, failed ? CARAT_EMEMORY : CARAT_OK);
        sample_close(s);
        assert_int_equal(mem_blocks_live(), before);
        if (!failed) break;
        assert_true(n < 50);
    }
}

/* Bounds are loose: sanitizers and slow machines. The printed numbers are what counts. */
static void test_speed(void **state)
{
    (void)state;
    float *logits = mem_alloc(LARGE, sizeof *logits);
    struct carat_logprob top[CARAT_TOP_LOGPROBS_MAX];
    fill_logits(logits, LARGE, 23);
    static const struct {
        const char *name;
        float temperature, top_p;
        int32_t top_k;
        float repeat_penalty;
        bool wants_logprob;
    } ways[] = {
        {"greedy", 0.0f, 1.0f, 0, 1.0f, false},
        {"top-k 64, top-p 0.95", 1.0f, 0.95f, 64, 1.0f, false},
        {"the same with penalties", 1.0f, 0.95f, 64, 1.1f, false},
        {"the same with log-prob", 1.0f, 0.95f, 64, 1.0f, true},
        {"top-k off, top-p 0.95", 1.0f, 0.95f, 0, 1.0f, false},
        {"all off", 1.0f, 1.0f, 0, 1.0f, false},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct carat_sampling sampling = plain();
        sampling.temperature = ways[i].temperature;
        sampling.top_p = ways[i].top_p;
        sampling.top_k = ways[i].top_k;
        sampling.repeat_penalty = ways[i].repeat_penalty;
        struct sampler *s = open_sampler(sampling, LARGE);
        double best = 1e9;
        for (int round = 0; round < 20; round++) {
            double begin = cost_cpu_seconds();
            int32_t id = sample_pick(s, logits);
            if (ways[i].wants_logprob)
                logprob_compute(logits, LARGE, id, top, CARAT_TOP_LOGPROBS_MAX);
            double seconds = cost_cpu_seconds() - begin;
            sample_accept(s, id);
            if (seconds < best) best = seconds;
        }
        print_message("%-26s %8.0f us\n", ways[i].name, best * 1e6);
        assert_true(best < (ways[i].top_k ? 0.1 : 1.0));
        sample_close(s);
    }
    mem_free(logits);
}

/* ---- From the largest pairs alone ---- */

static int by_logit(const void *a, const void *b)
{
    const struct logit_pair *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id - y->id;
}

/* What a device gives: the `n` largest logits of a row, in order. */
static void take_pairs(const float *row, int32_t n_vocab, struct logit_pair *out, int n)
{
    struct logit_pair *all = malloc((size_t)n_vocab * sizeof *all);
    assert_non_null(all);
    for (int32_t i = 0; i < n_vocab; i++) all[i] = (struct logit_pair){i, row[i]};
    qsort(all, (size_t)n_vocab, sizeof *all, by_logit);
    memcpy(out, all, (size_t)n * sizeof *out);
    free(all);
}

/* Rounded logits, so that there are ties; some of the best ids are suppressed. */
static void test_best_pairs_pick_what_the_row_picks(void **state)
{
    (void)state;
    enum { VOCAB = 3000, PAIRS = 128, ROUNDS = 200 };
    static float row[VOCAB];
    static struct logit_pair pairs[PAIRS];
    static const struct carat_sampling ways[] = {
        {.temperature = 0, .top_p = 1, .repeat_penalty = 1},
        {.temperature = 1, .top_k = 64, .top_p = 0.95f, .repeat_penalty = 1, .seed = 3},
        {.temperature = 0.3f, .top_k = 5, .top_p = 1, .min_p = 0.05f, .repeat_penalty = 1},
        {.temperature = 2, .top_k = 120, .top_p = 0.5f, .repeat_penalty = 1, .seed = 8},
    };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct carat_error err;
        int32_t suppressed[] = {7, 11, 1500, 2999};
        struct sampler_options o = {
            .n_vocab = VOCAB, .sampling = ways[w], .suppressed = suppressed, .n_suppressed = 4};
        struct sampler *a, *b;
        assert_int_equal(sample_open(&a, &o, &err), CARAT_OK);
        assert_int_equal(sample_open(&b, &o, &err), CARAT_OK);
        assert_true(sample_takes_best(a, PAIRS));
        for (int round = 0; round < ROUNDS; round++) {
            fill_logits(row, VOCAB, 100 + (uint64_t)round);
            for (int i = 0; i < VOCAB; i++) row[i] = roundf(row[i] * 8) / 8;
            row[suppressed[round % 4]] = 20;
            take_pairs(row, VOCAB, pairs, PAIRS);
            assert_int_equal(sample_pick_best(a, pairs, PAIRS), sample_pick(b, row));
        }
        sample_close(a);
        sample_close(b);
    }
}

/* Penalties of an answer that says the best ids again and again: the pairs are enough nearly
 * always, and say so when they are not. */
static void test_best_pairs_are_enough_with_penalties(void **state)
{
    (void)state;
    enum { VOCAB = 3000, PAIRS = 128, ROUNDS = 300 };
    static float row[VOCAB];
    static struct logit_pair pairs[PAIRS];
    static const struct carat_sampling ways[] = {
        {.temperature = 0, .top_p = 1, .repeat_penalty = 1.1f},
        {.temperature = 1, .top_k = 40, .top_p = 0.95f, .repeat_penalty = 1.3f, .seed = 3},
        {.temperature = 1, .top_k = 64, .top_p = 1, .presence_penalty = 1.5f, .seed = 5},
        {.temperature = 0.5f, .top_k = 20, .frequency_penalty = 0.25f, .repeat_last_n = -1},
        {.temperature = 2, .top_k = 120, .top_p = 1, .presence_penalty = 20}, /* most are wanted */
    };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct sampler *a = open_sampler(ways[w], VOCAB), *b = open_sampler(ways[w], VOCAB);
        int n_undecided = 0;
        assert_true(sample_takes_best(a, PAIRS));
        for (int round = 0; round < ROUNDS; round++) {
            fill_logits(row, VOCAB, 100 + (uint64_t)(round % 3));
            for (int i = 0; i < VOCAB; i++) row[i] = roundf(row[i] * 16) / 16 - (round % 2 ? 9 : 0);
            take_pairs(row, VOCAB, pairs, PAIRS);
            int32_t id = sample_pick_best(a, pairs, PAIRS), expected = sample_pick(b, row);
            if (id == SAMPLE_UNDECIDED) {
                n_undecided++;
                id = sample_pick(a, row);
            }
            assert_int_equal(id, expected);
            sample_accept(a, id);
            sample_accept(b, id);
        }
        print_message("way %zu: %d of %d undecided\n", w, n_undecided, ROUNDS);
        assert_true(ways[w].top_k == 120 ? n_undecided > ROUNDS / 2 : n_undecided < ROUNDS / 20);
        sample_close(a);
        sample_close(b);
    }
}

static void test_best_pairs_are_refused_where_they_are_not_enough(void **state)
{
    (void)state;
    static const struct carat_sampling ways[] = {
        {.temperature = 1, .top_p = 1, .repeat_penalty = 1},               /* all */
        {.temperature = 1, .top_k = 129, .top_p = 1, .repeat_penalty = 1}, /* more */
        {.temperature = 1, .top_k = 9, .top_p = 1, .repeat_penalty = 0.9f, .repeat_last_n = 4},
        {.temperature = 1, .top_k = 9, .top_p = 1, .presence_penalty = -0.1f},
    };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct sampler *s = open_sampler(ways[w], 1000);
        assert_false(sample_takes_best(s, 128));
        sample_close(s);
    }
    struct sampler *s = open_sampler(plain(), 1000);
    assert_false(sample_takes_best(s, 0));
    struct logit_pair bad[2] = {{5, NAN}, {6, 1}}, none[1] = {{5, -INFINITY}};
    assert_int_equal(sample_pick_best(s, bad, 2), -1);
    bad[0].logit = INFINITY;
    assert_int_equal(sample_pick_best(s, bad, 2), -1);
    assert_int_equal(sample_pick_best(s, none, 1), -1);
    sample_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_repeatable),
        cmocka_unit_test(test_logprob),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_speed),
        cmocka_unit_test(test_best_pairs_pick_what_the_row_picks),
        cmocka_unit_test(test_best_pairs_are_enough_with_penalties),
        cmocka_unit_test(test_best_pairs_are_refused_where_they_are_not_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
