/* On a device that searches within masks, requests with a grammar get the ids that they get from
 * whole rows; and no row is copied where what the device finds is enough. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "support/answers.h"

/* ---- A device that searches -------------------------------------------------------------- */

enum { N_BEST = 40, PROGRAMS_MAX = 64, ROWS_MAX = 80, N_CTX = 128 };

static struct backend searching;
static struct {
    struct program *program;
    const struct plan *plan;
    const char *memory;
} bound[PROGRAMS_MAX];
static int n_bound, n_searches, n_copies;
static struct logit_pair pairs[ROWS_MAX][TINY_VOCABULARY];
static bool is_searched[ROWS_MAX];

static int keep_bound(struct device *device, const struct plan *plan,
                      const struct placement *placement, void *memory, void *work,
                      struct program **out, struct carat_error *err)
{
    int status = cpu_backend.bind(device, plan, placement, memory, work, out, err);
    assert_in_range(n_bound, 0, PROGRAMS_MAX - 1);
    bound[n_bound].program = *out;
    bound[n_bound].plan = plan;
    bound[n_bound++].memory = memory;
    return status;
}

static const float *logits_of(const struct program *program, int32_t row)
{
    int i = n_bound - 1; /* programs of engines that are closed come before */
    while (bound[i].program != program) i--;
    const struct plan *plan = bound[i].plan;
    const char *at = bound[i].memory + plan_buf_at(plan, plan->logits)->offset;
    return (const float *)(const void *)at + (size_t)row * TINY_VOCABULARY;
}

