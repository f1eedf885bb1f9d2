/* carat bench: llama-bench's tests, columns and keys, so that scripts made for it read ours.
 *
 * A test is (prompt, generated, depth, users) on one engine setting. Its rate counts the prompt and
 * generated tokens of all users; the context of `depth` tokens is read before the clock starts. */
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "carat_inspect.h"
#include "cli/bench_models.h"
#include "cli/bench_output.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/terminal.h"

enum { TESTS_MAX = 4096 };

/* ---- Tests ------------------------------------------------------------------------------ */

struct plan_of_tests {
    struct bench_test *tests; /* TESTS_MAX */
    size_t n;
};

static void add_test(struct plan_of_tests *p, int32_t n_prompt, int32_t n_gen, int32_t depth,
                     int32_t users, const struct bench_setting *setting)
{
    if (p->n == TESTS_MAX || (n_prompt == 0 && n_gen == 0)) return;
    p->tests[p->n++] = (struct bench_test){
        .n_prompt = n_prompt,
        .n_gen = n_gen,
        .depth = depth,
        .users = users,
        .setting = *setting,
    };
}

struct lists {
    struct bench_numbers prompt, gen, depth, users;
    struct bench_settings settings;
};

static int read_lists(const struct options *o, struct lists *l, struct carat_error *err)
{
    TRY(bench_read_numbers(o, OPT_BENCH_PROMPT, &l->prompt, err));
    TRY(bench_read_numbers(o, OPT_BENCH_GEN, &l->gen, err));
    TRY(bench_read_numbers(o, OPT_BENCH_DEPTH, &l->depth, err));
    TRY(bench_read_numbers(o, OPT_BENCH_USERS, &l->users, err));
    TRY(bench_read_settings(o, &l->settings, err));
    for (size_t i = 0; i < l->users.n; i++)
        if (l->users.at[i] < 1) return err_set(err, CARAT_EUSAGE, "--users: at least 1 expected");
    return CARAT_OK;
}

/* The tests of one setting, in llama-bench's order: for each depth prompts, then generation. */
static int add_tests(struct plan_of_tests *p, const struct options *o, const struct lists *l,
                     const struct bench_setting *setting, struct carat_error *err)
{
    const struct option_value *pairs = &o->values[OPT_BENCH_PAIR];
    for (size_t d = 0; d < l->depth.n; d++) {
        for (size_t u = 0; u < l->users.n; u++) {
            int32_t depth = l->depth.at[d], users = l->users.at[u];
            for (size_t i = 0; i < l->prompt.n; i++)
                add_test(p, l->prompt.at[i], 0, depth, users, setting);
            for (size_t i = 0; i < l->gen.n; i++)
                add_test(p, 0, l->gen.at[i], depth, users, setting);
            for (size_t i = 0; i < pairs->n_list; i++) {
                int64_t n_prompt, n_gen;
                const char *at = pairs->list[i];
                bool is_pair = bench_read_count(&at, &n_prompt) && *at++ == ',' &&
                               bench_read_count(&at, &n_gen) && *at == '\0';
                if (!is_pair)
                    return err_set(err, CARAT_EUSAGE, "--pg: \"%s\" is not P,G", pairs->list[i]);
                add_test(p, (int32_t)n_prompt, (int32_t)n_gen, depth, users, setting);
            }
        }
    }
    return CARAT_OK;
}

static int make_tests(struct plan_of_tests *p, const struct options *o, struct carat_error *err)
{
    struct lists l;
    TRY(read_lists(o, &l, err));
    for (size_t i = 0; i < l.settings.n && p->n < TESTS_MAX; i++) {
        struct bench_setting setting = bench_setting_at(o, &l.settings, i);
        TRY(add_tests(p, o, &l, &setting, err));
    }
    if (p->n == 0) return err_set(err, CARAT_EUSAGE, "bench: there is nothing to measure");
    if (p->n == TESTS_MAX)
        return err_set(err, CARAT_EUSAGE, "bench: more than %d tests", TESTS_MAX - 1);
    return CARAT_OK;
}

