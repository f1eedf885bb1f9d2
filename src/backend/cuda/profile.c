/* Events are recorded behind every launch and read after the step: steps are slower while they are
 * taken, mostly decoding ones, since launches then cannot overlap. */
#include "backend/cuda/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MARKS_MAX = 4096, ROWS_MAX = 64, ACT_KINDS = ACT_HALF + 1 };

struct row {
    char name[48];
    double seconds, bytes;
    double operations[ACT_KINDS]; /* by what they read: few rows of a step may go another way */
    int64_t count;
};

struct table {
    struct row rows[ROWS_MAX];
    int n_rows;
    int64_t steps;
    double seconds; /* wall */
};

struct profile {
    cudaEvent_t events[MARKS_MAX + 1]; /* events[i + 1] is behind what works[i] tells of */
    struct profile_work works[MARKS_MAX];
    int n_marks, n_events;
    struct table prefill, decode;
};

int profile_open(struct profile **out, struct carat_error *err)
{
    struct profile *p = *out = mem_alloc(1, sizeof *p);
    if (!p) return err_no_memory(err, "profile", sizeof *p);
    for (; p->n_events <= MARKS_MAX; p->n_events++)
        if (cudaEventCreate(&p->events[p->n_events]) != cudaSuccess) {
            profile_close(p);
            *out = NULL;
            return err_set(err, CARAT_EDEVICE, "profile: no events left");
        }
    return CARAT_OK;
}

void profile_close(struct profile *p)
{
    if (!p) return;
    for (int i = 0; i < p->n_events; i++) cudaEventDestroy(p->events[i]);
    mem_free(p);
}

void profile_begin(struct profile *p, cudaStream_t stream)
{
    p->n_marks = 0;
    cudaEventRecord(p->events[0], stream);
}

void profile_mark(struct profile *p, cudaStream_t stream, struct profile_work work)
{
    if (p->n_marks == MARKS_MAX) return;
    p->works[p->n_marks++] = work;
    cudaEventRecord(p->events[p->n_marks], stream);
}

static void name_row(const struct profile_work *work, char out[48])
{
    const struct weight *w = work->weight;
    if (!w)
        snprintf(out, 48, "%s", work->kind);
    else
        snprintf(out, 48, "%s %lld x %lld %s", work->kind, (long long)w->rows, (long long)w->cols,
                 format_of(w->format)->name);
}

static struct row *row_of(struct table *t, const struct profile_work *work)
{
    char name[48];
    name_row(work, name);
    for (int i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].name, name) == 0) return &t->rows[i];
    if (t->n_rows == ROWS_MAX) return &t->rows[ROWS_MAX - 1];
    struct row *row = &t->rows[t->n_rows++];
    memcpy(row->name, name, sizeof name);
    return row;
}

void profile_end(struct profile *p, bool is_decode, double seconds)
{
    struct table *t = is_decode ? &p->decode : &p->prefill;
    for (int i = 0; i < p->n_marks; i++) {
        float ms = 0;
        cudaEventElapsedTime(&ms, p->events[i], p->events[i + 1]);
        struct row *row = row_of(t, &p->works[i]);
        row->seconds += (double)ms / 1e3;
        row->bytes += p->works[i].bytes;
        row->operations[p->works[i].operands] += p->works[i].operations;
        row->count++;
    }
    t->seconds += seconds;
    t->steps++;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct row *)a)->seconds, y = ((const struct row *)b)->seconds;
    return (x < y) - (x > y);
}

static double seconds_at(double amount, double rate)
{
    return rate > 0 ? amount / rate : 0;
}

/* The larger of two shares of what the device can do: of the bytes that it reads, of the operations
 * on what these products read. */
static double share_of_limit(const struct row *r, const struct device_limits *limits)
{
    double read = seconds_at(r->bytes, limits->read_bytes);
    double computed = seconds_at(r->operations[ACT_INT8], limits->int8_operations) +
                      seconds_at(r->operations[ACT_HALF], limits->fp16_operations);
    return 100 * (read > computed ? read : computed) / r->seconds;
}

static void print_row(const struct row *r, double steps, double seconds,
                      const struct device_limits *limits, struct buf *out)
{
    double operations = 0;
    for (int i = 0; i < ACT_KINDS; i++) operations += r->operations[i];
    buf_printf(out, "%-40s %9.1f %8.3f %6.1f%%", r->name, (double)r->count / steps,
               r->seconds / steps * 1e3, 100 * r->seconds / seconds);
    if (r->bytes > 0)
        buf_printf(out, " %8.0f %8.1f %6.0f%%", r->bytes / r->seconds / 1e9,
                   operations / r->seconds / 1e12, share_of_limit(r, limits));
    buf_add_char(out, '\n');
}

static void print_table(const struct table *table, const char *title,
                        const struct device_limits *limits, struct buf *out)
{
    struct table t = *table;
    double steps = (double)t.steps, device = 0;
    if (t.steps == 0) return;
    qsort(t.rows, (size_t)t.n_rows, sizeof *t.rows, by_time);
    buf_printf(out, "%s: %lld steps, %.3f ms each\n", title, (long long)t.steps,
               t.seconds / steps * 1e3);
    buf_printf(out, "%-40s %9s %8s %7s %8s %8s %7s\n", "", "launches", "ms", "share", "GB/s",
               "TFLOP/s", "limit");
    for (int i = 0; i < t.n_rows; i++) {
        device += t.rows[i].seconds;
        print_row(&t.rows[i], steps, t.seconds, limits, out);
    }
    buf_printf(out, "%-40s %9s %8.3f %6.1f%%\n", "host, gaps between steps", "",
               (t.seconds - device) / steps * 1e3, 100 * (t.seconds - device) / t.seconds);
}

void profile_print(const struct profile *p, const struct device_limits *limits, struct buf *out)
{
    buf_printf(out,
               "limits measured: %.0f GB/s read, %.0f TOP/s in 8 bits, %.0f TFLOP/s in fp16\n",
               limits->read_bytes / 1e9, limits->int8_operations / 1e12,
               limits->fp16_operations / 1e12);
    print_table(&p->prefill, "prefill", limits, out);
    print_table(&p->decode, "decode", limits, out);
}
