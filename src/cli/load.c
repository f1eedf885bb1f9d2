#include "cli/load.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/bench_models.h"
#include "cli/files.h"
#include "cli/load_engine.h"
#include "cli/load_http.h"
#include "cli/load_report.h"
#include "cli/terminal.h"

struct load {
    const struct options *options;
    struct load_group groups[LOAD_GROUPS_MAX];
    size_t n_groups;
    struct bench_settings settings;
    int32_t n_seq; /* 0: as many as requests can run at once */
    int32_t repetitions;
    struct load_report reports[2]; /* standard output, and --format-err */
    int n_reports;
    int32_t n_failed; /* requests */
    char failure[256];
};

/* A load gives lengths itself, so the options of tests do not go with it. */
static int refuse_tests(const struct options *o, struct carat_error *err)
{
    static const enum option_id tests[] = {OPT_BENCH_PROMPT, OPT_BENCH_GEN, OPT_BENCH_PAIR,
                                           OPT_BENCH_DEPTH};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (!o->values[tests[i]].is_flag) continue;
        err_set(err, CARAT_EUSAGE, "--%s does not go with --load", option_specs[tests[i]].name);
        err_hint(err, "lengths stand in the load: --load users=4,in=512,out=128");
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

static int read_load(struct load *load, const struct options *o, struct carat_error *err)
{
    const struct option_value *texts = &o->values[OPT_LOAD];
    struct bench_numbers users;
    *load = (struct load){.options = o, .n_groups = texts->n_list};
    TRY(refuse_tests(o, err));
    TRY(load_spec_read(texts->list, texts->n_list, load->groups, err));
    TRY(bench_read_settings(o, &load->settings, err));
    TRY(bench_read_numbers(o, OPT_BENCH_USERS, &users, err));
    if (opt_is_set(o, OPT_BENCH_USERS)) {
        load->n_seq = users.at[0];
        if (users.n != 1 || load->n_seq < 1)
            return err_set(err, CARAT_EUSAGE,
                           "--users: with --load one number of sequences expected, at least 1");
    }
    load->repetitions = opt_is_set(o, OPT_REPETITIONS) ? (int32_t)opt_int(o, OPT_REPETITIONS) : 1;
    return CARAT_OK;
}

static void begin_reports(void *user)
{
    struct load *load = user;
    const char *second = opt_text(load->options, OPT_BENCH_ERR_FORMAT);
    load->reports[load->n_reports++] =
        (struct load_report){.format = opt_text(load->options, OPT_BENCH_FORMAT)};
    if (strcmp(second, "none") == 0) return;
    load->reports[load->n_reports++] = (struct load_report){.format = second, .is_error = true};
}

/* An engine with room for the longest chat and, unless --users says how many, for all requests that
 * can be under way. */
static struct carat_engine_options engine_for(const struct load *load, const struct session *s,
                                              const struct bench_setting *setting)
{
    enum { SEQUENCES_USUAL = 256 };
    struct carat_engine_options options = bench_engine_options(load->options, setting);
    int64_t positions = 1, parallel = 0;
    for (size_t i = 0; i < load->n_groups; i++) {
        const struct load_group *g = &load->groups[i];
        if (load_positions(g) + 1 > positions) positions = load_positions(g) + 1;
        parallel += load_parallel(g);
    }
    if (parallel > SEQUENCES_USUAL) parallel = SEQUENCES_USUAL;
    options.n_ctx = context_for(s->model, (int32_t)positions);
    options.n_seq = load->n_seq ? load->n_seq : (int32_t)parallel;
    return options;
}

/* One row for each group; with several groups, first one for all of them. */
static int report_run(struct load *load, const struct bench_facts *facts,
                      const struct bench_setting *setting, struct load_row *row,
                      struct carat_error *err)
{
    for (int32_t g = load->n_groups > 1 ? -1 : 0; g < (int32_t)load->n_groups; g++) {
        struct load_stats stats;
        TRY(load_stats_take(&stats, row->plan, row->run, g, err));
        row->stats = &stats;
        row->group = g;
        for (int k = 0; k < load->n_reports; k++)
            TRY(load_report_add(&load->reports[k], facts, setting, row, err));
        if (g >= 0) load->n_failed += stats.failed;
    }
    if (row->run->failure[0] && !load->failure[0])
        memcpy(load->failure, row->run->failure, sizeof load->failure);
    out_flush();
    return CARAT_OK;
}

/* What the answers of groups with a schema are held to; NULL for the others. */
static int open_grammars(const struct load *load, const carat_model *model,
                         carat_grammar *grammars[LOAD_GROUPS_MAX], struct carat_error *err)
{
    for (size_t i = 0; i < load->n_groups; i++) {
        const struct load_group *g = &load->groups[i];
        struct buf text = {0};
        if (!g->schema[0]) continue;
        int status = file_read(g->schema, &text, err);
        if (status == CARAT_OK)
            status = carat_grammar_open_json_schema(&grammars[i], model, buf_text(&text),
                                                    text.length, err);
        buf_deinit(&text);
        if (status != CARAT_OK) return err_within(err, "--load %s: schema", g->name);
    }
    return CARAT_OK;
}

/* What does not change from repetition to repetition. */
struct subject {
    struct load_target *target;
    carat_grammar *const *grammars;
    const struct bench_facts *facts;
    const struct bench_setting *setting;
    const struct carat_memory *memory;
    int32_t n_seq;
};

static int repeat(struct load *load, const struct subject *s, struct load_plan *plan,
                  struct carat_error *err)
{
    struct load_row row = {.plan = plan, .n_seq = s->n_seq, .memory = s->memory};
    for (plan->repetition = 0; plan->repetition < load->repetitions; plan->repetition++) {
        struct load_run run;
        time_t now = time(NULL);
        struct tm utc;
        gmtime_r(&now, &utc);
        strftime(row.date, sizeof row.date, "%Y%m%d-%H%M%S", &utc);
        row.run = &run;
        row.repetition = plan->repetition;
        int status = load_run_do(&run, plan, s->target, s->grammars, err);
        if (status == CARAT_OK) status = report_run(load, s->facts, s->setting, &row, err);
        load_run_deinit(&run);
        if (status != CARAT_OK) return status;
    }
    return CARAT_OK;
}

/* ---- Engines ---------------------------------------------------------------------------- */

static int measure_engine(struct load *load, const struct session *s,
                          const struct bench_facts *facts, const struct bench_setting *setting,
                          int32_t n_seq, carat_grammar *const *grammars, struct carat_error *err)
{
    uint64_t seed = (uint64_t)opt_int(load->options, OPT_LOAD_SEED);
    struct load_plan plan;
    struct load_engine engine = {.n = 0};
    int status = load_plan_init(&plan, load->groups, load->n_groups, seed, err);
    if (status == CARAT_OK) status = load_engine_init(&engine, s->model, s->engine, plan.n, err);
    const struct subject subject = {.target = &engine.target,
                                    .grammars = grammars,
                                    .facts = facts,
                                    .setting = setting,
                                    .memory = carat_engine_memory(s->engine),
                                    .n_seq = n_seq};
    if (status == CARAT_OK) status = repeat(load, &subject, &plan, err);
    load_engine_deinit(&engine);
    load_plan_deinit(&plan);
    return status;
}

static int measure_setting(struct load *load, struct session *s, struct bench_facts *facts,
                           const struct bench_setting *setting, struct carat_error *err)
{
    struct carat_engine_options options = engine_for(load, s, setting);
    carat_grammar *grammars[LOAD_GROUPS_MAX] = {NULL};
    TRY(session_start(s, &options, err));
    bench_facts_note_engine(facts, s);
    int status = open_grammars(load, s->model, grammars, err);
    if (status == CARAT_OK)
        status = measure_engine(load, s, facts, setting, options.n_seq, grammars, err);
    if (opt_is_set(load->options, OPT_PROFILE)) session_print_profile(s);
    carat_engine_close(s->engine); /* after a failure its requests may still use the grammars */
    s->engine = NULL;
    for (size_t i = 0; i < load->n_groups; i++) carat_grammar_close(grammars[i]);
    return status;
}

static int measure_model(void *user, struct session *s, struct carat_error *err)
{
    struct load *load = user;
    struct bench_facts facts;
    bench_facts_init(&facts, load->options, s);
    for (size_t i = 0; i < load->settings.n; i++) {
        struct bench_setting setting = bench_setting_at(load->options, &load->settings, i);
        TRY(measure_setting(load, s, &facts, &setting, err));
    }
    return CARAT_OK;
}

/* ---- A server --------------------------------------------------------------------------- */

/* The server has a model, and decides how it computes. */
static int refuse_engines(const struct options *o, struct carat_error *err)
{
    if (o->n_arguments == 0 && !opt_is_set(o, OPT_BENCH_MODEL)) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "--url: no model expected, %s found",
            o->n_arguments ? o->arguments[0] : "--model");
    err_hint(err, "the server has its own");
    return CARAT_EUSAGE;
}