/* ---- Measuring -------------------------------------------------------------------------- */

static bool is_same_engine(const struct bench_test *a, const struct bench_test *b)
{
    const struct bench_setting *x = &a->setting, *y = &b->setting;
    return x->chunk == y->chunk && x->threads == y->threads && x->gpu_layers == y->gpu_layers &&
           x->cpu_experts == y->cpu_experts && strcmp(x->kv_type, y->kv_type) == 0;
}

/* By default only for people: programs get more columns only when they ask for them. */
static bool wants_limits(const struct options *o)
{
    bool is_default = !opt_is_set(o, OPT_NO_ROOFLINE) && !opt_is_set(o, OPT_QUIET) &&
                      strcmp(opt_text(o, OPT_BENCH_FORMAT), "md") == 0;
    return is_default || opt_is_set(o, OPT_ROOFLINE);
}

/* One engine for all tests of a setting: room for the longest and the most users. */
static int open_engine(struct session *s, const struct options *o, const struct plan_of_tests *p,
                       size_t first, struct carat_error *err)
{
    const struct bench_setting *setting = &p->tests[first].setting;
    struct carat_engine_options options = bench_engine_options(o, setting);
    options.n_ctx = context_for(s->model, 1);
    for (size_t i = first; i < p->n && is_same_engine(&p->tests[first], &p->tests[i]); i++) {
        const struct bench_test *t = &p->tests[i];
        int32_t positions = t->depth + t->n_prompt + t->n_gen + 1;
        if (positions > options.n_ctx) options.n_ctx = positions;
        if (t->users > options.n_seq) options.n_seq = t->users;
    }
    options.measure_limits = wants_limits(o) && s->limit_threads != setting->threads;
    if (s->engine && opt_is_set(o, OPT_PROFILE)) session_print_profile(s);
    if (s->engine) carat_engine_close(s->engine);
    s->engine = NULL;
    return session_start(s, &options, err);
}

static int measure_test(struct session *s, const struct options *o, struct bench_test *t,
                        size_t index, size_t total, struct carat_error *err)
{
    struct carat_measure what = {t->n_prompt, t->n_gen, t->depth, t->users};
    char name[64], label[128];
    bench_test_name(t, name, sizeof name);
    snprintf(label, sizeof label, "test %zu of %zu: %s, run", index + 1, total, name);
    double seconds;
    if (!opt_is_set(o, OPT_NO_WARMUP)) {
        struct carat_measure warmup = {t->n_prompt ? t->n_prompt : 0, t->n_prompt ? 0 : 1, 0,
                                       t->users};
        progress(label, 0, (int)opt_int(o, OPT_REPETITIONS));
        TRY(carat_measure(s->engine, &warmup, &seconds, err));
    }
    calendar_utc(time(NULL), t->test_time);
    for (t->n_samples = 0; t->n_samples < (int)opt_int(o, OPT_REPETITIONS); t->n_samples++) {
        progress(label, t->n_samples + 1, (int)opt_int(o, OPT_REPETITIONS));
        TRY(carat_measure(s->engine, &what, &seconds, err));
        t->samples_ns[t->n_samples] = (int64_t)(seconds * 1e9 + 0.5);
    }
    progress_end();
    carat_measure_work(s->engine, &what, &t->work);
    if (!wants_limits(o)) return CARAT_OK;
    int status = CARAT_OK;
    if (s->limit_threads != t->setting.threads) {
        status = carat_measure_roofline(s->engine, &s->limit, err);
        s->limit_threads = t->setting.threads;
    }
    t->limit = s->limit;
    return opt_is_set(o, OPT_ROOFLINE) ? status : CARAT_OK; /* by default limits are optional */
}

/* The outputs of one run: standard output, and --format-err. */
struct outputs {
    struct bench_output at[2];
    int n;
};

