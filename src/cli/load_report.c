#include "cli/load_report.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/terminal.h"

enum { FIELDS = 128, KEY_MAX = 40 };

/* Fields of one row, and the keys that are put together. */
struct row {
    struct field fields[FIELDS];
    size_t n;
    char keys[6 * 6][KEY_MAX]; /* six distributions with six numbers */
    size_t n_keys;
    char digests[2][20];
    double *input_lens, *output_lens, *ttfts; /* one block, from input_lens on */
};

static double rate(double count, const struct load_stats *s)
{
    return s->duration > 0 ? count / s->duration : 0;
}

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* The group's settings. For a row of all groups: those of the only group, or NULL. */
static const struct load_group *group_of(const struct load_row *r)
{
    if (r->group >= 0) return &r->plan->groups[r->group];
    return r->plan->n_groups == 1 ? r->plan->groups : NULL;
}

static bool has_goals(const struct load_row *r)
{
    for (size_t i = 0; i < r->plan->n_groups; i++) {
        const struct load_group *g = &r->plan->groups[i];
        bool counts = r->group < 0 || r->group == (int32_t)i;
        if (counts && (g->ttft_goal > 0 || g->tpot_goal > 0 || g->e2el_goal > 0)) return true;
    }
    return false;
}

/* ---- Fields ----------------------------------------------------------------------------- */

static void add(struct row *row, const struct field *fields, size_t n)
{
    memcpy(row->fields + row->n, fields, n * sizeof *fields);
    row->n += n;
}

/* mean_ttft_ms, median_ttft_ms, ... Without values: null. */
static void add_spread(struct row *row, const char *name, const struct distribution *s)
{
    const struct {
        const char *word;
        double value;
    } numbers[] = {{"mean", s->mean}, {"median", s->p50}, {"std", s->deviation},
                   {"p90", s->p90},   {"p99", s->p99},    {"max", s->most}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *key = row->keys[row->n_keys++];
        snprintf(key, KEY_MAX, "%s_%s_ms", numbers[i].word, name);
        struct field f = {key, s->n ? FIELD_REAL : FIELD_NULL, .real = numbers[i].value};
        add(row, &f, 1);
    }
}

/* How requests came: vLLM's keys. */
static void add_traffic(struct row *row, const struct load_row *r)
{
    const struct load_group *g = group_of(r);
    bool is_open = g && g->rate > 0, is_closed = g && g->users > 0;
    const struct field fields[] = {
        {"date", FIELD_TEXT, .text = r->date},
        {"backend", FIELD_TEXT, .text = "carat"},
        {"label", FIELD_TEXT, .text = g ? g->name : "all"},
        {"load", FIELD_TEXT, .text = g ? g->text : ""},
        {"seed", FIELD_INT, .integer = (int64_t)r->plan->seed},
        {"repetition", FIELD_INT, .integer = r->repetition},
        {"n_ctx", FIELD_INT, .integer = r->memory->n_ctx},
        {"n_seq", FIELD_INT, .integer = r->n_seq},
        {"num_prompts", FIELD_INT, .integer = r->stats->requests},
        {"request_rate", is_open ? FIELD_REAL : FIELD_TEXT, .text = "inf", .real = g ? g->rate : 0},
        {"burstiness", g ? FIELD_REAL : FIELD_NULL, .real = g ? g->burstiness : 0},
        {"max_concurrency", is_closed ? FIELD_INT : FIELD_NULL, .integer = g ? g->users : 0},
    };
    add(row, fields, sizeof fields / sizeof *fields);
}

static void add_counts(struct row *row, const struct load_row *r)
{
    const struct load_stats *s = r->stats;
    bool is_good = has_goals(r);
    double tokens = (double)(s->input_tokens + s->output_tokens);
    const struct field fields[] = {
        {"duration", FIELD_REAL, .real = s->duration},
        {"completed", FIELD_INT, .integer = s->completed},
        {"failed", FIELD_INT, .integer = s->failed},
        {"cancelled", FIELD_INT, .integer = s->cancelled},
        {"expired", FIELD_INT, .integer = s->expired},
        {"total_input_tokens", FIELD_INT, .integer = s->input_tokens},
        {"total_output_tokens", FIELD_INT, .integer = s->output_tokens},
        {"cancelled_output_tokens", FIELD_INT, .integer = s->cancelled_tokens},
        {"request_throughput", FIELD_REAL, .real = rate(s->completed, s)},
        {"request_goodput", is_good ? FIELD_REAL : FIELD_NULL, .real = rate(s->good, s)},
        {"good_share", is_good ? FIELD_REAL : FIELD_NULL, .real = share(s->good, s->completed)},
        {"output_throughput", FIELD_REAL, .real = rate((double)s->output_tokens, s)},
        {"total_token_throughput", FIELD_REAL, .real = rate(tokens, s)},
        {"max_output_tokens_per_s", FIELD_REAL, .real = s->most_tokens},
        {"max_concurrent_requests", FIELD_INT, .integer = s->most_at_once},
        {"cached_tokens", FIELD_INT, .integer = s->cached_tokens},
        {"cached_share", FIELD_REAL, .real = share(s->cached_tokens, s->input_tokens)},
        {"reusable_tokens", FIELD_INT, .integer = s->reusable_tokens},
        {"reused_share", FIELD_REAL, .real = share(s->cached_tokens, s->reusable_tokens)},
        {"preemptions", FIELD_INT, .integer = s->preempted},
    };
    add(row, fields, sizeof fields / sizeof *fields);
}

