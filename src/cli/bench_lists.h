/* Lists of numbers and of cache types, as llama-bench takes them: "128,256", "128-512+128". */
#ifndef CLI_BENCH_LISTS_H
#define CLI_BENCH_LISTS_H

#include "cli/options.h"

enum { BENCH_VALUES_MAX = 64 };

struct bench_numbers {
    int32_t at[BENCH_VALUES_MAX];
    size_t n;
};

struct bench_types {
    const char *at[BENCH_VALUES_MAX]; /* "auto", "f16", ... */
    size_t n;
};

/* The values of a LIST option, or its default. CARAT_EUSAGE shows the forms of a list. */
int bench_read_numbers(const struct options *o, enum option_id id, struct bench_numbers *out,
                       struct carat_error *err);

/* A number from 0 to COUNT_MAX, perhaps with k, m or g, at *at, which is left after it. */
bool bench_read_count(const char **at, int64_t *out);

/* --kv-type, or the lists of key types and value types, which must all be one type. */
int bench_read_types(const struct options *o, struct bench_types *out, struct carat_error *err);

#endif
