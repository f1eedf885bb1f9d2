/* Settings of an engine that bench compares: each combination of the lists that options give. */
#ifndef CLI_BENCH_SETTING_H
#define CLI_BENCH_SETTING_H

#include "cli/bench_lists.h"
#include "cli/session.h"

struct bench_setting {
    int32_t batch, chunk, threads;
    int32_t gpu_layers;  /* -1: as many as fit */
    int32_t cpu_experts; /* layers whose experts stay on the CPU */
    const char *kv_type; /* as asked: "auto", "f16", "f32" */
};

struct bench_settings {
    struct bench_numbers batch, chunk, threads, gpu_layers, cpu_experts;
    struct bench_types kv;
    size_t n; /* combinations */
};

/* CARAT_EUSAGE names the option. */
int bench_read_settings(const struct options *o, struct bench_settings *out,
                        struct carat_error *err);

/* The i-th combination; threads change fastest. */
struct bench_setting bench_setting_at(const struct options *o, const struct bench_settings *s,
                                      size_t i);

/* Options of an engine with this setting; n_ctx and n_seq are the caller's. */
struct carat_engine_options bench_engine_options(const struct options *o,
                                                 const struct bench_setting *setting);

#endif
