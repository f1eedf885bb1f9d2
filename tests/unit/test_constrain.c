/* Sampling within a grammar has the distribution of masking first: exactly, by searching the random
 * numbers at which the picked id changes, and by frequencies; for rows and for best pairs. */
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
#include "engine/constrain.h"
#include "support/grammars.h"

enum { N = 14, CASES = 600 };

/* ---- What the distribution has to be ---------------------------------------------------- */

struct situation {
    float logits[N];
    bool is_allowed[N];
    struct carat_sampling sampling;
};

static int compare_pairs(const void *left, const void *right)
{
    const struct logit_pair *a = left, *b = right;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Mask, sort, top-k, temperature, top-p, min-p, in that order and without any short cut. */
static void reference(const struct situation *s, double out[N])
{
    struct logit_pair pairs[N];
    double weights[N], sum = 0.0, held = 0.0;
    int n = 0, kept = 0;
    for (int i = 0; i < N; i++) {
        out[i] = 0.0;
        if (s->is_allowed[i]) pairs[n++] = (struct logit_pair){.logit = s->logits[i], .id = i};
    }
    qsort(pairs, (size_t)n, sizeof *pairs, compare_pairs);
    if (s->sampling.temperature == 0.0f) {
        out[pairs[0].id] = 1.0;
        return;
    }
    if (s->sampling.top_k && s->sampling.top_k < n) n = s->sampling.top_k;
    for (int i = 0; i < n; i++) {
        weights[i] = exp(((double)pairs[i].logit - (double)pairs[0].logit) /
                         (double)s->sampling.temperature);
        sum += weights[i];
    }
    double top_p = s->sampling.top_p == 0.0f ? 1.0 : (double)s->sampling.top_p;
    while (kept < n && (kept == 0 || weights[kept] >= (double)s->sampling.min_p)) {
        held += weights[kept++];
        if (top_p < 1.0 && held >= top_p * sum) break;
    }
    for (int i = 0; i < kept; i++) out[pairs[i].id] = weights[i] / held;
}

/* ---- Random numbers that are chosen ----------------------------------------------------- */

static uint64_t undo_shift(uint64_t x, int shift)
{
    uint64_t y = x;
    for (int done = shift; done < 64; done += shift) y = x ^ y >> shift;
    return y;
}

/* The seed whose first random number is (about) u. */
static uint64_t seed_for(double u)
{
    uint64_t z = (uint64_t)(u * 0x1p53) << 11;
    z = undo_shift(z, 31) * 0x319642B2D24D8EC3u;
    z = undo_shift(z, 27) * 0x96DE1B173F119089u;
    return undo_shift(z, 30) - 0x9E3779B97F4A7C15u;
}

/* What a sampler is told, and what it asked about last. */
struct asked {
    const bool *is_allowed;
    int32_t last;
};

static bool is_allowed(void *user, int32_t id)
{
    struct asked *a = user;
    a->last = id;
    return a->is_allowed[id];
}

enum { LISTED = 1000 };

static int32_t pick_listed(const struct situation *s, struct sampler *sampler)
{
    int32_t ids[N], n = 0;
    for (int32_t i = 0; i < N; i++)
        if (s->is_allowed[i]) ids[n++] = i;
    return sample_pick_listed(sampler, s->logits, ids, n);
}

/* One pick with the random number u. n_best < 0: from the row; 0: from the masked row; LISTED: from
 * a list of all allowed ids. Undecided
 * picks give -1 - the last id that was asked about: so each answer belongs to one stretch of u. */
static int32_t pick(const struct situation *s, double u, int n_best)
{
    struct sampler_options o = {.n_vocab = N, .sampling = s->sampling, .is_bound = true};
    struct sampler *sampler;
    struct carat_error err;
    struct logit_pair best[N];
    struct asked asked = {.is_allowed = s->is_allowed};
    int32_t id;
    o.sampling.seed = seed_for(u);
    assert_int_equal(sample_open(&sampler, &o, &err), CARAT_OK);
    if (n_best == 0) {
        float row[N];
        for (int i = 0; i < N; i++) row[i] = s->is_allowed[i] ? s->logits[i] : -INFINITY;
        id = sample_pick(sampler, row);
    } else if (n_best == LISTED) {
        id = pick_listed(s, sampler);
    } else if (n_best < 0) {
        id = sample_pick_allowed(sampler, s->logits, is_allowed, &asked);
    } else {
        for (int i = 0; i < N; i++) best[i] = (struct logit_pair){.logit = s->logits[i], .id = i};
        qsort(best, N, sizeof *best, compare_pairs);
        id = sample_pick_best_allowed(sampler, best, n_best, is_allowed, &asked);
    }
    sample_close(sampler);
    return id == SAMPLE_UNDECIDED ? -1 - asked.last : id;
}

/* Adds the lengths of the stretches of (low, high) in which an id is picked; out[N]: undecided. */
static void measure(const struct situation *s, int n_best, double low, double high, int32_t at_low,
                    int32_t at_high, double out[N + 1])
{
    if (at_low == at_high || high - low < 1e-9) {
        out[at_low < 0 ? N : at_low] += (high - low) / 2;
        out[at_high < 0 ? N : at_high] += (high - low) / 2;
        return;
    }
    double middle = (low + high) / 2;
    int32_t at_middle = pick(s, middle, n_best);
    measure(s, n_best, low, middle, at_low, at_middle, out);
    measure(s, n_best, middle, high, at_middle, at_high, out);
}

static void distribution(const struct situation *s, int n_best, double out[N + 1])
{
    enum { GRID = 8 };
    int32_t before = pick(s, 0.0, n_best);
    for (int i = 0; i <= N; i++) out[i] = 0.0;
    for (int i = 1; i <= GRID; i++) {
        int32_t now = pick(s, i == GRID ? 1.0 - 0x1p-53 : (double)i / GRID, n_best);
        measure(s, n_best, (double)(i - 1) / GRID, (double)i / GRID, before, now, out);
        before = now;
    }
}

static void draw_situation(struct rng *r, struct situation *s)
{
    static const float temperatures[] = {1.0f, 0.7f, 2.0f, 0.0f};
    static const float top_ps[] = {0.0f, 0.95f, 0.5f, 0.8f};
    static const float min_ps[] = {0.0f, 0.0f, 0.1f, 0.3f};
    bool has_any = false;
    float spread = 0.5f + 3.0f * (float)rng_unit(r);
    for (int i = 0; i < N; i++) s->logits[i] = spread * rng_normal(r);
    if (rng_below(r, 4) == 0) s->logits[3] = s->logits[7]; /* equal ones */
    while (!has_any) {
        uint32_t share = 1 + rng_below(r, 8);
        for (int i = 0; i < N; i++) has_any |= s->is_allowed[i] = rng_below(r, 8) < share;
    }
    s->sampling = (struct carat_sampling){.temperature = temperatures[rng_below(r, 4)],
                                          .top_k = rng_below(r, 3) ? (int)rng_below(r, 10) : 0,
                                          .top_p = top_ps[rng_below(r, 4)],
                                          .min_p = min_ps[rng_below(r, 4)]};
}

static void check_equal(const struct situation *s, const double found[N + 1],
                        const double masked[N + 1], const double expected[N], int number)
{
    for (int i = 0; i < N; i++) {
        double p = found[i] + found[N] * masked[i];
        if (fabs(p - expected[i]) < 1e-6) continue;
        fail_msg("case %d, top_k %d, top_p %g, min_p %g, temperature %g: id %d: %.9f, not %.9f",
                 number, s->sampling.top_k, (double)s->sampling.top_p, (double)s->sampling.min_p,
                 (double)s->sampling.temperature, i, p, expected[i]);
    }
}

/* First draw plus, where it is undecided, the draw from the masked row: equal to 1e-6. */
static void test_exact(void **state)
{
    (void)state;
    struct rng r = {.state = 21};
    int n_decided = 0, n_best_decided = 0;
    print_message("seed 21\n");
    for (int number = 0; number < CASES; number++) {
        struct situation s;
        double expected[N], masked[N + 1], by_row[N + 1], by_best[N + 1];
        draw_situation(&r, &s);
        reference(&s, expected);
        distribution(&s, 0, masked);
        check_equal(&s, masked, masked, expected, number);
        distribution(&s, LISTED, by_row);
        check_equal(&s, by_row, masked, expected, number);
        distribution(&s, -1, by_row);
        check_equal(&s, by_row, masked, expected, number);
        n_decided += by_row[N] < 1e-9;
        int n_best = 1 + (int)rng_below(&r, N);
        if (s.sampling.top_k == 0 && s.sampling.temperature > 0.0f) continue;
        if (n_best < s.sampling.top_k) n_best = s.sampling.top_k;
        distribution(&s, n_best, by_best);
        check_equal(&s, by_best, masked, expected, number);
        n_best_decided += by_best[N] < 1e-9;
    }
    print_message("%d of %d decided without a mask, from best pairs %d\n", n_decided, CASES,
                  n_best_decided);
    assert_true(n_decided > CASES / 3);
}

/* ---- With a grammar --------------------------------------------------------------------- */

static struct grammar_fixture f;

static int open_fixture(void **state)
{
    (void)state;
    grammar_fixture_open(&f, 1024);
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    grammar_fixture_deinit(&f);
    return 0;
}

struct run {
    carat_grammar *g;
    struct constraint *c;
    struct sampler *s;
};

static void open_run(struct run *run, const char *grammar, struct carat_sampling sampling)
{
    struct sampler_options o = {.n_vocab = 1024, .sampling = sampling, .is_bound = true};
    struct carat_error err = {0};
    if (gbnf_open(&run->g, &f, grammar, strlen(grammar), &err)) fail_msg("%s", err.message);
    assert_int_equal(constrain_open(&run->c, run->g, NULL, 0, 1024, &err), CARAT_OK);
    assert_int_equal(sample_open(&run->s, &o, &err), CARAT_OK);
}

static void close_run(struct run *run)
{
    sample_close(run->s);
    constrain_close(run->c);
    grammar_close(run->g);
}

/* Frequencies of the first token over 40,000 draws from one stream of random numbers. */
static void test_frequencies(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    static const struct carat_sampling kinds[] = {
        {.temperature = 1.0f, .seed = 3},
        {.temperature = 1.0f, .top_k = 64, .top_p = 0.95f, .seed = 4},
        {.temperature = 1.5f, .top_k = 20, .min_p = 0.05f, .seed = 5},
    };
    float row[1024];
    int32_t a = vocab_byte(f.text.v, 'a');
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct run run;
        double weights[4] = {0}, sum = 0.0;
        int counts[4] = {0};
        open_run(&run, "root ::= [a-d] [x-z]", kinds[k]);
        for (int i = 0; i < 1024; i++) row[i] = (float)((i * 37) % 101) / 40.0f - 3.0f;
        for (int i = 0; i < 4; i++) row[a + i] = 3.0f - 0.6f * (float)i;
        for (int32_t id = 0; id < 1024; id++) { /* only the four byte tokens can be picked */
            size_t n;
            const char *piece = vocab_piece(f.text.v, id, &n);
            if (piece[0] >= 'a' && piece[0] <= 'd' && n <= 2) row[id] = -INFINITY;
        }
        row[100] = -INFINITY; /* no thoughts */
        for (int i = 0; i < 4; i++)
            sum += weights[i] = exp((double)row[a + i] / (double)kinds[k].temperature);
        for (int i = 0; i < DRAWS; i++) {
            int32_t id = constrain_pick(run.c, run.s, NULL, row);
            assert_in_range(id, a, a + 3);
            counts[id - a]++;
        }
        for (int i = 0; i < 4; i++) {
            double p = weights[i] / sum, error = sqrt(p * (1 - p) / DRAWS);
            print_message("%.4f expected, %.4f found\n", p, (double)counts[i] / DRAWS);
            assert_true(fabs(counts[i] / (double)DRAWS - p) < 4.5 * error);
        }
        close_run(&run);
    }
}

