/* carat bench: llama-bench's tests, columns and keys, so that scripts made for it read ours.
 *
 * A test is (prompt, generated, depth, users) on one engine setting. Its rate counts the prompt and
 * generated tokens of all users; the context of `depth` tokens is laid down outside the clock. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/allowance.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/os.h"
#include "carat.h"
#include "cli/bench_output.h"
#include "cli/command.h"
#include "cli/session.h"
#include "cli/terminal.h"

enum { VALUES_MAX = 64, TESTS_MAX = 4096 };

struct numbers {
    int32_t at[VALUES_MAX];
    size_t n;
};

/* ---- Lists ------------------------------------------------------------------------------ */

static int bad_list(const char *name, const char *text, struct carat_error *err)
{
    err_set(err, CARAT_EUSAGE, "--%s: \"%s\" is no list of whole numbers", name, text);
    err_hint(err, "forms: 128 or 128,256 or 128-512+128 or 128-1024*2; at most %d values",
             VALUES_MAX);
    return CARAT_EUSAGE;
}

static bool read_count(const char **at, int64_t *out)
{
    if (**at < '0' || **at > '9') return false;
    char *end;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return *out <= COUNT_MAX;
}

/* "a", "a-b", "a-b+step" or "a-b*factor", up to a comma or the end. */
static bool read_range(const char **at, struct numbers *out)
{
    int64_t first, last, step = 1;
    bool multiplies = false;
    if (!read_count(at, &first)) return false;
    last = first;
    if (**at == '-') {
        ++*at;
        if (!read_count(at, &last)) return false;
        if (**at == '+' || **at == '*') {
            multiplies = *(*at)++ == '*';
            if (!read_count(at, &step) || step < (multiplies ? 2 : 1)) return false;
            if (multiplies && first == 0) return false;
        }
    }
    for (int64_t v = first; v <= last; v = multiplies ? v * step : v + step) {
        if (out->n == VALUES_MAX) return false;
        out->at[out->n++] = (int32_t)v;
    }
    return **at == ',' || **at == '\0';
}

static int read_numbers(const struct options *o, enum option_id id, struct numbers *out,
                        struct carat_error *err)
{
    const struct option_value *v = &o->values[id];
    const char *preset = option_specs[id].preset;
    size_t n = v->n_list ? v->n_list : preset[0] != '\0';
    *out = (struct numbers){.n = 0};
    for (size_t i = 0; i < n; i++) {
        const char *text = v->n_list ? v->list[i] : preset;
        for (const char *at = text;;) {
            if (!read_range(&at, out)) return bad_list(option_specs[id].name, text, err);
            if (*at == '\0') break;
            at++;
        }
    }
    return CARAT_OK;
}

/* ---- Tests ------------------------------------------------------------------------------ */

struct setting {
    int32_t chunk, threads;
    const char *kv_type;
};

struct plan_of_tests {
    struct bench_test *tests; /* TESTS_MAX */
    size_t n;
};

static void add_test(struct plan_of_tests *p, int32_t n_prompt, int32_t n_gen, int32_t depth,
                     int32_t users, const struct setting *setting)
{
    if (p->n == TESTS_MAX || (n_prompt == 0 && n_gen == 0)) return;
    p->tests[p->n++] = (struct bench_test){
        .n_prompt = n_prompt,
        .n_gen = n_gen,
        .depth = depth,
        .users = users,
        .chunk = setting->chunk,
        .threads = setting->threads,
        .kv_type = setting->kv_type,
    };
}

struct lists {
    struct numbers prompt, gen, depth, users, chunk, threads;
};

