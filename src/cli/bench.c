/* carat bench: llama-bench's tests, columns and keys, so that scripts made for it read ours.
 *
 * A test is (prompt, generated, depth, users) on one engine setting. Its rate counts the prompt and
 * generated tokens of all users; the context of `depth` tokens is read before the clock starts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/allowance.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/os.h"
#include "carat_inspect.h"
#include "cli/bench_output.h"
#include "cli/command.h"
#include "cli/models.h"
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
    err_hint(err, "forms: 128 or 128,256 or 128-512+128 or 1k-8k*2; at most %d values", VALUES_MAX);
    return CARAT_EUSAGE;
}

static bool read_count(const char **at, int64_t *out)
{
    if (**at < '0' || **at > '9') return false;
    char *end;
    *out = strtoll(*at, &end, 10);
    *at = read_suffix(end, out);
    return *out <= COUNT_MAX;
}

/* "auto", "-1" or "all", as a number of layers. */
static bool read_word(const char **at, struct numbers *out)
{
    static const struct {
        const char *word;
        int32_t value;
    } words[] = {
        {"auto", -1},
        {"-1", -1},
        {"all", COUNT_MAX},
    };
    size_t n = strcspn(*at, ",");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].word) != n || strncmp(*at, words[i].word, n) != 0) continue;
        if (out->n == VALUES_MAX) return false;
        out->at[out->n++] = words[i].value;
        *at += n;
        return true;
    }
    return false;
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
    bool has_words = id == OPT_BENCH_GPU_LAYERS;
    *out = (struct numbers){.n = 0};
    for (size_t i = 0; i < n; i++) {
        const char *text = v->n_list ? v->list[i] : preset;
        for (const char *at = text;;) {
            if (!(has_words && read_word(&at, out)) && !read_range(&at, out))
                return bad_list(option_specs[id].name, text, err);
            if (*at == '\0') break;
            at++;
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

/* ---- Types of the cache ----------------------------------------------------------------- */

struct types {
    const char *at[VALUES_MAX];
    size_t n;
};

static int read_types(const struct options *o, enum option_id id, struct types *out,
                      struct carat_error *err)
{
    static const char *const known[] = {"auto", "f16", "bf16", "f32", "q8_0"};
    const struct option_value *v = &o->values[id];
    char word[16];
    *out = (struct types){.n = 0};
    for (size_t k = 0; k < (v->n_list ? v->n_list : 1); k++) {
        const char *list = v->n_list ? v->list[k] : option_specs[id].preset;
        for (size_t w = 0; list[0] && word_at(list, w, word, sizeof word); w++) {
            size_t t = 0, n_known = sizeof known / sizeof *known;
            while (t < n_known && strcmp(word, known[t]) != 0) t++;
            if (t == n_known || out->n == VALUES_MAX)
                return err_set(err, CARAT_EUSAGE, "--%s: \"%s\" is not one of %s",
                               option_specs[id].name, word, option_specs[OPT_KV_TYPE].value);
            out->at[out->n++] = known[t];
        }
    }
    return CARAT_OK;
}

/* --kv-type, or the lists of key types and value types. Every pair of these would be measured, and
 * both types of a pair must be equal; so all of them must be one type. */
static int read_kv_types(const struct options *o, struct types *out, struct carat_error *err)
{
    struct types keys, values;
    TRY(read_types(o, OPT_BENCH_KV, out, err));
    TRY(read_types(o, OPT_BENCH_KEYS, &keys, err));
    TRY(read_types(o, OPT_BENCH_VALUES, &values, err));
    if (keys.n == 0 && values.n == 0) return CARAT_OK;
    static const struct types usual = {.at = {"f16"}, .n = 1};
    if (keys.n == 0) keys = usual;
    if (values.n == 0) values = usual;
    for (size_t k = 0; k < keys.n; k++)
        for (size_t v = 0; v < values.n; v++) {
            if (strcmp(keys.at[k], values.at[v]) == 0) continue;
            err_set(err, CARAT_EUSAGE, "bench: keys in %s with values in %s are not supported",
                    keys.at[k], values.at[v]);
            err_hint(err, "--kv-type f16,q8_0 measures both in one type, then in the other");
            return CARAT_EUSAGE;
        }
    *out = (struct types){.at = {keys.at[0]}, .n = 1};
    return CARAT_OK;
}

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
    struct numbers prompt, gen, depth, users;
    struct numbers batch, chunk, threads, gpu_layers, cpu_experts; /* of settings */
    struct types kv;
};

static int read_lists(const struct options *o, struct lists *l, struct carat_error *err)
{
    TRY(read_numbers(o, OPT_BENCH_PROMPT, &l->prompt, err));
    TRY(read_numbers(o, OPT_BENCH_GEN, &l->gen, err));
    TRY(read_numbers(o, OPT_BENCH_DEPTH, &l->depth, err));
    TRY(read_numbers(o, OPT_BENCH_USERS, &l->users, err));
    TRY(read_numbers(o, OPT_BENCH_BATCH, &l->batch, err));
    TRY(read_numbers(o, OPT_BENCH_CHUNK, &l->chunk, err));
    TRY(read_numbers(o, OPT_BENCH_THREADS, &l->threads, err));
    TRY(read_numbers(o, OPT_BENCH_GPU_LAYERS, &l->gpu_layers, err));
    TRY(read_numbers(o, OPT_BENCH_CPU_EXPERTS, &l->cpu_experts, err));
    TRY(read_kv_types(o, &l->kv, err));
    for (size_t i = 0; i < l->users.n; i++)
        if (l->users.at[i] < 1) return err_set(err, CARAT_EUSAGE, "--users: at least 1 expected");
    for (size_t i = 0; i < l->threads.n; i++) {
        double most = option_specs[OPT_THREADS].high;
        if (l->threads.at[i] > most)
            return err_set(err, CARAT_EUSAGE, "--threads: at most %.0f expected", most);
        l->threads.at[i] = threads_within(l->threads.at[i]);
    }
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

static int32_t default_threads(const struct options *o)
{
    return strcmp(opt_text(o, OPT_BACKEND), "ref") == 0 ? 1 : allowed_threads();
}

/* Setting i's place in a list of n values that changes every *stride settings. */
static size_t turn(size_t i, size_t *stride, size_t n)
{
    size_t at = i / *stride % n;
    *stride *= n;
    return at;
}

/* The i-th combination of the lists, threads changing first. */
static struct bench_setting setting_at(const struct options *o, const struct lists *l, size_t i)
{
    struct bench_setting s = {0};
    const char *backend = session_backend(o);
    size_t stride = 1;
    int32_t threads = l->threads.at[turn(i, &stride, l->threads.n)];
    int32_t chunk = l->chunk.at[turn(i, &stride, l->chunk.n)];
    int32_t batch = l->batch.at[turn(i, &stride, l->batch.n)];
    s.cpu_experts = l->cpu_experts.at[turn(i, &stride, l->cpu_experts.n)];
    s.gpu_layers = l->gpu_layers.at[turn(i, &stride, l->gpu_layers.n)];
    s.kv_type = l->kv.at[turn(i, &stride, l->kv.n)];
    s.threads = threads ? threads : default_threads(o);
    s.chunk = chunk_within(chunk ? chunk : carat_backend_chunk(backend), batch, backend);
    s.batch = batch ? batch : s.chunk;
    return s;
}

static int make_tests(struct plan_of_tests *p, const struct options *o, struct carat_error *err)
{
    struct lists l;
    TRY(read_lists(o, &l, err));
    size_t n_settings =
        l.threads.n * l.chunk.n * l.batch.n * l.cpu_experts.n * l.gpu_layers.n * l.kv.n;
    for (size_t i = 0; i < n_settings && p->n < TESTS_MAX; i++) {
        struct bench_setting setting = setting_at(o, &l, i);
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
    struct carat_engine_options options = {
        /* The engine may take fewer than the default number. */
        .n_threads = setting->threads == default_threads(o) ? 0 : setting->threads,
        .n_ctx = context_for(s->model, 1),
        .chunk = setting->chunk,
        .kv_type = kv_type_named(setting->kv_type),
    };
    for (size_t i = first; i < p->n && is_same_engine(&p->tests[first], &p->tests[i]); i++) {
        const struct bench_test *t = &p->tests[i];
        int32_t positions = t->depth + t->n_prompt + t->n_gen + 1;
        if (positions > options.n_ctx) options.n_ctx = positions;
        if (t->users > options.n_seq) options.n_seq = t->users;
    }
    set_device_options(o, &options);
    set_layers(o, &options, setting->gpu_layers,
               opt_is_set(o, OPT_CPU_EXPERTS) ? INT32_MAX : setting->cpu_experts);
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
    if (!wants_limits(o)) return CARAT_OK;
    int status = CARAT_OK;
    if (s->limit_threads != t->setting.threads) {
        status = carat_measure_roofline(s->engine, &s->limit, err);
        s->limit_threads = t->setting.threads;
    }
    t->limit = s->limit;
    return opt_is_set(o, OPT_ROOFLINE) ? status : CARAT_OK; /* by default limits are optional */
}

static void note_gpu(const struct session *s, struct bench_facts *facts)
{
    if (strcmp(facts->backend, "cuda") != 0) return;
    snprintf(facts->gpu, sizeof facts->gpu, "%s", carat_engine_setup(s->engine)->device);
    facts->n_gpu_layers = carat_engine_memory(s->engine)->gpu_layers;
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

static int run_tests(const struct options *o, struct session *s, struct plan_of_tests *p,
                     struct outputs *out, struct carat_error *err)
{
    struct bench_facts facts = {
        .info = carat_model_info(s->model),
        .path = buf_text(&s->path),
        .backend = session_backend(o),
        .is_exact = session_precision(o) == CARAT_PRECISION_FP32,
        .main_gpu = (int32_t)opt_int(o, OPT_DEVICE),
    };
    os_cpu_name(facts.cpu, sizeof facts.cpu);
    for (size_t i = 0; i < p->n; i++) {
        if (i == 0 || !is_same_engine(&p->tests[i - 1], &p->tests[i]))
            TRY(open_engine(s, o, p, i, err));
        note_gpu(s, &facts);
        TRY(measure_test(s, o, &p->tests[i], i, p->n, err));
        for (int k = 0; k < out->n; k++) bench_output_add(&out->at[k], &facts, &p->tests[i]);
        if (!out_flush()) return CARAT_OK; /* main says why */
    }
    if (s->engine && opt_is_set(o, OPT_PROFILE)) session_print_profile(s);
    return CARAT_OK;
}

static int bench_model(const struct options *o, const char *name, struct plan_of_tests *p,
                       struct outputs *out, struct carat_error *err)
{
    struct session s;
    int status = session_open_name(&s, o, name, err);
    if (status == CARAT_OK) status = run_tests(o, &s, p, out, err);
    session_close(&s);
    return status;
}

/* Each model of --model, else of the arguments, else CARAT_MODEL. */
static int bench_models(const struct options *o, struct plan_of_tests *p, struct carat_error *err)
{
    const struct option_value *named = &o->values[OPT_BENCH_MODEL];
    bool has_arguments = o->n_arguments > 0 && !named->is_flag;
    const char *const *names = (const char *const *)(has_arguments ? o->arguments : named->list);
    size_t n = has_arguments ? o->n_arguments : named->n_list;
    struct outputs out;
    if (named->is_flag) TRY(no_more_arguments(o, 0, err));
    if (n == 0) {
        err_set(err, CARAT_EUSAGE, "bench: MODEL is missing");
        err_hint(err, "usage: carat bench MODEL...");
        return CARAT_EUSAGE;
    }
    for (size_t i = 0; i < n; i++) { /* wrong names are reported before anything is measured */
        struct buf path = {0};
        int status = model_find(names[i], &path, err);
        buf_deinit(&path);
        if (status != CARAT_OK) return status;
    }
    begin_outputs(&out, o, p);
    int status = CARAT_OK;
    for (size_t i = 0; i < n && status == CARAT_OK; i++)
        status = bench_model(o, names[i], p, &out, err);
    for (int k = 0; k < out.n; k++) bench_output_end(&out.at[k], status == CARAT_OK);
    return status;
}

int command_bench(const struct options *o)
{
    struct carat_error err = {0};
    struct plan_of_tests p = {.tests = mem_alloc(TESTS_MAX, sizeof *p.tests)};
    int status = p.tests ? CARAT_OK : err_no_memory(&err, "tests", TESTS_MAX * sizeof *p.tests);
    if (status == CARAT_OK) status = make_tests(&p, o, &err);
    if (status == CARAT_OK) status = bench_models(o, &p, &err);
    mem_free(p.tests);
    return status == CARAT_OK ? 0 : report(&err);
}
