/* One list of fields gives every format but Markdown: llama-bench's in its order, then ours. */
#include "cli/bench_output.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/field_rows.h"
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

enum { FIELDS = 56 };

static bool has_roofline(const struct bench_test *t)
{
    return t->limit.int8_operations > 0;
}

/* A GPU computes prompts in fp16 or in 8 bits (--matmul), a CPU with AMX in bf16, and decodes in 8
 * bits: then both shares are shown. */
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

static size_t add_roofline_fields(struct field *out, const struct bench_test *t,
                                  const struct samples *s)
{
    struct shares share = shares_of(t, s);
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
    memcpy(out, roofline, sizeof roofline);
    return sizeof roofline / sizeof *roofline;
}

static size_t make_fields(const struct bench_facts *facts, const struct bench_test *t,
                          const struct samples *s, struct field out[FIELDS])
{
    const struct field fields[] = {
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
    const struct field lists[] = {
        {"samples_ns", FIELD_LIST, .list = s->ns, .n_list = (size_t)t->n_samples},
        {"samples_ts", FIELD_LIST, .list = s->ts, .n_list = (size_t)t->n_samples},
    };
    size_t n = bench_facts_fields(facts, &t->setting, out);
    memcpy(out + n, fields, sizeof fields);
    n += sizeof fields / sizeof *fields;
    if (has_roofline(t)) n += add_roofline_fields(out + n, t, s);
    memcpy(out + n, lists, sizeof lists);
    return n + sizeof lists / sizeof *lists;
}

static const struct {
    const char *title;
    int width;
} columns[BENCH_COLUMNS] = {
    [BENCH_COLUMN_LAYERS] = {"ngl", 4},      [BENCH_COLUMN_EXPERTS] = {"n_cpu_moe", 9},
    [BENCH_COLUMN_THREADS] = {"threads", 7}, [BENCH_COLUMN_BATCH] = {"n_batch", 7},
    [BENCH_COLUMN_CHUNK] = {"n_ubatch", 8},  [BENCH_COLUMN_KV] = {"type_kv", 7},
    [BENCH_COLUMN_USERS] = {"n_users", 7},
};

static int32_t column_number(const struct bench_test *t, enum bench_column column)
{
    switch (column) {
    case BENCH_COLUMN_LAYERS: return t->setting.gpu_layers;
    case BENCH_COLUMN_EXPERTS: return t->setting.cpu_experts;
    case BENCH_COLUMN_THREADS: return t->setting.threads;
    case BENCH_COLUMN_BATCH: return t->setting.batch;
    case BENCH_COLUMN_CHUNK: return t->setting.chunk;
    case BENCH_COLUMN_USERS: return t->users;
    default: return 0;
    }
}

void bench_columns_choose(struct bench_columns *c, const struct bench_test *tests, size_t n)
{
    *c = (struct bench_columns){0};
    for (size_t i = 1; i < n; i++)
        for (int k = 0; k < BENCH_COLUMNS; k++) {
            enum bench_column column = (enum bench_column)k;
            bool differs = column_number(&tests[i], column) != column_number(&tests[0], column);
            if (column == BENCH_COLUMN_KV)
                differs = strcmp(tests[i].setting.kv_type, tests[0].setting.kv_type) != 0;
            c->has[k] = c->has[k] || differs;
        }
}

static void add_markdown_head(struct buf *b, const struct bench_columns *c)
{
    static const char dashes[] = "------------------------------:";
    buf_printf(b, "| %-30s | %10s | %10s | %-8s |", "model", "size", "params", "backend");
    for (int k = 0; k < BENCH_COLUMNS; k++)
        if (c->has[k]) buf_printf(b, " %*s |", columns[k].width, columns[k].title);
    buf_printf(b, " %16s | %20s |\n", "test", "t/s");
    buf_printf(b, "| %.30s | %s | %s | %.8s |", dashes, dashes + 21, dashes + 21, dashes);
    for (int k = 0; k < BENCH_COLUMNS; k++)
        if (c->has[k]) buf_printf(b, " %s |", dashes + 31 - columns[k].width);
    buf_printf(b, " %s | %s |\n", dashes + 15, dashes + 11);
}

static void add_markdown(struct buf *b, const struct bench_output *out,
                         const struct bench_facts *facts, const struct bench_test *t,
                         const struct samples *s)
{
    char name[64], rate[64], size[32], params[32];
    double mib = (double)facts->info->file_bytes / (1 << 20);
    double millions = (double)facts->info->n_params / 1e6;
    bench_test_name(t, name, sizeof name);
    snprintf(rate, sizeof rate, "%.2f \xC2\xB1 %.2f", s->rate.mean, s->rate.deviation);
    snprintf(size, sizeof size, "%.2f %s", mib < 1024 ? mib : mib / 1024,
             mib < 1024 ? "MiB" : "GiB");
    snprintf(params, sizeof params, "%.2f %s", millions < 1000 ? millions : millions / 1000,
             millions < 1000 ? "M" : "B");
    if (!out->has_rows) add_markdown_head(b, &out->columns);
    buf_printf(b, "| %-30s | %10s | %10s | %-8s |", facts->type, size, params, facts->backend);
    for (int k = 0; k < BENCH_COLUMNS; k++) {
        if (!out->columns.has[k]) continue;
        if (k == BENCH_COLUMN_KV)
            buf_printf(b, " %*s |", columns[k].width, bench_kv_type(facts, &t->setting));
        else
            buf_printf(b, " %*d |", columns[k].width,
                       k == BENCH_COLUMN_LAYERS ? facts->n_gpu_layers
                                                : column_number(t, (enum bench_column)k));
    }
    buf_printf(b, " %16s | %*s |\n", name, 21, rate); /* the sign is two bytes wide */
}

static void add_roofline_head(struct buf *b, const struct bench_facts *facts,
                              const struct bench_test *t)
{
    const char *half = strcmp(facts->backend, "cpu") == 0 ? "bf16" : "fp16";
    buf_printf(b, "\nlimits measured in this run: %.1f GB/s read, %.0f GOP/s in 8 bits",
               t->limit.read_bytes / 1e9, t->limit.int8_operations / 1e9);
    if (has_fp16(t)) buf_printf(b, ", %.0f GOP/s in %s", t->limit.fp16_operations / 1e9, half);
    buf_printf(b, "\n\n| %16s | %8s | %7s | %8s | %7s |", "test", "GB/s", "of read", "GOP/s",
               "of int8");
    if (has_fp16(t)) buf_printf(b, " of %s |", half);
    buf_printf(b, "\n| ---------------: | -------: | ------: | -------: | ------: |%s\n",
               has_fp16(t) ? " ------: |" : "");
}

/* A second table after the first: how near each test came to the device's limits. */
static void note_roofline(struct bench_output *out, const struct bench_facts *facts,
                          const struct bench_test *t, const struct samples *s)
{
    struct shares r = shares_of(t, s);
    struct buf *b = &out->roofline;
    char name[64];
    bench_test_name(t, name, sizeof name);
    if (!has_roofline(t)) return;
    if (b->length == 0) add_roofline_head(b, facts, t);
    buf_printf(b, "| %16s | %8.1f | %6.1f%% | %8.1f | %6.1f%% |", name, r.read_rate / 1e9,
               r.read_share * 100, r.operation_rate / 1e9, r.int8_share * 100);
    if (has_fp16(t)) buf_printf(b, " %6.1f%% |", r.fp16_share * 100);
    buf_add_char(b, '\n');
}

static void emit(const struct bench_output *out, const struct buf *b)
{
    if (out->is_error)
        err_printf("%s", buf_text(b));
    else
        out_write(buf_text(b), b->length);
}

void bench_output_begin(struct bench_output *out, const char *format, bool is_error,
                        const struct bench_columns *chosen)
{
    *out = (struct bench_output){.format = format, .is_error = is_error, .columns = *chosen};
}

void bench_output_add(struct bench_output *out, const struct bench_facts *facts,
                      const struct bench_test *t)
{
    struct samples s;
    struct field fields[FIELDS];
    struct buf b = {0};
    take_samples(t, &s);
    size_t n = make_fields(facts, t, &s, fields);
    if (strcmp(out->format, "md") == 0) {
        add_markdown(&b, out, facts, t, &s);
        note_roofline(out, facts, t, &s);
    } else {
        field_rows_add(&b, out->format, "llama_bench", fields, n, !out->has_rows);
    }
    emit(out, &b);
    buf_deinit(&b);
    out->has_rows = true;
}

void bench_output_end(struct bench_output *out, bool is_whole)
{
    struct buf b = {0};
    if (is_whole) field_rows_end(&b, out->format);
    buf_add_text(&b, buf_text(&out->roofline));
    if (is_whole && strcmp(out->format, "md") == 0)
        buf_printf(&b, "\nbuild: %s (%d)\n", version_commit(), version_build_number());
    emit(out, &b);
    buf_deinit(&b);
    buf_deinit(&out->roofline);
}
