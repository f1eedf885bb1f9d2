#include "backend/time_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void name_row(const struct time_work *work, char out[48])
{
    const struct weight *w = work->weight;
    if (!w)
        snprintf(out, 48, "%s", work->kind);
    else
        snprintf(out, 48, "%s %lld x %lld %s", work->kind, (long long)w->rows, (long long)w->cols,
                 format_traits(w->format)->name);
}

static struct time_row *find_row(struct time_table *t, const struct time_work *work)
{
    char name[48];
    name_row(work, name);
    for (int i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].name, name) == 0) return &t->rows[i];
    if (t->n_rows == TIME_ROWS_MAX) return &t->rows[TIME_ROWS_MAX - 1];
    struct time_row *row = &t->rows[t->n_rows++];
    snprintf(row->name, sizeof row->name, "%s",
             t->n_rows == TIME_ROWS_MAX ? "everything else" : name);
    return row;
}

void time_table_add(struct time_table *t, const struct time_work *work, double seconds)
{
    struct time_row *row = find_row(t, work);
    row->seconds += seconds;
    row->bytes += work->bytes;
    row->int8_operations += work->int8_operations;
    row->fp16_operations += work->fp16_operations;
    row->code_operations += work->code_operations;
    row->count++;
}

struct time_work time_work_for_weights(const char *kind, int32_t n_w, const struct weight *const *w,
                                       int32_t n_rows, bool is_int8, bool is_fp16)
{
    struct time_work work = {.kind = kind, .weight = w[0]};
    double operations = 0;
    for (int32_t k = 0; k < n_w; k++) {
        double matrices = n_rows < w[k]->n_expert ? n_rows : w[k]->n_expert;
        work.bytes += matrices * (double)w[k]->rows * (double)w[k]->row_bytes;
        operations += 2.0 * (double)n_rows * (double)w[k]->rows * (double)w[k]->cols;
    }
    if (is_fp16)
        work.fp16_operations = operations;
    else if (is_int8)
        work.int8_operations = operations;
    return work;
}

void time_table_end_step(struct time_table *t, double seconds)
{
    t->seconds += seconds;
    t->steps++;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct time_row *)a)->seconds, y = ((const struct time_row *)b)->seconds;
    return (x < y) - (x > y);
}

static double seconds_at(double amount, double rate)
{
    return rate > 0 ? amount / rate : 0;
}

/* The larger of two shares of the device's limits: bytes read, and operations. */
static double share_of_limit(const struct time_row *r, const struct device_limits *limits)
{
    double read = seconds_at(r->bytes, limits->read_bytes);
    double computed = seconds_at(r->int8_operations, limits->int8_operations) +
                      seconds_at(r->fp16_operations, limits->fp16_operations) +
                      seconds_at(r->code_operations, limits->code_operations);
    return 100 * (read > computed ? read : computed) / r->seconds;
}

static void print_row(const struct time_row *r, double steps, double seconds,
                      const struct device_limits *limits, struct buf *out)
{
    double operations = r->int8_operations + r->fp16_operations + r->code_operations;
    buf_printf(out, "%-40s %9.1f %8.3f %6.1f%%", r->name, (double)r->count / steps,
               r->seconds / steps * 1e3, 100 * r->seconds / seconds);
    if (r->bytes > 0)
        buf_printf(out, " %8.4g %8.4g %6.0f%%", r->bytes / r->seconds / 1e9,
                   operations / r->seconds / 1e12, share_of_limit(r, limits));
    buf_add_char(out, '\n');
}

static void print_table(const struct time_table *table, const char *title,
                        const struct device_limits *limits, struct buf *out)
{
    struct time_table t = *table;
    double steps = (double)t.steps, told = 0;
    if (t.steps == 0) return;
    qsort(t.rows, (size_t)t.n_rows, sizeof *t.rows, by_time);
    buf_printf(out, "%s: %lld steps, %.3f ms each\n", title, (long long)t.steps,
               t.seconds / steps * 1e3);
    buf_printf(out, "%-40s %9s %8s %7s %8s %8s %7s\n", "", "times", "ms", "share", "GB/s", "TOP/s",
               "limit");
    for (int i = 0; i < t.n_rows; i++) {
        told += t.rows[i].seconds;
        print_row(&t.rows[i], steps, t.seconds, limits, out);
    }
    buf_printf(out, "%-40s %9s %8.3f %6.1f%%\n", "host, gaps between steps", "",
               (t.seconds - told) / steps * 1e3, 100 * (t.seconds - told) / t.seconds);
}

static void print_limits(const struct device_limits *limits, struct buf *out)
{
    buf_printf(out, "limits measured: %.4g GB/s read, %.4g TOP/s in 8 bits",
               limits->read_bytes / 1e9, limits->int8_operations / 1e12);
    if (limits->code_operations > 0)
        buf_printf(out, ", %.4g by codes of up to 6 bits", limits->code_operations / 1e12);
    if (limits->fp16_operations > 0)
        buf_printf(out, ", %.4g TFLOP/s in 16 bits", limits->fp16_operations / 1e12);
    buf_add_char(out, '\n');
}

void time_tables_print(const struct time_tables *t, const struct device_limits *limits,
                       struct buf *out)
{
    print_limits(limits, out);
    print_table(&t->prefill, "prefill", limits, out);
    print_table(&t->decode, "decode", limits, out);
}