static int measure_url(struct load *load, struct carat_error *err)
{
    const struct options *o = load->options;
    struct load_plan plan = {.n = 0};
    struct load_http *http = NULL;
    struct load_server server;
    TRY(refuse_engines(o, err));
    struct bench_setting setting = bench_setting_at(o, &load->settings, 0);
    TRY(load_plan_init(&plan, load->groups, load->n_groups, (uint64_t)opt_int(o, OPT_LOAD_SEED),
                       err));
    const struct load_http_options options = {
        .url = opt_text(o, OPT_BENCH_URL), .key = opt_text(o, OPT_BENCH_KEY), .plan = &plan};
    int status = load_http_open(&http, &options, &server, err);
    struct bench_facts facts = {.info = &server.info, .path = server.model, .backend = "http"};
    snprintf(facts.type, sizeof facts.type, "%s", server.model);
    const struct subject subject = {.target = status ? NULL : load_http_target(http),
                                    .facts = &facts,
                                    .setting = &setting,
                                    .memory = &server.memory,
                                    .n_seq = server.n_seq};
    begin_reports(load);
    if (status == CARAT_OK) status = repeat(load, &subject, &plan, err);
    load_http_close(http);
    load_plan_deinit(&plan);
    return status;
}

int load_measure(const struct options *o, struct carat_error *err)
{
    struct load load;
    TRY(read_load(&load, o, err));
    struct bench_visitor visitor = {begin_reports, measure_model, &load};
    int status =
        opt_is_set(o, OPT_BENCH_URL) ? measure_url(&load, err) : bench_each_model(o, &visitor, err);
    for (int k = 0; k < load.n_reports; k++) load_report_end(&load.reports[k], status == CARAT_OK);
    if (status == CARAT_OK && load.n_failed > 0)
        return err_set(err, CARAT_EINTERNAL, "bench: %d requests have failed, the first: %s",
                       load.n_failed, load.failure);
    return status;
}