static int read_lists(const struct options *o, struct lists *l, struct carat_error *err)
{
    TRY(read_numbers(o, OPT_BENCH_PROMPT, &l->prompt, err));
    TRY(read_numbers(o, OPT_BENCH_GEN, &l->gen, err));
    TRY(read_numbers(o, OPT_BENCH_DEPTH, &l->depth, err));
    TRY(read_numbers(o, OPT_BENCH_USERS, &l->users, err));
    TRY(read_numbers(o, OPT_BENCH_CHUNK, &l->chunk, err));
    TRY(read_numbers(o, OPT_BENCH_THREADS, &l->threads, err));
    for (size_t i = 0; i < l->users.n; i++)
        if (l->users.at[i] < 1) return err_set(err, CARAT_EUSAGE, "--users: at least 1 expected");
    for (size_t i = 0; i < l->threads.n; i++) l->threads.at[i] = threads_within(l->threads.at[i]);
    for (size_t i = 0; i < l->chunk.n; i++) {
        if (l->chunk.at[i] < 0) return err_set(err, CARAT_EUSAGE, "--chunk: at least 1 expected");
        if (l->chunk.at[i] == 0) l->chunk.at[i] = carat_backend_chunk(backend_of(o));
    }
    return CARAT_OK;
}

/* The tests of one setting, in llama-bench's order: for each depth prompts, then generation. */
static int add_tests(struct plan_of_tests *p, const struct options *o, const struct lists *l,
                     const struct setting *setting, struct carat_error *err)
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
                bool is_pair = read_count(&at, &n_prompt) && *at++ == ',' &&
                               read_count(&at, &n_gen) && *at == '\0';
                if (!is_pair)
                    return err_set(err, CARAT_EUSAGE, "--pg: \"%s\" is not P,G", pairs->list[i]);
                add_test(p, (int32_t)n_prompt, (int32_t)n_gen, depth, users, setting);
            }
        }
    }
    return CARAT_OK;
}

/* The n-th word of a comma list, copied; false at its end. */
static bool word_at(const char *list, size_t n, char *out, size_t size)
{
    for (; n > 0; n--) {
        list = strchr(list, ',');
        if (!list) return false;
        list++;
    }
    snprintf(out, size, "%.*s", (int)strcspn(list, ","), list);
    return true;
}

static int32_t default_threads(const struct options *o)
{
    return strcmp(opt_text(o, OPT_BACKEND), "ref") == 0 ? 1 : allowed_threads();
}

static int make_tests(struct plan_of_tests *p, const struct options *o, struct carat_error *err)
{
    static const char *const types[] = {"auto", "f16", "bf16", "f32", "q8_0"};
    const struct option_value *kv = &o->values[OPT_BENCH_KV];
    struct lists l;
    TRY(read_lists(o, &l, err));
    for (size_t k = 0; k < (kv->n_list ? kv->n_list : 1); k++) {
        char word[16];
        const char *list = kv->n_list ? kv->list[k] : option_specs[OPT_BENCH_KV].preset;
        for (size_t w = 0; word_at(list, w, word, sizeof word); w++) {
            struct setting setting = {0};
            for (size_t t = 0; t < sizeof types / sizeof *types; t++)
                if (strcmp(word, types[t]) == 0) setting.kv_type = types[t];
            if (!setting.kv_type)
                return err_set(err, CARAT_EUSAGE, "--kv-type: \"%s\" is not one of %s", word,
                               option_specs[OPT_KV_TYPE].value);
            for (size_t c = 0; c < l.chunk.n; c++) {
                for (size_t t = 0; t < l.threads.n; t++) {
                    setting.chunk = l.chunk.at[c];
                    setting.threads = l.threads.at[t] ? l.threads.at[t] : default_threads(o);
                    TRY(add_tests(p, o, &l, &setting, err));
                }
            }
        }
    }
    if (p->n == 0) return err_set(err, CARAT_EUSAGE, "bench: there is nothing to measure");
    if (p->n == TESTS_MAX)
        return err_set(err, CARAT_EUSAGE, "bench: more than %d tests", TESTS_MAX - 1);
    return CARAT_OK;
}

/* ---- Measuring -------------------------------------------------------------------------- */

static bool is_same_engine(const struct bench_test *a, const struct bench_test *b)
{
    return a->chunk == b->chunk && a->threads == b->threads &&
           strcmp(a->kv_type, b->kv_type) == 0;
}

