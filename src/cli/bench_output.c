/* One list of fields makes every format but Markdown, in llama-bench's order, ours at the end. */
#include "cli/bench_output.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "cli/terminal.h"
#include "cli/version.h"

void bench_test_name(const struct bench_test *t, char *out, size_t size)
{
    char name[48], depth[24] = "";
    if (t->n_prompt && t->n_gen)
        snprintf(name, sizeof name, "pp%d+tg%d", t->n_prompt, t->n_gen);
    else
        snprintf(name, sizeof name, "%s%d", t->n_prompt ? "pp" : "tg",
                 t->n_prompt ? t->n_prompt : t->n_gen);
    if (t->depth) snprintf(depth, sizeof depth, " @ d%d", t->depth);
    snprintf(out, size, "%s%s", name, depth);
}

/* ---- Statistics ------------------------------------------------------------------------- */

struct spread {
    double mean, deviation;
};

static struct spread spread_of(const double *x, int n)
{
    struct spread s = {0};
    for (int i = 0; i < n; i++) s.mean += x[i] / n;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (x[i] - s.mean) * (x[i] - s.mean);
    s.deviation = n > 1 ? sqrt(sum / (n - 1)) : 0;
    return s;
}

struct samples {
    double ns[SAMPLES_MAX], ts[SAMPLES_MAX]; /* nanoseconds, tokens a second */
    struct spread time, rate;
};

static void take_samples(const struct bench_test *t, struct samples *s)
{
    double tokens = (double)(t->n_prompt + t->n_gen) * t->users;
    for (int i = 0; i < t->n_samples; i++) {
        s->ns[i] = (double)t->samples_ns[i];
        s->ts[i] = s->ns[i] > 0 ? tokens * 1e9 / s->ns[i] : 0;
    }
    s->time = spread_of(s->ns, t->n_samples);
    s->rate = spread_of(s->ts, t->n_samples);
}

/* ---- Fields ----------------------------------------------------------------------------- */

enum field_kind { FIELD_TEXT, FIELD_INT, FIELD_REAL, FIELD_LIST };

struct field {
    const char *key;
    enum field_kind kind;
    const char *text;
    int64_t integer;
    double real;
    const double *list;
};

enum { FIELDS = 40 };

static bool has_roofline(const struct bench_test *t)
{
    return t->limit.int8_operations > 0;
}

/* A GPU reads prompts with products in fp16 or in 8 bits (--matmul): then both shares are told. */
static bool has_fp16(const struct bench_test *t)
{
    return t->limit.fp16_operations > 0;
}

/* Rates of a test and their share of what the device can do. */
struct shares {
    double read_rate, read_share, operation_rate, int8_share, fp16_share;
};

static struct shares shares_of(const struct bench_test *t, const struct samples *s)
{
    double seconds = s->time.mean / 1e9;
    struct shares r = {.read_rate = t->work.bytes / seconds,
                       .operation_rate = t->work.operations / seconds};
    if (t->limit.read_bytes > 0) r.read_share = r.read_rate / t->limit.read_bytes;
    if (has_roofline(t)) r.int8_share = r.operation_rate / t->limit.int8_operations;
    if (has_fp16(t)) r.fp16_share = r.operation_rate / t->limit.fp16_operations;
    return r;
}

static const char *kv_type(const struct bench_facts *facts, const struct bench_test *t)
{
    if (strcmp(t->kv_type, "auto") != 0) return t->kv_type;
    return facts->is_exact || strcmp(facts->backend, "ref") == 0 ? "f32" : "f16";
}

static void model_type(const struct carat_model_info *info, char *out, size_t size)
{
    snprintf(out, size, "gemma4 %s", info->variant);
}