static void begin_outputs(struct outputs *out, const struct options *o,
                          const struct plan_of_tests *p)
{
    struct bench_columns columns;
    bench_columns_choose(&columns, p->tests, p->n);
    columns.has[BENCH_COLUMN_THREADS] |= opt_is_set(o, OPT_BENCH_THREADS);
    columns.has[BENCH_COLUMN_BATCH] |= opt_is_set(o, OPT_BENCH_BATCH);
    columns.has[BENCH_COLUMN_CHUNK] |= opt_is_set(o, OPT_BENCH_CHUNK);
    columns.has[BENCH_COLUMN_USERS] |= opt_is_set(o, OPT_BENCH_USERS);
    columns.has[BENCH_COLUMN_EXPERTS] |= opt_is_set(o, OPT_BENCH_CPU_EXPERTS);
    columns.has[BENCH_COLUMN_LAYERS] |=
        opt_is_set(o, OPT_BENCH_GPU_LAYERS) || strcmp(session_backend(o), "cuda") == 0;
    columns.has[BENCH_COLUMN_KV] |= opt_is_set(o, OPT_BENCH_KV) || opt_is_set(o, OPT_BENCH_KEYS) ||
                                    opt_is_set(o, OPT_BENCH_VALUES);
    *out = (struct outputs){.n = 1};
    bench_output_begin(&out->at[0], opt_text(o, OPT_BENCH_FORMAT), false, &columns);
    if (strcmp(opt_text(o, OPT_BENCH_ERR_FORMAT), "none") == 0) return;
    bench_output_begin(&out->at[out->n++], opt_text(o, OPT_BENCH_ERR_FORMAT), true, &columns);
}

/* What bench_each_model calls for each model. */
struct run {
    const struct options *options;
    struct plan_of_tests *tests;
    struct outputs outputs;
};

static void begin_run(void *user)
{
    struct run *run = user;
    begin_outputs(&run->outputs, run->options, run->tests);
}

static int measure_model(void *user, struct session *s, struct carat_error *err)
{
    struct run *run = user;
    const struct options *o = run->options;
    struct plan_of_tests *p = run->tests;
    struct bench_facts facts;
    bench_facts_init(&facts, o, s);
    for (size_t i = 0; i < p->n; i++) {
        if (i == 0 || !is_same_engine(&p->tests[i - 1], &p->tests[i]))
            TRY(open_engine(s, o, p, i, err));
        bench_facts_note_engine(&facts, s);
        TRY(measure_test(s, o, &p->tests[i], i, p->n, err));
        for (int k = 0; k < run->outputs.n; k++)
            bench_output_add(&run->outputs.at[k], &facts, &p->tests[i]);
        if (!out_flush()) return CARAT_OK; /* main says why */
    }
    if (s->engine && opt_is_set(o, OPT_PROFILE)) session_print_profile(s);
    return CARAT_OK;
}

static int bench_models(const struct options *o, struct plan_of_tests *p, struct carat_error *err)
{
    struct run run = {.options = o, .tests = p};
    struct bench_visitor visitor = {begin_run, measure_model, &run};
    int status = bench_each_model(o, &visitor, err);
    for (int k = 0; k < run.outputs.n; k++)
        bench_output_end(&run.outputs.at[k], status == CARAT_OK);
    return status;
}

static int run_tests(const struct options *o, struct carat_error *err)
{
    struct plan_of_tests p = {.tests = mem_alloc(TESTS_MAX, sizeof *p.tests)};
    int status = p.tests ? CARAT_OK : err_no_memory(err, "tests", TESTS_MAX * sizeof *p.tests);
    if (status == CARAT_OK) status = make_tests(&p, o, err);
    if (status == CARAT_OK) status = bench_models(o, &p, err);
    mem_free(p.tests);
    return status;
}

int command_bench(const struct options *o)
{
    struct carat_error err = {0};
    bool is_load = opt_is_set(o, OPT_LOAD);
    if (opt_is_set(o, OPT_BENCH_URL) && !is_load) {
        err_set(&err, CARAT_EUSAGE, "--url: only with --load");
        err_hint(&err, "such as --load users=32,in=1024,out=128");
        return report(&err);
    }
    int status = is_load ? load_measure(o, &err) : run_tests(o, &err);
    return status == CARAT_OK ? 0 : report(&err);
}