/* Masks are computed while the device works, as far as there is time: that changes no answer. */
static void a_seed_gives_one_answer_whatever_is_known_when(void **state)
{
    (void)state;
    static const struct carat_sampling kinds[] = {
        {.temperature = 1.0f},
        {.temperature = 1.0f, .top_p = 0.9f},
        {.temperature = 1.0f, .top_k = 64, .top_p = 0.95f},
        {.temperature = 2.0f, .top_k = 20, .min_p = 0.05f},
        {.temperature = 1.5f, .top_k = 64, .repeat_penalty = 1.2f},
        {.temperature = 1.5f, .top_k = 64, .dry_multiplier = 2, .dry_allowed_length = 1},
        {.temperature = 1.0f, .typical_p = 0.7f},
        {.temperature = 1.0f, .top_n_sigma = 0.8f, .top_k = 64},
        {.temperature = 1.0f, .xtc_probability = 0.5f, .xtc_threshold = 0.02f},
        {.temperature = 1.0f, .top_k = 20, .dynatemp_range = 0.9f, .xtc_probability = 1},
        {.temperature = 1.0f, .mirostat = 2, .mirostat_tau = 3},
        {.temperature = 1.5f, .top_k = 64, .top_p = 0.9f, .samplers = "edskypmxt"},
        {.temperature = 1.5f,
         .top_k = 20,
         .top_p = 0.9f,
         .repeat_penalty = 1.2f,
         .samplers = "tpek"},
    };
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct rng r = {.state = 77};
    float row[1024];
    for (int i = 0; i < 100 * KINDS; i++) {
        struct carat_sampling sampling = kinds[i % KINDS];
        struct run runs[2];
        sampling.seed = (uint64_t)i;
        for (int k = 0; k < 2; k++) open_run(&runs[k], "root ::= [a-z0-9 ]{24}", sampling);
        for (int step = 0; step < 24; step++) {
            for (int j = 0; j < 1024; j++) row[j] = (float)(rng_unit(&r) * 6.0);
            row[100] = -INFINITY; /* no thoughts */
            constrain_mask(runs[0].c, runs[0].s, 128);
            if (i % 2) constrain_mask(runs[step % 2].c, runs[step % 2].s, 128);
            int32_t known = constrain_pick(runs[0].c, runs[0].s, NULL, row);
            assert_int_equal(constrain_pick(runs[1].c, runs[1].s, NULL, row), known);
            if (known == 106 || known == 1 || known == 50) break;
            for (int k = 0; k < 2; k++) {
                constrain_accept(runs[k].c, known);
                sample_accept(runs[k].s, known);
            }
        }
        for (int k = 0; k < 2; k++) close_run(&runs[k]);
    }
}