/* One engine for all tests of a setting: room for the longest and the most users. */
static int open_engine(struct session *s, const struct options *o, const struct plan_of_tests *p,
                       size_t first, struct carat_error *err)
{
    struct carat_engine_options options = {
        /* The usual number is the engine's to use as far as it helps. */
        .n_threads =
            p->tests[first].threads == default_threads(o) ? 0 : p->tests[first].threads,
        .n_ctx = context_for(s->model, 1),
        .chunk = p->tests[first].chunk,
        .kv_type = kv_type_of(p->tests[first].kv_type),
    };
    for (size_t i = first; i < p->n && is_same_engine(&p->tests[first], &p->tests[i]); i++) {
        const struct bench_test *t = &p->tests[i];
        int32_t positions = t->depth + t->n_prompt + t->n_gen + 1;
        if (positions > options.n_ctx) options.n_ctx = positions;
        if (t->users > options.n_seq) options.n_seq = t->users;
    }
    set_device_options(o, &options);
    if (s->engine && opt_is_set(o, OPT_PROFILE)) session_print_profile(s);
    if (s->engine) carat_engine_close(s->engine);
    s->engine = NULL;
    return session_start(s, &options, err);
}

static int measure(struct session *s, const struct options *o, struct bench_test *t, size_t index,
                   size_t total, struct carat_error *err)
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
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(t->test_time, sizeof t->test_time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (t->n_samples = 0; t->n_samples < (int)opt_int(o, OPT_REPETITIONS); t->n_samples++) {
        progress(label, t->n_samples + 1, (int)opt_int(o, OPT_REPETITIONS));
        TRY(carat_measure(s->engine, &what, &seconds, err));
        t->samples_ns[t->n_samples] = (int64_t)(seconds * 1e9 + 0.5);
    }
    progress_end();
    carat_measure_work(s->engine, &what, &t->work);
    if (!opt_is_set(o, OPT_ROOFLINE)) return CARAT_OK;
    return carat_measure_roofline(s->engine, &t->limit, err);
}

static void note_gpu(const struct session *s, struct bench_facts *facts)
{
    if (strcmp(facts->backend, "cuda") != 0) return;
    snprintf(facts->gpu, sizeof facts->gpu, "%s", carat_engine_setup(s->engine)->device);
    facts->n_gpu_layers = carat_engine_memory(s->engine)->gpu_layers;
}

static int run_tests(const struct options *o, struct session *s, struct plan_of_tests *p,
                     struct carat_error *err)
{
    struct bench_facts facts = {
        .info = carat_model_info(s->model),
        .path = buf_text(&s->path),
        .backend = backend_of(o),
        .is_exact = precision_of(o) == CARAT_PRECISION_FP32,
    };
    os_cpu_name(facts.cpu, sizeof facts.cpu);
    struct bench_output out;
    bench_output_begin(&out, opt_text(o, OPT_BENCH_FORMAT), &facts);
    for (size_t i = 0; i < p->n; i++) {
        if (i == 0 || !is_same_engine(&p->tests[i - 1], &p->tests[i]))
            TRY(open_engine(s, o, p, i, err));
        note_gpu(s, &facts);
        TRY(measure(s, o, &p->tests[i], i, p->n, err));
        bench_output_add(&out, &p->tests[i]);
        if (!out_flush()) return CARAT_OK; /* main says why */
    }
    bench_output_end(&out);
    if (s->engine && opt_is_set(o, OPT_PROFILE)) session_print_profile(s);
    return CARAT_OK;
}

int command_bench(const struct options *o)
{
    struct carat_error err = {0};
    struct session s = {0};
    struct plan_of_tests p = {.tests = mem_alloc(TESTS_MAX, sizeof *p.tests)};
    int status = p.tests ? CARAT_OK
                         : err_no_memory(&err, "tests", TESTS_MAX * sizeof *p.tests);
    if (status == CARAT_OK) status = make_tests(&p, o, &err);
    if (status == CARAT_OK) status = session_open(&s, o, &err);
    if (status == CARAT_OK) status = no_more_arguments(o, s.next_argument, &err);
    if (status == CARAT_OK) status = run_tests(o, &s, &p, &err);
    mem_free(p.tests);
    session_close(&s);
    return status == CARAT_OK ? 0 : report(&err);
}
