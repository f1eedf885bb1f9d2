/* Rows of `carat bench` as Markdown, CSV, JSON, JSON lines or SQL. */
#ifndef CLI_BENCH_OUTPUT_H
#define CLI_BENCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "carat_inspect.h"
#include "cli/bench_facts.h"

enum { SAMPLES_MAX = 1000 };

struct bench_test {
    int32_t n_prompt, n_gen, depth, users;
    struct bench_setting setting;
    char test_time[CALENDAR_TEXT]; /* calendar_utc */
    int n_samples;
    int64_t samples_ns[SAMPLES_MAX];
    struct carat_work work;      /* of one run, at least */
    struct carat_roofline limit; /* what the device can do; zero if not measured */
};

/* Settings that the Markdown table can show: those that differ between rows or were given. */
enum bench_column {
    BENCH_COLUMN_LAYERS,
    BENCH_COLUMN_EXPERTS,
    BENCH_COLUMN_THREADS,
    BENCH_COLUMN_BATCH,
    BENCH_COLUMN_CHUNK,
    BENCH_COLUMN_KV,
    BENCH_COLUMN_USERS,
    BENCH_COLUMNS
};
struct bench_columns {
    bool has[BENCH_COLUMNS];
};
void bench_columns_choose(struct bench_columns *c, const struct bench_test *tests, size_t n);

struct bench_output {
    const char *format;
    bool is_error; /* goes to standard error */
    struct bench_columns columns;
    bool has_rows;
    struct buf roofline; /* rows of the second table of Markdown */
};

/* "pp512", "tg128", "pp512+tg128", with " @ d4096" after a context. */
void bench_test_name(const struct bench_test *t, char *out, size_t size);

void bench_output_begin(struct bench_output *out, const char *format, bool is_error,
                        const struct bench_columns *columns);
void bench_output_add(struct bench_output *out, const struct bench_facts *facts,
                      const struct bench_test *t);
void bench_output_end(struct bench_output *out, bool is_whole); /* false: after a failure */

#endif