static void add_run(struct row *row, const struct load_row *r)
{
    const struct distribution *step = &r->stats->step;
    const struct carat_stats *a = &r->run->before, *b = &r->run->after;
    snprintf(row->digests[0], sizeof row->digests[0], "%016llx",
             (unsigned long long)r->run->prompts);
    snprintf(row->digests[1], sizeof row->digests[1], "%016llx",
             (unsigned long long)r->run->answers);
    const struct field fields[] = {
        {"steps", FIELD_INT, .integer = (int64_t)step->n},
        {"mean_step_ms", FIELD_REAL, .real = step->mean},
        {"p99_step_ms", FIELD_REAL, .real = step->p99},
        {"max_step_ms", FIELD_REAL, .real = step->most},
        {"rows", FIELD_INT, .integer = (int64_t)(b->rows - a->rows)},
        {"prompt_rows", FIELD_INT, .integer = (int64_t)(b->prompt_rows - a->prompt_rows)},
        {"drafted_tokens", FIELD_INT, .integer = (int64_t)(b->drafted - a->drafted)},
        {"accepted_tokens", FIELD_INT, .integer = (int64_t)(b->accepted - a->accepted)},
        {"cache_lookups", FIELD_INT, .integer = (int64_t)(b->lookups - a->lookups)},
        {"cache_hits", FIELD_INT, .integer = (int64_t)(b->hits - a->hits)},
        {"evicted_pages", FIELD_INT, .integer = (int64_t)(b->evicted_pages - a->evicted_pages)},
        {"evicted_anchors", FIELD_INT,
         .integer = (int64_t)(b->evicted_anchors - a->evicted_anchors)},
        {"anchors", FIELD_INT, .integer = b->anchors},
        {"kv_local_bytes", FIELD_INT, .integer = (int64_t)r->memory->kv_local},
        {"kv_global_bytes", FIELD_INT, .integer = (int64_t)r->memory->kv_global},
        {"prompts_digest", FIELD_TEXT, .text = row->digests[0]},
        {"answers_digest", FIELD_TEXT, .text = row->digests[1]},
    };
    add(row, fields, sizeof fields / sizeof *fields);
}

/* Lengths of completed requests, and seconds to their first token, in the plan's order. */
static int add_lists(struct row *row, const struct load_row *r, struct carat_error *err)
{
    size_t n = (size_t)r->stats->completed;
    row->input_lens = mem_alloc(3 * n, sizeof *row->input_lens);
    if (!row->input_lens) return err_no_memory(err, "report", 3 * n * sizeof *row->input_lens);
    row->output_lens = row->input_lens + n;
    row->ttfts = row->output_lens + n;
    size_t k = 0;
    for (size_t i = 0; i < r->plan->n && k < n; i++) {
        const struct load_request *request = &r->plan->requests[i];
        const struct load_result *result = &r->run->results[i];
        bool counts = !request->is_warmup && (r->group < 0 || r->group == request->group);
        if (!counts || result->outcome != LOAD_COMPLETED) continue;
        row->input_lens[k] = result->n_prompt;
        row->output_lens[k] = result->n_out;
        row->ttfts[k++] = load_first_seconds(r->run, result);
    }
    const struct field lists[] = {
        {"input_lens", FIELD_LIST, .list = row->input_lens, .n_list = n},
        {"output_lens", FIELD_LIST, .list = row->output_lens, .n_list = n},
        {"ttfts", FIELD_LIST, .list = row->ttfts, .n_list = n},
    };
    add(row, lists, sizeof lists / sizeof *lists);
    return CARAT_OK;
}

static int make_fields(struct row *row, const struct bench_facts *facts,
                       const struct bench_setting *setting, const struct load_row *r,
                       struct carat_error *err)
{
    const struct load_stats *s = r->stats;
    row->n = bench_facts_fields(facts, setting, row->fields);
    add_traffic(row, r);
    add_counts(row, r);
    add_spread(row, "ttft", &s->ttft);
    add_spread(row, "tpot", &s->tpot);
    add_spread(row, "itl", &s->itl);
    add_spread(row, "e2el", &s->e2el);
    add_spread(row, "queue", &s->queue);
    add_spread(row, "next_turn_ttft", &s->ttft_next);
    add_run(row, r);
    return add_lists(row, r, err);
}

/* ---- For people ------------------------------------------------------------------------- */