static size_t make_fields(const struct bench_facts *facts, const struct bench_test *t,
                          const struct samples *s, const char *type, struct field out[FIELDS])
{
    const struct carat_model_info *info = facts->info;
    struct shares share = shares_of(t, s);
    const struct field fields[] = {
        {"build_commit", FIELD_TEXT, .text = version_commit()},
        {"build_number", FIELD_INT, .integer = version_build_number()},
        {"cpu_info", FIELD_TEXT, .text = facts->cpu},
        {"gpu_info", FIELD_TEXT, .text = facts->gpu},
        {"backends", FIELD_TEXT, .text = facts->backend},
        {"model_filename", FIELD_TEXT, .text = facts->path},
        {"model_type", FIELD_TEXT, .text = type},
        {"model_size", FIELD_INT, .integer = (int64_t)info->file_bytes},
        {"model_n_params", FIELD_INT, .integer = info->n_params},
        {"n_batch", FIELD_INT, .integer = t->chunk},
        {"n_ubatch", FIELD_INT, .integer = t->chunk},
        {"n_threads", FIELD_INT, .integer = t->threads},
        {"type_k", FIELD_TEXT, .text = kv_type(facts, t)},
        {"type_v", FIELD_TEXT, .text = kv_type(facts, t)},
        {"n_gpu_layers", FIELD_INT, .integer = facts->n_gpu_layers},
        {"n_prompt", FIELD_INT, .integer = t->n_prompt},
        {"n_gen", FIELD_INT, .integer = t->n_gen},
        {"n_depth", FIELD_INT, .integer = t->depth},
        {"test_time", FIELD_TEXT, .text = t->test_time},
        {"avg_ns", FIELD_INT, .integer = (int64_t)s->time.mean},
        {"stddev_ns", FIELD_INT, .integer = (int64_t)s->time.deviation},
        {"avg_ts", FIELD_REAL, .real = s->rate.mean},
        {"stddev_ts", FIELD_REAL, .real = s->rate.deviation},
        {"n_users", FIELD_INT, .integer = t->users},
        {"work_bytes", FIELD_INT, .integer = (int64_t)t->work.bytes},
        {"work_operations", FIELD_INT, .integer = (int64_t)t->work.operations},
    };
    const struct field roofline[] = {
        {"read_limit_gbs", FIELD_REAL, .real = t->limit.read_bytes / 1e9},
        {"read_gbs", FIELD_REAL, .real = share.read_rate / 1e9},
        {"read_share", FIELD_REAL, .real = share.read_share},
        {"int8_limit_gops", FIELD_REAL, .real = t->limit.int8_operations / 1e9},
        {"gops", FIELD_REAL, .real = share.operation_rate / 1e9},
        {"int8_share", FIELD_REAL, .real = share.int8_share},
        {"fp16_limit_gops", FIELD_REAL, .real = t->limit.fp16_operations / 1e9},
        {"fp16_share", FIELD_REAL, .real = share.fp16_share},
    };
    const struct field lists[] = {
        {"samples_ns", FIELD_LIST, .list = s->ns},
        {"samples_ts", FIELD_LIST, .list = s->ts},
    };
    size_t n = sizeof fields / sizeof *fields;
    memcpy(out, fields, sizeof fields);
    if (has_roofline(t)) {
        memcpy(out + n, roofline, sizeof roofline);
        n += sizeof roofline / sizeof *roofline;
    }
    memcpy(out + n, lists, sizeof lists);
    return n + sizeof lists / sizeof *lists;
}

/* CSV and SQL have no lists: they get every field but the samples. */
static size_t flat_count(const struct field *fields, size_t n)
{
    while (n > 0 && fields[n - 1].kind == FIELD_LIST) n--;
    return n;
}

/* ---- Formats ---------------------------------------------------------------------------- */

static void add_quoted(struct buf *b, const char *text, char quote)
{
    buf_add_char(b, quote);
    for (; *text; text++) {
        if (*text == quote) buf_add_char(b, quote);
        buf_add_char(b, *text);
    }
    buf_add_char(b, quote);
}

static void add_flat(struct buf *b, const struct field *f, char quote)
{
    if (f->kind == FIELD_TEXT)
        add_quoted(b, f->text, quote);
    else if (f->kind == FIELD_INT)
        buf_printf(b, "%lld", (long long)f->integer);
    else
        buf_printf(b, "%.6f", f->real);
}

static void add_flat_row(struct buf *b, const struct field *fields, size_t n, char quote,
                         const char *between)
{
    for (size_t i = 0; i < n; i++) {
        if (i) buf_add_text(b, between);
        add_flat(b, &fields[i], quote);
    }
}

static void add_csv(struct buf *b, const struct field *fields, size_t n, bool is_first)
{
    for (size_t i = 0; is_first && i < n; i++)
        buf_printf(b, "%s%s", fields[i].key, i + 1 < n ? "," : "\n");
    add_flat_row(b, fields, n, '"', ",");
    buf_add_char(b, '\n');
}

static void add_sql(struct buf *b, const struct field *fields, size_t n, bool is_first)
{
    if (is_first) {
        buf_add_text(b, "CREATE TABLE IF NOT EXISTS llama_bench (\n");
        for (size_t i = 0; i < n; i++)
            buf_printf(b, "  %s %s%s\n", fields[i].key,
                       fields[i].kind == FIELD_TEXT  ? "TEXT"
                       : fields[i].kind == FIELD_INT ? "INTEGER"
                                                     : "REAL",
                       i + 1 < n ? "," : "");
        buf_add_text(b, ");\n\n");
    }
    buf_add_text(b, "INSERT INTO llama_bench (");
    for (size_t i = 0; i < n; i++) buf_printf(b, "%s%s", i ? ", " : "", fields[i].key);
    buf_add_text(b, ") VALUES (");
    add_flat_row(b, fields, n, '\'', ", ");
    buf_add_text(b, ");\n");
}