static int falling(const void *left, const void *right)
{
    const struct logit_pair *a = left, *b = right;
    if (a->logit < b->logit || a->logit > b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void search(const struct program *program, int32_t row, const uint64_t *mask)
{
    const float *logits = logits_of(program, row);
    for (int32_t id = 0; id < TINY_VOCABULARY; id++) {
        bool is_there = !mask || (mask[id / 64] >> id % 64 & 1);
        pairs[row][id].id = is_there ? id : -1;
        pairs[row][id].logit = is_there ? logits[id] : -INFINITY;
    }
    qsort(pairs[row], TINY_VOCABULARY, sizeof *pairs[row], falling);
}

static void forget_and_run(struct program *program, const struct step *step)
{
    cpu_backend.run(program, step);
    memset(is_searched, 0, sizeof is_searched);
}

static void search_masks(struct program *program, int32_t n, const int32_t *rows,
                         const uint64_t *masks)
{
    assert_in_range(n, 1, MASKS_MAX);
    for (int32_t i = 0; i < n; i++) {
        search(program, rows[i], masks + (size_t)i * (TINY_VOCABULARY / 64));
        is_searched[rows[i]] = true;
    }
    n_searches++;
}

static int give_best(struct program *program, int32_t row, const struct logit_pair **out)
{
    if (!is_searched[row]) search(program, row, NULL);
    *out = pairs[row];
    return N_BEST;
}

static void count_copy(struct device *device, void *host, const void *memory, size_t bytes)
{
    n_copies += bytes == TINY_VOCABULARY * sizeof(float);
    cpu_backend.download(device, host, memory, bytes);
}

/* The linker puts this in front of the registry (see tests/CMakeLists.txt). */
int __real_backend_find(const struct backend **out, const char *name, struct carat_error *err);
int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err);

int __wrap_backend_find(const struct backend **out, const char *name, struct carat_error *err)
{
    if (strcmp(name, "searching") != 0) return __real_backend_find(out, name, err);
    searching = cpu_backend;
    searching.bind = keep_bound;
    searching.run = forget_and_run;
    searching.best = give_best;
    searching.n_best = N_BEST;
    searching.best_allowed = search_masks;
    searching.download = count_copy;
    *out = &searching;
    return CARAT_OK;
}

/* ---- Requests ---------------------------------------------------------------------------- */

static carat_engine *open_on(const char *backend, int32_t n_seq)
{
    struct carat_engine_options o = {
        .backend = backend, .n_ctx = N_CTX, .n_seq = n_seq, .n_threads = 1, .max_itl_ms = 1e9};
    n_bound = n_searches = n_copies = 0;
    return open_engine(models[GEMMA_E4B], &o);
}

/* Has states with a few allowed ids and others with hundreds. */
static const char text[] =
    "root ::= (\"yes\" | \"no\") \", \" [a-zA-Z0-9 ,.]{12,30} \"!\" [0-9]{2}";

static carat_grammar *open_grammar(void)
{
    carat_grammar *g;
    struct carat_error err = {0};
    if (carat_grammar_open_gbnf(&g, models[GEMMA_E4B], text, sizeof text - 1, &err))
        fail_msg("%s", err.message);
    return g;
}

static void ban_odd(void *user, const int32_t *ids, size_t n_ids, float *logits, int32_t n_vocab)
{
    (void)user, (void)ids, (void)n_ids;
    for (int32_t i = 1; i < n_vocab; i += 2) logits[i] -= 5.0f;
}

enum { N_KINDS = 18, N_EASY = 4 }; /* the first ones never need a row */

static bool is_easy(int kind)
{
    return kind < N_EASY || kind == 10 || kind == 11;
}

static struct carat_request request_of(const carat_grammar *g, const int32_t *prompt, int kind,
                                       uint64_t seed)
{
    static const struct carat_sampling kinds[N_KINDS] = {
        {.temperature = 0},
        {.temperature = 1, .top_k = 20, .top_p = 0.95f},
        {.temperature = 2, .top_k = 37},
        {.temperature = 1.5f, .top_k = 3, .min_p = 0.1f},
        {.temperature = 1},
        {.temperature = 1, .top_p = 0.9f},
        {.temperature = 1, .top_k = 200},
        {.temperature = 1, .top_k = 10, .repeat_penalty = 1.3f},
        {.temperature = 1, .top_k = 10},
        {.temperature = 0},
        {.temperature = 1, .top_k = 20, .typical_p = 0.7f, .xtc_probability = 0.5f},
        {.temperature = 1, .top_k = 20, .dynatemp_range = 0.9f, .top_p = 0.9f},
        {.temperature = 1, .top_k = 10, .dry_multiplier = 1, .dry_allowed_length = 1},
        {.temperature = 1, .top_k = 20, .top_n_sigma = 1},
        {.temperature = 1, .mirostat = 2, .mirostat_tau = 3},
        {.temperature = 1, .typical_p = 0.7f, .xtc_probability = 0.5f, .xtc_threshold = 0.02f},
        {.temperature = 2, .top_k = 20, .top_p = 0.9f, .samplers = "edskypmxt"},
        {.temperature = 2, .top_k = 9, .top_p = 0.9f, .repeat_penalty = 2, .samplers = "tpek"},
    };
    static const struct carat_logit_bias bias = {.id = 300, .bias = 3};
    struct carat_request r = greedy_request(prompt, 5 + seed % 7, 60);
    r.sampling = kinds[kind];
    r.sampling.seed = seed;
    r.ignore_stop = false;
    r.want_logprob = kind == 9;
    r.n_top_logprobs = 0;
    r.grammar = g;
    if (kind == 7) r.bias = &bias, r.n_bias = 1;
    if (kind == 8) r.on_logits = ban_odd;
    return r;
}

static void check_equal(const struct answer *a, const struct answer *b, int kind)
{
    bool is_same = a->n == b->n && a->done.finish == b->done.finish &&
                   memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0;
    if (!is_same) fail_msg("kind %d: %d ids and %d", kind, a->n, b->n);
    assert_true(a->done.finish != CARAT_FINISH_ERROR);
}

static void ids_are_those_of_whole_rows(void **state)
{
    (void)state;
    int32_t prompt[16];
    carat_grammar *g = open_grammar();
    draw_ids(5, prompt, 16);
    carat_engine *rows = open_on("cpu", 1), *masks = open_on("searching", 1);
    for (int kind = 0; kind < N_KINDS; kind++) {
        n_copies = n_searches = 0;
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct carat_request r = request_of(seed > 4 ? NULL : g, prompt, kind, seed);
            struct answer a = ask(rows, &r), b = ask(masks, &r);
            check_equal(&a, &b, kind);
        }
        print_message("kind %d: %d searches, %d rows\n", kind, n_searches, n_copies);
        if (is_easy(kind)) assert_int_equal(n_copies, 0);
        bool draws_first = kind == 4; /* from the whole row: it is needed anyway */
        bool has_own_row = kind == 8 || kind == 9;
        assert_int_equal(n_searches > 0, !has_own_row && !draws_first);
    }
    carat_engine_close(rows);
    carat_engine_close(masks);
    carat_grammar_close(g);
}

/* More rows than one search takes, some without a grammar. */
static void many_sequences_take_several_searches(void **state)
{
    (void)state;
    enum { N = MASKS_MAX + 9 };
    static struct answer a[N], b[N];
    int32_t prompt[16];
    carat_grammar *g = open_grammar();
    draw_ids(6, prompt, 16);
    struct answer *answers[] = {a, b};
    for (int k = 0; k < 2; k++) {
        carat_engine *e = open_on(k ? "searching" : "cpu", N);
        memset(answers[k], 0, sizeof a);
        for (int i = 0; i < N; i++) {
            struct carat_request r = request_of(i % 24 ? g : NULL, prompt, i % 4, (uint64_t)i + 1);
            answers[k][i].request = submit(e, &r);
        }
        run_all(e, answers[k], N);
        carat_engine_close(e);
    }
    print_message("%d searches, %d rows\n", n_searches, n_copies); /* slow machines search less */
    assert_true(n_searches > 0);
    for (int i = 0; i < N; i++) check_equal(&a[i], &b[i], i % 4);
    carat_grammar_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_whole_rows),
        cmocka_unit_test(many_sequences_take_several_searches),
    };
    return cmocka_run_group_tests_name("masks", tests, open_models, close_models);
}
