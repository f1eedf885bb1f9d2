/* Rows of `carat bench` as Markdown, CSV, JSON, JSON lines or SQL. */
#ifndef CLI_BENCH_OUTPUT_H
#define CLI_BENCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "carat.h"

enum { SAMPLES_MAX = 1000 };

struct bench_test {
    int32_t n_prompt, n_gen, depth, users, chunk, threads;
    const char *kv_type; /* as asked: "auto", "f16", "f32" */
    char test_time[32];  /* UTC, ISO 8601 */
    int n_samples;
    int64_t samples_ns[SAMPLES_MAX];
    struct carat_work work;      /* of one run, at least */
    struct carat_roofline limit; /* what the device can do; zero without --roofline */
};

struct bench_facts { /* the same in every row */
    const struct carat_model_info *info;
    const char *path, *backend;
    bool is_exact; /* --precision fp32 */
    char cpu[128], gpu[96]; /* gpu "": none computes */
    int32_t n_gpu_layers;   /* layers on it */
};

struct bench_output {
    const char *format;
    const struct bench_facts *facts;
    bool has_rows;
    struct buf roofline; /* rows of the second table of Markdown */
};

/* "pp512", "tg128", "pp512+tg128", with " @ d4096" behind a context. */
void bench_test_name(const struct bench_test *t, char *out, size_t size);

void bench_output_begin(struct bench_output *out, const char *format,
                        const struct bench_facts *facts);
void bench_output_add(struct bench_output *out, const struct bench_test *t);
void bench_output_end(struct bench_output *out);

#endif