static void add_json(struct buf *b, const struct field *fields, size_t n, int n_samples)
{
    struct json j = {.out = b};
    json_begin_object(&j);
    for (size_t i = 0; i < n; i++) {
        const struct field *f = &fields[i];
        json_key(&j, f->key);
        switch (f->kind) {
        case FIELD_TEXT: json_put_string(&j, f->text); break;
        case FIELD_INT: json_int(&j, f->integer); break;
        case FIELD_REAL: json_double(&j, f->real); break;
        case FIELD_LIST:
            json_begin_array(&j);
            for (int k = 0; k < n_samples; k++) json_double(&j, f->list[k]);
            json_end_array(&j);
            break;
        }
    }
    json_end_object(&j);
}

static void add_markdown(struct buf *b, const struct bench_output *out, const struct bench_test *t,
                         const struct samples *s, const char *type)
{
    char name[64], rate[64];
    bench_test_name(t, name, sizeof name);
    snprintf(rate, sizeof rate, "%.2f \xC2\xB1 %.2f", s->rate.mean, s->rate.deviation);
    if (!out->has_rows)
        buf_printf(b,
                   "| %-20s | %10s | %10s | %-8s | %7s | %5s | %5s | %16s | %20s |\n"
                   "| -------------------- | ---------: | ---------: | -------- | ------: | "
                   "----: | ----: | ---------------: | -------------------: |\n",
                   "model", "size", "params", "backend", "threads", "chunk", "users", "test",
                   "t/s");
    buf_printf(b, "| %-20s | %6.2f MiB | %8.2f M | %-8s | %7d | %5d | %5d | %16s | %*s |\n", type,
               (double)out->facts->info->file_bytes / (1 << 20),
               (double)out->facts->info->n_params / 1e6, out->facts->backend, t->threads, t->chunk,
               t->users, name, 21, rate); /* the sign is two bytes wide */
}

static void add_roofline_head(struct buf *b, const struct bench_test *t)
{
    buf_printf(b, "\nlimits measured in this run: %.1f GB/s read, %.0f GOP/s in 8 bits",
               t->limit.read_bytes / 1e9, t->limit.int8_operations / 1e9);
    if (has_fp16(t)) buf_printf(b, ", %.0f GOP/s in fp16", t->limit.fp16_operations / 1e9);
    buf_printf(b, "\n\n| %16s | %8s | %7s | %8s | %7s |%s\n", "test", "GB/s", "of read", "GOP/s",
               "of int8", has_fp16(t) ? " of fp16 |" : "");
    buf_printf(b, "| ---------------: | -------: | ------: | -------: | ------: |%s\n",
               has_fp16(t) ? " ------: |" : "");
}

/* A second table behind the first: how near each test came to the device's limits. */
static void note_roofline(struct bench_output *out, const struct bench_test *t,
                          const struct samples *s)
{
    struct shares r = shares_of(t, s);
    struct buf *b = &out->roofline;
    char name[64];
    bench_test_name(t, name, sizeof name);
    if (!has_roofline(t)) return;
    if (b->length == 0) add_roofline_head(b, t);
    buf_printf(b, "| %16s | %8.1f | %6.1f%% | %8.1f | %6.1f%% |", name, r.read_rate / 1e9,
               r.read_share * 100, r.operation_rate / 1e9, r.int8_share * 100);
    if (has_fp16(t)) buf_printf(b, " %6.1f%% |", r.fp16_share * 100);
    buf_add_char(b, '\n');
}

void bench_output_begin(struct bench_output *out, const char *format,
                        const struct bench_facts *facts)
{
    *out = (struct bench_output){.format = format, .facts = facts};
    if (strcmp(format, "json") == 0) out_text("[\n");
}

void bench_output_add(struct bench_output *out, const struct bench_test *t)
{
    struct samples s;
    struct field fields[FIELDS];
    char type[64];
    struct buf b = {0};
    take_samples(t, &s);
    model_type(out->facts->info, type, sizeof type);
    size_t n = make_fields(out->facts, t, &s, type, fields);
    if (strcmp(out->format, "csv") == 0) {
        add_csv(&b, fields, flat_count(fields, n), !out->has_rows);
    } else if (strcmp(out->format, "sql") == 0) {
        add_sql(&b, fields, flat_count(fields, n), !out->has_rows);
    } else if (strcmp(out->format, "md") == 0) {
        add_markdown(&b, out, t, &s, type);
        note_roofline(out, t, &s);
    } else {
        bool is_array = strcmp(out->format, "json") == 0;
        if (is_array && out->has_rows) buf_add_text(&b, ",\n");
        add_json(&b, fields, n, t->n_samples);
        if (!is_array) buf_add_char(&b, '\n');
    }
    out_write(buf_text(&b), b.length);
    buf_deinit(&b);
    out->has_rows = true;
}

void bench_output_end(struct bench_output *out)
{
    if (strcmp(out->format, "json") == 0) out_text("\n]\n");
    out_text(buf_text(&out->roofline));
    buf_deinit(&out->roofline);
    if (strcmp(out->format, "md") == 0)
        out_printf("\nbuild: %s (%d)\n", version_commit(), version_build_number());
}