static void add_line(struct buf *b, const char *title, const struct distribution *s)
{
    if (s->n == 0) return;
    buf_printf(b, "| %-22s | %9.2f | %9.2f | %9.2f | %9.2f | %9.2f |\n", title, s->mean, s->p50,
               s->p90, s->p99, s->most);
}

static void add_goals(struct buf *b, const struct load_row *r)
{
    const struct load_stats *s = r->stats;
    const struct load_group *g = group_of(r);
    if (!has_goals(r)) return;
    buf_printf(b, "good: %.1f %%, %.2f requests/s", share(s->good, s->completed) * 100,
               rate(s->good, s));
    if (g && g->ttft_goal > 0) buf_printf(b, "; first token in %g ms", g->ttft_goal);
    if (g && g->tpot_goal > 0) buf_printf(b, "; %g ms a token", g->tpot_goal);
    if (g && g->e2el_goal > 0) buf_printf(b, "; all in %g ms", g->e2el_goal);
    buf_add_char(b, '\n');
}

static void add_markdown(struct buf *b, const struct bench_facts *facts, const struct load_row *r)
{
    static const char dashes[] = "---------:";
    const struct load_stats *s = r->stats;
    const struct load_group *g = group_of(r);
    const char *text = g ? g->text : "together";
    buf_printf(b, "%s on %s, %d sequences of %d: %s%s%s\n\n", facts->type, facts->backend, r->n_seq,
               r->memory->n_ctx, g ? g->name : "all groups", text[0] ? ", " : "", text);
    buf_printf(b, "| %-22s | %9s | %9s | %9s | %9s | %9s |\n", "milliseconds", "mean", "p50", "p90",
               "p99", "max");
    buf_add_text(b, "| ---------------------- |");
    for (int i = 0; i < 5; i++) buf_printf(b, " %s |", dashes + 1);
    buf_add_char(b, '\n');
    add_line(b, "to the first token", &s->ttft);
    add_line(b, "the same, later turns", &s->ttft_next);
    add_line(b, "a token after it", &s->tpot);
    add_line(b, g && g->during >= 0 ? "between tokens, during" : "between tokens", &s->itl);
    add_line(b, "in the queue", &s->queue);
    add_line(b, "request, end to end", &s->e2el);
    add_line(b, "step", &s->step);
    buf_printf(
        b, "\n%d of %d requests in %.2f s: %.2f requests/s, %.1f output tokens/s, %.1f tokens/s",
        s->completed, s->requests, s->duration, rate(s->completed, s),
        rate((double)s->output_tokens, s), rate((double)(s->input_tokens + s->output_tokens), s));
    if (s->cancelled) buf_printf(b, "; %d cancelled", s->cancelled);
    if (s->expired) buf_printf(b, "; %d past their deadline", s->expired);
    if (s->failed) buf_printf(b, "; %d FAILED: %s", s->failed, r->run->failure);
    buf_printf(b, "\nprompts: %lld tokens, %.1f %% from the cache", (long long)s->input_tokens,
               share(s->cached_tokens, s->input_tokens) * 100);
    if (s->reusable_tokens > 0)
        buf_printf(b, " (%.1f %% of what repeats)",
                   share(s->cached_tokens, s->reusable_tokens) * 100);
    buf_printf(b, "; at most %d requests at once, %lld steps, %lld preemptions", s->most_at_once,
               (long long)s->step.n, (long long)s->preempted);
    const struct carat_stats *before = &r->run->before, *after = &r->run->after;
    if (after->drafted > before->drafted)
        buf_printf(b, "; %llu of %llu guesses right",
                   (unsigned long long)(after->accepted - before->accepted),
                   (unsigned long long)(after->drafted - before->drafted));
    buf_add_char(b, '\n');
    add_goals(b, r);
}

/* ---- Output ----------------------------------------------------------------------------- */

static void emit(const struct load_report *report, const struct buf *b)
{
    if (report->is_error)
        err_printf("%s", buf_text(b));
    else
        out_write(buf_text(b), b->length);
}

int load_report_add(struct load_report *report, const struct bench_facts *facts,
                    const struct bench_setting *setting, const struct load_row *r,
                    struct carat_error *err)
{
    struct buf b = {0};
    int status = CARAT_OK;
    if (strcmp(report->format, "md") == 0) {
        if (report->has_rows) buf_add_char(&b, '\n');
        add_markdown(&b, facts, r);
    } else {
        struct row row = {.n = 0};
        status = make_fields(&row, facts, setting, r, err);
        if (status == CARAT_OK)
            field_rows_add(&b, report->format, "carat_load", row.fields, row.n, !report->has_rows);
        mem_free(row.input_lens);
    }
    emit(report, &b);
    buf_deinit(&b);
    report->has_rows = true;
    return status;
}

void load_report_end(struct load_report *report, bool is_whole)
{
    struct buf b = {0};
    if (is_whole) field_rows_end(&b, report->format);
    emit(report, &b);
    buf_deinit(&b);
}