static void test_run(void **state)
{
    (void)state;
    static const char *const expected = "{\"a\":1}";
    struct run run;
    float row[1024];
    struct buf text = {0};
    open_run(&run, "root ::= \"{\\\"a\\\":\" [0-9] \"}\"", (struct carat_sampling){0});
    for (int i = 0; i < 1024; i++) row[i] = (float)(i % 7);
    row[vocab_byte(f.text.v, '1')] = 9.0f;
    for (int step = 0; step < 20; step++) {
        assert_non_null(constrain_mask(run.c, run.s, 128));
        row[106] = 8.0f; /* the model would like to stop */
        row[100] = -20.0f;
        int32_t id = constrain_pick(run.c, run.s, NULL, row);
        assert_true(id >= 0);
        if (id == 106 || id == 1 || id == 50) break;
        constrain_accept(run.c, id);
        add_token_text(&f, id, &text);
    }
    assert_string_equal(buf_text(&text), expected);
    buf_deinit(&text);
    /* What no grammar allows is not picked, and says why. */
    constrain_accept(run.c, 600);
    assert_int_equal(constrain_pick(run.c, run.s, NULL, row), -1);
    assert_string_not_equal(constrain_problem(run.c, "other"), "other");
    close_run(&run);
    assert_string_equal(constrain_problem(NULL, "other"), "other");
}

/* A row with NaN ends the request, also where the mask would hide it. */
static void test_bad_rows(void **state)
{
    (void)state;
    struct run run;
    float row[1024] = {0};
    struct carat_error err;
    open_run(&run, "root ::= \"a\"", (struct carat_sampling){.temperature = 1.0f, .top_k = 3});
    row[600] = NAN;
    assert_int_equal(constrain_pick(run.c, run.s, NULL, row), -1);
    row[600] = INFINITY;
    assert_int_equal(constrain_pick(run.c, run.s, NULL, row), -1);
    for (int i = 0; i < 1024; i++) row[i] = -INFINITY;
    row[5] = 1.0f;
    assert_int_equal(constrain_pick(run.c, run.s, NULL, row), -1);
    close_run(&run);
    struct constraint *none;
    assert_int_equal(constrain_open(&none, NULL, NULL, 0, 1024, &err), CARAT_OK);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(a_seed_gives_one_answer_whatever_is_known_when),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_bad_rows),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
